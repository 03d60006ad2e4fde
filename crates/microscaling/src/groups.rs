//! The loops over memory of the formats whose blocks are not plain MX blocks: one driver for block and
//! sub-block, along any axis.

use crate::bits::ABS;
use crate::dispatch::{Kernel, dispatch};
use crate::kernels::{Draws, Layout, WINDOW};
use crate::parallel::{PARALLEL_THRESHOLD, join, threads};
use crate::quantize::Runs;
use crate::round::Rule;
use crate::{RandomStream, Rounding};
use core::ops::Range;

/// A block format as the loops see it: from the largest magnitudes of a block and a sub-block to what
/// the elements of the sub-block need to know, and from there to an element.
///
/// The methods must be `#[inline(always)]`, see [`Kernel`].
pub(crate) trait GroupRule: Copy + Send + Sync {
    /// What an element needs to know.
    type Grid: Copy;

    /// Elements that share a grid, at least 1. As many as a block, or more, where there is nothing
    /// below the block.
    fn sub_block(&self) -> usize;

    /// What of a magnitude takes part in the largest one.
    #[inline(always)]
    fn counted(abs: u32) -> u32 {
        abs
    }

    /// The grid of a sub-block, from the largest counted magnitudes of its block and its own.
    fn grid(&self, amax: u32, sub_amax: u32) -> Self::Grid;

    /// Rounds an element.
    fn round<R: Rule>(&self, grid: Self::Grid, rule: R, x: f32, draw: u32) -> f32;
}

/// Quantizes a whole tensor with at least one element. Threads share the runs; a single run is one
/// thread's work.
pub(crate) fn quantize_groups<G: GroupRule>(
    group: G,
    layout: Layout,
    data: &mut [f32],
    rounding: Rounding,
    stream: RandomStream,
) {
    crate::round::with_rule!(rounding, rule => {
        let runs = Runs::of(layout);
        let all = runs.all(data);
        runs.share(data, all, &|data, at, start| {
            dispatch(Groups {
                group,
                rule,
                stream,
                layout,
                data,
                at,
                start,
            });
        });
    })
}

/// The largest magnitude of a tensor as a pattern: of a NaN or Inf if it holds one.
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
        *self.amax = fold(0, self.data, |abs| abs);
    }
}

/// The largest of `amax` and the counted magnitudes of some elements.
#[inline(always)]
fn fold(amax: u32, data: &[f32], counted: impl Fn(u32) -> u32) -> u32 {
    data.iter()
        .fold(amax, |amax, x| amax.max(counted(x.to_bits() & ABS)))
}

/// Quantizes consecutive runs of whole blocks. A run is `inner` interleaved blocks.
struct Groups<'a, G, R> {
    group: G,
    rule: R,
    stream: RandomStream,
    layout: Layout,
    data: &'a mut [f32],
    /// Position of the data on the axis, a multiple of the block length.
    at: usize,
    /// Position of the data in the tensor.
    start: u64,
}

impl<G: GroupRule, R: Rule> Kernel for Groups<'_, G, R> {
    #[inline(always)]
    fn run(self) {
        let Self {
            group,
            rule,
            layout,
            data,
            mut at,
            mut start,
            ..
        } = self;
        let mut scratch = Scratch {
            group,
            rule,
            draws: Draws::new(self.stream),
            maxima: [0; WINDOW],
            sub_maxima: [0; WINDOW],
            grids: [group.grid(0, 0); WINDOW],
        };
        let mut rest = data;
        if layout.inner == 1 {
            while !rest.is_empty() {
                // Whole blocks, but for the last one of an axis.
                let length = (layout.axis - at).min(rest.len());
                let (line, tail) = rest.split_at_mut(length);
                // The usual lengths as constants, so that there are vectors for them.
                match layout.block {
                    8 => scratch.line(line, 8, start),
                    16 => scratch.line(line, 16, start),
                    block => scratch.line(line, block, start),
                }
                (at, start, rest) = (0, start + length as u64, tail);
            }
            return;
        }
        while !rest.is_empty() {
            let length = layout.block.min(layout.axis - at);
            let (run, tail) = rest.split_at_mut(length * layout.inner);
            for first in (0..layout.inner).step_by(WINDOW) {
                let columns = first..layout.inner.min(first + WINDOW);
                scratch.columns(run, layout.inner, columns, start);
            }
            at += length;
            if at == layout.axis {
                at = 0;
            }
            start += run.len() as u64;
            rest = tail;
        }
    }
}

/// How to round, and room for what is known of some columns or neighbours.
struct Scratch<G: GroupRule, R> {
    group: G,
    rule: R,
    draws: Draws,
    maxima: [u32; WINDOW],
    sub_maxima: [u32; WINDOW],
    grids: [G::Grid; WINDOW],
}

impl<G: GroupRule, R: Rule> Scratch<G, R> {
    /// Quantizes contiguous blocks; the last one may be shorter.
    #[inline(always)]
    fn line(&mut self, line: &mut [f32], block: usize, start: u64) {
        if block > WINDOW {
            for (i, data) in line.chunks_mut(block).enumerate() {
                self.long_block(data, start + (i * block) as u64);
            }
            return;
        }
        // Several blocks at a time: their loop over elements is one.
        let together = WINDOW / block * block;
        for (i, piece) in line.chunks_mut(together).enumerate() {
            match self.group.sub_block() {
                2 if block.is_multiple_of(2) => {
                    self.see_pairs(piece);
                    self.see_blocks(block, piece.len());
                }
                sub_block if sub_block < block => {
                    self.see_sub_blocks(piece, block, sub_block);
                    self.see_blocks(block, piece.len());
                }
                _ => {
                    for (grids, block) in self.grids.chunks_mut(block).zip(piece.chunks(block)) {
                        let amax = fold(0, block, G::counted);
                        grids.fill(self.group.grid(amax, amax));
                    }
                }
            }
            self.round(piece, start + (i * together) as u64);
        }
    }

    /// The largest magnitudes of contiguous pairs, at most [`WINDOW`] elements, for each element; the
    /// usual sub-blocks, in a loop that has vectors.
    #[inline(always)]
    fn see_pairs(&mut self, piece: &[f32]) {
        let pairs = self.sub_maxima.chunks_exact_mut(2);
        for (maxima, pair) in pairs.zip(piece.chunks_exact(2)) {
            let [a, b] = [pair[0], pair[1]].map(|x| G::counted(x.to_bits() & ABS));
            maxima.copy_from_slice(&[a.max(b); 2]);
        }
        if let [.., last] = piece
            && !piece.len().is_multiple_of(2)
        {
            self.sub_maxima[piece.len() - 1] = G::counted(last.to_bits() & ABS);
        }
    }

    /// The largest magnitudes of sub-blocks of contiguous blocks, as [`Self::see_pairs`].
    #[inline(always)]
    fn see_sub_blocks(&mut self, piece: &[f32], block: usize, sub_block: usize) {
        let blocks = self.sub_maxima.chunks_mut(block).zip(piece.chunks(block));
        for (maxima, block) in blocks {
            let sub_blocks = maxima.chunks_mut(sub_block).zip(block.chunks(sub_block));
            for (maxima, sub_block) in sub_blocks {
                maxima.fill(fold(0, sub_block, G::counted));
            }
        }
    }

    /// From the largest magnitudes of sub-blocks to those of the blocks, and to the grids.
    #[inline(always)]
    fn see_blocks(&mut self, block: usize, width: usize) {
        let sub_maxima = self.sub_maxima[..width].chunks(block);
        for (maxima, sub_maxima) in self.maxima.chunks_mut(block).zip(sub_maxima) {
            let amax = sub_maxima.iter().fold(0, |amax, max| amax.max(*max));
            maxima.fill(amax);
        }
        self.make_grids(width);
    }

    /// The grids of some elements or columns from the largest magnitudes.
    #[inline(always)]
    fn make_grids(&mut self, width: usize) {
        let maxima = self.maxima.iter().zip(&self.sub_maxima);
        for (grid, (amax, sub_amax)) in self.grids[..width].iter_mut().zip(maxima) {
            *grid = self.group.grid(*amax, *sub_amax);
        }
    }

    /// Quantizes one contiguous block that is longer than [`WINDOW`].
    #[inline(always)]
    fn long_block(&mut self, block: &mut [f32], start: u64) {
        let amax = fold(0, block, G::counted);
        let sub_block = self.group.sub_block();
        if sub_block >= block.len() {
            self.grids.fill(self.group.grid(amax, amax));
            return self.round_long(block, start);
        }
        // Several sub-blocks at a time, or one that is longer than the window.
        let together = (WINDOW / sub_block).max(1) * sub_block;
        for (i, piece) in block.chunks_mut(together).enumerate() {
            let grids = self.grids.chunks_mut(sub_block);
            for (grids, sub_block) in grids.zip(piece.chunks(sub_block)) {
                let sub_amax = fold(0, sub_block, G::counted);
                grids.fill(self.group.grid(amax, sub_amax));
            }
            self.round_long(piece, start + (i * together) as u64);
        }
    }

    /// Quantizes some of the columns of a run, at most [`WINDOW`].
    #[inline(always)]
    fn columns(&mut self, run: &mut [f32], inner: usize, columns: Range<usize>, start: u64) {
        let width = columns.len();
        see::<G>(&mut self.maxima[..width], run, inner, &columns);
        // No longer than the run, so that the product is none of an overflow.
        let sub_rows = self.group.sub_block().min(run.len() / inner);
        for (i, rows) in run.chunks_mut(sub_rows * inner).enumerate() {
            see::<G>(&mut self.sub_maxima[..width], rows, inner, &columns);
            self.make_grids(width);
            let start = start + (i * sub_rows * inner + columns.start) as u64;
            for (row, line) in rows.chunks_mut(inner).enumerate() {
                self.round(&mut line[columns.clone()], start + (row * inner) as u64);
            }
        }
    }

    /// Rounds neighbours, each with its grid; beyond [`WINDOW`] all grids must be the same.
    #[inline(always)]
    fn round_long(&mut self, data: &mut [f32], start: u64) {
        for (i, piece) in data.chunks_mut(WINDOW).enumerate() {
            self.round(piece, start + (i * WINDOW) as u64);
        }
    }

    /// Rounds at most [`WINDOW`] neighbours, each with its grid.
    #[inline(always)]
    fn round(&mut self, data: &mut [f32], start: u64) {
        let draws = self.draws.get::<R>(start, data.len());
        for ((x, grid), draw) in data.iter_mut().zip(&self.grids).zip(draws) {
            *x = self.group.round(*grid, self.rule, *x, *draw);
        }
    }
}

/// The largest counted magnitudes of some columns of some rows.
#[inline(always)]
fn see<G: GroupRule>(maxima: &mut [u32], rows: &[f32], inner: usize, columns: &Range<usize>) {
    maxima.fill(0);
    for line in rows.chunks(inner) {
        for (max, x) in maxima.iter_mut().zip(&line[columns.clone()]) {
            *max = (*max).max(G::counted(x.to_bits() & ABS));
        }
    }
}
