//! A whole tensor in place: how its blocks are shared among threads.

use super::block_rule::BlockRule;
use super::blocks::{Blocks, Job};
use super::instruction_set::dispatch;
use super::interleaved::{Apply, Lines, See, TILE, Tile};
use super::layout::{Layout, Runs};
use super::threads::{PARALLEL_THRESHOLD, for_each_piece, join, threads};
use crate::round::{RoundingRule, with_rule};
use crate::{RandomStream, Rounding};
use alloc::{vec, vec::Vec};
use core::marker::PhantomData;
use core::ops::Range;

/// Quantizes a whole tensor in place, sharing it among threads.
pub(crate) fn quantize_blocks<G: BlockRule>(
    block_rule: G,
    layout: Layout,
    data: &mut [f32],
    rounding: Rounding,
    stream: RandomStream,
) {
    if !data.is_empty() {
        with_rule!(rounding, rule => quantize_all(Job { block_rule, rule, stream }, layout, data));
    }
}

fn quantize_all<G: BlockRule, R: RoundingRule>(job: Job<G, R>, layout: Layout, data: &mut [f32]) {
    if layout.block == 1 {
        // Every element is a block. As rows of an axis of length 1 they are interleaved ones, which
        // have vectorized scales.
        for_each_piece(data, 0, &|start, piece| {
            let layout = Layout {
                axis: 1,
                inner: piece.len(),
                block: 1,
            };
            dispatch(Blocks {
                job,
                layout,
                data: piece,
                at: 0,
                start,
            });
        });
        return;
    }
    let runs = Runs::of(layout);
    let all = runs.all(data);
    if all.len() >= threads() || data.len() < PARALLEL_THRESHOLD {
        quantize_runs(job, runs, data, all);
        return;
    }
    let mut rest = data;
    for run in all {
        let (data, tail) = rest.split_at_mut(runs.start(run + 1) - runs.start(run));
        quantize_large_run(job, runs, data, run);
        rest = tail;
    }
}

/// Quantizes consecutive runs, whose elements `data` are, sharing them among threads.
fn quantize_runs<G: BlockRule, R: RoundingRule>(
    job: Job<G, R>,
    runs: Runs,
    data: &mut [f32],
    range: Range<usize>,
) {
    runs.share(data, range, &|data, at, start| {
        dispatch(Blocks {
            job,
            layout: runs.layout,
            data,
            at,
            start,
        });
    });
}

/// Quantizes one run in two parallel passes: there are fewer runs than threads. One with sub-blocks is
/// one thread's work.
fn quantize_large_run<G: BlockRule, R: RoundingRule>(
    job: Job<G, R>,
    runs: Runs,
    data: &mut [f32],
    run: usize,
) {
    let rows = data.len() / runs.layout.inner;
    if data.len() < PARALLEL_THRESHOLD || job.block_rule.sub_block() < rows {
        return quantize_runs(job, runs, data, run..run + 1);
    }
    let lines = Lines::of(runs.layout.inner, rows);
    let mut tile = Tile::new();
    for columns in lines.tiles(TILE) {
        let maxima = see_columns::<G>(data, &lines, &columns);
        tile.reset(columns.len()).copy_from_slice(&maxima);
        tile.make_grids(&job, &lines);
        apply_columns(&job, &tile, data, runs.start(run), &lines, &columns);
    }
}

/// Where to split some lines, or `None` if their columns are too little work for two threads.
fn middle(data: &[f32], lines: &Lines, columns: &Range<usize>) -> Option<usize> {
    let count = data.len().div_ceil(lines.width);
    (count * columns.len() >= PARALLEL_THRESHOLD).then_some(count / 2 * lines.width)
}

/// The largest magnitudes of some columns.
fn see_columns<G: BlockRule>(data: &[f32], lines: &Lines, columns: &Range<usize>) -> Vec<u32> {
    if let Some(middle) = middle(data, lines, columns) {
        let (low, high) = data.split_at(middle);
        let see = |data| see_columns::<G>(data, lines, columns);
        let (mut maxima, other) = join(|| see(low), || see(high));
        maxima
            .iter_mut()
            .zip(other)
            .for_each(|(max, other)| *max = (*max).max(other));
        return maxima;
    }
    let mut maxima = vec![0; columns.len()];
    dispatch(See {
        block_rule: PhantomData::<G>,
        maxima: &mut maxima,
        data,
        lines,
        columns: columns.clone(),
    });
    maxima
}

/// Rounds some columns. `start` is the position of the data in the tensor.
fn apply_columns<G: BlockRule, R: RoundingRule>(
    job: &Job<G, R>,
    tile: &Tile,
    data: &mut [f32],
    start: usize,
    lines: &Lines,
    columns: &Range<usize>,
) {
    if let Some(middle) = middle(data, lines, columns) {
        let (low, high) = data.split_at_mut(middle);
        join(
            || apply_columns(job, tile, low, start, lines, columns),
            || apply_columns(job, tile, high, start + middle, lines, columns),
        );
        return;
    }
    dispatch(Apply {
        job: *job,
        tile,
        data,
        start: start as u64,
        lines,
        columns: columns.clone(),
    });
}
