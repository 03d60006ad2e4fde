//! Block quantization on a device: one pass over memory, along any axis, of a tensor that lies as it will.

use burn_backend::{DType, TensorMetadata};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::std::tensor::layout::linear::LinearView;
use microscaling::{BlockFormat, FloatFormat, RandomStream, Rounding};

use super::bits::{ABS, INFINITY};
use super::launch::{self, Target};
use super::place::place;
use super::random::{self, Stream, draw};
use super::round::round_float;
use super::rules::{self, Format};
use super::square;
use super::two_pass_scale;

/// The job for each block, known when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Job {
    /// The elementwise format and rounding before quantization.
    pub(super) elementwise: Option<(FloatFormat, Rounding)>,
    pub(super) format: Format,
    pub(super) rounding: Rounding,
    /// Whether clipped elements become 1, and others 0.
    pub(super) marks_clipped: bool,
    /// Whether elements are in units of the tensor's scale.
    pub(super) in_units: bool,
}

impl Job {
    pub(super) fn of(
        elementwise: Option<(FloatFormat, Rounding)>,
        (format, rounding): (BlockFormat, Rounding),
    ) -> Self {
        Self {
            elementwise,
            format: Format::of(format),
            rounding,
            marks_clipped: false,
            in_units: false,
        }
    }

    /// Leaves the tensor's scale, if there is one, out of the quantized elements.
    pub(super) fn in_units(self) -> Self {
        Self {
            in_units: self.format.has_tensor_scale(),
            ..self
        }
    }

    /// Writes marks of clipped elements in place of quantized elements.
    pub(super) fn marking_clipped(format: BlockFormat) -> Self {
        Self {
            marks_clipped: true,
            ..Self::of(None, (format, Rounding::NearestEven))
        }
    }
}

/// Quantizes blocks along `axis`.
pub(super) fn quantize<R: CubeRuntime>(
    tensor: CubeTensor<R>,
    axis: usize,
    job: Job,
    stream: RandomStream,
) -> CubeTensor<R> {
    let target = Target::of(tensor);
    let amax = largest_of_tensor(target.input(), job);
    quantize_by::<R, u32>(target, axis, job, stream, amax)
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
    let amax = largest_of_tensor(&tensor, job);
    let values = match dtype {
        DType::BF16 => {
            let target = Target::of_type(tensor, dtype);
            quantize_by::<R, u16>(target, axis, job, stream, amax.clone())
        }
        _ => quantize_by::<R, u32>(Target::of(tensor), axis, job, stream, amax.clone()),
    };
    (values, amax.map(|amax| scale_of_tensor(amax, job.format)))
}

/// The largest magnitude of a tensor whose format has a scale that follows from it.
fn largest_of_tensor<R: CubeRuntime>(tensor: &CubeTensor<R>, job: Job) -> Option<CubeTensor<R>> {
    let largest = || match tensor.shape().num_elements() {
        0 => launch::word(tensor, 0),
        _ => largest(tensor, job.elementwise),
    };
    job.format.has_tensor_scale().then(largest)
}

/// A tensor's scale, in the place of its largest magnitude; 0 if the magnitude is NaN or Inf.
fn scale_of_tensor<R: CubeRuntime>(amax: CubeTensor<R>, format: Format) -> CubeTensor<R> {
    let mut scale = amax;
    let (cubes, cube) = launch::units(&scale.client, 1);
    // SAFETY: one unit reads and writes the one word.
    unsafe {
        scale_kernel::launch_unchecked(
            &scale.client,
            cubes,
            cube,
            scale.clone().into_array_arg(),
            format,
        );
    }
    scale.dtype = DType::F32;
    scale
}

#[cube(launch_unchecked)]
pub(super) fn scale_kernel(word: &mut Array<u32>, #[comptime] format: Format) {
    if ABSOLUTE_POS == 0 {
        let amax = word[0];
        word[0] = rules::scale_of_tensor(select(amax >= INFINITY, 0, amax), format);
    }
}

fn quantize_by<R: CubeRuntime, O: Int>(
    target: Target<R>,
    axis: usize,
    job: Job,
    stream: RandomStream,
    amax: Option<CubeTensor<R>>,
) -> CubeTensor<R> {
    let shape = target.output().shape();
    if shape.num_elements() == 0 {
        return target.into_output();
    }
    let tensor_amax = match amax {
        Some(word) => ComptimeOptionArgs::Some(word.into_array_arg()),
        None => ComptimeOptionArgs::None,
    };
    if let Some(axes) = job.format.square_axes(axis) {
        return square::quantize_into::<R, O>(target, axes, job, stream, tensor_amax);
    }
    let block = job.format.block_length(shape[axis]);
    let is_one_block = block == shape[axis];
    let shared = shared_block(job.format, block, is_one_block).filter(|_| target.is_dense(axis));
    let block = shared.unwrap_or(block);
    let sub_block = job.format.sub_block_length(block);
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

/// Units of a cube of [`shared_kernel`], and of one that works on a square block.
pub(super) const UNITS: usize = 256;
/// Elements that each of its units works on.
const EACH: usize = 4;

/// The length of blocks for [`shared_kernel`]: a power of two, to which an axis that is one block is extended. `None` where a
/// block is too short or too long, or its sub-blocks are not among the elements of one unit, or it is looked at twice.
fn shared_block(format: Format, block: usize, is_one_block: bool) -> Option<usize> {
    let length = match is_one_block {
        true => block.next_power_of_two(),
        false => block,
    };
    let sub_block = format.sub_block_length(length);
    let fits = !format.looks_twice()
        && length.is_power_of_two()
        && (EACH..=UNITS * EACH).contains(&length);
    (fits && (sub_block == length || EACH.is_multiple_of(sub_block))).then_some(length)
}

/// One unit a block. Units are numbered so that neighbours have neighbouring elements, unless they are neighbours along the
/// axis.
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
    let place = place::<O>(input, output, ABSOLUTE_POS, axis, rank, block);
    let length = min(input.shape(axis) - place.start, block);
    let from_step = input.stride(axis);
    let to_step = output.stride(axis);

    let mut amax = 0u32.runtime();
    for i in 0..length {
        let x = element(input[place.from + i * from_step], job);
        amax = max(amax, rules::counted(x & ABS, job.format));
    }
    let of_tensor = word_or_zero(tensor_amax);
    let mut grids = Array::<u32>::new(two_pass_scale::GRIDS);
    let mut verdict = amax;
    if comptime!(job.format.looks_twice()) {
        two_pass_scale::write_grids(&mut grids, amax, of_tensor, job.format);
        let mut sums = two_pass_scale::none();
        for i in 0..length {
            let x = element(input[place.from + i * from_step], job);
            two_pass_scale::add(&mut sums, x, amax, &grids, job.format);
        }
        verdict = two_pass_scale::verdict(&sums, amax, length as u32, job.format);
    }
    let sub_blocks = length.div_ceil(sub_block);
    for sub in 0..sub_blocks {
        let first = sub * sub_block;
        let end = min(first + sub_block, length);
        let mut sub_amax = verdict;
        if comptime!(sub_block < block) {
            sub_amax = 0u32;
            for i in first..end {
                let x = element(input[place.from + i * from_step], job);
                sub_amax = max(sub_amax, rules::counted(x & ABS, job.format));
            }
        }
        let grid = two_pass_scale::grid(&grids, amax, sub_amax, of_tensor, job.format);
        let scale = scale_of_results(grid, amax, sub_amax, of_tensor, job);
        for i in first..end {
            let x = element(input[place.from + i * from_step], job);
            let position = place.position + i * place.step;
            let value = rounded(x, grid, scale, stream, position, job);
            output[place.to + i * to_step] = launch::upper_bits::<O>(value);
        }
    }
}

/// Several units for each block, along an axis whose elements lie side by side. Each unit reads its elements once, and
/// neighbouring units read neighbouring elements. Shared memory joins their largest magnitudes.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn shared_kernel<O: Int>(
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
    let units = comptime!(block / EACH);
    let mut maxima = SharedMemory::<u32>::new(UNITS);
    let unit = UNIT_POS as usize;
    let own = unit % units;
    let number = CUBE_POS * comptime!(UNITS * EACH / block) + unit / units;
    let place = place::<O>(input, output, number, axis, rank, block);
    let length = select(
        number < blocks,
        min(input.shape(axis) - place.start, block),
        0,
    );
    // A sub-block's elements belong to one unit; otherwise neighbours have neighbouring ones.
    let has_sub_blocks = comptime!(sub_block < block);
    let (first, step) = if comptime!(has_sub_blocks) {
        (own * EACH, 1usize.runtime())
    } else {
        (own, units.runtime())
    };

    let mut elements = Array::<u32>::new(EACH);
    let mut amax = 0u32.runtime();
    #[unroll]
    for i in 0..EACH {
        let at = first + i * step;
        let mut x = 0u32.runtime();
        if at < length {
            x = element(input[place.from + at], job);
        }
        elements[i] = x;
        amax = max(amax, rules::counted(x & ABS, job.format));
    }
    maxima[unit] = amax;
    sync_cube();
    for i in 0..units {
        amax = max(amax, maxima[unit - own + i]);
    }

    let of_tensor = word_or_zero(tensor_amax);
    let sub_length = comptime!(if has_sub_blocks { sub_block } else { EACH });
    #[unroll]
    for sub in 0..comptime!(EACH / sub_length) {
        let mut sub_amax = amax;
        if comptime!(has_sub_blocks) {
            sub_amax = 0u32;
            #[unroll]
            for i in 0..sub_length {
                let x = elements[comptime!(sub * sub_length + i)];
                sub_amax = max(sub_amax, rules::counted(x & ABS, job.format));
            }
        }
        let grid = rules::grid(amax, sub_amax, of_tensor, job.format);
        let scale = scale_of_results(grid, amax, sub_amax, of_tensor, job);
        #[unroll]
        for i in 0..sub_length {
            let index = comptime!(sub * sub_length + i);
            let at = first + index * step;
            if at < length {
                let position = place.position + at * place.step;
                let value = rounded(elements[index], grid, scale, stream, position, job);
                output[place.to + at] = launch::upper_bits::<O>(value);
            }
        }
    }
}

/// The tensor's largest magnitude, where there is one.
#[cube]
pub(super) fn word_or_zero(tensor_amax: &ComptimeOption<Array<u32>>) -> u32 {
    #[comptime]
    match tensor_amax {
        ComptimeOption::Some(words) => words[0],
        ComptimeOption::None => 0u32.runtime(),
    }
}

/// The factor of a block's elements, if they are in units of the tensor's scale.
#[cube]
pub(super) fn scale_of_results(
    grid: (u32, u32),
    amax: u32,
    verdict: u32,
    tensor_amax: u32,
    #[comptime] job: Job,
) -> u32 {
    if comptime!(job.in_units) {
        rules::scale_of_block(grid, amax, verdict, tensor_amax, job.format)
    } else {
        0u32.runtime()
    }
}

/// An element of a block, rounded.
#[cube]
pub(super) fn rounded(
    x: u32,
    grid: (u32, u32),
    scale: u32,
    stream: &Stream,
    position: usize,
    #[comptime] job: Job,
) -> u32 {
    let mut word = 0u32.runtime();
    if comptime!(job.rounding == Rounding::Stochastic) {
        word = draw(stream, position);
    }
    if comptime!(job.marks_clipped) {
        rules::clipped(x, grid, job.format)
    } else if comptime!(job.in_units) {
        let element = comptime!(job.format.element_of_float_scale());
        rules::round_in_units(x, grid, scale, word, element, job.rounding)
    } else {
        rules::round(x, grid, word, job.format, job.rounding)
    }
}

/// An element as it goes into its block.
#[cube]
pub(super) fn element(x: u32, #[comptime] job: Job) -> u32 {
    match comptime!(job.elementwise) {
        Some(elementwise) => round_float(x, 0, elementwise.0, elementwise.1),
        None => x,
    }
}

/// The largest magnitude of a tensor, one word.
pub(super) fn largest<R: CubeRuntime>(
    tensor: &CubeTensor<R>,
    elementwise: Option<(FloatFormat, Rounding)>,
) -> CubeTensor<R> {
    let word = launch::word(tensor, 0);
    let elements = tensor.shape().num_elements();
    let units = elements.div_ceil(LOOKED_AT).min(LOOKING);
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
const LOOKED_AT: usize = 64;
const LOOKING: usize = 1 << 16;

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
