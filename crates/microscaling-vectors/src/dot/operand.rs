//! The codes of operands.

use crate::error::VectorsError;
use microscaling::{BlockFormat, ElementFormat, NonFinite};
use microscaling_product::{OperandKind, OperandType, ScaleType};
use std::fmt;
use std::str::FromStr;

/// The format of an operand: elements without scales, or a block format with one scale a block.
///
/// As text it is an [`ElementFormat`] or a [`BlockFormat`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DotOperand {
    /// Elements without scales.
    Elements(ElementFormat),
    /// Elements times the scale of their block.
    Blocks(BlockFormat),
}

impl FromStr for DotOperand {
    type Err = VectorsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(element) = text.parse() {
            return Ok(Self::Elements(element));
        }
        let format: BlockFormat = text.parse()?;
        match OperandKind::of_format(&format).is_some() && !format.tensor_scale {
            true => Ok(Self::Blocks(format)),
            false => Err(VectorsError::option(
                "operand",
                text,
                "an element format, or a block format whose numbers are elements times the scale of their block",
            )),
        }
    }
}

impl fmt::Display for DotOperand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elements(format) => format.fmt(f),
            Self::Blocks(format) => format.fmt(f),
        }
    }
}

impl DotOperand {
    pub(super) fn element(self) -> ElementFormat {
        match self {
            Self::Elements(format) => format,
            Self::Blocks(format) => format.element,
        }
    }

    pub(super) fn kind(self) -> OperandKind {
        match self {
            Self::Elements(format) => OperandType::Element(format).into(),
            Self::Blocks(format) => {
                OperandKind::of_format(&format).expect("`from_str` and `new` check that")
            }
        }
    }

    /// Blocks of a number of elements; 0 without scales.
    pub(super) fn blocks(self, length: usize) -> usize {
        match self {
            Self::Elements(_) => 0,
            Self::Blocks(format) if format.block_size == 0 => 1,
            Self::Blocks(format) => length.div_ceil(format.block_size),
        }
    }

    /// Bits of a scale's code.
    pub(super) fn scale_bits(self) -> u32 {
        match self {
            Self::Blocks(format) if !format.has_exponent() => format.scale.bits(),
            _ => 8,
        }
    }

    /// The number of a scale's code.
    pub(super) fn scale(self, code: u64) -> f32 {
        let Self::Blocks(format) = self else {
            return 1.0;
        };
        match (self.kind().scale, format.scale.float()) {
            (Some(ScaleType::Float(_)), Some(float)) => float.decode(code as u32),
            (Some(ScaleType::Float(_)), None) => f32::from_bits(code as u32),
            (Some(ScaleType::ExponentField), _) if code == 255 => f32::INFINITY,
            _ if code == 255 => f32::NAN,
            // 2^-127 is subnormal.
            _ => f32::from_bits(if code == 0 {
                1 << 22
            } else {
                (code as u32) << 23
            }),
        }
    }

    /// The code of a scale that is NaN, above the codes of all numbers of at least 0.
    pub(super) fn nan_scale(self) -> u64 {
        match self {
            Self::Blocks(format) if format.scale.is_signed() => format.scale.nan_code().into(),
            _ => (1 << self.scale_bits()) - 1,
        }
    }

    /// The code of the scale 1, or of the largest scale below 1.
    pub(super) fn middle_scale(self) -> u64 {
        match self {
            Self::Blocks(format) if !format.has_exponent() => match format.scale.float() {
                None => u64::from(1.0_f32.to_bits()),
                Some(float) => {
                    let codes = (0..self.nan_scale() as u32).rev();
                    codes
                        .into_iter()
                        .find(|code| float.decode(*code) <= 1.0)
                        .unwrap_or(1)
                        .into()
                }
            },
            _ => 127,
        }
    }

    /// Whether an element code may be an operand: the most negative integer may not, but in a format that gives it to elements.
    pub(super) fn allows(self, code: u64) -> bool {
        let element = self.element();
        let gives_all =
            matches!(self, Self::Blocks(format) if format.non_finite == NonFinite::TopExponent);
        gives_all || !(element.is_integer() && code == 1 << (element.bits() - 1))
    }
}
