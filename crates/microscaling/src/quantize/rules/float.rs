//! The scalar rules of [`FloatFormat`].

use crate::format::FloatFormat;
use crate::round::bits::{ABS, BIAS, INFINITY, MANTISSA_BITS, SIGN};
use crate::round::mode::Rounding;
use crate::round::words::Word;
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

    /// Rounding in a format with the exponents of float32.
    #[doc(hidden)]
    #[inline(always)]
    pub fn round_bfloat<R: RoundingRule>(self, x: f32, draw: u32) -> f32 {
        f32::from_bits(self.round_bfloat_word::<R, _>(x.to_bits(), draw))
    }

    /// Rounding in a format with fewer exponents than float32.
    #[doc(hidden)]
    #[inline(always)]
    pub fn round_fp<R: RoundingRule>(self, x: f32, draw: u32) -> f32 {
        f32::from_bits(self.round_fp_word::<R, _>(x.to_bits(), draw))
    }

    /// Rounds the number with the pattern `x`.
    #[doc(hidden)]
    pub fn round_word<R: RoundingRule, W: Word>(self, x: W, draw: W) -> W {
        match self.is_bfloat() {
            _ if self.is_identity() => x,
            true => self.round_bfloat_word::<R, _>(x, draw),
            false => self.round_fp_word::<R, _>(x, draw),
        }
    }

    /// Integer rounding of the whole pattern. A carry runs from the mantissa into the exponent, and from the largest number to Inf,
    /// which stays; only a NaN's would run into the sign.
    #[inline(always)]
    fn round_bfloat_word<R: RoundingRule, W: Word>(self, x: W, draw: W) -> W {
        let abs = x & ABS.into();
        let shift = MANTISSA_BITS as u32 - self.mantissa_bits();
        let kept = self.kept(x, abs, x & SIGN.into());
        let carried = kept.wrapping_sum(R::addend(kept, shift.into(), draw));
        let rounded = carried & (!((1_u32 << shift) - 1)).into();
        W::select(x.is_nan(), x, rounded)
    }

    #[inline(always)]
    fn round_fp_word<R: RoundingRule, W: Word>(self, x: W, draw: W) -> W {
        let (sign, abs) = (x & SIGN.into(), x & ABS.into());
        let kept = self.kept(abs, abs, 0.into());
        let (mantissa_bits, emin) = (self.mantissa_bits() as i32, (1 - self.bias()).into());
        let rounded = round_magnitude::<R, _>(kept, mantissa_bits, emin, draw);
        let is_large = W::from(self.max().to_bits()).is_below(rounded);
        let finite = W::select(is_large, INFINITY.into(), rounded);
        sign | W::select(abs.is_below(INFINITY.into()), finite, abs)
    }

    /// A number with this magnitude, or zero if the format flushes it.
    #[inline(always)]
    fn kept<W: Word>(self, x: W, abs: W, zero: W) -> W {
        match self.flush_below() {
            0 => x,
            least => W::select(abs.is_below(least.into()), zero, x),
        }
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
