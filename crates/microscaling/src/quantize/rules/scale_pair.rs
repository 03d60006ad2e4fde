//! The factors that multiply the elements of a block before and after rounding.

use super::grid::Grid;
use crate::round::bits::{BIAS, INFINITY, MANTISSA_BITS, NAN, ONE};
use crate::round::words::Word;

/// The factors of the elements of a block, as patterns.
#[derive(Clone, Copy)]
pub struct ScalePair<W: Word = u32> {
    /// After rounding: the scale, or NaN.
    pub scale: W,
    /// Before: its reciprocal; Inf if that is too large.
    pub inverse: W,
}

impl<W: Word> ScalePair<W> {
    /// A magnitude in units of the scale.
    #[inline(always)]
    pub fn scaled(self, abs: W) -> W {
        let is_zero = self.scale.equals(0.into());
        let fits = self.inverse.is_below(INFINITY.into());
        // A device computes both, and each needs numbers that it can take.
        let divisor = || W::select(is_zero, ONE.into(), self.scale);
        let factor = || W::select(fits, self.inverse, ONE.into());
        let nonzero = || W::choose(fits, || abs.product(factor()), || abs.quotient(divisor()));
        W::choose(is_zero, || 0.into(), nonzero)
    }

    /// The largest number of a block, from that in units of the scale: NaN where the block becomes NaN, and the smallest number where
    /// there is but 0, beyond which all is clipped.
    #[inline(always)]
    pub fn largest(self, unit: W) -> W {
        let is_alone = unit.equals(0.into()) & !self.scale.equals(0.into());
        let largest = W::select(is_alone, 1.into(), self.scale.product(unit));
        let is_finite = self.scale.is_below(INFINITY.into());
        W::select(is_finite, largest, NAN.into())
    }

    /// The pair of a block that becomes NaN where a scale is not finite, else this pair.
    #[inline(always)]
    pub(crate) fn or_nan(self, scale: W) -> Self {
        let is_finite = scale.is_below(INFINITY.into());
        Self {
            scale: W::select(is_finite, self.scale, NAN.into()),
            inverse: W::select(is_finite, self.inverse, 0.into()),
        }
    }

    /// From a scale that is a power of two, if neither the scale nor its reciprocal is subnormal.
    #[inline(always)]
    pub(crate) fn of_power(scale: W) -> Self {
        const TWICE: u32 = (2 * BIAS as u32) << MANTISSA_BITS;
        Self {
            scale,
            inverse: W::from(TWICE) - scale,
        }
    }
}

impl ScalePair {
    /// Whether everything becomes NaN.
    #[inline(always)]
    pub(crate) const fn is_nan(self) -> bool {
        self.scale >= INFINITY
    }

    #[inline(always)]
    pub(crate) const fn words(self) -> Grid {
        [self.scale, self.inverse]
    }

    #[inline(always)]
    pub(crate) const fn of([scale, inverse]: Grid) -> Self {
        Self { scale, inverse }
    }
}
