//! Block quantization on a device: one pass over memory, along any axis, of a tensor that lies as it will.

use burn_backend::{DType, TensorMetadata};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::std::tensor::layout::linear::LinearView;
use microscaling::{FloatFormat, RandomStream, Rounding};

use super::bits::ABS;
use super::launch::{self, Target};
use super::random::{self, Stream, draw};
use super::round::round_float;
use super::rules::{self, Format};

/// What is done to each block, known when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Job {
    /// What the elements are rounded to before.
    pub(super) elementwise: Option<(FloatFormat, Rounding)>,
    pub(super) format: Format,
    pub(super) rounding: Rounding,
}

/// Quantizes blocks along `axis`.
pub(super) fn quantize<R: CubeRuntime>(
    tensor: CubeTensor<R>,
    axis: usize,
    job: Job,
    stream: RandomStream,
) -> CubeTensor<R> {
    quantize_into::<R, u32>(Target::of(tensor), axis, job, stream)
}

/// Quantizes blocks along `axis` to a format all of whose numbers bfloat16 has; of numbers below 2^−126, whose last bits it
/// may not have, the rest is cut off. Not stochastic.
pub(super) fn quantize_to_bf16<R: CubeRuntime>(
    tensor: CubeTensor<R>,
    axis: usize,
    job: Job,
) -> CubeTensor<R> {
    let stream = RandomStream::new(0, 0);
    quantize_into::<R, u16>(Target::of_type(tensor, DType::BF16), axis, job, stream)
}

fn quantize_into<R: CubeRuntime, O: Int>(
    target: Target<R>,
    axis: usize,
    job: Job,
    stream: RandomStream,
) -> CubeTensor<R> {
    let shape = target.output().shape();
    if shape.num_elements() == 0 {
        return target.into_output();
    }
    let block = job.format.block_length(shape[axis]);
    let blocks = shape.num_elements() / shape[axis] * shape[axis].div_ceil(block);
    let tensor_amax = match job.format {
        Format::Nvfp4(format) if format.tensor_scale => {
            let word = largest(target.input(), job.elementwise);
            ComptimeOptionArgs::Some(word.into_array_arg())
        }
        _ => ComptimeOptionArgs::None,
    };
    let (client, address_type) = (target.client(), target.address_type());
    let (cubes, cube) = launch::units(&client, blocks);
    let (input, output) = target.arguments();
    let (rank, sub_block) = (shape.num_dims(), job.format.sub_block_length(block));
    // SAFETY: a unit reads and writes the elements of its own block, inside of the tensor's shape.
    unsafe {
        quantize_kernel::launch_unchecked::<O, R>(
            &client,
            cubes,
            cube,
            address_type,
            input,
            output,
            tensor_amax,
            random::argument(stream),
            blocks,
            axis,
            rank,
            block,
            sub_block,
            job,
        );
    }
    target.into_output()
}

/// One unit a block. Units are numbered so that neighbours have neighbouring elements.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn quantize_kernel<O: Int>(
    input: &Tensor<u32>,
    output: &mut Tensor<O>,
    tensor_amax: &ComptimeOption<Array<u32>>,
    stream: &Stream,
    blocks: usize,
    #[comptime] axis: usize,
    #[comptime] rank: usize,
    #[comptime] block: usize,
    #[comptime] sub_block: usize,
    #[comptime] job: Job,
) {
    if ABSOLUTE_POS >= blocks {
        terminate!();
    }
    let axis_length = input.shape(axis);
    let mut rest = ABSOLUTE_POS;
    let mut from = 0usize.runtime();
    let mut to = 0usize.runtime();
    // In row-major order: of the first element, and from one along the axis to the next.
    let mut position = 0usize.runtime();
    let mut step = 1usize.runtime();
    let mut size = 1usize.runtime();
    let mut start = 0usize.runtime();
    #[unroll]
    for i in 0..rank {
        let dim = comptime!(rank - 1 - i);
        if comptime!(dim == axis) {
            let along = axis_length.div_ceil(block);
            start = rest % along * block;
            rest /= along;
            from += start * input.stride(dim);
            to += start * output.stride(dim);
            position += start * size;
            step = size;
        } else {
            let length = input.shape(dim);
            let at = rest % length;
            rest /= length;
            from += at * input.stride(dim);
            to += at * output.stride(dim);
            position += at * size;
        }
        size *= input.shape(dim);
    }
    let length = min(axis_length - start, block);
    let from_step = input.stride(axis);
    let to_step = output.stride(axis);

    let mut amax = 0u32.runtime();
    for i in 0..length {
        let x = element(input[from + i * from_step], job);
        amax = max(amax, rules::counted(x & ABS, job.format));
    }
    #[comptime]
    let of_tensor = match tensor_amax {
        ComptimeOption::Some(words) => words[0],
        ComptimeOption::None => 0u32.runtime(),
    };
    let sub_blocks = length.div_ceil(sub_block);
    for sub in 0..sub_blocks {
        let first = sub * sub_block;
        let end = min(first + sub_block, length);
        let mut sub_amax = amax;
        if comptime!(sub_block < block) {
            sub_amax = 0u32;
            for i in first..end {
                let x = element(input[from + i * from_step], job);
                sub_amax = max(sub_amax, rules::counted(x & ABS, job.format));
            }
        }
        let grid = rules::grid(amax, sub_amax, of_tensor, job.format);
        for i in first..end {
            let x = element(input[from + i * from_step], job);
            let mut word = 0u32.runtime();
            if comptime!(job.rounding == Rounding::Stochastic) {
                word = draw(stream, position + i * step);
            }
            let value = rules::round(x, grid, word, job.format, job.rounding);
            output[to + i * to_step] = launch::upper_bits::<O>(value);
        }
    }
}

/// An element as it goes into its block.
#[cube]
fn element(x: u32, #[comptime] job: Job) -> u32 {
    match comptime!(job.elementwise) {
        Some(elementwise) => round_float(x, 0, elementwise.0, elementwise.1),
        None => x,
    }
}

/// The largest magnitude of a tensor, one word.
fn largest<R: CubeRuntime>(
    tensor: &CubeTensor<R>,
    elementwise: Option<(FloatFormat, Rounding)>,
) -> CubeTensor<R> {
    let word = launch::word(tensor, 0);
    let elements = tensor.shape().num_elements();
    let units = elements.div_ceil(ELEMENTS).min(UNITS);
    let (cubes, cube) = launch::units(&tensor.client, units);
    // SAFETY: what is read lies inside of the tensor, by its view; what is written is one word.
    unsafe {
        largest_kernel::launch_unchecked(
            &tensor.client,
            cubes,
            cube,
            tensor.required_address_type(),
            tensor.clone().into_linear_view(),
            word.clone().into_tensor_arg(),
            elements,
            units,
            elementwise,
        );
    }
    word
}

/// Elements that a unit of [`largest_kernel`] looks at, at least, and the most units.
const ELEMENTS: usize = 64;
const UNITS: usize = 1 << 16;

#[cube(launch_unchecked, address_type = "dynamic")]
fn largest_kernel(
    input: &LinearView<u32>,
    output: &mut Tensor<Atomic<u32>>,
    elements: usize,
    units: usize,
    #[comptime] elementwise: Option<(FloatFormat, Rounding)>,
) {
    if ABSOLUTE_POS >= units {
        terminate!();
    }
    let mut amax = 0u32.runtime();
    for i in range_stepped(ABSOLUTE_POS, elements, units) {
        let x = match comptime!(elementwise) {
            Some(elementwise) => round_float(input[i], 0, elementwise.0, elementwise.1),
            None => input[i],
        };
        amax = max(amax, x & ABS);
    }
    output[0].fetch_max(amax);
}
