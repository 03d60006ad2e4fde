//! Operands of an accumulated product: elements and block scales apart.

use super::{Accumulator, Order, ScaleAt};
use crate::format::parameters::impl_serde_by_text;
use crate::product::{Axis, Side};
use crate::round::bits;
use crate::{AccumulateError, BlockFormat, ElementFormat, ParseFormatError, ScaleFormat};
use core::fmt;
use core::str::FromStr;

/// The type of an operand's elements: a small format, TF32 or float32. As text it is the name of the element format, `tf32` or
/// `float32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperandType {
    /// A small float, or fixed point.
    Element(ElementFormat),
    /// 8 exponent bits, 10 mantissa bits, in float32.
    Tf32,
    /// All of float32.
    Float32,
}

impl From<ElementFormat> for OperandType {
    fn from(format: ElementFormat) -> Self {
        Self::Element(format)
    }
}

impl OperandType {
    /// Exponent of the smallest normal number; no number counts as having a smaller one.
    pub const fn emin(self) -> i32 {
        match self {
            Self::Element(format) => format.emin(),
            Self::Tf32 | Self::Float32 => -126,
        }
    }

    /// Explicit mantissa bits.
    pub const fn mantissa_bits(self) -> u32 {
        match self {
            Self::Element(format) => format.mantissa_bits(),
            Self::Tf32 => 10,
            Self::Float32 => 23,
        }
    }

    /// The largest number.
    pub const fn max(self) -> f32 {
        match self {
            Self::Element(format) => format.max(),
            Self::Tf32 => f32::from_bits(0x7f7f_e000),
            Self::Float32 => f32::MAX,
        }
    }

    /// Fraction bits of fixed point; `None` for floats.
    pub(super) const fn fraction_bits(self) -> Option<i32> {
        match self {
            Self::Element(format) if format.is_integer() => {
                Some(format.mantissa_bits() as i32 - format.emin())
            }
            _ => None,
        }
    }

    pub(super) fn facts(self) -> Facts {
        Facts {
            emin: self.emin(),
            mantissa_bits: self.mantissa_bits() as i32,
            max: self.max().to_bits(),
        }
    }
}

/// What is to be known of a type of factors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    pub(super) emin: i32,
    pub(super) mantissa_bits: i32,
    /// As a pattern.
    pub(super) max: u32,
}

impl fmt::Display for OperandType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Element(format) => format.fmt(f),
            Self::Tf32 => f.pad("tf32"),
            Self::Float32 => f.pad("float32"),
        }
    }
}

impl FromStr for OperandType {
    type Err = ParseFormatError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "tf32" => Ok(Self::Tf32),
            "float32" => Ok(Self::Float32),
            _ => text.parse().map(Self::Element),
        }
    }
}

impl_serde_by_text!(OperandType, "the type of an operand's elements");

/// The type of an operand's block scales. As text it is `e8m0` or the name of a [`ScaleFormat`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScaleType {
    /// OCP MX's E8M0: 2^−127 to 2^127, and NaN.
    PowerOfTwo,
    /// A float.
    Float(ScaleFormat),
}

impl ScaleType {
    pub(super) fn facts(self) -> Facts {
        match self {
            Self::PowerOfTwo => Facts {
                emin: -127,
                mantissa_bits: 0,
                max: 254 << 23,
            },
            Self::Float(format) => Facts {
                emin: format.emin(),
                mantissa_bits: format.mantissa_bits() as i32,
                max: format.max().to_bits(),
            },
        }
    }
}

impl fmt::Display for ScaleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PowerOfTwo => f.pad("e8m0"),
            Self::Float(format) => format.fmt(f),
        }
    }
}

impl FromStr for ScaleType {
    type Err = ParseFormatError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "e8m0" => Ok(Self::PowerOfTwo),
            _ => text.parse().map(Self::Float),
        }
    }
}

impl_serde_by_text!(ScaleType, "the type of block scales");

/// What the numbers of an operand are, before there are any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OperandKind {
    /// The type of the elements.
    pub element: OperandType,
    /// The type of the blocks' scales, if there are any.
    pub scale: Option<ScaleType>,
    /// Elements of a block along the summed axis; 0 means all of them.
    pub block: usize,
}

impl From<OperandType> for OperandKind {
    /// Elements without scales.
    fn from(element: OperandType) -> Self {
        Self {
            element,
            scale: None,
            block: 0,
        }
    }
}

impl From<ElementFormat> for OperandKind {
    /// Elements without scales.
    fn from(element: ElementFormat) -> Self {
        OperandType::from(element).into()
    }
}

impl OperandKind {
    /// What quantizing to a block format gives, along the summed axis; `None` for formats whose elements have other factors, too, or
    /// are numbers of a table. A tensor scale is left to whoever multiplies.
    pub fn of_format(format: &BlockFormat) -> Option<Self> {
        let (element, scale) = match format {
            BlockFormat::Mx(format) => (format.element, ScaleType::PowerOfTwo),
            _ => {
                let format = format.float_scale()?;
                if format.sub_scales.is_some() {
                    return None;
                }
                (format.element, ScaleType::Float(format.scale))
            }
        };
        (!element.is_table()).then_some(Self {
            element: element.into(),
            scale: Some(scale),
            block: format.block_size(),
        })
    }
}

/// `fp8_e4m3`, `fp4_e2m1 with scales ue4m3 of 16`.
impl fmt::Display for OperandKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.scale, self.block) {
            (None, _) => write!(f, "{}", self.element),
            (Some(scale), 0) => write!(f, "{} with scales {scale} of all", self.element),
            (Some(scale), block) => write!(f, "{} with scales {scale} of {block}", self.element),
        }
    }
}

/// An operand in memory: a matrix of elements, and the scales of their blocks.
#[derive(Debug, Clone, Copy)]
pub struct AccumulatorOperand<'a> {
    /// What the numbers are.
    pub kind: OperandKind,
    /// The elements without their scales, each exactly a number of its type, or NaN or Inf.
    pub elements: &'a [f32],
    /// The axis that the result has, too: the rows of a left operand, the columns of a right one.
    pub free: Axis,
    /// The axis that is summed over.
    pub summed: Axis,
    /// The scales, `[free, blocks]` without gaps: as many blocks as the summed axis has, the last one maybe shorter. Empty
    /// without scales.
    pub scales: &'a [f32],
}

impl AccumulatorOperand<'_> {
    /// Blocks along the summed axis.
    pub(super) fn blocks(&self) -> usize {
        match self.kind {
            OperandKind { scale: None, .. } => 0,
            OperandKind { block: 0, .. } => usize::from(self.summed.length > 0),
            OperandKind { block, .. } => self.summed.length.div_ceil(block),
        }
    }

    /// The block of an element along the summed axis.
    #[inline(always)]
    pub(super) fn block_of(&self, at: usize) -> usize {
        match self.kind.block {
            0 => 0,
            block => at / block,
        }
    }

    /// An element.
    #[inline(always)]
    pub(super) fn element(&self, free: usize, summed: usize) -> f32 {
        self.elements[free * self.free.stride + summed * self.summed.stride]
    }

    /// The scale of an element; 1 without scales.
    #[inline(always)]
    pub(super) fn scale(&self, free: usize, summed: usize) -> f32 {
        match self.kind.scale {
            None => 1.0,
            Some(_) => self.scales[free * self.blocks() + self.block_of(summed)],
        }
    }

    /// That all elements and scales are there.
    pub(super) fn check_layout(&self, side: Side) -> Result<(), AccumulateError> {
        let Self { free, summed, .. } = *self;
        let last = |axis: Axis| axis.length.checked_sub(1)?.checked_mul(axis.stride);
        let there = match (last(free), last(summed)) {
            (Some(free), Some(summed)) => free
                .checked_add(summed)
                .is_some_and(|last| last < self.elements.len()),
            _ => free.length == 0 || summed.length == 0,
        };
        if !there {
            return Err(AccumulateError::Elements {
                side,
                free,
                summed,
                got: self.elements.len(),
            });
        }
        // Beyond all memory is no length.
        let expected = free.length.saturating_mul(self.blocks());
        match self.scales.len() == expected {
            true => Ok(()),
            false => Err(AccumulateError::Scales {
                side,
                expected,
                got: self.scales.len(),
            }),
        }
    }

    /// The first number that is none of its type.
    pub(super) fn check_numbers(&self, side: Side) -> Result<(), AccumulateError> {
        let elements = self.kind.element.facts();
        for free in 0..self.free.length {
            for summed in 0..self.summed.length {
                let value = self.element(free, summed);
                if !elements.has(value.to_bits()) {
                    return Err(AccumulateError::Element {
                        side,
                        free,
                        summed,
                        value,
                        expected: self.kind.element,
                    });
                }
            }
        }
        let Some(expected) = self.kind.scale else {
            return Ok(());
        };
        let wrong = |value: &&f32| !expected.facts().has(value.to_bits());
        match self.scales.iter().find(wrong) {
            None => Ok(()),
            Some(&value) => Err(AccumulateError::Scale {
                side,
                value,
                expected,
            }),
        }
    }
}

impl Facts {
    /// Whether a pattern is a number of the type, NaN or Inf.
    #[inline(always)]
    pub(super) fn has(self, pattern: u32) -> bool {
        let abs = pattern & bits::ABS;
        let (significand, unit) = bits::parts(abs);
        // Bits of the significand below the last one that a number of this size has.
        let cut = bits::exponent(abs).max(self.emin) - self.mantissa_bits - unit;
        let lost = match cut {
            ..=0 => 0,
            1..=24 => significand & ((1 << cut) - 1),
            _ => significand,
        };
        abs >= bits::INFINITY || lost == 0 && abs <= self.max
    }
}

impl Accumulator {
    /// That the accumulator can take operands of these kinds.
    ///
    /// # Errors
    /// * [`AccumulateError::Format`]: what [`validate`](Self::validate) refuses.
    /// * [`AccumulateError::Integer`]: integers are summed up, and the elements are floats.
    /// * [`AccumulateError::Table`]: the elements are numbers of a table.
    /// * [`AccumulateError::Block`]: a group, or a partial sum whose scales come in at promotion, would lie in two blocks.
    pub fn check(&self, lhs: OperandKind, rhs: OperandKind) -> Result<(), AccumulateError> {
        self.validate()?;
        for kind in [lhs, rhs] {
            if let OperandType::Element(element) = kind.element
                && element.is_table()
            {
                return Err(AccumulateError::Table { got: element });
            }
            if matches!(self.order, Order::Integer { .. }) && kind.element.fraction_bits().is_none()
            {
                return Err(AccumulateError::Integer { got: kind.element });
            }
            // What has one scale: a number of elements that divides a block.
            let (field, unit) = match self.scale_at {
                ScaleAt::Product => ("group", self.order.group()),
                ScaleAt::Promotion => ("promote_every", self.promote_every),
            };
            let whole = match (unit, kind.block) {
                (0, block) => block == 0,
                (_, 0) => true,
                (unit, block) => block.is_multiple_of(unit),
            };
            if kind.scale.is_some() && !whole {
                return Err(AccumulateError::Block {
                    field,
                    got: unit,
                    block: kind.block,
                });
            }
        }
        Ok(())
    }
}
