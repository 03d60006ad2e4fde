//! The roles of operands in products.

use serde::{Deserialize, Serialize};

/// The role of an operand in a product, which selects the field of its format.
///
/// A convolution or transposed convolution has the roles of the linear layer. If one operand of a matmul is a weight,
/// it takes [`W`](Self::W) and [`WBp`](Self::WBp) in place of [`A`](Self::A) and [`ABp`](Self::ABp). Blocks run along
/// the summed axis of the product.
///
/// In JSON a slot is its field's name without `_elem_format`: `a_bp_ex`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slot {
    /// `w_elem_format`: w in y = x·w.
    W,
    /// `a_elem_format`: x in y = x·w; a and b in y = a·b.
    A,
    /// `w_elem_format_bp`: w in dx = g·wᵀ.
    WBp,
    /// `a_elem_format_bp`: x in dw = xᵀ·g; a and b in db = aᵀ·g and da = g·bᵀ.
    ABp,
    /// `a_elem_format_bp_ex`: g in dw = xᵀ·g.
    ABpEx,
    /// `a_elem_format_bp_os`: g in dx = g·wᵀ, da = g·bᵀ and db = aᵀ·g.
    ABpOs,
}

impl Slot {
    /// Every slot.
    pub const ALL: [Self; 6] = [
        Self::W,
        Self::A,
        Self::WBp,
        Self::ABp,
        Self::ABpEx,
        Self::ABpOs,
    ];

    /// The field of [`MxSpecs`](crate::specs::MxSpecs) that this slot reads.
    pub fn field(self) -> &'static str {
        match self {
            Self::W => "w_elem_format",
            Self::A => "a_elem_format",
            Self::WBp => "w_elem_format_bp",
            Self::ABp => "a_elem_format_bp",
            Self::ABpEx => "a_elem_format_bp_ex",
            Self::ABpOs => "a_elem_format_bp_os",
        }
    }

    /// Whether operands of gradient products read this slot.
    pub fn is_backward(self) -> bool {
        self != self.forward()
    }

    /// The slot that this one defaults to; forward slots are their own.
    pub(in crate::specs) fn forward(self) -> Self {
        match self {
            Self::W | Self::WBp => Self::W,
            Self::A | Self::ABp | Self::ABpEx | Self::ABpOs => Self::A,
        }
    }
}
