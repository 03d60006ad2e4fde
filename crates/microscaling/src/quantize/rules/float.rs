//! The scalar rules of [`FloatFormat`].

use crate::format::FloatFormat;
use crate::round::bits::{ABS, BIAS, INFINITY, MANTISSA_BITS, SIGN};
use crate::round::mode::Rounding;
use crate::round::{RoundingRule, round_magnitude, with_rule};

impl FloatFormat {
    /// Rounds one number. `draw` matters only to [`Rounding::Stochastic`].
    #[inline(always)]
    pub fn round(self, x: f32, rounding: Rounding, draw: u32) -> f32 {
        if self.is_identity() {
            return x;
        }
        with_rule!(rounding, R => match self.is_bfloat() {
            true => self.round_bfloat::<R>(x, draw),
            false => self.round_fp::<R>(x, draw),
        })
    }

    /// Rounding in a format with the exponents of float32: integer rounding of the whole pattern. A carry runs from the
    /// mantissa into the exponent, and from the largest number to Inf, which stays; only a NaN's would run into the sign.
    #[doc(hidden)]
    #[inline(always)]
    pub fn round_bfloat<R: RoundingRule>(self, x: f32, draw: u32) -> f32 {
        let bits = x.to_bits();
        let shift = MANTISSA_BITS as u32 - self.mantissa_bits();
        let is_flushed = bits & ABS < self.flush_below();
        let kept = if is_flushed { bits & SIGN } else { bits };
        let rounded = kept.wrapping_add(R::addend(kept, shift, draw)) & !((1 << shift) - 1);
        f32::from_bits(if x.is_nan() { bits } else { rounded })
    }

    /// Rounding in a format with fewer exponents than float32.
    #[doc(hidden)]
    #[inline(always)]
    pub fn round_fp<R: RoundingRule>(self, x: f32, draw: u32) -> f32 {
        let sign = x.to_bits() & SIGN;
        let abs = x.to_bits() & ABS;
        let kept = if abs < self.flush_below() { 0 } else { abs };
        let rounded =
            round_magnitude::<R, _>(kept, self.mantissa_bits() as i32, 1 - self.bias(), draw);
        let finite = if rounded > self.max().to_bits() {
            INFINITY
        } else {
            rounded
        };
        f32::from_bits(sign | if abs >= INFINITY { abs } else { finite })
    }

    /// Magnitudes with a pattern below this become zero.
    #[inline(always)]
    const fn flush_below(self) -> u32 {
        if self.subnormals() {
            0
        } else {
            ((1 - self.bias() + BIAS) as u32) << MANTISSA_BITS
        }
    }
}
