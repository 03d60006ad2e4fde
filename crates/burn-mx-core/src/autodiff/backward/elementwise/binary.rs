//! The gradients of functions of two tensors.

use burn_backend::tensor::FloatTensor;

use super::unary::negative;
use super::{Operands, SAVED};
use crate::semantics::activation;
use crate::semantics::elementwise::{self, Passes};
use crate::tensor::Float;
use crate::tensor::random_streams::OpNumber;
use burn_mx_kernels::internal::BinaryOp;
use burn_mx_kernels::internal::formulas::Arithmetic;
use burn_mx_kernels::{MxKernels, to_f32};

/// An op on two tensors of the same rank, which broadcast, and its gradients.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BinaryRule {
    /// Sum: `g`, `g`.
    Add,
    /// Difference: unrounded `g`, as in the reference (which rounds `g` in a sum), and `-g`.
    Sub,
    /// Product: `g b`, `g a`.
    Mul,
    /// Quotient: `g / b`, `g (-y / b)`.
    Div,
    /// Leaky relu with a learned slope: `g` or `slope · g`, and 0 or `g x`.
    PRelu,
}

impl BinaryRule {
    /// The op's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Sub => "sub",
            Self::Mul => "mul",
            Self::Div => "div",
            Self::PRelu => "prelu",
        }
    }

    /// Whether the gradients need the operands' values.
    pub(super) fn needs_operands(self) -> bool {
        !matches!(self, Self::Add | Self::Sub)
    }

    /// Whether the gradient of the left operand, 0, or the right one, 1, is rounded.
    pub(super) fn is_rounded(self, operand: usize) -> bool {
        !matches!((self, operand), (Self::Sub, 0))
    }

    /// The op, with the random numbers of this number.
    pub(super) fn forward<B: MxKernels>(
        self,
        number: OpNumber,
        lhs: Float<B>,
        rhs: Float<B>,
    ) -> Float<B> {
        let number = Some(number);
        match self {
            Self::Add => elementwise::binary_op::<B>(number, BinaryOp::Add, lhs, rhs),
            Self::Sub => elementwise::binary_op::<B>(number, BinaryOp::Sub, lhs, rhs),
            Self::Mul => elementwise::binary_op::<B>(number, BinaryOp::Mul, lhs, rhs),
            Self::Div => elementwise::div::<B>(number, lhs, rhs),
            Self::PRelu => activation::prelu::<B>(number, lhs, rhs),
        }
    }

    /// The gradient of the left operand, 0, or the right one, 1, before the sum over broadcast axes. The saved operands are
    /// given if the rule needs them.
    pub(super) fn backward<B: MxKernels>(
        self,
        operand: usize,
        pass: &Passes<B>,
        [a, b]: Operands<B>,
        g: Float<B>,
    ) -> FloatTensor<B> {
        let v = &pass.backward;
        match (self, operand) {
            (Self::Add, _) => pass.gradient(g),
            (Self::Sub, 0) => to_f32::<B>(g.inner),
            (Self::Sub, _) => v.neg(pass.gradient(g)),
            (Self::Mul, 0) => {
                let b = pass.operand(1, b.expect(SAVED));
                v.mul(pass.gradient(g), b)
            }
            (Self::Mul, _) => {
                let a = pass.operand(0, a.expect(SAVED));
                v.mul(pass.gradient(g), a)
            }
            (Self::Div, 0) => {
                let b = pass.operand(1, b.expect(SAVED));
                v.div(pass.gradient(g), b)
            }
            (Self::Div, _) => {
                let forward = pass.forward();
                let (a, b) = (a.expect(SAVED), b.expect(SAVED));
                let y = forward.div(forward.operand(a), forward.operand(b.clone()));
                v.mul(pass.gradient(g), v.div(v.neg(y), pass.operand(1, b)))
            }
            (Self::PRelu, 0) => {
                let negative = negative(pass, a.expect(SAVED));
                let g = pass.gradient(g);
                let scaled = v.mul(g.clone(), pass.operand(1, b.expect(SAVED)));
                B::float_mask_where(g, negative, scaled)
            }
            (Self::PRelu, _) => {
                let x = a.expect(SAVED);
                let positive = B::bool_not(negative(pass, x.clone()));
                let products = v.mul(pass.gradient(g), pass.operand(0, x));
                B::float_mask_fill(products, positive, 0.0.into())
            }
        }
    }
}
