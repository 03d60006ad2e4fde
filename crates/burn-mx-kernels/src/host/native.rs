//! The kernels of backends whose tensors are slices of this process's memory: in place on the tensor's own buffer.

use microscaling::{
    BlockFormat, FloatFormat, OperandQuantization, RandomHadamard, RandomStream, Rounding, Signs,
    Statistics,
};

use super::memory::{self, InMemory};
use super::quantize::{mask_clipped, quantize};
use crate::dense::{dialect_dense, invert_dense, of_known, statistics_dense, transform_dense};
use crate::kernel_op::KernelOp;
use crate::kernel_op::adamw::AdamWStep;
use crate::kernel_op::norm::Normalization;
use crate::kernel_op::{given, recip};

/// Quantizes without the tensor scale, which is given beside; `None` if it cannot be told apart.
pub(crate) fn quantize_without_tensor_scale<T: InMemory>(
    tensor: T,
    axis: usize,
    format: BlockFormat,
    rounding: Rounding,
    stream: RandomStream,
) -> Option<(T, f32)> {
    let mut scale = None;
    let tensor = in_order(tensor, Some((format, rounding)));
    let tensor = tensor.change_where_it_lies(|data, shape, order| {
        let (axis, rounder) = (place_of(axis, order), rounding.with(stream));
        let quantized = format.quantize_without_tensor_scale(data, shape, axis, rounder);
        scale = quantized.unwrap_or_else(|error| panic!("burn-mx: {error}"));
    });
    scale.map(|scale| (tensor, scale))
}

pub(crate) fn quantizing_statistics<T: InMemory>(
    tensor: T,
    axis: usize,
    quantization: OperandQuantization,
) -> Statistics {
    let tensor = tensor.row_major();
    let (values, shape) = (tensor.values(), tensor.dims());
    of_known(Statistics::of_quantizing(
        values,
        &shape,
        axis,
        quantization,
    ))
}

pub(crate) fn quantization_statistics<T: InMemory>(
    before_and_after: [T; 2],
    axis: usize,
    format: Option<BlockFormat>,
) -> Statistics {
    let [before, after] = before_and_after.map(T::row_major);
    let values = [before.values(), after.values()];
    statistics_dense(values, &before.dims(), axis, format)
}

/// Changes every value, in any order of the tensor in memory.
pub(crate) fn elementwise<T: InMemory>(tensor: T, work: impl Fn(&mut [f32]) + Sync) -> T {
    match tensor.is_row_major() {
        true => tensor.change(1, |_, piece| work(piece)),
        false => tensor.change_where_it_lies(|data, _, _| work(data)),
    }
}

/// The tensor in an order in which it may be quantized in these blocks: random numbers depend on the place in row-major order. The two
/// axes of square blocks lie together; a matrix lies in one of two orders, and both have the same blocks.
pub(super) fn in_order<T: InMemory>(tensor: T, blocks: Option<(BlockFormat, Rounding)>) -> T {
    let is_ordered = blocks.is_some_and(|(format, rounding)| {
        rounding == Rounding::Stochastic || format.square && tensor.dims().len() > 2
    });
    match is_ordered {
        true => tensor.row_major(),
        false => tensor,
    }
}

/// The place of a tensor's axis in `order`, which gives the tensor's axis at each axis in memory.
pub(super) fn place_of(axis: usize, order: &[usize]) -> usize {
    let place = order.iter().position(|&at| at == axis);
    place.expect("axis is one of the tensor's")
}

/// The tensor in the basis of a transform along an axis, or in its own again.
pub(super) fn hadamard<T: InMemory>(
    tensor: T,
    axis: usize,
    (transform, signs): (RandomHadamard, Signs),
    inverse: bool,
) -> T {
    tensor.change_where_it_lies(|data, shape, order| {
        let axis = place_of(axis, order);
        match inverse {
            true => invert_dense(data, shape, axis, transform, signs),
            false => transform_dense(data, shape, axis, transform, signs),
        }
    })
}

/// The results of an op.
pub(crate) fn run<T: InMemory>(
    op: KernelOp,
    first: T,
    [second, third]: [Option<T>; 2],
) -> (T, Option<T>) {
    let result = match op {
        KernelOp::Quantize { axis, quantization } => quantize(first, axis, quantization),
        KernelOp::Dialect {
            axis,
            dialect,
            format,
        } => first.change_where_it_lies(|data, shape, order| {
            dialect_dense(data, shape, place_of(axis, order), dialect, format);
        }),
        KernelOp::Hadamard {
            axis,
            transform,
            signs,
            inverse,
        } => hadamard(first, axis, (transform, signs), inverse),
        KernelOp::MaskClipped {
            axis,
            quantization,
            transformed,
        } => mask_clipped(first, given(second), axis, quantization, transformed),
        KernelOp::Round {
            format,
            rounding,
            stream,
        } => float_round_to(first, format, rounding, stream),
        KernelOp::Unary(op, rounding) => op.apply(first, rounding),
        KernelOp::Binary(op, rounding) => op.apply(first, given(second), rounding),
        KernelOp::Function(function, rounding) => {
            elementwise(first, |data| function.apply(data, rounding))
        }
        KernelOp::FunctionGradient(function, rounding) => {
            let input = given(second).row_major();
            let input = input.values();
            first.row_major().change(1, |start, grad| {
                function.apply_gradient(grad, &input[start..start + grad.len()], rounding);
            })
        }
        KernelOp::Norm(function) => norm(function, first, given(second), third),
        KernelOp::NormBackward(function) => {
            let (grad, products) = norm_backward(function, first, given(second), given(third));
            return (grad, Some(products));
        }
        KernelOp::Softmax(function) => {
            memory::rows(first, |rows, length, _| function.forward(rows, length))
        }
        KernelOp::SoftmaxBackward(function) => {
            backward_rows(first, given(second), |grad, output, length| {
                function.backward(grad, output, length);
            })
        }
        KernelOp::LogSoftmax(function) => {
            memory::rows(first, |rows, length, _| function.forward(rows, length))
        }
        KernelOp::LogSoftmaxBackward(function) => {
            backward_rows(first, given(second), |grad, input, length| {
                function.backward(grad, input, length);
            })
        }
        KernelOp::Recip => elementwise(first, recip),
    };
    (result, None)
}

pub(crate) fn float_round_to<T: InMemory>(
    tensor: T,
    format: FloatFormat,
    rounding: Rounding,
    stream: RandomStream,
) -> T {
    let round = |data: &mut [f32]| format.round_slice(data, rounding.with(stream));
    match rounding {
        Rounding::Stochastic => tensor
            .row_major()
            .change_where_it_lies(|data, _, _| round(data)),
        _ => elementwise(tensor, round),
    }
}

/// The normalization of rows, scaled by γ and shifted by β.
fn norm<T: InMemory>(function: Normalization, x: T, gamma: T, beta: Option<T>) -> T {
    let (gamma, beta) = (gamma.row_major(), beta.map(T::row_major));
    let (gamma, beta) = (gamma.values(), beta.as_ref().map(T::values));
    memory::rows(x, |rows, _, _| function.forward(rows, gamma, beta))
}

/// The gradient of x, and the products of the output's gradient with the normalized rows.
fn norm_backward<T: InMemory>(function: Normalization, grad: T, x: T, gamma: T) -> (T, T) {
    let gamma = gamma.row_major();
    let gamma = gamma.values();
    let mut products = None;
    let grad = grad.row_major().change_where_it_lies(|grad, _, _| {
        let x = x.row_major();
        products = Some(x.change_where_it_lies(|x, _, _| function.backward(grad, x, gamma)));
    });
    (grad, given(products))
}

/// Changes rows of a gradient, each together with the same row of another tensor.
fn backward_rows<T: InMemory>(
    grad: T,
    other: T,
    work: impl Fn(&mut [f32], &[f32], usize) + Sync,
) -> T {
    let other = other.row_major();
    let other = other.values();
    memory::rows(grad, |grad, length, start| {
        work(grad, &other[start..start + grad.len()], length);
    })
}

/// A step of AdamW from a parameter, its gradient and its two moments: the new parameter and moments.
pub(crate) fn adamw<T: InMemory>(step: AdamWStep, tensors: [T; 4]) -> [T; 3] {
    let [parameter, gradient, first, second] = tensors.map(T::row_major);
    let mut moments = None;
    let parameter = parameter.change_where_it_lies(|parameter, _, _| {
        let mut new_second = None;
        let new_first = first.change_where_it_lies(|first, _, _| {
            new_second = Some(second.change_where_it_lies(|second, _, _| {
                step.apply(parameter, gradient.values(), [first, second]);
            }));
        });
        moments = Some((new_first, given(new_second)));
    });
    let (first, second) = given(moments);
    [parameter, first, second]
}
