//! Block quantization on a device: one pass over memory, along any axis, of a tensor that lies as it will.

pub(super) mod both_axes;
pub(super) mod dialect;
pub(super) mod eden;
pub(super) mod hadamard;
mod job;
pub(super) mod known;
mod places;
pub(super) mod rules;
mod shared_blocks;
pub(super) mod square;
mod tensor_scale;
pub(super) mod two_pass_scale;

use burn_backend::{DType, TensorMetadata};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use microscaling::RandomStream;

use super::launch::{self, Target};
use super::numbers::bits::ABS;
use super::numbers::float::computed_by;
use super::numbers::random::{self, Stream};
pub(super) use job::{Job, UNITS, element, rounded, scale_of_results, word_at};
use known::{Known, KnownWords};
use places::place;
pub(super) use shared_blocks::shared_kernel;
use shared_blocks::{EACH, shared_block};
pub(super) use tensor_scale::largest;
#[cfg(all(test, feature = "cuda"))]
pub(super) use tensor_scale::scale_kernel;
use tensor_scale::scale_of_tensor;

/// Quantizes blocks along `axis`.
pub(super) fn quantize<R: CubeRuntime>(
    tensor: CubeTensor<R>,
    axis: usize,
    job: Job,
    stream: RandomStream,
) -> CubeTensor<R> {
    let target = Target::of(tensor);
    let known = KnownWords::of(target.input(), job.format, job.elementwise);
    quantize_by::<R, u32>(target, axis, job, stream, &known)
}

/// Quantizes blocks along `axis` to this float type, in units of the tensor's scale where there is one, which is given beside
/// as a tensor of one number. If bfloat16 is the type, then of numbers below 2^−126, whose last bits it may not have, the
/// rest is cut off.
pub(super) fn quantize_in_units<R: CubeRuntime>(
    tensor: CubeTensor<R>,
    dtype: DType,
    axis: usize,
    job: Job,
    stream: RandomStream,
) -> (CubeTensor<R>, Option<CubeTensor<R>>) {
    let job = job.in_units();
    let known = KnownWords::of(&tensor, job.format, job.elementwise);
    let values = match dtype {
        DType::BF16 => {
            let target = Target::of_type(tensor, dtype);
            quantize_by::<R, u16>(target, axis, job, stream, &known)
        }
        _ => quantize_by::<R, u32>(Target::of(tensor), axis, job, stream, &known),
    };
    let amax = known.tensor_amax();
    (values, amax.map(|amax| scale_of_tensor(amax, job.format)))
}

fn quantize_by<R: CubeRuntime, O: Int>(
    target: Target<R>,
    axis: usize,
    job: Job,
    stream: RandomStream,
    known: &KnownWords<R>,
) -> CubeTensor<R> {
    let shape = target.output().shape();
    if shape.num_elements() == 0 {
        return target.into_output();
    }
    let job = job.on(&target.client());
    if let Some(axes) = job.format.square_axes(axis) {
        return square::quantize_into::<R, O>(target, axes, job, stream, known);
    }
    if job.corrects_scales() {
        return eden::quantize_into::<R, O>(target, axis, job, stream, known);
    }
    let block = job.format.block_length(shape[axis]);
    let is_one_block = block == shape[axis];
    let shared = shared_block(job.format, block, is_one_block).filter(|_| target.is_dense(axis));
    let block = shared.unwrap_or(block);
    let blocks = shape.num_elements() / shape[axis] * shape[axis].div_ceil(block);
    let (client, address_type) = (target.client(), target.address_type());
    let (cubes, cube) = match shared {
        Some(block) => (
            launch::cubes(&client, blocks, UNITS * EACH / block),
            CubeDim::new_1d(UNITS as u32),
        ),
        None => launch::units(&client, blocks),
    };
    let (input, output) = target.arguments();
    let rank = shape.num_dims();
    let layout = BlockLayout {
        axis,
        rank,
        block,
        sub_block: job.format.sub_block_length(block),
        whole: axis + 1 == rank
            && shape[axis].is_multiple_of(block)
            && target.is_in_row_major_order(),
    };
    // SAFETY: units read and write the elements of their own blocks, inside of the tensor's shape.
    unsafe {
        let launch = match shared {
            Some(_) => shared_kernel::launch_unchecked::<O, R>,
            None => quantize_kernel::launch_unchecked::<O, R>,
        };
        launch(
            &client,
            cubes,
            cube,
            address_type,
            input,
            output,
            known.argument(),
            random::argument(stream),
            blocks,
            layout,
            job,
        );
    }
    target.into_output()
}

/// How the blocks lie in a tensor, known when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BlockLayout {
    /// The axis along which blocks lie, and the number of axes.
    pub(super) axis: usize,
    pub(super) rank: usize,
    /// Elements of a block, and of a sub-block.
    pub(super) block: usize,
    pub(super) sub_block: usize,
    /// Whether the tensor is whole blocks one after the other, so that their places follow from their numbers.
    pub(super) whole: bool,
}

/// One unit a block. Units are numbered so that neighbours have neighbouring elements, unless they are neighbours along the
/// axis.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn quantize_kernel<O: Int>(
    input: &Tensor<u32>,
    output: &mut Tensor<O>,
    known: &Known,
    stream: &Stream,
    blocks: usize,
    #[comptime] layout: BlockLayout,
    #[comptime] job: Job,
) {
    let BlockLayout {
        axis,
        rank,
        block,
        sub_block,
        ..
    } = comptime!(layout);
    if ABSOLUTE_POS >= blocks {
        terminate!();
    }
    computed_by(comptime!(job.format.float32));
    let place = place::<O>(input, output, ABSOLUTE_POS, axis, rank, block);
    let length = min(input.shape(axis) - place.start, block);
    let from_step = input.stride(axis);
    let to_step = output.stride(axis);

    let amax = largest_between(input, place.from, 0usize, length, from_step, job);
    let mut grids = Array::<u32>::new(comptime!(two_pass_scale::words(job.format)));
    let mut choice = amax;
    if comptime!(job.format.looks_twice()) {
        two_pass_scale::write_grids(&mut grids, amax, known, job.format);
        let mut sums = two_pass_scale::none(job.format);
        for i in 0..length {
            let x = element(input[place.from + i * from_step], job);
            two_pass_scale::add(&mut sums, x, amax, &grids, known, job.format);
        }
        choice = two_pass_scale::choice(&sums, &grids, amax, length as u32, job.format);
    }
    let sub_blocks = length.div_ceil(sub_block);
    let mut above = 0u32.runtime();
    for sub in 0..sub_blocks {
        let first = sub * sub_block;
        let end = min(first + sub_block, length);
        let mut sub_amax = choice;
        if comptime!(job.format.has_sub_blocks(block)) {
            sub_amax = largest_between(input, place.from, first, end, from_step, job);
        }
        if comptime!(job.format.first_sub_block().is_some()) {
            let all = comptime!(job.format.first_sub_block().unwrap());
            let within = first % all;
            if within == 0 {
                let end = min(first + all, length);
                above = largest_between(input, place.from, first, end, from_step, job);
            }
            sub_amax = rules::both_levels(above, sub_amax);
        }
        let grid = two_pass_scale::grid(&grids, amax, sub_amax, known, job.format);
        let scale = scale_of_results(grid, amax, sub_amax, known, job);
        for i in first..end {
            let x = element(input[place.from + i * from_step], job);
            let position = place.position + i * place.step;
            let word = word_at(stream, position, job);
            let value = rounded(x, grid, scale, word, known, job);
            output[place.to + i * to_step] = launch::upper_bits::<O>(value);
        }
    }
}

/// The largest counted magnitude of elements of a block that begins at a place.
#[cube]
fn largest_between(
    input: &Tensor<u32>,
    from: usize,
    first: usize,
    end: usize,
    step: usize,
    #[comptime] job: Job,
) -> u32 {
    let mut amax = 0u32.runtime();
    for i in first..end {
        let x = element(input[from + i * step], job);
        amax = max(amax, rules::counted(x & ABS, job.format));
    }
    amax
}
