//! Rounding an element of an ordinary block in units of the block's scale: the same few operations for every format.

use super::ScalePair;
use crate::format::ElementFormat;
use crate::round::bits::{ABS, BIAS, MANTISSA_BITS, ONE, SIGN, pow2};
use crate::round::mode::Even;
use crate::round::words::Word;
use crate::round::{RoundingRule, round_drawn, round_magnitude, round_normal};

/// The elements of a format, as rounding in units of the scale sees them.
#[derive(Clone, Copy)]
pub struct UnitElement {
    pub(crate) mantissa_bits: i32,
    /// Exponent of the smallest number with all its mantissa bits.
    pub(crate) emin: i32,
    /// Pattern of the largest number.
    pub(crate) max: u32,
    /// Magnitudes below this pattern count as zero, before they are scaled. Half a step is more.
    pub(crate) flush_below: u32,
}

impl UnitElement {
    /// The elements of a format, none of which count as zero.
    pub fn of(element: ElementFormat) -> Self {
        Self {
            mantissa_bits: element.mantissa_bits() as i32,
            emin: element.emin(),
            max: element.max().to_bits(),
            flush_below: 0,
        }
    }

    /// q, in units of the scale, as a pattern without a sign, for any block. `abs` must be finite.
    #[inline(always)]
    pub fn round_scaled<R: RoundingRule, W: Word>(&self, pair: ScalePair<W>, abs: W, draw: W) -> W {
        let limited = pair.scaled(abs).smaller(self.max.into());
        round_magnitude::<R, _>(limited, self.mantissa_bits, self.emin.into(), draw)
    }

    /// Rounds one element of a block in which no magnitude, no scale and no product of them is very large or very small, as
    /// the range of [ordinary](super::BlockRule::ordinary) blocks says.
    #[inline(always)]
    pub(crate) fn round<R: RoundingRule>(&self, pair: ScalePair, x: f32, draw: u32) -> f32 {
        let (sign, abs) = (x.to_bits() & SIGN, x.to_bits() & ABS);
        let magnitude = if R::USES_DRAWS {
            let limited = self.limited(pair, abs);
            let counted = if abs < self.flush_below { 0 } else { limited };
            let unit = round_magnitude::<R, _>(counted, self.mantissa_bits, self.emin, draw);
            unit.product(pair.scale)
        } else {
            self.round_tame::<R, _>(pair, abs, draw)
        };
        f32::from_bits(sign | magnitude)
    }

    /// A magnitude in units of the scale, and at most the largest one.
    #[inline(always)]
    fn limited<W: Word>(&self, pair: ScalePair<W>, abs: W) -> W {
        abs.product(pair.inverse).smaller(self.max.into())
    }

    /// A magnitude of an ordinary block in units of the scale, and the same rounded half to even.
    #[inline(always)]
    pub(crate) fn unit_and_rounded(&self, inverse: u32, abs: u32) -> [u32; 2] {
        let unit = abs.product(inverse);
        let limited = unit.smaller(self.max);
        [unit, self.by_floats::<Even, _>(limited, pow2(self.emin), 0)]
    }

    /// Rounds a magnitude of a [tame](super::tame) block, or by a rule without draws of an ordinary one.
    #[inline(always)]
    pub fn round_tame<R: RoundingRule, W: Word>(&self, pair: ScalePair<W>, abs: W, draw: W) -> W {
        let limited = self.limited(pair, abs);
        let unit = self.by_floats::<R, _>(limited, pow2(self.emin).into(), draw);
        unit.product(pair.scale)
    }

    /// The same where the scale is a power of two.
    #[inline(always)]
    pub(crate) fn round_tame_unscaled<R: RoundingRule, W: Word>(
        &self,
        scale: W,
        abs: W,
        draw: W,
    ) -> W {
        let magnitude = self.by_floats::<R, _>(abs, self.smallest_normal(scale), draw);
        magnitude.smaller(self.largest(scale))
    }

    #[inline(always)]
    fn by_floats<R: RoundingRule, W: Word>(&self, abs: W, smallest: W, draw: W) -> W {
        match R::USES_DRAWS {
            true => round_drawn(abs, self.mantissa_bits, smallest, draw),
            false => round_normal::<R, _>(abs, self.mantissa_bits, smallest, self.by_code()),
        }
    }

    /// [`round`](Self::round) with fewer operations where the scale is a power of two: nothing is scaled.
    #[inline(always)]
    pub(crate) fn round_unscaled<R: RoundingRule>(&self, scale: u32, x: f32, draw: u32) -> f32 {
        let (sign, abs) = (x.to_bits() & SIGN, x.to_bits() & ABS);
        let magnitude = if R::USES_DRAWS {
            let counted = if abs < self.flush_below { 0 } else { abs };
            let emin = self.emin + (scale >> MANTISSA_BITS) as i32 - BIAS;
            let magnitude = round_magnitude::<R, _>(counted, self.mantissa_bits, emin, draw);
            magnitude.min(self.largest(scale))
        } else {
            self.round_tame_unscaled::<R, _>(scale, abs, draw)
        };
        f32::from_bits(sign | magnitude)
    }

    /// [`round_unscaled`](Self::round_unscaled) with fewer operations, of a format with mantissa bits and by a rule without draws.
    #[inline(always)]
    pub(crate) fn round_mantissa<R: RoundingRule>(&self, scale: u32, x: f32) -> u32 {
        let (sign, abs) = (x.to_bits() & SIGN, x.to_bits() & ABS);
        let smallest = self.smallest_normal(scale);
        let magnitude = round_normal::<R, _>(abs, self.mantissa_bits, smallest, 0);
        sign | magnitude.min(self.largest(scale))
    }

    /// Whether ties are between powers of two, as [`round_normal`] wants to know.
    #[inline(always)]
    fn by_code(&self) -> u32 {
        u32::from(self.mantissa_bits == 0)
    }

    /// The pattern of the smallest number with all its mantissa bits of a block whose scale is a power of two.
    #[inline(always)]
    fn smallest_normal<W: Word>(&self, scale: W) -> W {
        scale.wrapping_sum(pow2(self.emin).wrapping_sub(ONE).into())
    }

    /// The pattern of the smallest number but zero of a block whose scale is a power of two.
    #[inline(always)]
    pub(crate) fn smallest(&self, scale: u32) -> u32 {
        let step = (self.mantissa_bits as u32) << MANTISSA_BITS;
        self.smallest_normal(scale).wrapping_sub(step)
    }

    /// The pattern of the largest number of a block whose scale is a power of two.
    #[inline(always)]
    pub(crate) fn largest<W: Word>(&self, scale: W) -> W {
        scale.wrapping_sum(self.max.wrapping_sub(ONE).into())
    }
}
