//! A whole tensor in place: how its blocks are shared among threads.

use super::blocks::Job;
use super::blocks::interleaved::{ColumnMax, Lines, Tile};
use super::eden;
use super::layout::{Layout, Runs};
use super::rules::{BlockRule, ElementRule};
use crate::round::draws::{Draws, PartStream};
use crate::round::mode::Rounding;
use crate::round::with_rule;
use alloc::{vec, vec::Vec};
use core::ops::Range;
use microscaling_processor::instruction_set::{at_level, dispatch};
use microscaling_processor::threads::{Divide, Piece, is_divided, share, share_all, threads};

/// Columns of a run that threads work on together, row by row. Wide, because the threads wait for each other twice.
const TILE: usize = 4096;

/// Quantizes a whole tensor in place, or a part of one, sharing it among threads.
pub(crate) fn quantize_blocks(
    rule: BlockRule,
    layout: Layout,
    data: &mut [f32],
    rounding: Rounding,
    stream: PartStream,
) {
    if let BlockRule::FloatScale(rule) = &rule
        && rule.eden
        && rounding == Rounding::Stochastic
    {
        return eden::quantize(rule, layout, data, stream);
    }
    with_rule!(rounding, R => {
        Job { rule, element_rule: R, stream }.run_all(layout, data)
    });
}

impl<R: ElementRule> Job<R> {
    /// Works on a whole tensor.
    pub(crate) fn run_all(&self, layout: Layout, data: &mut [f32]) {
        if data.is_empty() {
            return;
        }
        if layout.block == 1 && layout.pool.is_none() {
            // Every element is a block. As rows of an axis of length 1 they are interleaved ones, which
            // have vectorized scales.
            share_all(Piece { data, start: 0 }, &|Piece { data, start }| {
                let layout = Layout {
                    axis: 1,
                    inner: data.len(),
                    block: 1,
                    pool: None,
                };
                at_level(|level| self.run(level, layout, data, 0, start));
            });
            return;
        }
        let runs = Runs::of(layout);
        let all = runs.all(data);
        if !is_divided(data.len()) || all.len() >= threads() {
            return self.run_consecutive(runs, data, all);
        }
        let mut rest = data;
        for run in all {
            let (data, tail) = rest.split_at_mut(runs.start(run + 1) - runs.start(run));
            self.run_large(runs, data, run);
            rest = tail;
        }
    }

    /// Works on consecutive runs, whose elements `data` are, sharing them among threads.
    fn run_consecutive(&self, runs: Runs, data: &mut [f32], range: Range<usize>) {
        runs.share(data, range, &|data, at, start| {
            at_level(|level| self.run(level, runs.layout, data, at, start));
        });
    }

    /// Works on one run in two parallel passes: there are fewer runs than threads. One with sub-blocks of two levels, or of blocks
    /// that are looked at twice, is one thread's work.
    fn run_large(&self, runs: Runs, data: &mut [f32], run: usize) {
        let rows = data.len() / runs.layout.inner;
        let rule = &self.rule;
        let has_one_level = rule.has_sub_blocks(rows) && rule.first_sub_block().is_none();
        if has_one_level && runs.layout.inner > 1 && is_divided(data.len()) {
            return self.run_sub_blocks(runs, data, run);
        }
        if !is_divided(data.len()) || rule.has_sub_blocks(rows) || rule.looks_twice() {
            return self.run_consecutive(runs, data, run..run + 1);
        }
        let lines = Lines::of(&runs.layout, rows);
        let mut tile = Tile::new();
        for columns in lines.tiles(TILE) {
            let all = Columns {
                data: &*data,
                lines: &lines,
                columns: &columns,
            };
            let maxima = share(all, &see_columns, &larger);
            tile.reset(columns.len()).copy_from_slice(&maxima);
            at_level(|level| {
                tile.make_grids(rule, level, data, &lines, columns.clone(), &mut None)
            });
            let all = ColumnsMut {
                data: &mut *data,
                start: runs.start(run) as u64,
                lines: &lines,
                columns: &columns,
            };
            share_all(all, &|piece| {
                let ColumnsMut {
                    data,
                    start,
                    lines,
                    columns,
                } = piece;
                let mut draws = Draws::new(self.stream, start + data.len() as u64);
                at_level(|level| {
                    tile.apply(
                        self,
                        level,
                        data,
                        start,
                        lines,
                        columns.clone(),
                        0,
                        &mut draws,
                    );
                });
            });
        }
    }
}

impl<R: ElementRule> Job<R> {
    /// [`run_large`](Self::run_large) of blocks with sub-blocks of one level.
    fn run_sub_blocks(&self, runs: Runs, data: &mut [f32], run: usize) {
        let rows = self.rule.sub_block();
        let lines = Lines::of(&runs.layout, rows);
        for columns in lines.tiles(TILE) {
            let all = Columns {
                data: &*data,
                lines: &lines,
                columns: &columns,
            };
            let maxima = share(all, &see_columns, &larger);
            let all = SubBlocksMut {
                data: &mut *data,
                start: runs.start(run) as u64,
                length: rows * runs.layout.inner,
            };
            share_all(all, &|SubBlocksMut { data, start, .. }| {
                let mut tile = Tile::of_blocks(&maxima, &lines);
                let mut draws = Draws::new(self.stream, start + data.len() as u64);
                let columns = columns.clone();
                at_level(|level| {
                    tile.sub_blocks(
                        self, level, data, start, &lines, columns, &mut draws, &mut None,
                    )
                });
            });
        }
    }
}

/// Whole sub-blocks to be changed.
struct SubBlocksMut<'a> {
    data: &'a mut [f32],
    /// Position of the data in the tensor.
    start: u64,
    /// Elements of the sub-blocks that lie side by side.
    length: usize,
}

impl Divide for SubBlocksMut<'_> {
    fn elements(&self) -> usize {
        self.data.len()
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let middle = self.data.len().div_ceil(self.length) / 2 * self.length;
        if middle == 0 {
            return Err(self);
        }
        let Self {
            data,
            start,
            length,
        } = self;
        let (low, high) = data.split_at_mut(middle);
        let halves = [(low, start), (high, start + middle as u64)];
        Ok(halves.map(|(data, start)| Self {
            data,
            start,
            length,
        }))
    }
}

/// Some columns of some lines.
struct Columns<'a> {
    data: &'a [f32],
    lines: &'a Lines,
    columns: &'a Range<usize>,
}

/// [`Columns`] to be changed.
struct ColumnsMut<'a> {
    data: &'a mut [f32],
    /// Position of the data in the tensor.
    start: u64,
    lines: &'a Lines,
    columns: &'a Range<usize>,
}

impl Divide for Columns<'_> {
    fn elements(&self) -> usize {
        self.lines.count(self.data) * self.columns.len()
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        // Square blocks may make a single line as long as much work.
        let middle = self.lines.middle(self.data);
        if middle == 0 {
            return Err(self);
        }
        let (low, high) = self.data.split_at(middle);
        Ok([low, high].map(|data| Self { data, ..self }))
    }
}

impl Divide for ColumnsMut<'_> {
    fn elements(&self) -> usize {
        self.lines.count(self.data) * self.columns.len()
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let middle = self.lines.middle(self.data);
        if middle == 0 {
            return Err(self);
        }
        let (low, high) = self.data.split_at_mut(middle);
        let halves = [(low, self.start), (high, self.start + middle as u64)];
        let (lines, columns) = (self.lines, self.columns);
        Ok(halves.map(|(data, start)| Self {
            data,
            start,
            lines,
            columns,
        }))
    }
}

/// The largest magnitudes of some columns.
fn see_columns(piece: Columns<'_>) -> Vec<u32> {
    let mut maxima = vec![0; piece.columns.len()];
    dispatch(ColumnMax {
        maxima: &mut maxima,
        data: piece.data,
        lines: piece.lines,
        columns: piece.columns.clone(),
    });
    maxima
}

/// The larger one of each pair.
fn larger(mut maxima: Vec<u32>, other: Vec<u32>) -> Vec<u32> {
    for (max, other) in maxima.iter_mut().zip(other) {
        *max = (*max).max(other);
    }
    maxima
}
