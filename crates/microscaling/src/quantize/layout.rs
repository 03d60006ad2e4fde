//! Where the blocks of a tensor lie.

use super::threads::{Divide, share_all};
use crate::QuantizeError;
use core::ops::Range;

/// Where blocks lie: a tensor seen as [outer, axis, inner] with blocks along the middle axis.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// Length of the axis.
    pub(crate) axis: usize,
    /// Elements between neighbours on the axis.
    pub(crate) inner: usize,
    /// Elements in a block, at most the length of the axis; the last one of an axis may be shorter.
    pub(crate) block: usize,
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

/// The runs of a tensor: `inner` interleaved blocks each, contiguous in memory as a whole.
#[derive(Clone, Copy)]
pub(crate) struct Runs {
    pub(crate) layout: Layout,
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
        let runs = *self;
        share_all(ConsecutiveRuns { runs, range, data }, &|piece| {
            let first = piece.range.start;
            work(piece.data, runs.at(first), runs.start(first) as u64);
        });
    }
}

/// Some runs of a tensor, and their elements.
struct ConsecutiveRuns<'a> {
    runs: Runs,
    range: Range<usize>,
    data: &'a mut [f32],
}

impl Divide for ConsecutiveRuns<'_> {
    fn elements(&self) -> usize {
        self.data.len()
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let Range { start, end } = self.range;
        let middle = start + (end - start) / 2;
        if middle == start {
            return Err(self);
        }
        let runs = self.runs;
        let elements = runs.start(middle) - runs.start(start);
        let (low, high) = self.data.split_at_mut(elements);
        let halves = [(start..middle, low), (middle..end, high)];
        Ok(halves.map(|(range, data)| Self { runs, range, data }))
    }
}
