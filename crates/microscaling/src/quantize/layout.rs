//! Where the blocks of a tensor lie.

use crate::quantize::QuantizeError;
use core::ops::Range;
use microscaling_processor::threads::{Divide, share_all};

/// Where blocks lie: a tensor seen as [outer, axis, inner] with blocks along the middle axis, each of one column or of
/// several.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// Length of the axis.
    pub(crate) axis: usize,
    /// Elements between neighbours on the axis: the columns.
    pub(crate) inner: usize,
    /// Elements in a block along the axis, at most its length; the last one of an axis may be shorter.
    pub(crate) block: usize,
    /// Which columns share blocks, if any do.
    pub(crate) pool: Option<Pool>,
}

impl Layout {
    /// How many rows are worked on next, from a position on the axis, of as many as are left. Interleaved blocks are worked on one row of
    /// blocks at a time. Contiguous blocks are worked on together, where none is shorter than others all of them.
    #[inline(always)]
    pub(crate) fn next_rows(&self, at: usize, left: usize) -> usize {
        match self.inner {
            1 if self.axis.is_multiple_of(self.block) => left,
            1 => (self.axis - at).min(left),
            _ => self.block.min(self.axis - at),
        }
    }

    /// Blocks side by side.
    pub(crate) fn blocks(&self, columns: usize) -> usize {
        self.pool.map_or(columns, |pool| pool.blocks(columns))
    }

    /// The number of a column's block among those side by side.
    #[inline(always)]
    pub(crate) fn block_of(&self, column: usize) -> usize {
        self.pool.map_or(column, |pool| {
            column / pool.width() * pool.stride + column % pool.stride
        })
    }

    /// The columns of a block, given its number among those side by side: a range, and a step.
    pub(crate) fn columns(&self, block: usize) -> (Range<usize>, usize) {
        let Some(pool) = self.pool else {
            return (block..block + 1, 1);
        };
        pool.range(block, self.inner)
    }
}

/// Columns that share blocks, as the columns of square blocks do. Columns are a second axis, of which `block` neighbours
/// share a block, times the `stride` elements beyond this axis, which share none. The last block of the second axis may be
/// shorter.
#[derive(Clone, Copy)]
pub(crate) struct Pool {
    pub(crate) block: usize,
    pub(crate) stride: usize,
}

impl Pool {
    /// Columns of blocks side by side that are interleaved.
    pub(crate) fn width(&self) -> usize {
        self.block * self.stride
    }

    /// How many blocks some columns have, which are whole ones.
    pub(crate) fn blocks(&self, columns: usize) -> usize {
        columns.div_ceil(self.width()) * self.stride
    }

    /// How many of the `width` columns a block has, given its number.
    pub(crate) fn columns(&self, block: usize, width: usize) -> usize {
        let start = block / self.stride * self.width();
        (width - start).min(self.width()) / self.stride
    }

    /// The columns of a block among `width` of them, given its number: a range, and a step.
    pub(crate) fn range(&self, block: usize, width: usize) -> (Range<usize>, usize) {
        let start = block / self.stride * self.width();
        let end = width.min(start + self.width());
        (start + block % self.stride..end, self.stride)
    }

    /// From what columns are, for example their largest magnitudes, to what their blocks are, which become the first ones.
    /// Returns how many.
    #[inline(always)]
    pub(crate) fn fold<T: Copy>(&self, words: &mut [T], join: impl Fn(T, T) -> T + Copy) -> usize {
        let (width, stride) = (self.width(), self.stride);
        let blocks = self.blocks(words.len());
        for (i, start) in (0..words.len()).step_by(width).enumerate() {
            let end = words.len().min(start + width);
            if stride == 1 {
                words[i] = words[start + 1..end]
                    .iter()
                    .copied()
                    .fold(words[start], join);
                continue;
            }
            let (first, others) = words[start..end].split_at_mut(stride);
            for row in others.chunks_exact(stride) {
                for (word, other) in first.iter_mut().zip(row) {
                    *word = join(*word, *other);
                }
            }
            words.copy_within(start..start + stride, i * stride);
        }
        blocks
    }

    /// From what the first ones are for the blocks to what each column's block has.
    #[inline(always)]
    pub(crate) fn spread<T: Copy>(&self, words: &mut [T]) {
        let (width, stride) = (self.width(), self.stride);
        // From the last ones on: no block lies behind the first of its columns.
        for start in (0..words.len()).step_by(width).rev() {
            let end = words.len().min(start + width);
            let block = start / self.block;
            if stride == 1 {
                let word = words[block];
                words[start..end].fill(word);
                continue;
            }
            for column in (start..end).step_by(stride) {
                words.copy_within(block..block + stride, column);
            }
        }
    }
}

/// How long blocks are.
#[derive(Clone, Copy)]
pub(crate) struct BlockShape {
    /// Elements along an axis; 0 is the whole axis.
    pub(crate) size: usize,
    /// Whether there are as many along a second axis.
    pub(crate) square: bool,
}

impl BlockShape {
    /// Blocks along one axis.
    pub(crate) const fn line(size: usize) -> Self {
        Self {
            size,
            square: false,
        }
    }
}

/// The two axes of square blocks along an axis.
pub(crate) const fn square_axes(axis: usize) -> [usize; 2] {
    match axis {
        0 => [0, 1],
        _ => [axis - 1, axis],
    }
}

/// The blocks of a tensor with blocks along `axis`. Only of a tensor with elements are all its numbers positive.
pub(crate) fn layout(
    shape: &[usize],
    axis: usize,
    blocks: BlockShape,
) -> Result<Layout, QuantizeError> {
    shape.get(axis).ok_or(QuantizeError::AxisOutOfRange {
        axis,
        rank: shape.len(),
    })?;
    if blocks.square && shape.len() == 1 {
        let shape = shape.to_vec();
        return Err(QuantizeError::OneAxis { shape });
    }
    let empty = count(shape)? == 0;
    // The product may overflow where another length is 0.
    let beyond = |axis: usize| match empty {
        true => 0,
        false => shape[axis + 1..].iter().product(),
    };
    let block = |length: usize| match blocks.size {
        0 => length,
        size => size.min(length),
    };
    let line = |axis: usize| Layout {
        axis: shape[axis],
        inner: beyond(axis),
        block: block(shape[axis]),
        pool: None,
    };
    if !blocks.square {
        return Ok(line(axis));
    }
    let [first, second] = square_axes(axis);
    // Along an axis of length 1 a block is a line.
    if shape[first] == 1 {
        return Ok(line(second));
    }
    let pool = Pool {
        block: block(shape[second]),
        stride: beyond(second),
    };
    let pool = (pool.block > 1).then_some(pool);
    Ok(Layout {
        pool,
        ..line(first)
    })
}

/// [`layout`], of data that have as many elements as the shape.
pub(crate) fn checked_layout(
    data: &[f32],
    shape: &[usize],
    axis: usize,
    blocks: BlockShape,
) -> Result<Layout, QuantizeError> {
    let layout = layout(shape, axis, blocks)?;
    check_length(data, shape)?;
    Ok(layout)
}

/// Checks that the data have as many elements as the shape.
pub(crate) fn check_length<T>(data: &[T], shape: &[usize]) -> Result<(), QuantizeError> {
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
        self.all_of(data.len())
    }

    /// All runs of a tensor with this number of elements.
    pub(crate) fn all_of(&self, count: usize) -> Range<usize> {
        0..count / (self.layout.axis * self.layout.inner) * self.per_axis
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
