//! Elementwise ops in an emulated format: round every tensor operand, compute in `f32`, round the result.
//!
//! Tensors of another float type are converted to `f32` before and back after.
//!
//! `number` is an op's number if its random numbers are drawn again. Without a number the op is new.

mod arithmetic;
mod passes;
mod rounder;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, Scalar, Shape, TensorMetadata};
use microscaling::Rounding;

use super::stored;
use crate::tensor::random_streams::{Draws, OpNumber};
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::{Float, MxTensor, OpContext};
pub(crate) use arithmetic::TensorArithmetic;
use burn_mx_kernels::internal::formulas::Arithmetic;
use burn_mx_kernels::internal::{BinaryOp, KernelOp, OpRounding, UnaryOp};
use burn_mx_kernels::{MxKernels, to_f32};
pub(crate) use passes::{GradientOf, Passes};
pub(super) use rounder::OpRounder;
pub(crate) use rounder::Rounder;
use rounder::rounder;

/// A tensor that the products of an op share, an operand or the gradient of the output. Stochastic rounding to the
/// elementwise format takes the random numbers of `number`, the same in each product. Other roundings leave the tensor
/// unchanged here.
pub(crate) fn drawn<B: MxKernels>(
    number: OpNumber,
    tensor: Float<B>,
    rounding: Rounding,
    shared: &'static SharedSpecs,
) -> Float<B> {
    match Rounder::new(shared, rounding) {
        Some(rounder) if rounding == Rounding::Stochastic => {
            let mut meta = tensor.meta;
            meta.rounded = Some(rounder.format);
            let rounded = rounder.operand::<B>(tensor, &Draws::replay(number));
            stored::<B>(rounded, meta)
        }
        _ => tensor,
    }
}

/// The specs by which a function is composed of rounded ops; `None` where the function is
/// the wrapped backend's own: nothing is emulated, or only the products are.
pub(crate) fn emulation(context: &OpContext) -> Option<&'static SharedSpecs> {
    context
        .emulation()
        .filter(|shared| shared.specs.float_format().is_some())
}

/// An op on one tensor.
pub(crate) fn unary<B: MxKernels>(
    name: &'static str,
    number: Option<OpNumber>,
    tensor: Float<B>,
    op: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let context = OpContext::of([Some(tensor.meta)]);
    match rounder(name, &context, [Some(tensor.meta), None], number) {
        Some(rounder) => {
            let result = op(rounder.operand::<B>("input", tensor));
            rounder.result::<B>("output", result, &context)
        }
        None => MxTensor::new(op(tensor.inner), context.result),
    }
}

/// A function of each number, which the backend may compute with its roundings.
pub(crate) fn function<B: MxKernels>(
    name: &'static str,
    number: Option<OpNumber>,
    tensor: Float<B>,
    function: fn(FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let rounded = |tensor, rounding| B::kernels().function(tensor, rounding, function);
    in_one_pass::<B>(name, number, tensor, rounded, function, function)
}

/// An op on two tensors.
pub(crate) fn binary<B: MxKernels>(
    name: &'static str,
    number: Option<OpNumber>,
    lhs: Float<B>,
    rhs: Float<B>,
    op: impl FnOnce(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let metas = [lhs.meta, rhs.meta].map(Some);
    let context = OpContext::of(metas);
    match rounder(name, &context, metas, number) {
        Some(rounder) => {
            let lhs = rounder.operand::<B>("lhs", lhs);
            let rhs = rounder.operand::<B>("rhs", rhs);
            rounder.result::<B>("output", op(lhs, rhs), &context)
        }
        None => MxTensor::new(op(lhs.inner, rhs.inner), context.result),
    }
}

/// An op on one tensor that a kernel may compute in one pass with its roundings; `plain` is the op alone.
pub(crate) fn unary_op<B: MxKernels>(
    number: Option<OpNumber>,
    op: UnaryOp,
    tensor: Float<B>,
    plain: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let rounded = |tensor, rounding| B::kernel(KernelOp::Unary(op, rounding), [tensor]);
    let computed = |tensor| op.compute::<B>(tensor);
    in_one_pass::<B>(op.name(), number, tensor, rounded, plain, computed)
}

/// An op on one tensor: `rounded` with its roundings in one pass, or `plain` where that cannot be. `shown` is the op alone for
/// those who look at the roundings.
fn in_one_pass<B: MxKernels>(
    name: &'static str,
    number: Option<OpNumber>,
    tensor: Float<B>,
    rounded: impl FnOnce(FloatTensor<B>, OpRounding) -> FloatTensor<B>,
    plain: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
    shown: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let context = OpContext::of([Some(tensor.meta)]);
    let Some(seen) = rounder(name, &context, [Some(tensor.meta), None], number) else {
        return MxTensor::new(plain(tensor.inner), context.result);
    };
    let rounder = seen.rounder;
    let operands = !rounder.has_rounded(&tensor.meta);
    match rounder.in_one_pass(operands) {
        Some(rounding) => {
            let kept = seen.kept::<B>(&tensor);
            let result = rounded(to_f32::<B>(tensor.inner), rounding);
            seen.show::<B, 1>([("input", kept)], &result, |[x]| shown(x));
            rounder.rounded::<B>(result, &context)
        }
        None => {
            let result = plain(seen.operand::<B>("input", tensor));
            seen.result::<B>("output", result, &context)
        }
    }
}

/// An op on two tensors that a kernel may compute in one pass with its roundings.
pub(crate) fn binary_op<B: MxKernels>(
    number: Option<OpNumber>,
    op: BinaryOp,
    lhs: Float<B>,
    rhs: Float<B>,
) -> Float<B> {
    let metas = [lhs.meta, rhs.meta].map(Some);
    let context = OpContext::of(metas);
    let Some(seen) = rounder(op.name(), &context, metas, number) else {
        return MxTensor::new(op.compute::<B>(lhs.inner, rhs.inner), context.result);
    };
    let rounder = seen.rounder;
    let operands = [lhs.meta, rhs.meta]
        .iter()
        .any(|meta| !rounder.has_rounded(meta));
    match rounder.in_one_pass(operands) {
        Some(rounding) => {
            let kept = [("lhs", seen.kept::<B>(&lhs)), ("rhs", seen.kept::<B>(&rhs))];
            let (lhs, rhs) = (to_f32::<B>(lhs.inner), to_f32::<B>(rhs.inner));
            let result = B::kernel(KernelOp::Binary(op, rounding), [lhs, rhs]);
            seen.show::<B, 2>(kept, &result, |[lhs, rhs]| op.compute::<B>(lhs, rhs));
            rounder.rounded::<B>(result, &context)
        }
        None => {
            let lhs = seen.operand::<B>("lhs", lhs);
            let rhs = seen.operand::<B>("rhs", rhs);
            seen.result::<B>("output", op.compute::<B>(lhs, rhs), &context)
        }
    }
}

/// `x²`, of an operand that is rounded once: its two factors are one number, also where rounding is random.
pub(crate) fn square<B: MxKernels>(number: Option<OpNumber>, tensor: Float<B>) -> Float<B> {
    let shared = OpContext::of([Some(tensor.meta)]).quantization();
    match shared.is_some_and(|shared| shared.specs.round() == Rounding::Stochastic) {
        true => unary::<B>("mul", number, tensor, |x| B::float_mul(x.clone(), x)),
        false => binary_op::<B>(number, BinaryOp::Mul, tensor.clone(), tensor),
    }
}

/// Powers as Burn composes them by default, of `B`'s ops but for the square.
pub(crate) fn powi_scalar<B: Backend>(
    tensor: FloatTensor<B>,
    exponent: Scalar,
    square: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> FloatTensor<B> {
    match exponent.elem::<i64>() {
        0 => {
            let device = B::float_device(&tensor);
            B::float_ones(tensor.shape(), &device, tensor.dtype().into())
        }
        1 => tensor,
        2 => square(tensor),
        -1 => B::float_recip(tensor),
        -2 => B::float_recip(square(tensor)),
        _ => B::float_powi_scalar_impl(tensor, exponent),
    }
}

/// An op on one tensor whose results the format has if it has the operands: operands themselves, or zero.
pub(crate) fn selection<B: MxKernels>(
    name: &'static str,
    number: Option<OpNumber>,
    tensor: Float<B>,
    op: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let context = OpContext::of([Some(tensor.meta)]);
    match rounder(name, &context, [Some(tensor.meta), None], number) {
        Some(seen) => {
            let result = op(seen.operand::<B>("input", tensor));
            seen.rounder.rounded::<B>(result, &context)
        }
        None => MxTensor::new(op(tensor.inner), context.result),
    }
}

/// An op on one tensor with two results, a complex one given by its parts.
pub(crate) fn complex<B: MxKernels>(
    name: &'static str,
    tensor: Float<B>,
    op: impl FnOnce(FloatTensor<B>) -> (FloatTensor<B>, FloatTensor<B>),
) -> (Float<B>, Float<B>) {
    let context = OpContext::of([Some(tensor.meta)]);
    match rounder(name, &context, [Some(tensor.meta), None], None) {
        Some(rounder) => {
            let (re, im) = op(rounder.operand::<B>("input", tensor));
            (
                rounder.result::<B>("real part", re, &context),
                rounder.result::<B>("imaginary part", im, &context),
            )
        }
        None => {
            let (re, im) = op(tensor.inner);
            (
                MxTensor::new(re, context.result),
                MxTensor::new(im, context.result),
            )
        }
    }
}

/// A function of tensors: composed of rounded ops by `formula`, or `plain` where elementwise ops are not emulated.
pub(super) fn composed<B: MxKernels, const N: usize>(
    op: &'static str,
    number: Option<OpNumber>,
    operands: [(&'static str, Float<B>); N],
    formula: impl Fn(&TensorArithmetic<B>, [Float<B>; N]) -> FloatTensor<B>,
    plain: impl FnOnce([FloatTensor<B>; N]) -> FloatTensor<B>,
) -> Float<B> {
    let context = OpContext::of(operands.each_ref().map(|(_, tensor)| Some(tensor.meta)));
    match TensorArithmetic::<B>::emulated(&context, number) {
        Some(arith) => arith.finish(arith.function(op, operands, formula), &context),
        None => {
            let operands = operands.map(|(_, tensor)| tensor.inner);
            MxTensor::new(plain(operands), context.result)
        }
    }
}

/// Division, by a multiplication with the reciprocal if `vec_use_recip` is set.
pub(crate) fn div<B: MxKernels>(
    number: Option<OpNumber>,
    lhs: Float<B>,
    rhs: Float<B>,
) -> Float<B> {
    let div = |arith: &TensorArithmetic<B>, [lhs, rhs]: [_; 2]| {
        arith.div(arith.operand(lhs), arith.operand(rhs))
    };
    let operands = [("lhs", lhs), ("rhs", rhs)];
    composed::<B, 2>("div", number, operands, div, |[lhs, rhs]| {
        B::float_div(lhs, rhs)
    })
}

/// `1 / x`
pub(crate) fn recip<B: MxKernels>(tensor: Float<B>) -> Float<B> {
    let recip = |arith: &TensorArithmetic<B>, [x]: [_; 1]| arith.recip(arith.operand(x));
    composed::<B, 1>("recip", None, [("input", tensor)], recip, |[x]| {
        B::float_recip(x)
    })
}

/// Mean of all elements: the rounded sum, divided by the count, rounded again.
pub(crate) fn mean<B: MxKernels>(number: Option<OpNumber>, tensor: Float<B>) -> Float<B> {
    let count = tensor.shape().num_elements();
    let mean = |arith: &TensorArithmetic<B>, [x]: [_; 1]| {
        let sum = arith.round(B::float_sum(arith.operand(x)));
        arith.div_scalar(sum, count as f32)
    };
    composed::<B, 1>("mean", number, [("input", tensor)], mean, |[x]| {
        B::float_mean(x)
    })
}

/// Mean along one axis, as [`mean`]; the axis stays with length 1.
pub(crate) fn mean_dim<B: MxKernels>(
    number: Option<OpNumber>,
    tensor: Float<B>,
    dim: usize,
) -> Float<B> {
    let mean = |arith: &TensorArithmetic<B>, [x]: [_; 1]| arith.mean_dim(arith.operand(x), dim);
    composed::<B, 1>("mean_dim", number, [("input", tensor)], mean, |[x]| {
        B::float_mean_dim(x, dim)
    })
}

/// Sums over several axes in `f32`; the axes stay with length 1.
pub(crate) fn sum_dims<B: MxKernels>(
    tensor: FloatTensor<B>,
    dims: impl IntoIterator<Item = usize>,
) -> FloatTensor<B> {
    dims.into_iter().fold(tensor, B::float_sum_dim)
}

/// The axes along which an operand of shape `operand` was broadcast to shape `output`.
pub(crate) fn broadcast_dims(operand: &Shape, output: &Shape) -> Vec<usize> {
    (0..output.num_dims())
        .filter(|&dim| operand[dim] != output[dim])
        .collect()
}
