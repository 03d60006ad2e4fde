//! Blocks along a contiguous axis.

use super::block_rule::{BlockRule, SIGHT, Words};
use super::blocks::{Job, each_grid, make_grids, round_each};
use super::largest::counted_max;
use crate::round::RoundingRule;
use crate::round::bits::ABS;
use crate::round::draws::{Draws, WINDOW};
use core::hint::black_box;

/// Elements of the longest vector.
pub(crate) const LANES: usize = 16;

/// Contiguous blocks that are worked on together.
pub(crate) const TOGETHER: usize = 16;

/// Contiguous blocks, with the draws of the elements.
pub(crate) struct Line<G, R> {
    pub(crate) job: Job<G, R>,
    pub(crate) draws: Draws,
}

impl<G: BlockRule, R: RoundingRule> Line<G, R> {
    /// Quantizes contiguous blocks; the last one may be shorter.
    #[inline(always)]
    pub(crate) fn quantize(&mut self, line: &mut [f32], block: usize, start: u64) {
        let sub_block = self.job.block_rule.sub_block().min(block);
        // The usual lengths as constants, so that a block is a few vectors.
        let done = match (block, sub_block) {
            (16, 2) if G::HAS_SUB_BLOCKS => self.together::<16, 16, 2>(line, start),
            (16, 4) if G::HAS_SUB_BLOCKS => self.together::<16, 16, 4>(line, start),
            (16, 8) if G::HAS_SUB_BLOCKS => self.together::<16, 16, 8>(line, start),
            _ if G::HAS_SUB_BLOCKS => 0,
            (8, _) => self.together::<8, 8, 8>(line, start),
            (16, _) => self.together::<16, 16, 16>(line, start),
            (32, _) => self.together::<32, 16, 16>(line, start),
            (64, _) => self.together::<64, 16, 16>(line, start),
            _ => 0,
        };
        self.blocks(&mut line[done..], block, start + done as u64);
    }

    /// Quantizes blocks of any length; the last one may be shorter.
    #[inline(always)]
    fn blocks(&mut self, data: &mut [f32], block: usize, start: u64) {
        for (i, piece) in data.chunks_mut(block).enumerate() {
            self.block(piece, start + (i * block) as u64);
        }
    }

    /// Quantizes one block of any length.
    #[inline(always)]
    fn block(&mut self, block: &mut [f32], start: u64) {
        let Job {
            block_rule, rule, ..
        } = self.job;
        let amax = counted_max::<G>(block);
        let second = block_rule.second(amax, block.iter().copied());
        let length = block.len();
        let sub_block = block_rule.sub_block().min(length);
        for (i, data) in block.chunks_mut(sub_block).enumerate() {
            let sub_amax = if sub_block == length {
                second
            } else {
                counted_max::<G>(data)
            };
            let (mut first, mut second) = ([0], [0]);
            let tame =
                make_grids::<G, R>(block_rule, &[amax], &[sub_amax], [&mut first, &mut second]);
            let ([first], [second]) = (first, second);
            if tame && !R::USES_DRAWS {
                for x in data {
                    *x = block_rule.round_tame([first, second], rule, *x);
                }
                continue;
            }
            let grid = G::Grid::of([first, second]);
            let start = start + (i * sub_block) as u64;
            for (j, piece) in data.chunks_mut(WINDOW).enumerate() {
                let draws = self
                    .draws
                    .get::<R>(start + (j * WINDOW) as u64, piece.len());
                for (x, draw) in piece.iter_mut().zip(draws) {
                    *x = block_rule.round(grid, rule, *x, *draw);
                }
            }
        }
    }

    /// Quantizes blocks of B elements, which are vectors of L lanes, with sub-blocks of S lanes unless
    /// S = L. Returns how many elements: some at the end may be left.
    ///
    /// A block alone is one long chain of operations that wait for each other. [`TOGETHER`] of them, first
    /// the largest magnitudes of all, then their grids, then all elements, keep the processor busy, and
    /// are few enough that reading the next ones begins while these are rounded.
    #[inline(always)]
    fn together<const B: usize, const L: usize, const S: usize>(
        &mut self,
        data: &mut [f32],
        start: u64,
    ) -> usize {
        let Job {
            block_rule, rule, ..
        } = self.job;
        let windows = data.chunks_exact_mut(TOGETHER * B);
        let count = windows.len();
        for (i, window) in windows.enumerate() {
            let (mut maxima, mut first, mut second) = ([0; TOGETHER], [0; TOGETHER], [0; TOGETHER]);
            for (amax, block) in maxima.iter_mut().zip(window.chunks_exact(B)) {
                // Hidden, lest blocks become lanes, each element a load of its own.
                *amax = black_box(largest::<G, L>(block.as_chunks().0));
            }
            let seconds = if G::LOOKS_TWICE {
                look_twice::<G, B>(block_rule, &maxima, window)
            } else {
                maxima
            };
            let tame = make_grids::<G, R>(block_rule, &maxima, &seconds, [&mut first, &mut second]);
            let draws = self
                .draws
                .get::<R>(start + (i * TOGETHER * B) as u64, window.len());
            let vectors = window.as_chunks_mut::<LANES>().0;
            let draws = draws.as_chunks::<LANES>().0;
            for (j, (vector, draws)) in vectors.iter_mut().zip(draws).enumerate() {
                // Hidden for the same reason.
                let block = black_box(j) * LANES / B;
                let (mut first, mut second) =
                    (lanes::<B>(&first, block), lanes::<B>(&second, block));
                if S < L {
                    let sub_maxima = across::<G, S>(vector);
                    let grids = [&mut first[..], &mut second[..]];
                    each_grid(
                        block_rule,
                        tame,
                        &lanes::<B>(&maxima, block),
                        &sub_maxima,
                        grids,
                    );
                }
                round_each(block_rule, rule, vector, tame, [&first, &second], draws);
            }
        }
        count * TOGETHER * B
    }
}

/// What second looks at blocks of B elements say.
#[inline(always)]
pub(crate) fn look_twice<G: BlockRule, const B: usize>(
    block_rule: G,
    maxima: &[u32; TOGETHER],
    window: &[f32],
) -> [u32; TOGETHER] {
    let mut sights = [[0; TOGETHER]; SIGHT];
    for (i, amax) in maxima.iter().enumerate() {
        let sight = block_rule.sight(*amax);
        for (words, word) in sights.iter_mut().zip(sight) {
            words[i] = word;
        }
    }
    let mut verdicts = [0; TOGETHER];
    for (i, block) in window.chunks_exact(B).enumerate() {
        // Hidden, lest blocks become lanes.
        let sight = black_box(sights.each_ref().map(|words| words[i]));
        let sum = block.iter().fold(0_i64, |sum, x| {
            sum.wrapping_add(block_rule.weight(sight, *x))
        });
        verdicts[i] = block_rule.verdict(maxima[i], sum, B);
    }
    verdicts
}

/// The word of a block in its lanes, and that of the next one in the others if blocks of B elements leave
/// some.
#[inline(always)]
pub(crate) fn lanes<const B: usize>(of_blocks: &[u32; TOGETHER], block: usize) -> [u32; LANES] {
    // The remainders only show that the indices are less.
    let mut lanes = [of_blocks[block % TOGETHER]; LANES];
    if B < LANES {
        lanes[B..].fill(of_blocks[(block + 1) % TOGETHER]);
    }
    lanes
}

/// The largest counted magnitude of some vectors.
#[inline(always)]
pub(crate) fn largest<G: BlockRule, const L: usize>(vectors: &[[f32; L]]) -> u32 {
    let mut magnitudes = [0; L];
    for vector in vectors {
        for (max, x) in magnitudes.iter_mut().zip(vector) {
            *max = (*max).max(G::counted(x.to_bits() & ABS));
        }
    }
    if !G::COUNTS_ALL {
        // Hidden, lest the choice of what counts becomes a branch for each lane.
        magnitudes = black_box(magnitudes);
    }
    magnitudes.into_iter().fold(0, u32::max)
}

/// In each lane the largest counted magnitude of the S neighbours that it is one of; S is 2, 4 or 8.
#[inline(always)]
pub(crate) fn across<G: BlockRule, const S: usize>(vector: &[f32; LANES]) -> [u32; LANES] {
    /// In each lane the larger one of it and the lane at that distance.
    #[inline(always)]
    fn fold<const DISTANCE: usize>(x: [u32; LANES]) -> [u32; LANES] {
        let mut larger = x;
        for i in 0..LANES {
            larger[i] = x[i].max(x[i ^ DISTANCE]);
        }
        larger
    }
    let mut x = [0; LANES];
    for (magnitude, x) in x.iter_mut().zip(vector) {
        *magnitude = G::counted(x.to_bits() & ABS);
    }
    x = fold::<1>(x);
    if S > 2 {
        x = fold::<2>(x);
    }
    if S > 4 {
        x = fold::<4>(x);
    }
    x
}
