//! Elementwise float formats: bfloatN and fpN, without a shared scale.

use crate::format::FormatError;
use crate::round::bits::{self, IMPLICIT};
use core::fmt;

/// A float format narrower than float32, for rounding each number on its own (the `bfloat` and `fp`
/// of the reference emulation library).
///
/// * bfloatN, N = 10 … 32: sign, 8 exponent bits, N − 9 mantissa bits. N = 16 is bfloat16, N = 32 is float32.
/// * fpN, N = 7 … 29: sign, 5 exponent bits, N − 6 mantissa bits. fp16 is IEEE binary16.
///
/// NaN and ±Inf pass unchanged. A finite number that rounds beyond [`max`](Self::max) becomes ±Inf. (With
/// [`Rounding::TowardZero`](crate::Rounding::TowardZero), numbers from 2^16 on become ±Inf in fpN, and none does in bfloatN.) A format
/// with subnormals keeps them. In a format without them, numbers below [`min_normal`](Self::min_normal) become zero before rounding.
/// Zeros keep the sign of the number that they come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FloatFormat {
    exponent_bits: u32,
    mantissa_bits: u32,
    subnormals: bool,
}

/// A family of float formats: name, exponent bits, allowed total bits.
type Family = (&'static str, u32, u32, u32);
const BFLOAT: Family = ("bfloat", 8, 10, 32);
const FP: Family = ("fp", 5, 7, 29);

impl FloatFormat {
    /// bfloatN with N = `bits`, with subnormals.
    ///
    /// # Errors
    /// [`FormatError::FloatBits`] unless `bits` is 10 to 32.
    pub const fn bfloat(bits: u32) -> Result<Self, FormatError> {
        Self::of(BFLOAT, bits)
    }

    /// fpN with N = `bits`, with subnormals.
    ///
    /// # Errors
    /// [`FormatError::FloatBits`] unless `bits` is 7 to 29.
    pub const fn fp(bits: u32) -> Result<Self, FormatError> {
        Self::of(FP, bits)
    }

    const fn of((family, exponent_bits, min, max): Family, bits: u32) -> Result<Self, FormatError> {
        if bits < min || bits > max {
            return Err(FormatError::FloatBits {
                family,
                min,
                max,
                got: bits,
            });
        }
        Ok(Self {
            exponent_bits,
            mantissa_bits: bits - 1 - exponent_bits,
            subnormals: true,
        })
    }

    /// The same format with or without subnormals.
    pub const fn with_subnormals(self, subnormals: bool) -> Self {
        Self { subnormals, ..self }
    }

    /// True if rounding changes nothing: bfloat32, with or without subnormals, is off.
    #[inline]
    pub const fn is_identity(self) -> bool {
        self.bits() == 32
    }

    /// Bits of a number, sign included.
    #[inline]
    pub const fn bits(self) -> u32 {
        1 + self.exponent_bits + self.mantissa_bits
    }

    /// Bits of the exponent field: 8 or 5.
    pub const fn exponent_bits(self) -> u32 {
        self.exponent_bits
    }

    /// Explicit mantissa bits.
    #[inline]
    pub const fn mantissa_bits(self) -> u32 {
        self.mantissa_bits
    }

    /// Whether numbers below [`min_normal`](Self::min_normal) exist.
    #[inline]
    pub const fn subnormals(self) -> bool {
        self.subnormals
    }

    /// Bias of the exponent field.
    #[inline]
    pub(crate) const fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// The largest finite number.
    #[inline]
    pub const fn max(self) -> f32 {
        let significand = (IMPLICIT << 1) - (IMPLICIT >> self.mantissa_bits);
        f32::from_bits((significand - IMPLICIT) | bits::pow2(self.bias()))
    }

    /// The smallest positive normal number: 2^−126 or 2^−14.
    pub const fn min_normal(self) -> f32 {
        f32::from_bits(bits::pow2(1 - self.bias()))
    }

    /// Whether the exponent range equals float32's.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn is_bfloat(self) -> bool {
        self.exponent_bits == BFLOAT.1
    }
}

/// `bfloat16`, `fp12`, …; a format without subnormals is not told apart.
impl fmt::Display for FloatFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.is_bfloat() { BFLOAT.0 } else { FP.0 };
        write!(f, "{family}{}", self.bits())
    }
}
