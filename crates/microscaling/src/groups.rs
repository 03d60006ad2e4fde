//! A block format as the loops over memory see it.

use crate::Rounding;
use crate::bits::ABS;
use crate::dispatch::{Kernel, dispatch};
use crate::parallel::{PARALLEL_THRESHOLD, join, threads};
use crate::round::{Rule, with_rule};
use core::ops::Range;

/// From the largest magnitudes of a block and a sub-block to what the elements of the sub-block need to
/// know, and from there to an element.
///
/// The methods must be `#[inline(always)]`, see [`Kernel`].
pub(crate) trait GroupRule: Copy + Send + Sync {
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
    fn round<R: Rule>(&self, grid: Self::Grid, rule: R, x: f32, draw: u32) -> f32;

    /// The patterns of a block's largest counted magnitude from which on and below which the block is
    /// tame: neither very large nor very small, so that [`tame_grid`](Self::tame_grid) and
    /// [`round_tame`](Self::round_tame) may be used. A block of zeros is as tame as one with the
    /// first of them.
    fn tame(&self) -> Range<u32>;

    /// [`grid`](Self::grid) of a tame block, for [`round_tame`](Self::round_tame) alone.
    fn tame_grid(&self, amax: u32, sub_amax: u32) -> [u32; 2];

    /// [`round`](Self::round) with fewer operations, of an element of a tame block, by a rule without
    /// draws.
    fn round_tame<R: Rule>(&self, grid: [u32; 2], rule: R, x: f32) -> f32;

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

/// The largest of the counted magnitudes of some elements.
#[inline(always)]
pub(crate) fn counted_max<G: GroupRule>(data: &[f32]) -> u32 {
    data.iter()
        .fold(0, |amax, x| amax.max(G::counted(x.to_bits() & ABS)))
}

/// The largest magnitude of some elements as a pattern: of a NaN or Inf if there is one.
#[inline(always)]
pub(crate) fn magnitude_max(data: &[f32]) -> u32 {
    data.iter().fold(0, |amax, x| amax.max(x.to_bits() & ABS))
}

/// [`magnitude_max`] of a whole tensor, by all threads.
pub(crate) fn largest(data: &[f32]) -> u32 {
    if data.len() < PARALLEL_THRESHOLD || threads() == 1 {
        let mut amax = 0;
        dispatch(Largest {
            data,
            amax: &mut amax,
        });
        return amax;
    }
    let (low, high) = data.split_at(data.len() / 2);
    let (low, high) = join(|| largest(low), || largest(high));
    low.max(high)
}

/// [`largest`] on one thread.
struct Largest<'a> {
    data: &'a [f32],
    amax: &'a mut u32,
}

impl Kernel for Largest<'_> {
    #[inline(always)]
    fn run(self) {
        *self.amax = magnitude_max(self.data);
    }
}
