//! A block format as the loops over memory see it.

use crate::Rounding;
use crate::float_state::ieee;
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

    /// Whether the grid depends on all elements of a block: they are looked at twice, the second time when the largest
    /// magnitude is known. There are no sub-blocks then.
    const LOOKS_TWICE: bool = false;

    /// What the second look needs to know of a block.
    #[inline(always)]
    fn sight(&self, _amax: u32) -> Sight {
        Sight::default()
    }

    /// What an element adds to the sum of the second look. Integers, so that their order does not matter; NaN and Inf add
    /// anything, as the largest magnitude says enough then.
    #[inline(always)]
    fn weight(&self, _sight: Sight, _x: f32) -> i64 {
        0
    }

    /// What the sum of the second look at a block of so many elements says: [`grid`](Self::grid) takes it in place of the
    /// largest magnitude of a sub-block. Less than 2^31.
    #[inline(always)]
    fn verdict(&self, amax: u32, _sum: i64, _length: usize) -> u32 {
        amax
    }

    /// The largest magnitude of a block of some elements, and what a second look at them says.
    #[inline(always)]
    fn maxima(&self, elements: impl Iterator<Item = f32> + Clone) -> [u32; 2] {
        let amax = elements
            .clone()
            .fold(0, |amax, x| amax.max(Self::counted(x.to_bits() & ABS)));
        [amax, self.second(amax, elements)]
    }

    /// What a second look at a block says, whose largest magnitude is known.
    #[inline(always)]
    fn second(&self, amax: u32, elements: impl Iterator<Item = f32>) -> u32 {
        if !Self::LOOKS_TWICE {
            return amax;
        }
        let sight = self.sight(amax);
        let (sum, length) = elements.fold((0_i64, 0), |(sum, length), x| {
            (sum.wrapping_add(self.weight(sight, x)), length + 1)
        });
        self.verdict(amax, sum, length)
    }

    /// The grid of a sub-block, from the largest counted magnitudes of its block and its own.
    fn grid(&self, amax: u32, sub_amax: u32) -> Self::Grid;

    /// Pattern of the largest number that an element of a grid can become; 0 or NaN where all of them do.
    fn largest(&self, grid: Self::Grid) -> u32;

    /// Rounds an element.
    fn round<R: RoundingRule>(&self, grid: Self::Grid, rule: R, x: f32, draw: u32) -> f32;

    /// The patterns of a block's largest counted magnitude from which on and below which the block is
    /// tame: neither very large nor very small, so that [`tame_grid`](Self::tame_grid) and
    /// [`round_tame`](Self::round_tame) may be used. A block of zeros is as tame as one with the
    /// first of them.
    fn tame(&self) -> Range<u32>;

    /// [`grid`](Self::grid) of a tame block, for [`round_tame`](Self::round_tame) alone.
    fn tame_grid(&self, amax: u32, sub_amax: u32) -> [u32; 2];

    /// Whether [`grid`](Self::grid) of a tame block takes longer than [`grid_of_tame`](Self::grid_of_tame).
    const EASY_WHEN_TAME: bool = false;

    /// [`grid`](Self::grid) of a tame block, from its [`tame_grid`](Self::tame_grid).
    #[inline(always)]
    fn grid_of_tame(grid: [u32; 2]) -> Self::Grid {
        Self::Grid::of(grid)
    }

    /// [`round`](Self::round) with fewer operations, of an element of a tame block, by a rule without
    /// draws.
    fn round_tame<R: RoundingRule>(&self, grid: [u32; 2], rule: R, x: f32) -> f32;

    /// One element, given the patterns of the largest magnitudes of its block and of its sub-block,
    /// whose sign bits are ignored.
    fn round_element(&self, x: f32, maxima: [u32; 2], rounding: Rounding, draw: u32) -> f32 {
        ieee(|| {
            let grid = self.grid(maxima[0] & ABS, maxima[1] & ABS);
            with_rule!(rounding, rule => self.round(grid, rule, x, draw))
        })
    }
}

/// What the second look at a block needs to know, word by word.
pub(crate) type Sight = [u32; SIGHT];
pub(crate) const SIGHT: usize = 5;

/// Two words, so that there can be arrays of each.
pub(crate) trait Words: Copy {
    /// To words.
    fn words(self) -> [u32; 2];
    /// From words.
    fn of(words: [u32; 2]) -> Self;
}
