//! The loop over memory that quantizes blocks, contiguous ones and interleaved ones.

use super::block_rule::{BlockRule, Words};
use super::contiguous::Line;
use super::instruction_set::Kernel;
use super::interleaved::{Tile, quantize_run};
use super::layout::Layout;
use crate::RandomStream;
use crate::round::RoundingRule;
use crate::round::draws::Draws;

/// How to round, the same for all blocks of a tensor.
#[derive(Clone, Copy)]
pub(crate) struct Job<G, R> {
    pub(crate) block_rule: G,
    pub(crate) rule: R,
    pub(crate) stream: RandomStream,
}

/// Quantizes consecutive runs of whole blocks. A run is `inner` interleaved blocks, contiguous in
/// memory as a whole.
pub(crate) struct Blocks<'a, G, R> {
    pub(crate) job: Job<G, R>,
    pub(crate) layout: Layout,
    pub(crate) data: &'a mut [f32],
    /// Position of the data on the axis, a multiple of the block length.
    pub(crate) at: usize,
    /// Position of the data in the tensor.
    pub(crate) start: u64,
}

impl<G: BlockRule, R: RoundingRule> Kernel for Blocks<'_, G, R> {
    #[inline(always)]
    fn run(self) {
        if self.layout.inner == 1 {
            self.run_contiguous();
        } else {
            self.run_strided();
        }
    }
}

impl<G: BlockRule, R: RoundingRule> Blocks<'_, G, R> {
    #[inline(always)]
    fn run_contiguous(self) {
        let Self {
            job,
            layout,
            data,
            mut at,
            mut start,
        } = self;
        let draws = Draws::new(job.stream, start + data.len() as u64);
        let mut blocks = Line { job, draws };
        let mut rest = data;
        while !rest.is_empty() {
            let length = if layout.axis.is_multiple_of(layout.block) {
                rest.len()
            } else {
                (layout.axis - at).min(rest.len())
            };
            let (line, tail) = rest.split_at_mut(length);
            blocks.quantize(line, layout.block, start);
            (at, start, rest) = (0, start + length as u64, tail);
        }
    }

    #[inline(always)]
    fn run_strided(self) {
        let Self {
            job,
            layout,
            data,
            mut at,
            mut start,
        } = self;
        let mut draws = Draws::new(job.stream, start + data.len() as u64);
        let mut tile = Tile::new();
        let mut rest = data;
        while !rest.is_empty() {
            let length = layout.block.min(layout.axis - at);
            let (run, tail) = rest.split_at_mut(length * layout.inner);
            quantize_run(&job, &layout, run, start, &mut tile, &mut draws);
            at += length;
            if at == layout.axis {
                at = 0;
            }
            start += run.len() as u64;
            rest = tail;
        }
    }
}

/// The grids of many sub-blocks, word by word, from the largest magnitudes of their blocks and their own.
/// Returns whether all are tame; the grids are those of tame blocks then.
#[inline(always)]
pub(crate) fn make_grids<G: BlockRule, R: RoundingRule>(
    block_rule: G,
    maxima: &[u32],
    sub_maxima: &[u32],
    grids: [&mut [u32]; 2],
) -> bool {
    let range = block_rule.tame();
    // All are looked at, without a branch.
    let all = maxima.iter().fold(true, |all, amax| {
        all & (*amax < range.end) & ((*amax >= range.start) | (*amax == 0))
    });
    let tame = all && !R::USES_DRAWS;
    let [first, second] = grids;
    if G::EASY_WHEN_TAME && all && R::USES_DRAWS {
        // Elements are rounded as those of any block, but their grids are easier to come by.
        each_grid(
            block_rule,
            true,
            maxima,
            sub_maxima,
            [&mut *first, &mut *second],
        );
        for (first, second) in first.iter_mut().zip(second) {
            [*first, *second] = G::grid_of_tame([*first, *second]).words();
        }
    } else {
        each_grid(block_rule, tame, maxima, sub_maxima, [first, second]);
    }
    tame
}

/// The grids of many sub-blocks, all tame or not.
#[inline(always)]
pub(crate) fn each_grid<G: BlockRule>(
    block_rule: G,
    tame: bool,
    maxima: &[u32],
    sub_maxima: &[u32],
    [first, second]: [&mut [u32]; 2],
) {
    let least = block_rule.tame().start;
    let grids = first.iter_mut().zip(second);
    let maxima = maxima.iter().zip(sub_maxima);
    if tame {
        for ((first, second), (amax, sub_amax)) in grids.zip(maxima) {
            [*first, *second] = block_rule.tame_grid((*amax).max(least), *sub_amax);
        }
    } else {
        for ((first, second), (amax, sub_amax)) in grids.zip(maxima) {
            [*first, *second] = block_rule.grid(*amax, *sub_amax).words();
        }
    }
}

/// Rounds neighbours, each with its grid; `tame` is what [`make_grids`] said of them.
#[inline(always)]
pub(crate) fn round_each<G: BlockRule, R: RoundingRule>(
    block_rule: G,
    rule: R,
    data: &mut [f32],
    tame: bool,
    [first, second]: [&[u32]; 2],
    draws: &[u32],
) {
    let grids = first.iter().zip(second).map(|(a, b)| [*a, *b]);
    if tame && !R::USES_DRAWS {
        for (x, grid) in data.iter_mut().zip(grids) {
            *x = block_rule.round_tame(grid, rule, *x);
        }
        return;
    }
    for ((x, grid), draw) in data.iter_mut().zip(grids).zip(draws) {
        *x = block_rule.round(G::Grid::of(grid), rule, *x, *draw);
    }
}
