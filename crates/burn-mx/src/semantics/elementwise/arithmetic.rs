//! Rounded arithmetic on tensors, step by step, for what no kernel computes in one pass.

use core::marker::PhantomData;

use burn_backend::tensor::FloatTensor;
use burn_backend::{FloatDType, Scalar, Shape, TensorMetadata};
use microscaling::Rounding;

use super::{Rounder, emulation, sum_dims};
use crate::arithmetic::{Arithmetic, LOG2_E};
use crate::kernels::{
    BinaryOp, FunctionRounding, MxKernels, OpRounding, UnaryFunction, UnaryOp, to_f32,
};
use crate::random::{Draws, OpNumber};
use crate::registry::Interned;
use crate::semantics::{Float, stored};
use crate::tensor::Join;

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
