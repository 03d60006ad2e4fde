//! Square blocks on a device: a cube a block, of a tensor that lies as it will.

use burn_backend::TensorMetadata;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use microscaling::RandomStream;

use super::job::{Job, UNITS, element, rounded, scale_of_results, word_at};
use super::known::{Known, KnownWords};
use super::rules;
use super::two_pass_scale;
use crate::cube::launch::{self, Target};
use crate::cube::numbers::bits::ABS;
use crate::cube::numbers::float::computed_by;
use crate::cube::numbers::random::{self, Stream};

/// Quantizes square blocks along two axes, one after the other, of a tensor with elements.
pub(super) fn quantize_into<R: CubeRuntime, O: Int>(
    target: Target<R>,
    axes: [usize; 2],
    job: Job,
    stream: RandomStream,
    known: &KnownWords<R>,
) -> CubeTensor<R> {
    let shape = target.output().shape();
    let rank = shape.num_dims();
    assert!(
        axes[1] < rank,
        "burn-mx: square blocks lie along two axes, the tensor of shape {shape:?} has one"
    );
    let lengths = axes.map(|axis| shape[axis]);
    let block = job.format.block_length(lengths[0].max(lengths[1]));
    let blocks = lengths.map(|length| length.div_ceil(block));
    let blocks = shape.num_elements() / (lengths[0] * lengths[1]) * blocks[0] * blocks[1];
    // Neighbouring units have elements that lie side by side.
    let [slow, fast] = match target.is_dense(axes[0]) {
        true => [axes[1], axes[0]],
        false => axes,
    };
    let (client, address_type) = (target.client(), target.address_type());
    let (input, output) = target.arguments();
    // SAFETY: units read and write the elements of their cube's block, inside of the tensor's shape.
    unsafe {
        square_kernel::launch_unchecked::<O, R>(
            &client,
            launch::cubes(&client, blocks, 1),
            CubeDim::new_1d(UNITS as u32),
            address_type,
            input,
            output,
            known.argument(),
            random::argument(stream),
            blocks,
            slow,
            fast,
            rank,
            block,
            job,
        );
    }
    target.into_output()
}

/// Units that a unit brings together in each of the two steps of [`join`].
const JOINED: usize = 16;
const _: () = assert!(JOINED * JOINED == UNITS);

/// Makes of the words of each unit the largest ones, or the sums, of all units.
#[cube]
fn join(words: &mut Array<u32>, #[comptime] count: usize, #[comptime] adds: bool) {
    let mut of_units = SharedMemory::<u32>::new(comptime!(count * UNITS));
    let mut of_groups = SharedMemory::<u32>::new(comptime!(count * JOINED));
    let unit = UNIT_POS as usize;
    #[unroll]
    for i in 0..count {
        of_units[comptime!(i * UNITS) + unit] = words[i];
    }
    sync_cube();
    if unit < comptime!(count * JOINED) {
        let mut joined = 0u32.runtime();
        for i in 0..JOINED {
            joined = both(joined, of_units[unit * JOINED + i], adds);
        }
        of_groups[unit] = joined;
    }
    sync_cube();
    #[unroll]
    for i in 0..count {
        let mut joined = 0u32.runtime();
        for group in 0..JOINED {
            joined = both(joined, of_groups[comptime!(i * JOINED) + group], adds);
        }
        words[i] = joined;
    }
}

#[cube]
fn both(one: u32, other: u32, #[comptime] adds: bool) -> u32 {
    if comptime!(adds) {
        one + other
    } else {
        max(one, other)
    }
}

/// One cube for each block. Each unit has every n-th element of the block, row by row along the fast axis, and shared memory
/// joins the largest magnitudes.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::cube) fn square_kernel<O: Int>(
    input: &Tensor<u32>,
    output: &mut Tensor<O>,
    known: &Known,
    stream: &Stream,
    blocks: usize,
    #[comptime] slow: usize,
    #[comptime] fast: usize,
    #[comptime] rank: usize,
    #[comptime] block: usize,
    #[comptime] job: Job,
) {
    computed_by(comptime!(job.format.float32));
    let unit = UNIT_POS as usize;

    // Where the block's first element lies, how many it has along each axis, and how far the next one in row-major order is.
    let mut rest = CUBE_POS;
    let mut from = 0usize.runtime();
    let mut to = 0usize.runtime();
    let mut position = 0usize.runtime();
    let mut size = 1usize.runtime();
    let mut rows = 1usize.runtime();
    let mut columns = 1usize.runtime();
    let mut row_step = 1usize.runtime();
    let mut column_step = 1usize.runtime();
    #[unroll]
    for i in 0..rank {
        let dim = comptime!(rank - 1 - i);
        let length = input.shape(dim);
        let at = if comptime!(dim == slow || dim == fast) {
            let along = length.div_ceil(block);
            let start = rest % along * block;
            rest /= along;
            let elements = min(length - start, block);
            if comptime!(dim == slow) {
                rows = elements;
                row_step = size;
            } else {
                columns = elements;
                column_step = size;
            }
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
    let elements = select(CUBE_POS < blocks, rows * columns, 0);

    let mut amax = Array::<u32>::new(1usize);
    amax[0] = 0u32.runtime();
    for i in range_stepped(unit, elements, UNITS) {
        let row = i / columns;
        let column = i % columns;
        let at = from + row * input.stride(slow) + column * input.stride(fast);
        let x = element(input[at], job);
        amax[0] = max(amax[0], rules::counted(x & ABS, job.format));
    }
    join(&mut amax, 1usize, false);
    let amax = amax[0];

    let mut grids = Array::<u32>::new(comptime!(two_pass_scale::words(job.format)));
    let mut choice = amax;
    if comptime!(job.format.looks_twice()) {
        two_pass_scale::write_grids(&mut grids, amax, known, job.format);
        let mut sums = two_pass_scale::none(job.format);
        for i in range_stepped(unit, elements, UNITS) {
            let at = from + i / columns * input.stride(slow) + i % columns * input.stride(fast);
            let x = element(input[at], job);
            two_pass_scale::add(&mut sums, x, amax, &grids, known, job.format);
        }
        let mut sum = Array::<u32>::new(two_pass_scale::WORDS);
        for number in 0..comptime!(job.format.grids()) {
            sum[0] = sums[number * 2];
            sum[1] = sums[number * 2 + 1];
            join(&mut sum, two_pass_scale::WORDS, true);
            sums[number * 2] = sum[0];
            sums[number * 2 + 1] = sum[1];
        }
        choice = two_pass_scale::choice(&sums, &grids, amax, elements as u32, job.format);
    }
    let grid = two_pass_scale::grid(&grids, amax, choice, known, job.format);
    let scale = scale_of_results(grid, amax, choice, known, job);
    for i in range_stepped(unit, elements, UNITS) {
        let row = i / columns;
        let column = i % columns;
        let at = from + row * input.stride(slow) + column * input.stride(fast);
        let x = element(input[at], job);
        let position = position + row * row_step + column * column_step;
        let word = word_at(stream, position, job);
        let value = rounded(x, grid, scale, word, known, job);
        let at = to + row * output.stride(slow) + column * output.stride(fast);
        output[at] = launch::upper_bits::<O>(value);
    }
}
