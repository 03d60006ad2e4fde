//! The types of inputs.

use std::fmt;
use std::str::FromStr;

use crate::error::VectorsError;

/// The type of the numbers that a device converts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputType {
    /// `float32`
    Float32,
    /// `bfloat16`
    Bfloat16,
    /// `float16`
    Float16,
    /// `fp8_e5m2` of OCP, which has infinities.
    Fp8E5M2,
    /// `fp8_e4m3` of OCP, which has one NaN beside the sign, and no infinity.
    Fp8E4M3,
}

/// An input as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExactInput {
    Nan,
    Infinite {
        negative: bool,
    },
    /// ±significand · 2^exponent.
    Finite {
        negative: bool,
        significand: u64,
        exponent: i32,
        subnormal: bool,
    },
}

impl InputType {
    const ALL: [(&'static str, Self); 5] = [
        ("float32", Self::Float32),
        ("bfloat16", Self::Bfloat16),
        ("float16", Self::Float16),
        ("fp8_e5m2", Self::Fp8E5M2),
        ("fp8_e4m3", Self::Fp8E4M3),
    ];

    /// Bits of an input.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Float32 => 32,
            Self::Bfloat16 | Self::Float16 => 16,
            Self::Fp8E5M2 | Self::Fp8E4M3 => 8,
        }
    }

    pub(crate) const fn mantissa_bits(self) -> u32 {
        match self {
            Self::Float32 => 23,
            Self::Bfloat16 => 7,
            Self::Float16 => 10,
            Self::Fp8E5M2 => 2,
            Self::Fp8E4M3 => 3,
        }
    }

    pub(crate) const fn bias(self) -> i32 {
        match self {
            Self::Float16 | Self::Fp8E5M2 => 15,
            Self::Float32 | Self::Bfloat16 => 127,
            Self::Fp8E4M3 => 7,
        }
    }

    pub(crate) const fn sign(self) -> u32 {
        1 << (self.bits() - 1)
    }

    /// The pattern of +Inf, or of NaN in a type without Inf. The pattern is above all numbers.
    pub(crate) const fn infinity(self) -> u32 {
        match self {
            Self::Fp8E4M3 => self.sign() - 1,
            _ => (self.sign() - 1) >> self.mantissa_bits() << self.mantissa_bits(),
        }
    }

    /// The number of a pattern.
    pub(crate) fn number(self, pattern: u32) -> ExactInput {
        let negative = pattern & self.sign() != 0;
        let abs = pattern & (self.sign() - 1);
        let has_infinity = self != Self::Fp8E4M3;
        if abs > self.infinity() || (abs == self.infinity() && !has_infinity) {
            return ExactInput::Nan;
        }
        if abs == self.infinity() {
            return ExactInput::Infinite { negative };
        }
        let mantissa_bits = self.mantissa_bits();
        let (field, mantissa) = (abs >> mantissa_bits, abs & ((1 << mantissa_bits) - 1));
        let lowest = 1 - self.bias() - mantissa_bits as i32;
        let (significand, exponent) = match field {
            0 => (mantissa, lowest),
            field => (mantissa | 1 << mantissa_bits, lowest + field as i32 - 1),
        };
        ExactInput::Finite {
            negative,
            significand: significand.into(),
            exponent,
            subnormal: field == 0 && mantissa != 0,
        }
    }

    /// The number as float32, exactly.
    pub(crate) fn to_f32(self, pattern: u32) -> f32 {
        match (self, self.number(pattern)) {
            (Self::Float32, _) => f32::from_bits(pattern),
            (Self::Bfloat16, _) => f32::from_bits(pattern << 16),
            (_, ExactInput::Nan) => f32::NAN,
            (_, ExactInput::Infinite { negative: false }) => f32::INFINITY,
            (_, ExactInput::Infinite { negative: true }) => f32::NEG_INFINITY,
            (
                _,
                ExactInput::Finite {
                    negative,
                    significand,
                    exponent,
                    ..
                },
            ) => {
                // Float32 has every number of these types as a normal one.
                let magnitude = significand as f32 * 2.0_f32.powi(exponent);
                if negative { -magnitude } else { magnitude }
            }
        }
    }

    /// The largest pattern, below Inf, of a magnitude that is at most significand · 2^exponent.
    pub(crate) fn at_most(self, significand: u128, exponent: i32) -> u32 {
        if significand == 0 {
            return 0;
        }
        let own = 127 - significand.leading_zeros() as i32 + exponent;
        let mantissa_bits = self.mantissa_bits() as i32;
        // The exponent of 2 of the largest number.
        let emax = ((self.infinity() as i32 - 1) >> mantissa_bits) - self.bias();
        if own > emax {
            return self.infinity() - 1;
        }
        let emin = 1 - self.bias();
        let unit = own.max(emin) - mantissa_bits;
        let whole = match exponent - unit {
            up @ 0.. => significand << up,
            down => significand.checked_shr(down.unsigned_abs()).unwrap_or(0),
        };
        // The implicit bit counts as one in the exponent field.
        let pattern = ((own.max(emin) - emin) as u32 * (1 << mantissa_bits)) + whole as u32;
        pattern.min(self.infinity() - 1)
    }
}

impl FromStr for InputType {
    type Err = VectorsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        let allowed = || Self::ALL.map(|(name, _)| name).join(", ");
        found
            .map(|(_, own)| *own)
            .ok_or_else(|| VectorsError::option("input", text, allowed()))
    }
}

impl fmt::Display for InputType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Self::ALL.iter().find(|(_, own)| own == self);
        f.pad(found.map_or("", |(name, _)| name))
    }
}
