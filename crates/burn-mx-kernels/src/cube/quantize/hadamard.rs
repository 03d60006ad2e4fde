//! The random Hadamard transform on a device: each block in shared memory, a step of sums and differences at a time.

use burn_backend::TensorMetadata;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use microscaling::{RandomHadamard, Signs, internal};

pub(in crate::cube) mod whole_blocks;

use super::places::place;
use crate::cube::launch::{self, Target};
use crate::cube::numbers::bits::SIGN;
use crate::cube::numbers::float::{self, Float32};
use crate::cube::numbers::random::{self, Stream, StreamLaunch, bit, draw};
use crate::cube::numbers::words::written_by_rules;

/// Transforms blocks along `axis`, or undoes that.
pub(in crate::cube) fn transform<R: CubeRuntime>(
    tensor: CubeTensor<R>,
    axis: usize,
    transform: RandomHadamard,
    signs: Signs,
    inverse: bool,
) -> CubeTensor<R> {
    let shape = tensor.shape();
    if shape.num_elements() == 0 {
        return tensor;
    }
    let block = transform.block_size;
    let target = Target::of(tensor);
    if whole_blocks::fits(&target, axis, block) {
        whole_blocks::transform(&target, block, signs, inverse);
        return target.into_output();
    }
    let blocks = shape.num_elements() / shape[axis] * shape[axis].div_ceil(block);
    let (client, address_type) = (target.client(), target.address_type());
    let (input, output) = target.arguments();
    let cube = CubeDim::new_2d(block as u32, UNITS / block as u32);
    let cubes = launch::cubes(&client, blocks, (UNITS / block as u32) as usize);
    let float32 = Float32::of(&client);
    let (signs, kind) = argument_of(signs, inverse);
    // SAFETY: a unit reads and writes one element, inside of the tensor's shape.
    unsafe {
        transform_kernel::launch_unchecked(
            &client,
            cubes,
            cube,
            address_type,
            input,
            output,
            signs,
            -0.0,
            blocks,
            axis,
            shape.num_dims(),
            block,
            kind,
            float32,
        );
    }
    target.into_output()
}

/// The signs as a kernel's argument, and the job of the kernel.
fn argument_of<R: Runtime>(signs: Signs, inverse: bool) -> (StreamLaunch<R>, HadamardKind) {
    let (signs, repeated) = match signs {
        Signs::Random(stream) => (random::argument(stream), false),
        Signs::Repeated(bits) => (random::bits_argument(bits), true),
    };
    (signs, HadamardKind { repeated, inverse })
}

/// Units of a cube, as many as the longest block has elements.
const UNITS: u32 = 128;

/// The job of a kernel, known when the kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::cube) struct HadamardKind {
    /// Whether the signs are the same ones for every block.
    pub(in crate::cube) repeated: bool,
    /// Whether elements take their signs after the sums and differences, and not before them.
    pub(in crate::cube) inverse: bool,
}

/// One unit an element, the units of a row of the cube a block.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::cube) fn transform_kernel(
    input: &Tensor<u32>,
    output: &mut Tensor<u32>,
    signs: &Stream,
    zero: f32,
    blocks: usize,
    #[comptime] axis: usize,
    #[comptime] rank: usize,
    #[comptime] block: usize,
    #[comptime] kind: HadamardKind,
    #[comptime] float32: Float32,
) {
    let mut values = SharedMemory::<u32>::new(comptime!(UNITS as usize));
    let unit = UNIT_POS_X as usize;
    let row = UNIT_POS_Y as usize * block;
    let index = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    let is_block = index < blocks;

    let place = place::<u32>(input, output, index, axis, rank, block);
    let from = place.from + unit * input.stride(axis);
    let to = place.to + unit * output.stride(axis);
    // The last block of an axis is one of a power of two for each bit of its length, the largest first.
    let length = min(input.shape(axis) - place.start, block);
    let is_element = is_block && unit < length;
    let mut piece_start = 0usize.runtime();
    let mut piece = block.runtime();
    #[unroll]
    for i in 0..comptime!(block.ilog2() as usize + 1) {
        let power = comptime!(block >> i).runtime();
        // The piece of this length, if there is one, starts where the longer ones end.
        let before = length / (2 * power) * (2 * power);
        if length & power != 0 && unit >= before && unit < before + power {
            piece_start = before;
            piece = power;
        }
    }
    let sign = if comptime!(kind.repeated) {
        bit(signs, unit) << 31
    } else {
        draw(signs, place.start + unit) & SIGN
    };
    if is_element {
        let root = inverse_root(piece as u32);
        let factor = if comptime!(kind.inverse) {
            root
        } else {
            root | sign
        };
        values[row + unit] = float::mul(input[from], factor, zero, float32);
    }
    let own = unit - piece_start;
    #[unroll]
    for i in 0..comptime!(block.ilog2() as usize) {
        let distance = comptime!(1usize << i);
        sync_cube();
        let takes_part = is_element && distance < piece;
        let other = row + piece_start + (own ^ distance);
        let mut result = 0u32.runtime();
        if takes_part {
            let x = values[row + unit];
            let y = values[other];
            let is_first = own & distance == 0;
            // The difference is the first one's less the second one's, which this unit has.
            let lhs = select(is_first, x, y);
            let rhs = select(is_first, y, x ^ SIGN);
            result = float::add(lhs, rhs, float32);
        }
        sync_cube();
        if takes_part {
            values[row + unit] = result;
        }
    }
    sync_cube();
    if is_element {
        let value = values[row + unit];
        output[to] = if comptime!(kind.inverse) {
            value ^ sign
        } else {
            value
        };
    }
}

written_by_rules! {
    /// The pattern of 1/√n of a power of two.
    fn inverse_root(n: u32) -> u32 {
        internal::inverse_root(n)
    }
}
