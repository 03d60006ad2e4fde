//! Rounding an element to the numbers that its block can hold, for any block with a power-of-two scale.

use crate::round::bits::{ABS, INFINITY, NAN, SIGN};
use crate::round::{RoundingRule, round_magnitude};

/// Data that the elements of a block share, as two words, so that there can be arrays of each. Each rule has its own
/// words: [`Steps`] or [`ScalePair`](super::ScalePair).
pub(crate) type Grid = [u32; 2];

/// The grid of a block with a power-of-two scale.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    /// Exponent of the smallest number with all its mantissa bits.
    pub(crate) emin: i32,
    /// Pattern of the largest number, or of NaN if everything becomes NaN.
    pub(crate) max: u32,
}

impl Steps {
    #[inline(always)]
    pub(crate) const fn words(self) -> Grid {
        [self.emin as u32, self.max]
    }

    #[inline(always)]
    pub(crate) const fn of([emin, max]: Grid) -> Self {
        Self {
            emin: emin as i32,
            max,
        }
    }
}

/// How elements are rounded to [`Steps`].
#[derive(Clone, Copy)]
pub(crate) struct StepElement {
    pub(crate) mantissa_bits: i32,
    /// Magnitudes below this pattern count as zero.
    pub(crate) flush_below: u32,
    /// Whether NaN and Inf stay as they are; otherwise the whole block becomes NaN.
    pub(crate) keeps_special: bool,
}

impl StepElement {
    /// Rounds one element.
    #[inline(always)]
    pub(crate) fn round<R: RoundingRule>(&self, grid: Grid, x: f32, draw: u32) -> f32 {
        let Steps { emin, max } = Steps::of(grid);
        let (sign, abs) = (x.to_bits() & SIGN, x.to_bits() & ABS);
        let special = self.keeps_special && abs >= INFINITY;
        let counted = if special || abs < self.flush_below {
            0
        } else {
            abs
        };
        let magnitude = round_magnitude::<R>(counted, self.mantissa_bits, emin, draw);
        let saturated = sign | magnitude.min(max);
        f32::from_bits(if max > INFINITY {
            NAN
        } else if special {
            x.to_bits()
        } else {
            saturated
        })
    }
}
