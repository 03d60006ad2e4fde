//! Where the blocks of a tensor lie whose elements are in row-major order, as [`StatisticsParts`] says.

use cubecl::prelude::*;
use microscaling::StatisticsParts;

/// Where all blocks lie.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(in crate::cube) struct Blocks {
    pub(in crate::cube) axis: usize,
    pub(in crate::cube) inner: usize,
    /// Of a block, along the axis.
    pub(in crate::cube) rows: usize,
    /// The columns of a block; 1 for a block of one column.
    pub(in crate::cube) columns: usize,
    pub(in crate::cube) stride: usize,
    pub(super) of_a_run: usize,
}

impl Blocks {
    pub(in crate::cube) fn argument<R: Runtime>(parts: &StatisticsParts) -> BlocksLaunch<R> {
        let [columns, stride] = parts.columns_of_blocks().unwrap_or([1, 1]);
        BlocksLaunch::new(
            parts.axis(),
            parts.inner(),
            parts.rows(),
            columns,
            stride,
            parts.blocks_of_a_run(),
        )
    }
}

/// Turns that a unit's loop may take: Mesa's driver for processors ends it after 2^16.
pub(in crate::cube) const MOST_TURNS: usize = 1 << 14;

/// Elements of the largest block, which a unit goes through one after the other.
pub(in crate::cube) fn largest_length(parts: &StatisticsParts) -> usize {
    parts.rows() * parts.columns_of_blocks().map_or(1, |[columns, _]| columns)
}

/// Where a block lies.
#[derive(CubeType, Clone, Copy)]
pub(in crate::cube) struct Block {
    pub(in crate::cube) length: usize,
    start: usize,
    columns: usize,
    row_step: usize,
    column_step: usize,
}

/// The block with this number.
#[cube]
pub(in crate::cube) fn block(blocks: &Blocks, number: usize) -> Block {
    let run = number / blocks.of_a_run;
    let number = number % blocks.of_a_run;
    let of_an_axis = blocks.axis.div_ceil(blocks.rows);
    let at = run % of_an_axis * blocks.rows;
    let group = number / blocks.stride;
    let width = blocks.columns * blocks.stride;
    let first = group * width + number % blocks.stride;
    let columns = min(width, blocks.inner - group * width) / blocks.stride;
    Block {
        length: min(blocks.rows, blocks.axis - at) * columns,
        start: (run / of_an_axis * blocks.axis + at) * blocks.inner + first,
        columns,
        row_step: blocks.inner,
        column_step: blocks.stride,
    }
}

/// The position of a block's element.
#[cube]
pub(in crate::cube) fn position(block: &Block, element: usize) -> usize {
    block.start
        + element / block.columns * block.row_step
        + element % block.columns * block.column_step
}

/// The number of the block that a position is in, and its row there.
#[cube]
pub(in crate::cube) fn block_of(blocks: &Blocks, position: usize) -> (usize, usize) {
    let row = position / blocks.inner;
    let column = position % blocks.inner;
    let at = row % blocks.axis;
    let run = row / blocks.axis * blocks.axis.div_ceil(blocks.rows) + at / blocks.rows;
    let group = column / (blocks.columns * blocks.stride);
    (
        run * blocks.of_a_run + group * blocks.stride + column % blocks.stride,
        at % blocks.rows,
    )
}
