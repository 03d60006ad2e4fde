//! Blocks along the last two axes: both operands of a gradient's products in one reading of the gradient.

use burn_backend::{DType, Shape, TensorMetadata};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use microscaling::{OperandQuantization, RandomStream, Rounding};

use super::BlockLayout;
use super::job::{Job, UNITS};
use super::known::{Known, KnownWords};
use super::shared_blocks::{EACH, Spot, quantize_elements, shared_block};
use super::tensor_scale::{largest, scale_of_tensor};
use crate::cube::launch;
use crate::cube::numbers::float::computed_by;
use crate::cube::numbers::random::{self, Stream};

/// Rows and columns of a cube's tile.
const TILE: usize = 32;
const _: () = assert!(TILE * TILE == UNITS * EACH);

/// The jobs along the last axis and along the axis before, for quantizations along these axes of a tensor of this shape, in this order or the
/// other one. `None` if the kernel does not do them.
fn jobs(shape: &Shape, quantizations: [(usize, OperandQuantization); 2]) -> Option<[Job; 2]> {
    let rank = shape.num_dims();
    let along = |axis: usize| {
        let mut quantizations = quantizations.into_iter();
        let (_, quantization) = quantizations.find(|(along, _)| *along == axis)?;
        let (format, rounding) = quantization.blocks?;
        let is_plain = quantization.hadamard.is_none() && quantization.factor.is_none();
        let is_fixed = rounding != Rounding::Stochastic && !format.square;
        if !is_plain || !is_fixed || !shape[axis].is_multiple_of(TILE) {
            return None;
        }
        let job = Job::of(quantization.elementwise, (format, rounding)).in_units();
        let block = job.format.block_length(shape[axis]);
        let is_shared = shared_block(job.format, block, false).is_some();
        (is_shared && TILE.is_multiple_of(block)).then_some(job)
    };
    let jobs = [along(rank.checked_sub(1)?)?, along(rank.checked_sub(2)?)?];
    let [last, before] = jobs;
    (last.elementwise == before.elementwise).then_some(jobs)
}

/// Whether [`quantize_in_units`] does these quantizations along axes of a tensor of this shape.
pub(in crate::cube) fn has_kernel(
    shape: &Shape,
    quantizations: [(usize, OperandQuantization); 2],
) -> bool {
    cubes(shape).is_some() && jobs(shape, quantizations).is_some()
}

/// A cube for each tile: tiles of a row, tiles of a column, matrices. `None` if there are none, or more than a device counts along an axis.
fn cubes(shape: &Shape) -> Option<CubeCount> {
    let [rows, columns] = shape.last_chunk()?;
    let matrices = shape.num_elements() / (rows * columns).max(1);
    let count = |cubes: usize| u16::try_from(cubes).ok().filter(|cubes| *cubes > 0);
    let [across, down] = [count(columns / TILE)?, count(rows / TILE)?];
    let [across, down, matrices] = [across, down, count(matrices)?].map(u32::from);
    Some(CubeCount::Static(across, down, matrices))
}

/// The quantized numbers, and their tensor scale where there is one.
pub(in crate::cube) type InUnits<R> = (CubeTensor<R>, Option<CubeTensor<R>>);

/// Does two quantizations of a tensor along axes, each as [`quantize_in_units`](super::quantize_in_units) does. `None` if the elements of the
/// tensor's last axis do not lie side by side, or the tensor has no [kernel](has_kernel).
pub(in crate::cube) fn quantize_in_units<R: CubeRuntime>(
    tensor: &CubeTensor<R>,
    dtype: DType,
    quantizations: [(usize, OperandQuantization); 2],
) -> Option<[InUnits<R>; 2]> {
    let shape = tensor.shape();
    let (cubes, jobs) = (cubes(&shape)?, jobs(&shape, quantizations)?);
    if tensor.meta.strides().last() != Some(&1) {
        return None;
    }
    let elementwise = jobs[0].elementwise;
    let has_scale = jobs.iter().any(|job| job.format.tensor_scale);
    let amax = has_scale.then(|| largest(tensor, elementwise));
    let known = jobs.map(|job| {
        let amax = amax.clone().filter(|_| job.format.tensor_scale);
        KnownWords::with_tables(tensor, job.format, amax)
    });
    let outputs = [(); 2].map(|()| launch::empty_like(tensor, shape.clone(), dtype));
    match dtype {
        DType::BF16 => launch_kernel::<R, u16>(cubes, tensor, &outputs, &known, jobs),
        _ => launch_kernel::<R, u32>(cubes, tensor, &outputs, &known, jobs),
    }
    let [last, before] = outputs;
    let scale = |which: usize| {
        let amax = known[which].tensor_amax();
        amax.map(|amax| scale_of_tensor(amax, jobs[which].format))
    };
    let [last, before] = [(last, scale(0)), (before, scale(1))];
    let last_axis = shape.num_dims() - 1;
    Some(match quantizations[0].0 == last_axis {
        true => [last, before],
        false => [before, last],
    })
}

fn launch_kernel<R: CubeRuntime, O: Int>(
    cubes: CubeCount,
    tensor: &CubeTensor<R>,
    [along_last, along_rows]: &[CubeTensor<R>; 2],
    known: &[KnownWords<R>; 2],
    jobs: [Job; 2],
) {
    let client = tensor.client.clone();
    let [last, rows] = jobs.map(|job| job.on(&client));
    // SAFETY: units read and write elements of their own tile, inside of the tensors.
    unsafe {
        both_axes_kernel::launch_unchecked::<O, R>(
            &client,
            cubes,
            CubeDim::new_1d(UNITS as u32),
            launch::address_type([tensor, along_last, along_rows]),
            tensor.clone().into_tensor_arg(),
            along_last.clone().into_tensor_arg(),
            along_rows.clone().into_tensor_arg(),
            known[0].argument(),
            known[1].argument(),
            random::argument(RandomStream::default()),
            tensor.rank(),
            last,
            rows,
        );
    }
}

/// The blocks of a tile along an axis.
fn layout(job: Job) -> BlockLayout {
    let block = job.format.block_length(TILE);
    BlockLayout {
        axis: 0,
        rank: 0,
        block,
        sub_block: job.format.sub_block_length(block),
        whole: true,
    }
}

/// A cube for each tile of [`TILE`] rows and columns of a matrix. A unit has four elements of a row, then four of a column, which it takes
/// from shared memory. The outputs lie in row-major order.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::cube) fn both_axes_kernel<O: Int>(
    input: &Tensor<u32>,
    along_last: &mut Tensor<O>,
    along_rows: &mut Tensor<O>,
    known_last: &Known,
    known_rows: &Known,
    stream: &Stream,
    #[comptime] rank: usize,
    #[comptime] job_of_last: Job,
    #[comptime] job_of_rows: Job,
) {
    computed_by(comptime!(job_of_last.format.float32));
    let mut maxima = SharedMemory::<u32>::new(UNITS);
    // A column more: elements of a column lie in as many banks.
    let width = comptime!(TILE + 1);
    let mut tile = SharedMemory::<u32>::new(comptime!(TILE * (TILE + 1)));
    let (row, column) = (CUBE_POS_Y as usize * TILE, CUBE_POS_X as usize * TILE);
    let mut matrix = CUBE_POS_Z as usize;
    let columns = input.shape(comptime!(rank - 1));
    let corner = (matrix * input.shape(comptime!(rank - 2)) + row) * columns + column;
    // The same place in the input.
    let mut from = row * input.stride(comptime!(rank - 2)) + column;
    #[unroll]
    for i in 2..rank {
        let axis = comptime!(rank - 1 - i);
        if comptime!(axis == 0) {
            from += matrix * input.stride(axis);
        } else {
            from += matrix % input.shape(axis) * input.stride(axis);
            matrix /= input.shape(axis);
        }
    }
    let step = input.stride(comptime!(rank - 2));
    let unit = UNIT_POS as usize;
    let units = comptime!(TILE / EACH);

    let (row, first) = (unit / units, unit % units * EACH);
    let mut elements = Array::<u32>::new(EACH);
    #[unroll]
    for i in 0..EACH {
        let x = input[from + row * step + first + i];
        elements[i] = x;
        tile[row * width + first + i] = x;
    }
    let blocks = comptime!(layout(job_of_last));
    let start = corner + row * columns + first / blocks.block * blocks.block;
    let spot = Spot {
        at: unit,
        to: start,
        start,
        first: first % blocks.block,
        step: 1usize.runtime(),
        step_of_output: 1usize.runtime(),
        step_of_position: 1usize.runtime(),
        length: blocks.block.runtime(),
    };
    quantize_elements::<O>(
        along_last,
        elements,
        spot,
        &mut maxima,
        known_last,
        stream,
        blocks,
        job_of_last,
    );
    sync_cube();

    let (column, first) = (unit % TILE, unit / TILE * EACH);
    let mut elements = Array::<u32>::new(EACH);
    #[unroll]
    for i in 0..EACH {
        elements[i] = tile[(first + i) * width + column];
    }
    let blocks = comptime!(layout(job_of_rows));
    let start = corner + first / blocks.block * blocks.block * columns + column;
    let spot = Spot {
        at: column * units + unit / TILE,
        to: start,
        start,
        first: first % blocks.block,
        step: 1usize.runtime(),
        step_of_output: columns,
        step_of_position: columns,
        length: blocks.block.runtime(),
    };
    quantize_elements::<O>(
        along_rows,
        elements,
        spot,
        &mut maxima,
        known_rows,
        stream,
        blocks,
        job_of_rows,
    );
}
