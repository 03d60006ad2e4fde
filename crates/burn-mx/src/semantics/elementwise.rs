//! Elementwise ops in an emulated format: round every tensor operand, compute in `f32`, round the result.
//!
//! Tensors of another float type are converted to `f32` before and back after.
//!
//! `number` is an op's number where its random numbers are to be drawn again; without one it is a new op.

use core::marker::PhantomData;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, FloatDType, Scalar, Shape, TensorMetadata};
use microscaling::{FloatFormat, Rounding};

use super::{Float, stored};
use crate::arithmetic::{Arithmetic, LOG2_E};
use crate::kernels::{
    BinaryOp, FunctionRounding, MxKernels, OpRounding, UnaryFunction, UnaryOp, to_f32,
};
use crate::random::{Draws, OpNumber};
use crate::registry::Interned;
use crate::tensor::{Join, Meta, MxTensor};

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

/// Arithmetic of tensors: every op is computed in `f32` by the wrapped backend and rounded.
///
/// Operands are expected to be `f32` and rounded. Where nothing is to be rounded (a backward pass with
/// `quantize_backprop = false`) each is the wrapped backend's op alone, so that a formula reads the same
/// in both cases.
pub(crate) struct TensorArithmetic<B> {
    interned: &'static Interned,
    rounder: Option<Rounder>,
    draws: Draws,
    _backend: PhantomData<B>,
}

impl<B: MxKernels> TensorArithmetic<B> {
    /// The arithmetic of a composed function, or `None` where the function is the wrapped backend's own:
    /// nothing is emulated, or only the products are.
    pub(crate) fn emulated(join: &Join, number: Option<OpNumber>) -> Option<Self> {
        let interned = emulation(join)?;
        Some(Self::with(interned, join, interned.draws_as(number)))
    }

    /// The arithmetic of a backward pass of our own: exact where elementwise ops are not emulated.
    pub(crate) fn of_backward(interned: &'static Interned, join: &Join) -> Self {
        Self::with(interned, join, interned.draws())
    }

    fn with(interned: &'static Interned, join: &Join, draws: Draws) -> Self {
        let rounder = join
            .quantization()
            .and_then(|interned| Rounder::new(interned, interned.specs.round()));
        Self {
            interned,
            rounder,
            draws,
            _backend: PhantomData,
        }
    }

    /// Whether nothing is rounded.
    pub(crate) fn is_exact(&self) -> bool {
        self.rounder.is_none()
    }

    /// Passes over the random numbers of a rounding that is not needed here.
    pub(crate) fn skip(&self) {
        if let Some(rounder) = self.rounder {
            self.draws.next(rounder.rounding);
        }
    }

    pub(crate) fn operand(&self, tensor: Float<B>) -> FloatTensor<B> {
        match self.rounder {
            Some(rounder) => rounder.operand::<B>(tensor, &self.draws),
            None => to_f32::<B>(tensor.inner),
        }
    }

    /// Wraps a result that its last op has rounded.
    pub(crate) fn finish(&self, inner: FloatTensor<B>, join: &Join) -> Float<B> {
        let mut meta = join.result;
        meta.rounded = self.rounder.map(|rounder| rounder.format);
        stored::<B>(inner, meta)
    }

    /// How a function rounds that a kernel computes in one pass; `None` if it has to be composed: where random
    /// numbers are drawn for each op, or nothing is rounded.
    pub(crate) fn in_one_pass(&self) -> Option<FunctionRounding> {
        self.rounder.and_then(|_| self.backward_in_one_pass())
    }

    /// As [`in_one_pass`](Self::in_one_pass), for the gradient of a function, which computes some of the
    /// forward pass again: that is rounded also where the backward pass is not.
    pub(crate) fn backward_in_one_pass(&self) -> Option<FunctionRounding> {
        let specs = &self.interned.specs;
        let rounding = specs.round();
        let format = specs
            .float_format()
            .filter(|_| rounding != Rounding::Stochastic)?;
        Some(FunctionRounding {
            format,
            rounding,
            quantize_backward: self.rounder.is_some(),
            exp2: specs.specs().vec_use_exp2,
            reciprocal: specs.specs().vec_use_recip,
        })
    }

    /// An op on one tensor.
    fn unary(&self, op: UnaryOp, tensor: FloatTensor<B>) -> FloatTensor<B> {
        match self.op_rounding() {
            Some(rounding) => B::unary_op(op, tensor, rounding),
            None => self.round(op.compute::<B>(tensor)),
        }
    }

    /// An op on two tensors.
    fn binary(&self, op: BinaryOp, lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
        match self.op_rounding() {
            Some(rounding) => B::binary_op(op, lhs, rhs, rounding),
            None => self.round(op.compute::<B>(lhs, rhs)),
        }
    }

    /// How one op rounds in one pass, operands being rounded.
    fn op_rounding(&self) -> Option<OpRounding> {
        self.rounder?.in_one_pass(false)
    }

    pub(crate) fn softmax_exp2(&self) -> bool {
        self.interned.specs.specs().softmax_exp2
    }

    pub(crate) fn tanh(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        self.round(B::float_tanh(tensor))
    }

    pub(crate) fn sum_dim(&self, tensor: FloatTensor<B>, dim: usize) -> FloatTensor<B> {
        self.round(B::float_sum_dim(tensor, dim))
    }

    pub(crate) fn mean_dim(&self, tensor: FloatTensor<B>, dim: usize) -> FloatTensor<B> {
        let count = tensor.shape()[dim];
        self.div_scalar(self.sum_dim(tensor, dim), count as f32)
    }

    /// Sums over several axes in `f32`, as one op; the axes stay with length 1.
    pub(crate) fn sum_dims(
        &self,
        tensor: FloatTensor<B>,
        dims: impl IntoIterator<Item = usize>,
    ) -> FloatTensor<B> {
        self.round(sum_dims::<B>(tensor, dims))
    }
}

impl<B: MxKernels> Arithmetic for TensorArithmetic<B> {
    type Value = FloatTensor<B>;

    fn round(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        match self.rounder {
            Some(rounder) => rounder.round::<B>(tensor, &self.draws),
            None => tensor,
        }
    }

    fn sub(&self, lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
        self.binary(BinaryOp::Sub, lhs, rhs)
    }

    fn sqrt(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        self.unary(UnaryOp::Sqrt, tensor)
    }

    fn add(&self, lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
        self.binary(BinaryOp::Add, lhs, rhs)
    }

    fn mul(&self, lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
        self.binary(BinaryOp::Mul, lhs, rhs)
    }

    fn add_scalar(&self, lhs: FloatTensor<B>, rhs: f32) -> FloatTensor<B> {
        self.unary(UnaryOp::AddScalar(rhs), lhs)
    }

    fn mul_scalar(&self, lhs: FloatTensor<B>, rhs: f32) -> FloatTensor<B> {
        self.unary(UnaryOp::MulScalar(rhs), lhs)
    }

    fn sub_unrounded(&self, lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
        B::float_sub(lhs, rhs)
    }

    fn quotient(&self, lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
        self.binary(BinaryOp::Div, lhs, rhs)
    }

    fn div_scalar(&self, lhs: FloatTensor<B>, rhs: f32) -> FloatTensor<B> {
        self.unary(UnaryOp::DivScalar(rhs), lhs)
    }

    fn divides_by_reciprocal(&self) -> bool {
        self.interned.specs.specs().vec_use_recip
    }

    fn ln(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        self.round(B::float_log(tensor))
    }

    fn exp2(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        if let Some(rounding) = self.in_one_pass() {
            return B::unary_function(UnaryFunction::Exp2, tensor, rounding);
        }
        let device = B::float_device(&tensor);
        let dtype: FloatDType = tensor.dtype().into();
        let ones = Shape::from(vec![1; tensor.rank()]);
        let two = B::float_full(ones, Scalar::from(2.0f32), &device, dtype);
        let two = B::float_expand(two, tensor.shape());
        self.round(B::float_powf(two, tensor))
    }

    fn neg(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        B::float_neg(tensor)
    }

    fn recip(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        self.unary(UnaryOp::Recip, tensor)
    }

    fn exp(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        if let Some(rounding) = self.in_one_pass() {
            return B::unary_function(UnaryFunction::Exp, tensor, rounding);
        }
        if self.interned.specs.specs().vec_use_exp2 {
            return self.exp2(self.mul_scalar(tensor, LOG2_E));
        }
        self.round(B::float_exp(tensor))
    }
}

/// The arithmetic of a backward pass: what it recomputes of the forward pass, and what it computes itself.
pub(crate) struct Passes<B> {
    interned: &'static Interned,
    /// Of the op in the forward pass.
    number: OpNumber,
    pub(crate) backward: TensorArithmetic<B>,
}

impl<B: MxKernels> Passes<B> {
    /// As [`TensorArithmetic::emulated`], of the gradient of the op with this number; without it, what is computed
    /// again of the forward pass is drawn anew.
    pub(crate) fn emulated(join: &Join, number: Option<OpNumber>) -> Option<Self> {
        Some(Self::of_backward(emulation(join)?, join, number))
    }

    /// As [`TensorArithmetic::of_backward`].
    pub(crate) fn of_backward(
        interned: &'static Interned,
        join: &Join,
        number: Option<OpNumber>,
    ) -> Self {
        let number = number.unwrap_or_else(|| interned.draws().op());
        let backward = TensorArithmetic::of_backward(interned, join);
        // What `gradient` draws.
        backward.skip();
        Self {
            interned,
            number,
            backward,
        }
    }

    /// The arithmetic that the forward pass had, with the random numbers that it drew, from the first on; also in a
    /// backward pass that is not to be quantized: what that one takes of the forward pass's results is what they were.
    pub(crate) fn forward(&self) -> TensorArithmetic<B> {
        TensorArithmetic {
            interned: self.interned,
            rounder: Rounder::new(self.interned, self.interned.specs.round()),
            draws: Draws::replay(self.number),
            _backend: PhantomData,
        }
    }

    /// Operand number `index` of the op as the forward pass rounded it. An op rounds its operands before all else.
    pub(crate) fn forward_operand(&self, index: usize, tensor: Float<B>) -> FloatTensor<B> {
        let forward = self.forward();
        for _ in 0..index {
            forward.skip();
        }
        forward.operand(tensor)
    }

    /// Operand number `index` of the op as the formula of the gradient takes it: as the forward pass rounded it, and
    /// unrounded in a backward pass that is not to be quantized.
    pub(crate) fn operand(&self, index: usize, tensor: Float<B>) -> FloatTensor<B> {
        match self.backward.rounder {
            Some(_) => self.forward_operand(index, tensor),
            None => to_f32::<B>(tensor.inner),
        }
    }

    /// The gradient of the op's output, rounded: one number for all the gradients that are computed of it.
    pub(crate) fn gradient(&self, gradient: Float<B>) -> FloatTensor<B> {
        match self.backward.rounder {
            Some(rounder) => {
                rounder.operand::<B>(gradient, &Draws::replay(self.backward.draws.op()))
            }
            None => to_f32::<B>(gradient.inner),
        }
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
