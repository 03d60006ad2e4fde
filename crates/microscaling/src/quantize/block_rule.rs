//! A block format as the loops over memory see it.

use crate::Rounding;
use crate::round::bits::ABS;
use crate::round::{RoundingRule, with_rule};
use core::ops::Range;

/// From the largest magnitudes of a block and a sub-block to what the elements of the sub-block need to
/// know, and from there to an element.
///
/// The methods must be `#[inline(always)]`, see [`Kernel`](super::instruction_set::Kernel).
pub(crate) trait BlockRule: Copy + Send + Sync {
    /// What an element needs to know.
    type Grid: Words;

    /// Whether there is anything between a block and its elements.
    const HAS_SUB_BLOCKS: bool = false;

    /// Elements that share a grid, at least 1. As many as a block, or more, where there is nothing
    /// below the block.
    #[inline(always)]
    fn sub_block(&self) -> usize {
        usize::MAX
    }

    /// Whether every magnitude takes part in the largest one as it is.
    const COUNTS_ALL: bool = true;

    /// What of a magnitude takes part in the largest one.
    #[inline(always)]
    fn counted(abs: u32) -> u32 {
        abs
    }

    /// The grid of a sub-block, from the largest counted magnitudes of its block and its own.
    fn grid(&self, amax: u32, sub_amax: u32) -> Self::Grid;

    /// Rounds an element.
    fn round<R: RoundingRule>(&self, grid: Self::Grid, rule: R, x: f32, draw: u32) -> f32;

    /// The patterns of a block's largest counted magnitude from which on and below which the block is
    /// tame: neither very large nor very small, so that [`tame_grid`](Self::tame_grid) and
    /// [`round_tame`](Self::round_tame) may be used. A block of zeros is as tame as one with the
    /// first of them.
    fn tame(&self) -> Range<u32>;

    /// [`grid`](Self::grid) of a tame block, for [`round_tame`](Self::round_tame) alone.
    fn tame_grid(&self, amax: u32, sub_amax: u32) -> [u32; 2];

    /// [`round`](Self::round) with fewer operations, of an element of a tame block, by a rule without
    /// draws.
    fn round_tame<R: RoundingRule>(&self, grid: [u32; 2], rule: R, x: f32) -> f32;

    /// One element, given the patterns of the largest magnitudes of its block and of its sub-block,
    /// whose sign bits are ignored.
    fn round_element(&self, x: f32, maxima: [u32; 2], rounding: Rounding, draw: u32) -> f32 {
        let grid = self.grid(maxima[0] & ABS, maxima[1] & ABS);
        with_rule!(rounding, rule => self.round(grid, rule, x, draw))
    }
}

/// Two words, so that there can be arrays of each.
pub(crate) trait Words: Copy {
    /// To words.
    fn words(self) -> [u32; 2];
    /// From words.
    fn of(words: [u32; 2]) -> Self;
}
