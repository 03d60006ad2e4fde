//! Elementwise ops in an emulated format: round every tensor operand, compute in `f32`, round the result.
//!
//! Tensors of another float type are converted to `f32` before and back after.
//!
//! `number` is an op's number where its random numbers are to be drawn again; without one it is a new op.

mod arithmetic;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, Scalar, Shape, TensorMetadata};
use microscaling::{FloatFormat, Rounding};

use super::{Float, stored};
use crate::arithmetic::Arithmetic;
use crate::kernels::{BinaryOp, MxKernels, OpRounding, UnaryOp, to_f32};
use crate::random::{Draws, OpNumber};
use crate::registry::Interned;
use crate::tensor::{Join, Meta, MxTensor};
pub(crate) use arithmetic::{Passes, TensorArithmetic};

/// Rounding to the elementwise format of some specs; random numbers are those of the op that rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounder {
    format: FloatFormat,
    rounding: Rounding,
}

impl Rounder {
    /// `None` where the specs leave elementwise values alone.
    pub(crate) fn new(interned: &'static Interned, rounding: Rounding) -> Option<Self> {
        let format = interned.specs.float_format()?;
        Some(Self { format, rounding })
    }

    pub(crate) fn round<B: MxKernels>(
        self,
        tensor: FloatTensor<B>,
        draws: &Draws,
    ) -> FloatTensor<B> {
        let stream = draws.next(self.rounding);
        B::float_round_to(tensor, self.format, self.rounding, stream)
    }

    pub(crate) fn format_and_rounding(self) -> (FloatFormat, Rounding) {
        (self.format, self.rounding)
    }

    /// Whether a tensor's values are known to be rounded already.
    pub(crate) fn has_rounded(&self, meta: &Meta) -> bool {
        meta.rounded == Some(self.format)
    }

    /// Rounds a tensor that may be rounded already; the result is `f32`.
    pub(crate) fn operand<B: MxKernels>(self, tensor: Float<B>, draws: &Draws) -> FloatTensor<B> {
        let inner = to_f32::<B>(tensor.inner);
        if self.has_rounded(&tensor.meta) {
            draws.next(self.rounding);
            return inner;
        }
        self.round::<B>(inner, draws)
    }

    /// The result of an op, rounded and known to be so.
    pub(crate) fn result<B: MxKernels>(
        self,
        inner: FloatTensor<B>,
        join: &Join,
        draws: &Draws,
    ) -> Float<B> {
        self.rounded::<B>(self.round::<B>(inner, draws), join)
    }

    /// The result of an op that is rounded already.
    fn rounded<B: MxKernels>(self, inner: FloatTensor<B>, join: &Join) -> Float<B> {
        let mut meta = join.result;
        meta.rounded = Some(self.format);
        stored::<B>(inner, meta)
    }

    /// How an op rounds that a kernel computes in one pass, its operands too if `operands` says so; `None` if it has to
    /// be composed, because random numbers are drawn for each rounding.
    pub(crate) fn in_one_pass(self, operands: bool) -> Option<OpRounding> {
        (self.rounding != Rounding::Stochastic).then_some(OpRounding {
            format: self.format,
            rounding: self.rounding,
            operands,
        })
    }
}

/// What the products of an op have in common, an operand or the gradient of the output, rounded to the elementwise format
/// by the random numbers of `number`, the same in each product; as it is where rounding is not random.
pub(crate) fn drawn<B: MxKernels>(
    number: OpNumber,
    tensor: Float<B>,
    rounding: Rounding,
    interned: &'static Interned,
) -> Float<B> {
    match Rounder::new(interned, rounding) {
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
pub(crate) fn emulation(join: &Join) -> Option<&'static Interned> {
    join.emulation()
        .filter(|interned| interned.specs.float_format().is_some())
}

/// How an op rounds, and its random numbers; `None` where it rounds nothing.
fn rounder(join: &Join, number: Option<OpNumber>) -> Option<(Rounder, Draws)> {
    let interned = join.quantization()?;
    let rounder = Rounder::new(interned, interned.specs.round())?;
    Some((rounder, interned.draws_as(number)))
}

/// An op on one tensor.
pub(crate) fn unary<B: MxKernels>(
    number: Option<OpNumber>,
    tensor: Float<B>,
    op: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let join = Join::of([Some(tensor.meta)]);
    match rounder(&join, number) {
        Some((rounder, draws)) => {
            rounder.result::<B>(op(rounder.operand::<B>(tensor, &draws)), &join, &draws)
        }
        None => MxTensor::new(op(tensor.inner), join.result),
    }
}

/// An op on two tensors.
pub(crate) fn binary<B: MxKernels>(
    number: Option<OpNumber>,
    lhs: Float<B>,
    rhs: Float<B>,
    op: impl FnOnce(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let join = Join::of([Some(lhs.meta), Some(rhs.meta)]);
    match rounder(&join, number) {
        Some((rounder, draws)) => rounder.result::<B>(
            op(
                rounder.operand::<B>(lhs, &draws),
                rounder.operand::<B>(rhs, &draws),
            ),
            &join,
            &draws,
        ),
        None => MxTensor::new(op(lhs.inner, rhs.inner), join.result),
    }
}

/// An op on one tensor that a kernel may compute in one pass with its roundings; `plain` is the op alone.
pub(crate) fn unary_op<B: MxKernels>(
    number: Option<OpNumber>,
    op: UnaryOp,
    tensor: Float<B>,
    plain: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let join = Join::of([Some(tensor.meta)]);
    let Some((rounder, draws)) = rounder(&join, number) else {
        return MxTensor::new(plain(tensor.inner), join.result);
    };
    let operands = !rounder.has_rounded(&tensor.meta);
    match rounder.in_one_pass(operands) {
        Some(rounding) => {
            let result = B::unary_op(op, to_f32::<B>(tensor.inner), rounding);
            rounder.rounded::<B>(result, &join)
        }
        None => rounder.result::<B>(plain(rounder.operand::<B>(tensor, &draws)), &join, &draws),
    }
}

/// An op on two tensors that a kernel may compute in one pass with its roundings.
pub(crate) fn binary_op<B: MxKernels>(
    number: Option<OpNumber>,
    op: BinaryOp,
    lhs: Float<B>,
    rhs: Float<B>,
) -> Float<B> {
    let join = Join::of([Some(lhs.meta), Some(rhs.meta)]);
    let Some((rounder, draws)) = rounder(&join, number) else {
        return MxTensor::new(op.compute::<B>(lhs.inner, rhs.inner), join.result);
    };
    let operands = [lhs.meta, rhs.meta]
        .iter()
        .any(|meta| !rounder.has_rounded(meta));
    match rounder.in_one_pass(operands) {
        Some(rounding) => {
            let (lhs, rhs) = (to_f32::<B>(lhs.inner), to_f32::<B>(rhs.inner));
            rounder.rounded::<B>(B::binary_op(op, lhs, rhs, rounding), &join)
        }
        None => rounder.result::<B>(
            op.compute::<B>(
                rounder.operand::<B>(lhs, &draws),
                rounder.operand::<B>(rhs, &draws),
            ),
            &join,
            &draws,
        ),
    }
}

/// `x²`, of an operand that is rounded once: its two factors are one number, also where rounding is random.
pub(crate) fn square<B: MxKernels>(number: Option<OpNumber>, tensor: Float<B>) -> Float<B> {
    let interned = Join::of([Some(tensor.meta)]).quantization();
    match interned.is_some_and(|interned| interned.specs.round() == Rounding::Stochastic) {
        true => unary::<B>(number, tensor, |x| B::float_mul(x.clone(), x)),
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
    number: Option<OpNumber>,
    tensor: Float<B>,
    op: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let join = Join::of([Some(tensor.meta)]);
    match rounder(&join, number) {
        Some((rounder, draws)) => {
            rounder.rounded::<B>(op(rounder.operand::<B>(tensor, &draws)), &join)
        }
        None => MxTensor::new(op(tensor.inner), join.result),
    }
}

/// An op on two tensors with two results, such as a complex one given by its parts.
pub(crate) fn complex<B: MxKernels>(
    first: Float<B>,
    second: Option<Float<B>>,
    op: impl FnOnce(FloatTensor<B>, Option<FloatTensor<B>>) -> (FloatTensor<B>, FloatTensor<B>),
) -> (Float<B>, Float<B>) {
    let join = Join::of([Some(first.meta), second.as_ref().map(|tensor| tensor.meta)]);
    match rounder(&join, None) {
        Some((rounder, draws)) => {
            let (re, im) = op(
                rounder.operand::<B>(first, &draws),
                second.map(|tensor| rounder.operand::<B>(tensor, &draws)),
            );
            (
                rounder.result::<B>(re, &join, &draws),
                rounder.result::<B>(im, &join, &draws),
            )
        }
        None => {
            let (re, im) = op(first.inner, second.map(|tensor| tensor.inner));
            (
                MxTensor::new(re, join.result),
                MxTensor::new(im, join.result),
            )
        }
    }
}

/// exp, by exp2 where `vec_use_exp2` says so.
pub(crate) fn exp<B: MxKernels>(number: Option<OpNumber>, tensor: Float<B>) -> Float<B> {
    let join = Join::of([Some(tensor.meta)]);
    match TensorArithmetic::<B>::emulated(&join, number) {
        Some(arith) => arith.finish(arith.exp(arith.operand(tensor)), &join),
        None => unary::<B>(number, tensor, B::float_exp),
    }
}

/// Division, by a multiplication with the reciprocal where `vec_use_recip` says so.
pub(crate) fn div<B: MxKernels>(
    number: Option<OpNumber>,
    lhs: Float<B>,
    rhs: Float<B>,
) -> Float<B> {
    let join = Join::of([Some(lhs.meta), Some(rhs.meta)]);
    match TensorArithmetic::<B>::emulated(&join, number) {
        Some(arith) => {
            let quotient = arith.div(arith.operand(lhs), arith.operand(rhs));
            arith.finish(quotient, &join)
        }
        None => binary_op::<B>(number, BinaryOp::Div, lhs, rhs),
    }
}

/// `1 / x`
pub(crate) fn recip<B: MxKernels>(tensor: Float<B>) -> Float<B> {
    let join = Join::of([Some(tensor.meta)]);
    match TensorArithmetic::<B>::emulated(&join, None) {
        Some(arith) => arith.finish(arith.recip(arith.operand(tensor)), &join),
        None => MxTensor::new(B::float_recip(tensor.inner), join.result),
    }
}

/// Mean of all elements: the rounded sum, divided by the count, rounded again.
pub(crate) fn mean<B: MxKernels>(number: Option<OpNumber>, tensor: Float<B>) -> Float<B> {
    let join = Join::of([Some(tensor.meta)]);
    match TensorArithmetic::<B>::emulated(&join, number) {
        Some(arith) => {
            let count = tensor.shape().num_elements();
            let sum = arith.round(B::float_sum(arith.operand(tensor)));
            arith.finish(arith.div_scalar(sum, count as f32), &join)
        }
        None => unary::<B>(number, tensor, B::float_mean),
    }
}

/// Mean along one axis, as [`mean`]; the axis stays with length 1.
pub(crate) fn mean_dim<B: MxKernels>(
    number: Option<OpNumber>,
    tensor: Float<B>,
    dim: usize,
) -> Float<B> {
    let join = Join::of([Some(tensor.meta)]);
    match TensorArithmetic::<B>::emulated(&join, number) {
        Some(arith) => arith.finish(arith.mean_dim(arith.operand(tensor), dim), &join),
        None => unary::<B>(number, tensor, |tensor| B::float_mean_dim(tensor, dim)),
    }
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
