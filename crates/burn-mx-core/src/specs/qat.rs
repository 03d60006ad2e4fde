//! Quantization-aware training in a few fields.

use std::fmt::{self, Display};
use std::str::FromStr;

use microscaling::{BlockFormat, Dialect, ElementFormat, Rounding};
use thiserror::Error;

use super::{ElementwiseScope, GradientOperands, Hadamard, MxSpecs, Slot, SlotFormat, SpecsError};

/// The backward pass of quantization-aware training, for `y = q(x)·q(w)` with the output's gradient `g`.
///
/// As text (`FromStr`, `Display`): `straight-through`, `masked`, `dequantized`, `high-precision`. The last two are TransformerEngine's
/// overrides of the same names (`backward_override` of its recipes, at commit 000b637), in the format of elementwise ops: bfloat16,
/// or float32 without such a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum QatBackward {
    /// In float32: `dx = g·q(w)ᵀ`, `dw = q(x)ᵀ·g`.
    #[default]
    StraightThrough,
    /// The same, and 0 where the format clipped the operand.
    Masked,
    /// `dx = r(r(g)·r(q(w))ᵀ)`, `dw = r(r(q(x))ᵀ·r(g))` where r rounds to bfloat16. Other ops of the backward pass are in bfloat16, too.
    Dequantized,
    /// `dx = r(r(g)·r(w)ᵀ)`, `dw = r(r(x)ᵀ·r(g))`: the gradients of a layer in bfloat16 that is not quantized.
    HighPrecision,
}

/// The error for a text that is not a [`QatBackward`].
#[derive(Clone, PartialEq, Eq, Error)]
#[error(
    "backward pass `{text}` is unknown; allowed: straight-through, masked, dequantized, high-precision"
)]
pub struct ParseQatBackwardError {
    text: String,
}

microscaling::debug_is_display!(ParseQatBackwardError);

impl QatBackward {
    /// Specs with the same forward pass and this backward pass. Formats of the specs' backward pass, and `mask_clipped`, do not count. Specs without formats for
    /// operands have nothing to pass through, and get the precision of the backward pass alone.
    ///
    /// ```
    /// # extern crate burn_mx_core as burn_mx;
    /// # use burn_mx::{MxSpecs, QatBackward};
    /// let specs = QatBackward::StraightThrough.apply(MxSpecs::mxfp4())?;
    /// assert_eq!(specs, MxSpecs::mxfp4().straight_through());
    /// let error = QatBackward::Dequantized.apply(MxSpecs { bfloat: 12, ..MxSpecs::mxfp4() });
    /// assert_eq!(
    ///     error.unwrap_err().to_string(),
    ///     "`bfloat` is 12, but the gradients of this backward pass are in bfloat16 or float32; allowed: 16, or 0 without `fp`"
    /// );
    /// # Ok::<(), burn_mx::SpecsError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`MxSpecs::resolve`]. With the last two kinds, also [`SpecsError::Contradiction`] for another elementwise format than
    /// bfloat16, and for a transform or headroom of gradient products.
    pub fn apply(self, specs: MxSpecs) -> Result<MxSpecs, SpecsError> {
        let is_override = matches!(self, Self::Dequantized | Self::HighPrecision);
        if is_override {
            check_override(&specs)?;
        }
        let has_formats = [Slot::W, Slot::A].map(|slot| specs.slot_format(slot).is_some());
        let has_formats = has_formats.contains(&true);
        let in_bfloat16 = is_override && specs.bfloat == 16;
        let of_forward = has_formats && self != Self::HighPrecision;
        let mut specs = MxSpecs {
            quantize_backprop: in_bfloat16,
            gradient_operands: match of_forward {
                true => GradientOperands::Forward,
                false => GradientOperands::Original,
            },
            mask_clipped: has_formats && self == Self::Masked,
            ..specs
        };
        if in_bfloat16 && has_formats {
            // An unset slot has the forward format. Blocks of bfloat16 hold each bfloat16 number.
            let bfloat16 = SlotFormat::Block(BlockFormat::mx(ElementFormat::BFLOAT16, 32));
            for slot in [Slot::WBp, Slot::ABp, Slot::ABpEx, Slot::ABpOs] {
                *specs.slot_format_mut(slot) = Some(bfloat16);
            }
        }
        specs.resolve()?;
        Ok(specs)
    }

    const ALL: [(Self, &'static str); 4] = [
        (Self::StraightThrough, "straight-through"),
        (Self::Masked, "masked"),
        (Self::Dequantized, "dequantized"),
        (Self::HighPrecision, "high-precision"),
    ];
}

/// Refuses fields that TransformerEngine's overrides leave no place for.
fn check_override(specs: &MxSpecs) -> Result<(), SpecsError> {
    let precision = "the gradients of this backward pass are in bfloat16 or float32";
    let transform =
        "gradient products of this backward pass have no blocks to prepare operands for";
    let text = |field: &Option<Hadamard>| field.map(|transform| transform.to_string());
    let (headroom, size) = (specs.headroom_bp, specs.hadamard_block_size);
    let fields = [
        (
            "bfloat",
            (![0, 16, 32].contains(&specs.bfloat)).then(|| specs.bfloat.to_string()),
            precision,
            "16, or 0 without `fp`",
        ),
        (
            "fp",
            (specs.fp != 0).then(|| specs.fp.to_string()),
            precision,
            "0",
        ),
        (
            "headroom_bp",
            (!headroom.is_none()).then(|| headroom.to_string()),
            transform,
            "1",
        ),
        (
            "hadamard_block_size",
            (size != 0).then(|| size.to_string()),
            transform,
            "0",
        ),
        (
            "hadamard_input_grad",
            text(&specs.hadamard_input_grad),
            transform,
            "none",
        ),
        (
            "hadamard_weight_grad",
            text(&specs.hadamard_weight_grad),
            transform,
            "none",
        ),
    ];
    for (field, value, reason, allowed) in fields {
        if let Some(value) = value {
            return Err(SpecsError::Contradiction {
                field,
                value,
                reason,
                allowed,
            });
        }
    }
    Ok(())
}

impl Display for QatBackward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(kind, _)| kind == self);
        f.pad(name.map_or("", |(_, name)| name))
    }
}

impl FromStr for QatBackward {
    type Err = ParseQatBackwardError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text);
        found
            .map(|(kind, _)| *kind)
            .ok_or_else(|| ParseQatBackwardError {
                text: text.to_owned(),
            })
    }
}

/// Quantization-aware training: the numbers of the engine that will serve the model in the forward pass, and a choice of the backward
/// pass. Fields have the names of [`MxSpecs`]'s fields. [`specs`](Self::specs) makes the specs.
///
/// Elementwise ops on activations are rounded to `bfloat`, to nearest, ties to even, as in the presets.
///
/// ```
/// # extern crate burn_mx_core as burn_mx;
/// use burn_mx::{MxSpecs, QatBackward, QatConfig};
/// use microscaling::Dialect;
///
/// let config = QatConfig {
///     w_elem_format: Some("nvfp4(tensor_scale=true)".into()),
///     dialect_w: Some(Dialect::ModelOpt),
///     a_elem_format: Some("mxfp8_e4m3".into()),
///     backward: QatBackward::Dequantized,
///     ..QatConfig::default()
/// };
/// // Engines do not quantize products of queries, keys and values.
/// let specs = MxSpecs { quantize_matmul: false, ..config.specs()? };
/// # specs.resolve()?;
///
/// let error = QatConfig { backward: QatBackward::Masked, ..config }.specs().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "`dialect_w` is modelopt, but `mask_clipped` is true, which knows where the rule of the format clips; allowed: none, or \
///      `mask_clipped` false"
/// );
/// # Ok::<(), burn_mx::SpecsError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QatConfig {
    /// Format of weights: a block format, or the element of blocks of 32 as in OCP MX. Default: not quantized.
    pub w_elem_format: Option<SlotFormat>,
    /// The tool whose rules quantize weights. Default: the format's own rule.
    pub dialect_w: Option<Dialect>,
    /// Format of the inputs of layers. Default: not quantized.
    pub a_elem_format: Option<SlotFormat>,
    /// The tool whose rules quantize inputs. Default: the format's own rule.
    pub dialect_a: Option<Dialect>,
    /// Bits of the elementwise format with 8 exponent bits; 0 is float32. Default: 16, bfloat16.
    pub bfloat: u32,
    /// The backward pass. Default: straight-through.
    pub backward: QatBackward,
}

impl Default for QatConfig {
    fn default() -> Self {
        Self {
            w_elem_format: None,
            dialect_w: None,
            a_elem_format: None,
            dialect_a: None,
            bfloat: 16,
            backward: QatBackward::StraightThrough,
        }
    }
}

impl QatConfig {
    /// The specs.
    ///
    /// # Errors
    ///
    /// [`SpecsError::Contradiction`] if neither weights nor inputs have a format, or one has a dialect without a format; the errors of
    /// [`QatBackward::apply`].
    pub fn specs(&self) -> Result<MxSpecs, SpecsError> {
        let missing = |field, reason, allowed| {
            Err(SpecsError::Contradiction {
                field,
                value: "none".into(),
                reason,
                allowed,
            })
        };
        let (w, a) = (self.w_elem_format, self.a_elem_format);
        let of_dialect = "a format of the dialect";
        match (w, a) {
            (None, _) if self.dialect_w.is_some() => {
                return missing("w_elem_format", "`dialect_w` is set", of_dialect);
            }
            (_, None) if self.dialect_a.is_some() => {
                return missing("a_elem_format", "`dialect_a` is set", of_dialect);
            }
            (None, None) => {
                let reason = "`a_elem_format` is none, too: there is nothing to train for";
                return missing("w_elem_format", reason, "a format, here or for inputs");
            }
            _ => {}
        }
        let mx = BlockFormat::mx(ElementFormat::FP4_E2M1, 32);
        let whole = |slot: SlotFormat| slot.block_format(&mx).map_or(slot, SlotFormat::Block);
        self.backward.apply(MxSpecs {
            w_elem_format: w.map(whole),
            a_elem_format: a.map(whole),
            dialect_w: self.dialect_w,
            dialect_a: self.dialect_a,
            bfloat: self.bfloat,
            elementwise_scope: ElementwiseScope::Activations,
            round: Rounding::NearestEven,
            ..MxSpecs::default()
        })
    }
}
