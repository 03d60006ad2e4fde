//! Where the blocks of a tensor lie that lies as it will.

use cubecl::prelude::*;

/// Where a block lies.
#[derive(CubeType)]
pub(super) struct Place {
    /// Places of its first element: in the input, in the output, in row-major order, and on the axis.
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) position: usize,
    pub(super) start: usize,
    /// From one element to the next in row-major order.
    pub(super) step: usize,
}

/// The place of the block with this number; blocks are numbered in row-major order.
#[cube]
pub(super) fn place<O: Int>(
    input: &Tensor<u32>,
    output: &Tensor<O>,
    number: usize,
    #[comptime] axis: usize,
    #[comptime] rank: usize,
    #[comptime] block: usize,
) -> Place {
    let mut rest = number;
    let mut from = 0usize.runtime();
    let mut to = 0usize.runtime();
    let mut position = 0usize.runtime();
    let mut start = 0usize.runtime();
    let mut step = 1usize.runtime();
    let mut size = 1usize.runtime();
    #[unroll]
    for i in 0..rank {
        let dim = comptime!(rank - 1 - i);
        let length = input.shape(dim);
        let at = if comptime!(dim == axis) {
            let along = length.div_ceil(block);
            start = rest % along * block;
            rest /= along;
            step = size;
            start
        } else {
            let at = rest % length;
            rest /= length;
            at
        };
        from += at * input.stride(dim);
        to += at * output.stride(dim);
        position += at * size;
        size *= length;
    }
    Place {
        from,
        to,
        position,
        start,
        step,
    }
}
