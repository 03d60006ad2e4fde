//! Quantizing a tensor in place: what is checked, and how the blocks are shared among threads.

use crate::block::BlockRule;
use crate::dispatch::dispatch;
use crate::groups::GroupRule;
use crate::kernels::{Apply, Blocks, Job, Layout, Lines, See, TILE, Tile};
use crate::parallel::{PARALLEL_THRESHOLD, for_each_piece, join, threads};
use crate::round::{Rule, with_rule};
use crate::{MxFormat, QuantizeError, RandomStream, Rounding, SharedExpMethod};
use alloc::{vec, vec::Vec};
use core::marker::PhantomData;
use core::ops::Range;

impl MxFormat {
    /// Replaces every element of a tensor by the value it has in this format ("fake quantization").
    ///
    /// `data` are the elements in row-major order without gaps, `shape` the lengths of the axes, and
    /// blocks lie along `axis`, counted from 0. They start anew at the beginning of the axis; the last
    /// one is shorter if the block size does not divide its length, as if padded with zeros. A block
    /// size larger than the axis gives one short block, and block size 0 one block of the whole axis.
    ///
    /// Every element becomes what [`round_element`](Self::round_element) says, which also tells of
    /// NaN, Inf, zero, saturation and overflow. The draw of an element for
    /// [`Rounding::Stochastic`] is word number i of `stream`, with i its position in `data`; results
    /// depend neither on the number of threads nor on the processor. A tensor without elements is
    /// left as it is.
    ///
    /// One pass over memory for any axis, in place: nothing is transposed. Large tensors are worked
    /// on by the threads of the current rayon pool (feature `std`).
    ///
    /// # Errors
    /// The data are untouched then.
    /// * [`QuantizeError::Format`]: the format is not [valid](Self::validate).
    /// * [`QuantizeError::AxisOutOfRange`]: `axis` is not less than the rank, `shape.len()`.
    /// * [`QuantizeError::LengthMismatch`]: `data.len()` is not the product of `shape`.
    /// * [`QuantizeError::ShapeOverflow`]: that product overflows.
    pub fn quantize(
        &self,
        data: &mut [f32],
        shape: &[usize],
        axis: usize,
        rounding: Rounding,
        stream: RandomStream,
    ) -> Result<(), QuantizeError> {
        self.validate()?;
        let block_size = match self.shared_exp_method {
            SharedExpMethod::None => 1,
            SharedExpMethod::Max => self.block_size,
        };
        let layout = checked_layout(data, shape, axis, block_size)?;
        quantize_groups(BlockRule::of(self), layout, data, rounding, stream);
        Ok(())
    }
}

/// The blocks of a tensor with blocks along `axis`; block size 0 makes the whole axis one block. Only
/// of a tensor with elements are all its numbers positive.
pub(crate) fn layout(
    shape: &[usize],
    axis: usize,
    block_size: usize,
) -> Result<Layout, QuantizeError> {
    let &length = shape.get(axis).ok_or(QuantizeError::AxisOutOfRange {
        axis,
        rank: shape.len(),
    })?;
    let empty = count(shape)? == 0;
    Ok(Layout {
        axis: length,
        // The product may overflow where another length is 0.
        inner: if empty {
            0
        } else {
            shape[axis + 1..].iter().product()
        },
        block: match block_size {
            0 => length,
            size => size.min(length),
        },
    })
}

/// [`layout`], of data that have as many elements as the shape.
pub(crate) fn checked_layout(
    data: &[f32],
    shape: &[usize],
    axis: usize,
    block_size: usize,
) -> Result<Layout, QuantizeError> {
    let layout = layout(shape, axis, block_size)?;
    check_length(data, shape)?;
    Ok(layout)
}

/// Checks that the data have as many elements as the shape.
pub(crate) fn check_length(data: &[f32], shape: &[usize]) -> Result<(), QuantizeError> {
    let expected = count(shape)?;
    if data.len() == expected {
        return Ok(());
    }
    let (shape, got) = (shape.to_vec(), data.len());
    Err(QuantizeError::LengthMismatch {
        shape,
        expected,
        got,
    })
}

/// Number of elements of a shape.
pub(crate) fn count(shape: &[usize]) -> Result<usize, QuantizeError> {
    // A length of 0 makes the product 0 even where the others overflow.
    if shape.contains(&0) {
        return Ok(0);
    }
    shape
        .iter()
        .try_fold(1_usize, |product, &length| product.checked_mul(length))
        .ok_or_else(|| QuantizeError::ShapeOverflow {
            shape: shape.to_vec(),
        })
}

/// Quantizes a whole tensor in place, sharing it among threads.
pub(crate) fn quantize_groups<G: GroupRule>(
    group: G,
    layout: Layout,
    data: &mut [f32],
    rounding: Rounding,
    stream: RandomStream,
) {
    if !data.is_empty() {
        with_rule!(rounding, rule => quantize_all(Job { group, rule, stream }, layout, data));
    }
}

fn quantize_all<G: GroupRule, R: Rule>(job: Job<G, R>, layout: Layout, data: &mut [f32]) {
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
fn quantize_runs<G: GroupRule, R: Rule>(
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

/// The runs of a tensor: `inner` interleaved blocks each, contiguous in memory as a whole.
#[derive(Clone, Copy)]
pub(crate) struct Runs {
    layout: Layout,
    per_axis: usize,
}

impl Runs {
    /// The runs of a tensor with at least one element.
    pub(crate) fn of(layout: Layout) -> Self {
        Self {
            layout,
            per_axis: layout.axis.div_ceil(layout.block),
        }
    }

    /// All runs of the tensor whose elements `data` are.
    pub(crate) fn all(&self, data: &[f32]) -> Range<usize> {
        0..data.len() / (self.layout.axis * self.layout.inner) * self.per_axis
    }

    /// Position of a run in the tensor.
    pub(crate) fn start(&self, run: usize) -> usize {
        let Layout { axis, inner, .. } = self.layout;
        (run / self.per_axis) * axis * inner + self.at(run) * inner
    }

    /// Position of a run on its axis.
    pub(crate) fn at(&self, run: usize) -> usize {
        (run % self.per_axis) * self.layout.block
    }

    /// Shares consecutive runs, whose elements `data` are, among threads: calls `work` with pieces of
    /// whole runs, the position of each on its axis, and in the tensor.
    pub(crate) fn share(
        &self,
        data: &mut [f32],
        range: Range<usize>,
        work: &(impl Fn(&mut [f32], usize, u64) + Sync),
    ) {
        let start = self.start(range.start);
        if range.len() < 2 || data.len() < PARALLEL_THRESHOLD || threads() == 1 {
            return work(data, self.at(range.start), start as u64);
        }
        let middle = range.start + range.len() / 2;
        let (low, high) = data.split_at_mut(self.start(middle) - start);
        join(
            || self.share(low, range.start..middle, work),
            || self.share(high, middle..range.end, work),
        );
    }
}

/// Quantizes one run in two parallel passes: there are fewer runs than threads. One with sub-blocks is
/// one thread's work.
fn quantize_large_run<G: GroupRule, R: Rule>(
    job: Job<G, R>,
    runs: Runs,
    data: &mut [f32],
    run: usize,
) {
    let rows = data.len() / runs.layout.inner;
    if data.len() < PARALLEL_THRESHOLD || job.group.sub_block() < rows {
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
fn see_columns<G: GroupRule>(data: &[f32], lines: &Lines, columns: &Range<usize>) -> Vec<u32> {
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
        group: PhantomData::<G>,
        maxima: &mut maxima,
        data,
        lines,
        columns: columns.clone(),
    });
    maxima
}

/// Rounds some columns. `start` is the position of the data in the tensor.
fn apply_columns<G: GroupRule, R: Rule>(
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
