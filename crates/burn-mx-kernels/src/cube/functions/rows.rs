//! Softmax and normalization on a device: what [`crate::arithmetic`] says of rows, written into kernels.
//!
//! As many units as a row has lanes (`crate::arithmetic::lanes`) read the row once, keep it in their registers, and write
//! the result. A row that is too long for registers is kept in the output, or in a place to work in. The slice functions
//! add in the same order, so the bits are equal.

mod lines;

use std::cell::Cell;

use burn_backend::TensorMetadata;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

pub(in crate::cube) use lines::Units;
use lines::{KernelRows, Memory, Row};

use super::arithmetic::{Device, Emitter, KernelArithmetic};
use crate::arithmetic::{Arithmetic, norm, softmax};
use crate::cube::launch;
use crate::cube::numbers::float::Float32;
use crate::kernel_op::norm::{Norm, Normalization};
use crate::kernel_op::rounding::FunctionRounding;
use crate::kernel_op::softmax::{LogSoftmax, Softmax};

/// The function of a kernel on rows. Its tensors are in row-major order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::cube) enum RowFunction {
    /// From x to the output.
    Softmax(Softmax),
    /// From the gradient and the output to the gradient.
    SoftmaxBackward(Softmax),
    LogSoftmax(LogSoftmax),
    /// From the gradient and x to the gradient.
    LogSoftmaxBackward(LogSoftmax),
    /// From x, γ and perhaps β to the output.
    Norm(RowNorm),
    /// From the gradient, x and γ to the gradient and the products with it.
    NormBackward(RowNorm),
}

/// A [`Normalization`] of rows of a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::cube) struct RowNorm {
    norm: Norm,
    /// As a pattern.
    epsilon: u32,
    rounding: FunctionRounding,
    length: usize,
}

impl RowNorm {
    pub(in crate::cube) fn of(function: Normalization, length: usize) -> Self {
        Self {
            norm: function.norm,
            epsilon: function.epsilon.to_bits(),
            rounding: function.rounding,
            length,
        }
    }
}

/// The tensors of a kernel, inputs and outputs in the order that [`RowFunction`] names them. Where rows are kept in memory,
/// a place to work in follows the outputs of some functions.
struct Tensors {
    inputs: Vec<Memory>,
    outputs: Vec<Memory>,
}

impl RowFunction {
    fn write(self, rows: &KernelRows<'_>, device: Device, tensors: Tensors) {
        let emitter = rows.emitter;
        let [mut inputs, mut outputs] =
            [tensors.inputs, tensors.outputs].map(|rows| rows.into_iter());
        let mut input = || inputs.next().expect("the kernel has this input");
        let mut output = || Row::Memory(outputs.next().expect("the kernel has this output"));
        let result = output();
        let room = || rows.room(|| result.clone());
        // A row that is read rounded, in a new place.
        let rounded = |arith: &KernelArithmetic<'_>, from: Memory, room: Row| {
            rows.copy(room, &Row::Memory(from), |x| arith.round(x))
        };
        let passes = |how| {
            (
                KernelArithmetic::forward(emitter, device.clone(), how),
                KernelArithmetic::backward(emitter, device.clone(), how),
            )
        };
        let computed = match self {
            Self::Softmax(Softmax { rounding, base2 }) => {
                let (arith, _) = passes(rounding);
                let x = rounded(&arith, input(), room());
                softmax::softmax(rows, &arith, x, base2)
            }
            Self::SoftmaxBackward(Softmax { rounding, base2 }) => {
                // Its arithmetic is rounded in any case.
                let (arith, _) = passes(rounding);
                let g = rounded(&arith, input(), room());
                let y = rows.kept(input());
                softmax::softmax_backward(rows, &arith, &y, g, base2)
            }
            Self::LogSoftmax(LogSoftmax { rounding }) => {
                let (arith, _) = passes(rounding);
                let x = rounded(&arith, input(), room());
                softmax::log_softmax(rows, &arith, x)
            }
            Self::LogSoftmaxBackward(LogSoftmax { rounding }) => {
                let (forward, arith) = passes(rounding);
                let g = rounded(&arith, input(), room());
                let x = rounded(&forward, input(), rows.room(output));
                softmax::log_softmax_backward(rows, &forward, &arith, x, g)
            }
            Self::Norm(function) => {
                let (arith, _) = passes(function.rounding);
                let x = rounded(&arith, input(), room());
                let gamma = function.parameter(input(), true);
                let beta = inputs.next().map(|beta| function.parameter(beta, true));
                let epsilon = f32::from_bits(function.epsilon);
                let normalized = norm::normalize(rows, &arith, function.norm, x, epsilon);
                norm::scale_and_shift(rows, &arith, normalized.values, &gamma, beta.as_ref())
            }
            Self::NormBackward(function) => {
                let how = function.rounding;
                let (forward, arith) = passes(how);
                let g = rounded(&arith, input(), room());
                let x = input();
                let gamma = function.parameter(input(), how.quantize_backward);
                let products = output();
                let x = rounded(&forward, x, rows.room(output));
                let epsilon = f32::from_bits(function.epsilon);
                let normalized = norm::normalize(rows, &forward, function.norm, x, epsilon);
                norm::backward(rows, &arith, function.norm, normalized, &gamma, g, products).0
            }
        };
        if rows.units.keeps_rows() {
            rows.copy(result, &computed, |x| x);
        }
    }

    /// The length of a row where a function asks for it when it is written.
    fn count(self) -> usize {
        match self {
            Self::Norm(function) | Self::NormBackward(function) => function.length,
            _ => 0,
        }
    }

    /// The tensors beside the outputs that a kernel works in, where rows are kept in memory.
    pub(in crate::cube) fn places_to_work_in(self, units: Units) -> usize {
        match self {
            Self::LogSoftmaxBackward(_) | Self::NormBackward(_) if !units.keeps_rows() => 1,
            _ => 0,
        }
    }
}

impl RowNorm {
    /// γ or β: the same for all rows.
    fn parameter(self, memory: Memory, is_rounded: bool) -> Row {
        let rounding = (self.rounding.format, self.rounding.rounding);
        Row::Memory(Memory {
            tensor: memory.tensor,
            start: 0usize.into(),
            rounding: is_rounded.then_some(rounding),
        })
    }
}

/// Computes a function of rows. Where nobody else has the first input, the first output is that.
pub(in crate::cube) fn compute<R: CubeRuntime, const OUTPUTS: usize>(
    function: RowFunction,
    length: usize,
    inputs: impl IntoIterator<Item = CubeTensor<R>>,
) -> [CubeTensor<R>; OUTPUTS] {
    let inputs: Vec<_> = inputs.into_iter().map(into_contiguous).collect();
    let first = &inputs[0];
    // Asked before anything else has it.
    let in_place = first.can_mut();
    let new = || launch::empty_like(first, first.shape(), first.dtype);
    let outputs: [CubeTensor<R>; OUTPUTS] = core::array::from_fn(|i| match i == 0 && in_place {
        true => first.clone(),
        false => new(),
    });
    let elements = first.shape().num_elements();
    if elements == 0 {
        return outputs;
    }
    let client = first.client.clone();
    let address_type = first.required_address_type();
    let rows = elements / length;
    let units = Units::of(length, Units::has_planes(&client));
    let (along, across) = units.cube();
    let cubes = launch::cubes(&client, rows, across as usize);
    let float32 = Float32::of(&client);
    let mut input_arguments = SequenceArg::new();
    let mut output_arguments = SequenceArg::new();
    for (i, output) in outputs.iter().enumerate() {
        output_arguments.push(match i == 0 && in_place {
            true => output.as_tensor_alias(0),
            false => output.clone().into_tensor_arg(),
        });
    }
    for _ in 0..function.places_to_work_in(units) {
        output_arguments.push(new().into_tensor_arg());
    }
    for input in inputs {
        input_arguments.push(input.into_tensor_arg());
    }
    // SAFETY: a line of units reads and writes the elements of one row, and reads one row's length of γ and β.
    unsafe {
        rows_kernel::launch_unchecked(
            &client,
            cubes,
            CubeDim::new_2d(along, across),
            address_type,
            input_arguments,
            output_arguments,
            -0.0,
            rows,
            length,
            function,
            units,
            float32,
        );
    }
    outputs
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::cube) fn rows_kernel(
    inputs: &Sequence<Tensor<u32>>,
    outputs: &mut Sequence<Tensor<u32>>,
    zero: f32,
    rows: usize,
    length: usize,
    #[comptime] function: RowFunction,
    #[comptime] units: Units,
    #[comptime] float32: Float32,
) {
    let shared = SharedMemory::<u32>::new(comptime!(units.shared_words()));
    let row = CUBE_POS * CUBE_DIM_Y as usize + UNIT_POS_Y as usize;
    let is_there = row < rows;
    write_rows(
        inputs,
        outputs,
        &shared,
        select(is_there, row * length, 0),
        select(is_there, length, 0),
        UNIT_POS_X as usize,
        UNIT_POS_Y as usize,
        zero,
        function,
        units,
        float32,
    );
}

#[cube]
#[allow(
    unused_variables,
    clippy::too_many_arguments,
    reason = "used where the kernel is written"
)]
fn write_rows(
    inputs: &Sequence<Tensor<u32>>,
    outputs: &Sequence<Tensor<u32>>,
    shared: &SharedMemory<u32>,
    start: usize,
    length: usize,
    lane: usize,
    line: usize,
    zero: f32,
    #[comptime] function: RowFunction,
    #[comptime] units: Units,
    #[comptime] float32: Float32,
) {
    intrinsic!(|scope| {
        let rows_of = |tensors: SequenceExpand<Tensor<u32>>| {
            let row = |tensor| Memory {
                tensor,
                start: start.clone(),
                rounding: None,
            };
            tensors.iter_cloned().map(row).collect()
        };
        let tensors = Tensors {
            inputs: rows_of(inputs),
            outputs: rows_of(outputs),
        };
        Emitter::within(scope, |emitter| {
            let rows = KernelRows {
                emitter,
                units,
                length,
                count: function.count(),
                lane,
                line,
                shared,
                second: Cell::new(false),
                float32,
            };
            function.write(&rows, Device { zero, float32 }, tensors);
        });
    });
}
