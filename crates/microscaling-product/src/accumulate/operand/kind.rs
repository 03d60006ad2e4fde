//! The kinds of numbers in operands.

use core::fmt;
use core::str::FromStr;
use microscaling::internal::bits;
use microscaling::internal::impl_serde_by_text;
use microscaling::{BlockFormat, ElementFormat, NonFinite, ParseFormatError, ScaleFormat};

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

    /// The largest magnitude. A two's complement has one more negative number than positive ones.
    pub const fn max(self) -> f32 {
        match self {
            Self::Element(format) if format.is_integer() => format.max() + format.min_subnormal(),
            Self::Element(format) => format.max(),
            Self::Tf32 => f32::from_bits(0x7f7f_e000),
            Self::Float32 => f32::MAX,
        }
    }

    /// Fraction bits of fixed point; `None` for floats.
    pub(in crate::accumulate) const fn fraction_bits(self) -> Option<i32> {
        match self {
            Self::Element(format) if format.is_integer() => {
                Some(format.mantissa_bits() as i32 - format.emin())
            }
            _ => None,
        }
    }

    pub(in crate::accumulate) fn facts(self) -> Facts {
        Facts {
            emin: self.emin(),
            mantissa_bits: self.mantissa_bits() as i32,
            max: self.max().to_bits(),
        }
    }
}

/// The properties of a type of factors.
#[derive(Debug, Clone, Copy)]
pub(in crate::accumulate) struct Facts {
    pub(in crate::accumulate) emin: i32,
    pub(in crate::accumulate) mantissa_bits: i32,
    /// As a pattern.
    pub(in crate::accumulate) max: u32,
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

/// The type of an operand's block scales. As text it is `e8m0`, `e8` or the name of a [`ScaleFormat`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScaleType {
    /// OCP MX's E8M0: 2^−127 to 2^127, and NaN.
    PowerOfTwo,
    /// The exponent field of a float32, as `bfp16ebs8` of XDNA2 has it: 2^−127 to 2^128, and no NaN. +Inf stands for 2^128, which is
    /// beyond float32.
    ExponentField,
    /// A float.
    Float(ScaleFormat),
}

impl ScaleType {
    pub(in crate::accumulate) fn facts(self) -> Facts {
        match self {
            Self::PowerOfTwo => Facts {
                emin: -127,
                mantissa_bits: 0,
                max: 254 << 23,
            },
            Self::ExponentField => Facts {
                emin: -127,
                mantissa_bits: 0,
                max: 255 << 23,
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
            Self::ExponentField => f.pad("e8"),
            Self::Float(format) => format.fmt(f),
        }
    }
}

impl FromStr for ScaleType {
    type Err = ParseFormatError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "e8m0" => Ok(Self::PowerOfTwo),
            "e8" => Ok(Self::ExponentField),
            _ => text.parse().map(Self::Float),
        }
    }
}

impl_serde_by_text!(ScaleType, "the type of block scales");

/// The kind of numbers in an operand, known before its values.
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
    /// The kind of an operand quantized to a block format along the summed axis. `None` for formats [with other
    /// factors](BlockFormat::is_element_times_scale). A tensor scale is left to the caller.
    pub fn of_format(format: &BlockFormat) -> Option<Self> {
        let scale = match (format.has_exponent(), format.non_finite) {
            (true, NonFinite::TopExponent) => ScaleType::ExponentField,
            (true, _) => ScaleType::PowerOfTwo,
            (false, _) => ScaleType::Float(format.scale),
        };
        format.is_element_times_scale().then_some(Self {
            element: format.element.into(),
            scale: Some(scale),
            block: format.block_size,
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

impl Facts {
    /// Whether a pattern is a number of the type, NaN or Inf.
    #[inline(always)]
    pub(in crate::accumulate) fn has(self, pattern: u32) -> bool {
        let abs = pattern & bits::ABS;
        let (significand, unit) = bits::parts(abs);
        // Bits of the significand below the last one that a number of this size has.
        let cut = bits::exponent(abs).max(self.emin) - self.mantissa_bits - unit;
        let lost = significand & ((1 << cut.clamp(0, 24)) - 1);
        (abs >= bits::INFINITY) | (lost == 0) & (abs <= self.max)
    }
}
