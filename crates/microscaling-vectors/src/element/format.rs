//! Codes of a format of any family.

use crate::error::VectorsError;
use microscaling::ElementFormat;
use microscaling::p3109::{CodeValue, P3109Format};
use std::fmt;
use std::str::FromStr;

/// A format whose codes are converted one by one: a float, fixed point, or a format of IEEE P3109.
///
/// As text it is an [`ElementFormat`] or a [`P3109Format`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeFormat {
    /// A float, fixed point, or a table.
    Element(ElementFormat),
    /// A format of the draft standard.
    P3109(P3109Format),
}

/// How codes say the sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignKind {
    Magnitude,
    TwosComplement,
    Unsigned,
}

/// The numbers of a format, described as a conversion needs them: the code of a magnitude grows with the magnitude.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CodePlan {
    pub(crate) bits: u32,
    pub(crate) mantissa_bits: u32,
    /// Exponent of the smallest normal number.
    pub(crate) emin: i32,
    /// The code of the largest number.
    pub(crate) largest: u64,
    /// The code of 2^emax.
    pub(crate) top: u64,
    pub(crate) sign: SignKind,
    pub(crate) negative_zero: bool,
    pub(crate) nan: Option<u32>,
    /// The code of +Inf.
    pub(crate) infinity: Option<u64>,
    /// Whether numbers below 2^emin have other codes than normal ones: not in fixed point.
    pub(crate) subnormals: bool,
    /// Whether numbers that overflow in a format without Inf become the largest number, as in P3109. Otherwise they become NaN.
    pub(crate) is_p3109: bool,
}

impl CodePlan {
    pub(crate) fn sign_bit(&self) -> u64 {
        1 << (self.bits - 1)
    }

    /// The code of a magnitude's code with a sign.
    pub(crate) fn signed(&self, magnitude: u64, negative: bool) -> u32 {
        let code = match (negative, self.sign) {
            (false, _) | (true, SignKind::Unsigned) => magnitude,
            (true, SignKind::TwosComplement) => {
                magnitude.wrapping_neg() & (2 * self.sign_bit() - 1)
            }
            (true, SignKind::Magnitude) if magnitude == 0 && !self.negative_zero => 0,
            (true, SignKind::Magnitude) => magnitude | self.sign_bit(),
        };
        code as u32
    }

    /// The code of the magnitude of a code, and whether the code is negative.
    pub(crate) fn magnitude(&self, code: u32) -> (u64, bool) {
        let code = u64::from(code);
        let negative = code & self.sign_bit() != 0;
        match (self.sign, negative) {
            (SignKind::Unsigned, _) => (code, false),
            (_, false) => (code, false),
            (SignKind::Magnitude, true) => (code - self.sign_bit(), true),
            (SignKind::TwosComplement, true) => {
                (code.wrapping_neg() & (2 * self.sign_bit() - 1), true)
            }
        }
    }

    /// Whether a code is a number below the smallest normal one, and not 0.
    pub(crate) fn is_subnormal(&self, magnitude: u64) -> bool {
        self.subnormals && magnitude != 0 && magnitude < 1 << self.mantissa_bits
    }

    /// Significand and exponent of a magnitude's code: significand · 2^exponent. The codes beyond the largest number go on.
    pub(crate) fn number(&self, magnitude: u64) -> (u64, i32) {
        let lowest = self.emin - self.mantissa_bits as i32;
        let field = magnitude >> self.mantissa_bits;
        match (self.subnormals, field) {
            (false, _) | (true, 0) => (magnitude, lowest),
            (true, field) => {
                let mantissa = magnitude & ((1 << self.mantissa_bits) - 1);
                (
                    mantissa | 1 << self.mantissa_bits,
                    lowest + field as i32 - 1,
                )
            }
        }
    }
}

impl CodeFormat {
    /// Bits of a code.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Element(format) => format.bits(),
            Self::P3109(format) => format.bits(),
        }
    }

    /// The value of a code.
    pub fn decode(self, code: u32) -> CodeValue {
        match self {
            Self::P3109(format) => format.decode(code),
            Self::Element(format) => {
                let x = format.decode(code);
                let negative = x.is_sign_negative();
                if x.is_nan() {
                    return CodeValue::Nan;
                }
                if x.is_infinite() {
                    return CodeValue::Infinite { negative };
                }
                let (significand, exponent) =
                    microscaling::internal::bits::parts(x.abs().to_bits());
                CodeValue::Finite {
                    negative,
                    significand,
                    exponent,
                }
            }
        }
    }

    /// Whether a code is NaN.
    pub fn is_nan(self, code: u32) -> bool {
        self.decode(code) == CodeValue::Nan
    }

    /// The plan of a conversion; tables have none.
    pub(crate) fn plan(self) -> Result<CodePlan, VectorsError> {
        match self {
            Self::Element(format) if format.is_table() => Err(VectorsError::option(
                "format",
                format,
                "a float, fixed point or a name of P3109 (blocks may have tables)",
            )),
            Self::Element(format) => Ok(match format.to_p3109() {
                Some(report) if format.is_unsigned() => p3109_plan(report),
                _ => element_plan(format),
            }),
            Self::P3109(format) => Ok(p3109_plan(format)),
        }
    }
}

fn element_plan(format: ElementFormat) -> CodePlan {
    let bits = format.bits();
    let mantissa_bits = format.mantissa_bits();
    let half = 1_u32 << (bits - 1);
    let is_number = |code: &u32| format.decode(*code).is_finite();
    let largest = (0..half).rev().find(is_number).unwrap_or(0);
    let integer = format.is_integer();
    let top = match integer {
        true => 1 << mantissa_bits,
        false => u64::from(largest) >> mantissa_bits << mantissa_bits,
    };
    CodePlan {
        bits,
        mantissa_bits,
        emin: format.emin(),
        largest: largest.into(),
        top,
        sign: if integer {
            SignKind::TwosComplement
        } else {
            SignKind::Magnitude
        },
        negative_zero: format.has_negative_zero(),
        nan: format.nan_code(),
        infinity: format.infinity_code().map(u64::from),
        subnormals: !integer,
        is_p3109: false,
    }
}

fn p3109_plan(format: P3109Format) -> CodePlan {
    let mantissa_bits = format.precision() - 1;
    let codes = 1_u64 << (format.bits() - u32::from(format.is_signed()));
    let largest = codes - 1 - u64::from(format.is_extended()) - u64::from(!format.is_signed());
    CodePlan {
        bits: format.bits(),
        mantissa_bits,
        emin: 1 - format.bias(),
        largest,
        top: largest >> mantissa_bits << mantissa_bits,
        sign: if format.is_signed() {
            SignKind::Magnitude
        } else {
            SignKind::Unsigned
        },
        negative_zero: false,
        nan: Some(format.nan()),
        infinity: format.infinity(false).map(u64::from),
        subnormals: true,
        is_p3109: true,
    }
}

impl FromStr for CodeFormat {
    type Err = VectorsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.starts_with("binary") || text.starts_with("Binary") {
            true => Ok(Self::P3109(text.parse()?)),
            false => Ok(Self::Element(text.parse()?)),
        }
    }
}

impl fmt::Display for CodeFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Element(format) => format.fmt(f),
            Self::P3109(format) => format.fmt(f),
        }
    }
}
