//! The factors that multiply the elements of a block before and after rounding.

use super::grid::Grid;
use crate::round::bits::{BIAS, INFINITY, MANTISSA_BITS};

/// The factors of the elements of a block, as patterns.
#[derive(Clone, Copy)]
pub(crate) struct ScalePair {
    /// After rounding: the scale, or NaN.
    pub(crate) scale: u32,
    /// Before: its reciprocal; Inf if that is too large.
    pub(crate) inverse: u32,
}

impl ScalePair {
    /// From a scale that is a power of two, if neither the scale nor its reciprocal is subnormal.
    #[inline(always)]
    pub(crate) const fn of_power(scale: u32) -> Self {
        const TWICE: u32 = (2 * BIAS as u32) << MANTISSA_BITS;
        Self {
            scale,
            inverse: TWICE.wrapping_sub(scale),
        }
    }

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
