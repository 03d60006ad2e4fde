//! Rounded arithmetic on tensors, step by step, for functions that no kernel computes in one pass.

use core::cell::RefCell;

use burn_backend::tensor::FloatTensor;
use burn_backend::{FloatDType, Scalar, Shape, TensorMetadata};
use microscaling::{FloatFormat, Rounding};

use super::{Rounder, emulation, sum_dims};
use crate::hooks;
use crate::semantics::stored;
use crate::tensor::random_streams::{Draws, OpNumber};
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::{Float, Meta, MxTensor, OpContext};
use burn_mx_kernels::Function;
use burn_mx_kernels::internal::formulas::{Arithmetic, LOG2_E};
use burn_mx_kernels::internal::{BinaryOp, FunctionRounding, KernelOp, OpRounding, UnaryOp};
use burn_mx_kernels::{MxKernels, to_f32};

/// Arithmetic of tensors: every op is computed in `f32` by the wrapped backend and rounded.
///
/// Operands are expected to be `f32` and rounded. Where nothing is to be rounded (a backward pass with
/// `quantize_backprop = false`) each is the wrapped backend's op alone, so that a formula reads the same
/// in both cases.
pub(crate) struct TensorArithmetic<B: MxKernels> {
    shared: &'static SharedSpecs,
    pub(super) rounder: Option<Rounder>,
    pub(super) draws: Draws,
    /// Whether every op is float32's, in the place of an op that rounds.
    pub(super) in_float32: bool,
    /// The rounded operands, if an observer wants them.
    seen: Option<RefCell<Vec<FloatTensor<B>>>>,
}

/// The format of numbers that are not rounded.
const FLOAT32: FloatFormat = match FloatFormat::bfloat(32) {
    Ok(format) => format,
    Err(_) => panic!("bfloat has 10 to 32 bits"),
};

impl<B: MxKernels> TensorArithmetic<B> {
    /// The arithmetic of a composed function, or `None` where the function is the wrapped backend's own:
    /// nothing is emulated, or only the products are.
    pub(crate) fn emulated(context: &OpContext, number: Option<OpNumber>) -> Option<Self> {
        let shared = emulation(context)?;
        Some(Self::with(shared, context, shared.draws_as(number)))
    }

    /// The arithmetic of a backward pass of our own: exact where elementwise ops are not emulated.
    pub(crate) fn of_backward(shared: &'static SharedSpecs, context: &OpContext) -> Self {
        Self::with(shared, context, shared.draws())
    }

    fn with(shared: &'static SharedSpecs, context: &OpContext, draws: Draws) -> Self {
        let rounder = context
            .quantization()
            .and_then(|shared| Rounder::new(shared, shared.specs.round()));
        Self {
            shared,
            rounder,
            draws,
            in_float32: false,
            seen: None,
        }
    }

    /// The arithmetic of a forward pass, with the random numbers of the op with this number.
    pub(super) fn replaying(shared: &'static SharedSpecs, number: OpNumber) -> Self {
        Self {
            shared,
            rounder: Rounder::new(shared, shared.specs.round()),
            draws: Draws::replay(number),
            in_float32: false,
            seen: None,
        }
    }

    /// The same in float32: every op without its rounding.
    pub(super) fn in_float32(&self) -> Self {
        Self {
            shared: self.shared,
            rounder: Some(Rounder {
                format: FLOAT32,
                rounding: Rounding::NearestEven,
            }),
            draws: Draws::replay(self.draws.op()),
            in_float32: true,
            seen: None,
        }
    }

    /// The result of `formula` on the operands of an op, which the formula rounds by [`operand`](Self::operand), one
    /// after another. A recorder that looks at the op sees the result beside the formula's float32 result on the rounded
    /// operands. No number has been drawn before.
    pub(crate) fn function<const N: usize>(
        &self,
        op: &'static str,
        operands: [(&'static str, Float<B>); N],
        formula: impl Fn(&Self, [Float<B>; N]) -> FloatTensor<B>,
    ) -> FloatTensor<B> {
        let label = operands.iter().find_map(|(_, tensor)| tensor.meta.label);
        self.function_of(op, label, operands, "output", formula)
    }

    /// As [`function`](Self::function), of the layer that is given, with a result of this name.
    pub(crate) fn function_of<const N: usize>(
        &self,
        op: &'static str,
        layer: Option<&'static str>,
        operands: [(&'static str, Float<B>); N],
        result: &'static str,
        formula: impl Fn(&Self, [Float<B>; N]) -> FloatTensor<B>,
    ) -> FloatTensor<B> {
        let rounder = self.rounder;
        let observer = rounder.and_then(|r| hooks::elementwise(op, layer, r.format));
        let (Some(rounder), Some(observer)) = (rounder, observer) else {
            return formula(self, operands.map(|(_, tensor)| tensor));
        };
        let looked_at = Self {
            shared: self.shared,
            rounder: self.rounder,
            draws: Draws::replay(self.draws.op()),
            in_float32: false,
            seen: Some(RefCell::default()),
        };
        let output = formula(&looked_at, operands.clone().map(|(_, tensor)| tensor));
        let mut seen = looked_at.seen.into_iter().flat_map(RefCell::into_inner);
        let rounded = operands.map(|(name, tensor)| {
            let meta = tensor.meta;
            let rounded = match rounder.rounding {
                Rounding::Stochastic => seen.next().expect("a formula rounds every operand"),
                // Of a kernel, which rounds by itself.
                _ => rounder.operand::<B>(tensor.clone(), &self.draws),
            };
            rounder.show::<B>(&observer, name, tensor, &rounded);
            MxTensor::new(
                rounded,
                Meta {
                    storage: None,
                    ..meta
                },
            )
        });
        let reference = formula(&self.in_float32(), rounded);
        observer.rounding::<B>(result, [&reference, &output]);
        output
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
        let Some(rounder) = self.rounder else {
            return to_f32::<B>(tensor.inner);
        };
        let rounded = rounder.operand::<B>(tensor, &self.draws);
        if let Some(seen) = &self.seen {
            seen.borrow_mut().push(rounded.clone());
        }
        rounded
    }

    /// Wraps a result that its last op has rounded.
    pub(crate) fn finish(&self, inner: FloatTensor<B>, context: &OpContext) -> Float<B> {
        let mut meta = context.result;
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
        let specs = &self.shared.specs;
        let (format, rounding) = match self.in_float32 {
            true => (FLOAT32, Rounding::NearestEven),
            false => (specs.float_format()?, specs.round()),
        };
        (rounding != Rounding::Stochastic).then(|| FunctionRounding {
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
            Some(rounding) => B::kernel(KernelOp::Unary(op, rounding), [tensor]),
            None => self.round(op.compute::<B>(tensor)),
        }
    }

    /// An op on two tensors.
    fn binary(&self, op: BinaryOp, lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
        match self.op_rounding() {
            Some(rounding) => B::kernel(KernelOp::Binary(op, rounding), [lhs, rhs]),
            None => self.round(op.compute::<B>(lhs, rhs)),
        }
    }

    /// How one op rounds in one pass, operands being rounded.
    fn op_rounding(&self) -> Option<OpRounding> {
        self.rounder?.in_one_pass(false)
    }

    pub(crate) fn softmax_exp2(&self) -> bool {
        self.shared.specs.specs().softmax_exp2
    }

    /// A function of each number, which is rounded.
    pub(crate) fn of_each(
        &self,
        function: fn(FloatTensor<B>) -> FloatTensor<B>,
        tensor: FloatTensor<B>,
    ) -> FloatTensor<B> {
        match self.op_rounding() {
            Some(rounding) => B::kernels().function(tensor, rounding, function),
            None => self.round(function(tensor)),
        }
    }

    pub(crate) fn tanh(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        self.of_each(B::float_tanh, tensor)
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
        let dims: Vec<usize> = dims.into_iter().collect();
        let mut shape = tensor.shape();
        let are_columns = dims.iter().copied().eq(0..shape.num_dims() - 1);
        match self.op_rounding().filter(|_| are_columns) {
            Some(rounding) => {
                shape[..dims.len()].fill(1);
                B::float_reshape(B::kernels().column_sums(tensor, rounding), shape)
            }
            None => self.round(sum_dims::<B>(tensor, dims)),
        }
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
        self.shared.specs.specs().vec_use_recip
    }

    fn ln(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        self.of_each(B::float_log, tensor)
    }

    fn exp2(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        if let Some(rounding) = self.in_one_pass() {
            return B::kernel(KernelOp::Function(Function::Exp2, rounding), [tensor]);
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
            return B::kernel(KernelOp::Function(Function::Exp, rounding), [tensor]);
        }
        if self.shared.specs.specs().vec_use_exp2 {
            return self.exp2(self.mul_scalar(tensor, LOG2_E));
        }
        self.round(B::float_exp(tensor))
    }
}
