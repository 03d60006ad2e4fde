//! The parts that a tensor is cut into, by its shape alone.

use super::layout_of;
use super::look::WIDE;
use super::partial::Partial;
use crate::format::BlockFormat;
use crate::quantize::QuantizeError;
use crate::quantize::layout::{Layout, Runs, count};
use crate::round::bits::INFINITY;
use crate::statistics::Statistics;
use alloc::vec::Vec;
use core::ops::Range;
use microscaling_processor::float_state::ieee;

/// Elements of a part, about.
pub(super) const PART: usize = 1 << 14;

/// The places of the parts and blocks of a tensor, for kernels that take its [`Statistics`] on a device. This crate's own sums go in the
/// order defined here, so that their bits do not depend on the number of threads. A device's sums need not.
///
/// The tensor, in row-major order, is seen as `[outer, axis, inner]`. A run is a range of [`rows`](Self::rows) along the
/// axis, shorter at its end, and all columns beyond it, so that it is contiguous. Its blocks lie side by side. A part is some
/// whole runs, or a range of the columns of one ([`runs_and_columns`](Self::runs_and_columns)); its elements are numbered in
/// row-major order.
///
/// * A block's Σ x² and Σ (x − q)² are sums in 8 lanes if its elements are contiguous or its columns share blocks. Element `i`, row by row, goes to lane `i` modulo the number of lanes, in float64. Then the lanes
///   are folded by halves, the upper half onto the lower half. Otherwise elements are added one after the other.
/// * A part adds the sums of its blocks one after the other, run by run. Its Σ x q and Σ q² are sums over its elements in
///   32 lanes. The tensor adds the sums of its parts, one after the other.
/// * Pairs that are not both finite count as zeros. The scale of a block follows from all its elements that are finite before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatisticsParts {
    axis: usize,
    inner: usize,
    rows: usize,
    pool: Option<[usize; 2]>,
    blocks_of_a_run: usize,
    runs: usize,
    runs_together: usize,
    columns: usize,
}

impl StatisticsParts {
    /// The parts of a tensor of this shape with blocks along `axis`; without a format it is cut into blocks all the same,
    /// which are not counted.
    ///
    /// # Errors
    /// * [`QuantizeError::Format`]: the format is not valid.
    /// * [`QuantizeError::AxisOutOfRange`]: `axis` is not less than the rank, `shape.len()`.
    /// * [`QuantizeError::ShapeOverflow`]: the number of elements overflows.
    pub fn of(
        format: Option<BlockFormat>,
        shape: &[usize],
        axis: usize,
    ) -> Result<Self, QuantizeError> {
        let layout = layout_of(format, shape, axis)?;
        Ok(Self::of_layout(layout, count(shape)?))
    }

    pub(super) fn of_layout(layout: Layout, elements: usize) -> Self {
        let Layout {
            axis,
            inner,
            block,
            pool,
        } = layout;
        // Without elements columns may share blocks of no width.
        let pool = pool.filter(|_| elements > 0);
        let layout = Layout { pool, ..layout };
        let runs = match elements {
            0 => 0,
            _ => Runs::of(layout).all_of(elements).len(),
        };
        let together = PART / (block * inner).max(1);
        // Whole blocks, and as many as are looked at side by side.
        let unit = pool.map_or(WIDE, |pool| pool.width());
        Self {
            axis,
            inner,
            rows: block,
            pool: pool.map(|pool| [pool.block, pool.stride]),
            blocks_of_a_run: layout.blocks(inner),
            runs,
            runs_together: together.max(1),
            columns: match together {
                0 => (PART / block).next_multiple_of(unit).max(unit).min(inner),
                _ => inner,
            },
        }
    }

    /// Length of the axis.
    pub fn axis(&self) -> usize {
        self.axis
    }

    /// Elements between neighbours on the axis.
    pub fn inner(&self) -> usize {
        self.inner
    }

    /// Elements of a block along the axis; the last block may have fewer.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// For blocks of several columns, such as square ones: how many columns a block has at most, and the distance of its
    /// columns. Columns from one multiple of the product of both numbers to the next have as many blocks as the distance.
    pub fn columns_of_blocks(&self) -> Option<[usize; 2]> {
        self.pool
    }

    /// Blocks of a run.
    pub fn blocks_of_a_run(&self) -> usize {
        self.blocks_of_a_run
    }

    /// Runs of the tensor.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// Runs of a part; the last part may have fewer.
    pub fn runs_together(&self) -> usize {
        self.runs_together
    }

    /// Columns of a part; the last part of a run may have fewer.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Parts of the columns of a run.
    pub fn parts_of_a_run(&self) -> usize {
        match self.inner {
            0 => 0,
            inner => inner.div_ceil(self.columns),
        }
    }

    /// Blocks of the tensor.
    pub fn blocks(&self) -> usize {
        self.runs * self.blocks_of_a_run
    }

    /// Parts of the tensor.
    pub fn count(&self) -> usize {
        self.runs.div_ceil(self.runs_together) * self.parts_of_a_run()
    }

    /// The runs and the columns of a part.
    pub fn runs_and_columns(&self, part: usize) -> [Range<usize>; 2] {
        let range = |index: usize, step: usize, end: usize| {
            let start = index * step;
            start..(start + step).min(end)
        };
        let of_a_run = self.parts_of_a_run();
        [
            range(part / of_a_run, self.runs_together, self.runs),
            range(part % of_a_run, self.columns, self.inner),
        ]
    }

    /// The blocks of a part, in the order in which they are added, numbered run by run.
    pub fn blocks_of(&self, part: usize) -> impl Iterator<Item = usize> + use<> {
        let [runs, columns] = self.runs_and_columns(part);
        let block = |column: usize| match self.pool {
            // Parts begin and end where blocks do.
            Some([columns, stride]) => column.div_ceil(columns * stride) * stride,
            None => column,
        };
        let blocks = block(columns.start)..block(columns.end);
        let of_a_run = self.blocks_of_a_run;
        runs.flat_map(move |run| blocks.clone().map(move |block| run * of_a_run + block))
    }
}

/// A kernel's statistics of a part; see [`StatisticsParts`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PartStatistics {
    /// Pairs that are not both finite.
    pub non_finite: u64,
    /// Pairs that are finite before and ±Inf after.
    pub overflow: u64,
    /// Σ x².
    pub power: f64,
    /// Σ q².
    pub quantized_power: f64,
    /// Σ (x − q)².
    pub error: f64,
    /// Σ x q.
    pub product: f64,
    /// Elements that are not zero.
    pub nonzero: u64,
    /// Elements that are not zero and became zero.
    pub underflow: u64,
    /// Elements beyond the largest number that their block can hold.
    pub saturated: u64,
    /// The largest magnitude.
    pub amax: f32,
    /// The smallest magnitude but zero; 0 if there is none.
    pub smallest: f32,
    /// Blocks, including blocks of zeros.
    pub blocks: u64,
    /// For each block that is not zero, in order, the float32 of the quotient Σ (x − q)² / Σ x² in float64.
    pub ratios: Vec<f32>,
    /// The scale of each of these blocks, in order. A scale that is not positive and finite stands for a block without a
    /// scale, as in [`Statistics::of`].
    pub scales: Vec<f32>,
}

impl Statistics {
    /// The statistics of a tensor with this number of elements, from its parts; see [`StatisticsParts`].
    pub fn of_parts(elements: u64, parts: impl IntoIterator<Item = PartStatistics>) -> Self {
        let mut statistics = Self {
            elements,
            ..Self::default()
        };
        for part in parts {
            let mut partial = Partial {
                non_finite: part.non_finite,
                overflow: part.overflow,
                blocks: part.blocks,
                power: part.power,
                quantized_power: part.quantized_power,
                error: part.error,
                product: part.product,
                nonzero: part.nonzero,
                underflow: part.underflow,
                saturated: part.saturated,
                amax: part.amax.to_bits(),
                smallest: part.smallest.to_bits(),
                ratios: part.ratios,
                ..Partial::default()
            };
            ieee(|| {
                for scale in part.scales {
                    if (1..INFINITY).contains(&scale.to_bits()) {
                        partial.scales.see(scale);
                    }
                }
                statistics.add(partial);
            });
        }
        statistics
    }
}
