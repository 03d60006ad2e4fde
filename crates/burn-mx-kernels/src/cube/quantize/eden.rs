//! MS-EDEN on a device: the groups of elements whose scales are corrected together.

use burn_backend::TensorMetadata;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use microscaling::{BlockFormat, RandomStream, Rounding};

use super::job::{Job, element};
use super::known::{Known, KnownWords};
use super::places::place;
use super::rules;
use crate::cube::launch::{self, Target};
use crate::cube::numbers::bits::{self, ABS, INFINITY, NAN, ONE, SIGN};
use crate::cube::numbers::double;
use crate::cube::numbers::float::computed_by;
use crate::cube::numbers::random::{self, Stream, draw};
use crate::cube::numbers::wide;

/// Units of a cube, as many as a group has elements at most.
const UNITS: usize = BlockFormat::EDEN_GROUP;

/// Quantizes blocks along `axis` of a tensor with elements.
pub(super) fn quantize_into<R: CubeRuntime, O: Int>(
    target: Target<R>,
    axis: usize,
    job: Job,
    stream: RandomStream,
    known: &KnownWords<R>,
) -> CubeTensor<R> {
    let shape = target.output().shape();
    let group = UNITS.min(shape[axis]);
    let width = group.next_power_of_two();
    let groups = shape.num_elements() / shape[axis] * shape[axis].div_ceil(group);
    let (client, address_type) = (target.client(), target.address_type());
    let (input, output) = target.arguments();
    // SAFETY: a unit reads and writes one element, inside of the tensor's shape.
    unsafe {
        eden_kernel::launch_unchecked::<O, R>(
            &client,
            launch::cubes(&client, groups, UNITS / width),
            CubeDim::new_2d(width as u32, (UNITS / width) as u32),
            address_type,
            input,
            output,
            known.argument(),
            random::argument(stream),
            groups,
            axis,
            shape.num_dims(),
            group,
            job,
        );
    }
    target.into_output()
}

/// One unit an element, the units of a row of the cube a group.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::cube) fn eden_kernel<O: Int>(
    input: &Tensor<u32>,
    output: &mut Tensor<O>,
    known: &Known,
    stream: &Stream,
    groups: usize,
    #[comptime] axis: usize,
    #[comptime] rank: usize,
    #[comptime] group: usize,
    #[comptime] job: Job,
) {
    computed_by(comptime!(job.format.float32));
    let width = comptime!(group.next_power_of_two());
    let format = comptime!(job.format.block());
    let block = comptime!(format.block_size.min(group));
    let unit = UNIT_POS_X as usize;
    let row = UNIT_POS_Y as usize * width;
    let index = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    let place = place::<O>(input, output, index, axis, rank, group);
    let length = select(
        index < groups,
        min(input.shape(axis) - place.start, group),
        0,
    );

    let mut magnitudes = SharedMemory::<u32>::new(UNITS);
    let mut x = 0u32.runtime();
    if unit < length {
        x = element(input[place.from + unit * input.stride(axis)], job);
    }
    magnitudes[row + unit] = x & ABS;
    sync_cube();
    let first = unit / block * block;
    let mut amax = 0u32.runtime();
    for i in first..min(first + block, width) {
        amax = max(amax, magnitudes[row + i]);
    }

    let scales = rules::float_scales(amax, 0u32.runtime(), known, format);
    let (tensor_scale, scale) = (scales.tensor_scale, scales.block_scale);
    let grid = rules::grid(amax, 0, known, job.format);
    let rounded = rules::round_unit(x, grid, 0, format.element, Rounding::NearestEven);
    let ratio = ratio_of_sums(x, rounded, grid, unit, row, width, format);
    let word = draw(stream, place.position + first * place.step);
    let factor = rules::eden_factor(scale, tensor_scale, ratio, word, format, job.in_units);
    let is_nan = factor >= INFINITY;
    let value = bits::product(rounded, select(is_nan, 0, factor));
    if unit < length {
        let value = select(is_nan, NAN, (x & SIGN) | value);
        output[place.to + unit * output.stride(axis)] = launch::upper_bits::<O>(value);
    }
}

/// Σu² / Σu·q over the elements of a group, of `microscaling`'s u and q; 1 if the second sum is 0.
#[cube]
fn ratio_of_sums(
    x: u32,
    rounded: u32,
    grid: rules::Grid,
    unit: usize,
    row: usize,
    #[comptime] width: usize,
    #[comptime] format: BlockFormat,
) -> u32 {
    let (before, after) = rules::eden_multiples(rules::scaled(x, grid), rounded, format);

    let mut sums = SharedMemory::<u32>::new(comptime!(4 * UNITS));
    let own = row + unit;
    sums[own] = before.mul_hi(before);
    sums[UNITS + own] = before * before;
    sums[comptime!(2 * UNITS) + own] = before.mul_hi(after);
    sums[comptime!(3 * UNITS) + own] = before * after;
    #[unroll]
    for i in 0..comptime!(width.ilog2()) {
        let distance = comptime!(width >> (i + 1));
        sync_cube();
        if unit < distance {
            #[unroll]
            for sum in 0..2usize {
                let at = comptime!(sum * 2 * UNITS) + own;
                let joined = wide::add(
                    wide::of_words(sums[at], sums[at + UNITS]),
                    wide::of_words(sums[at + distance], sums[at + distance + UNITS]),
                );
                sums[at] = joined.hi;
                sums[at + UNITS] = joined.lo;
            }
        }
    }
    sync_cube();
    let squares = double::of_whole(sums[row], sums[UNITS + row]);
    let high = sums[comptime!(2 * UNITS) + row];
    let low = sums[comptime!(3 * UNITS) + row];
    let is_zero = high == 0 && low == 0;
    let products = double::of_whole(high, select(is_zero, 1, low));
    select(is_zero, ONE, double::quotient(squares, products))
}

/// The limit of the sums: 2^24 multiples squared, for each element of a group, as [`double::of_whole`] takes them.
const _: () = assert!(UNITS * (1 << 48) <= 1 << 55);
