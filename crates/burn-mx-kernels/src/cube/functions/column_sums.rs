//! Sums over all axes but the last, with a rounding: the gradients of biases, and of a norm's γ and β.

use burn_backend::{Shape, TensorMetadata};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use microscaling::{FloatFormat, Rounding};

use crate::cube::launch;
use crate::cube::numbers::round::round_float;
use crate::kernel_op::op::OpRounding;

/// The columns of a cube. Their elements of a row fill two of a GPU's sectors of memory.
const COLUMNS: u32 = 16;
/// The partial sums of a column, each of which adds every sixteenth row.
const LANES: u32 = 16;

/// The sums `[D]` of a float32 tensor `[.., D]`, rounded.
pub(in crate::cube) fn sums<R: CubeRuntime>(
    tensor: CubeTensor<R>,
    rounding: OpRounding,
) -> CubeTensor<R> {
    let tensor = into_contiguous(tensor);
    let shape = tensor.shape();
    let columns = shape[shape.num_dims() - 1];
    let sums = launch::empty_like(&tensor, Shape::new([columns]), tensor.dtype);
    if columns == 0 {
        return sums;
    }
    let rows = shape.num_elements() / columns;
    let client = tensor.client.clone();
    let address_type = launch::address_type([&tensor, &sums]);
    // SAFETY: a unit reads its column alone, and one unit of each column writes the sum.
    unsafe {
        sums_kernel::launch_unchecked(
            &client,
            launch::cubes(&client, columns, COLUMNS as usize),
            CubeDim::new_2d(COLUMNS, LANES),
            address_type,
            tensor.into_array_arg(),
            sums.clone().into_array_arg(),
            rows,
            columns,
            rounding.format,
            rounding.rounding,
        );
    }
    sums
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::cube) fn sums_kernel(
    values: &Array<f32>,
    sums: &mut Array<u32>,
    rows: usize,
    columns: usize,
    #[comptime] format: FloatFormat,
    #[comptime] rounding: Rounding,
) {
    let mut partial = SharedMemory::<f32>::new(comptime!((COLUMNS * LANES) as usize));
    let column = CUBE_POS * comptime!(COLUMNS as usize) + UNIT_POS_X as usize;
    let is_there = column < columns;
    let mut sum = 0f32;
    if is_there {
        let mut row = UNIT_POS_Y as usize;
        while row < rows {
            sum += values[row * columns + column];
            row += comptime!(LANES as usize);
        }
    }
    let place = (UNIT_POS_Y * COLUMNS + UNIT_POS_X) as usize;
    partial[place] = sum;
    #[unroll]
    for level in 0..comptime!(LANES.ilog2()) {
        let half = comptime!(LANES >> (level + 1));
        sync_cube();
        if UNIT_POS_Y < half {
            partial[place] = partial[place] + partial[place + comptime!((half * COLUMNS) as usize)];
        }
    }
    if is_there && UNIT_POS_Y == 0 {
        let sum = u32::reinterpret(partial[place]);
        sums[column] = round_float(sum, 0u32.runtime(), format, rounding);
    }
}
