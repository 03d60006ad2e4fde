//! The gradients of functions of two tensors.

use burn_backend::tensor::FloatTensor;

use super::unary::negative;
use super::{BinaryRule, Operands, SAVED};
use crate::arithmetic::Arithmetic;
use crate::kernels::{BinaryOp, MxKernels, to_f32};
use crate::semantics::activation;
use crate::semantics::elementwise::{self, Passes};
use crate::tensor::Float;
use crate::tensor::random_streams::OpNumber;

/// Sum: `g`, `g`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Add;

impl<B: MxKernels> BinaryRule<B> for Add {
    const NAME: &'static str = "add";
    const NEEDS_OPERANDS: bool = false;
    fn forward(number: OpNumber, lhs: Float<B>, rhs: Float<B>) -> Float<B> {
        elementwise::binary_op::<B>(Some(number), BinaryOp::Add, lhs, rhs)
    }
    fn lhs(pass: &Passes<B>, _: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        pass.gradient(g)
    }
    fn rhs(pass: &Passes<B>, _: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        pass.gradient(g)
    }
}

/// Difference: unrounded `g`, as in the reference (which rounds `g` in a sum), and `-g`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sub;

impl<B: MxKernels> BinaryRule<B> for Sub {
    const NAME: &'static str = "sub";
    const NEEDS_OPERANDS: bool = false;
    const LHS_ROUNDED: bool = false;
    fn forward(number: OpNumber, lhs: Float<B>, rhs: Float<B>) -> Float<B> {
        elementwise::binary_op::<B>(Some(number), BinaryOp::Sub, lhs, rhs)
    }
    fn lhs(_: &Passes<B>, _: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        to_f32::<B>(g.inner)
    }
    fn rhs(pass: &Passes<B>, _: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        pass.backward.neg(pass.gradient(g))
    }
}

/// Product: `g b`, `g a`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mul;

impl<B: MxKernels> BinaryRule<B> for Mul {
    const NAME: &'static str = "mul";
    const NEEDS_OPERANDS: bool = true;
    fn forward(number: OpNumber, lhs: Float<B>, rhs: Float<B>) -> Float<B> {
        elementwise::binary_op::<B>(Some(number), BinaryOp::Mul, lhs, rhs)
    }
    fn lhs(pass: &Passes<B>, [_, b]: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        let b = pass.operand(1, b.expect(SAVED));
        pass.backward.mul(pass.gradient(g), b)
    }
    fn rhs(pass: &Passes<B>, [a, _]: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        let a = pass.operand(0, a.expect(SAVED));
        pass.backward.mul(pass.gradient(g), a)
    }
}

/// Quotient: `g / b`, `g (-y / b)`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Div;

impl<B: MxKernels> BinaryRule<B> for Div {
    const NAME: &'static str = "div";
    const NEEDS_OPERANDS: bool = true;
    fn forward(number: OpNumber, lhs: Float<B>, rhs: Float<B>) -> Float<B> {
        elementwise::div::<B>(Some(number), lhs, rhs)
    }
    fn lhs(pass: &Passes<B>, [_, b]: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        let b = pass.operand(1, b.expect(SAVED));
        pass.backward.div(pass.gradient(g), b)
    }
    fn rhs(pass: &Passes<B>, [a, b]: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        let (v, forward) = (&pass.backward, pass.forward());
        let (a, b) = (a.expect(SAVED), b.expect(SAVED));
        let y = forward.div(forward.operand(a), forward.operand(b.clone()));
        v.mul(pass.gradient(g), v.div(v.neg(y), pass.operand(1, b)))
    }
}

/// Leaky relu with a learned slope: `g` or `slope · g`, and 0 or `g x`.
#[derive(Clone, Debug, Default)]
pub(crate) struct PRelu;

impl<B: MxKernels> BinaryRule<B> for PRelu {
    const NAME: &'static str = "prelu";
    const NEEDS_OPERANDS: bool = true;
    fn forward(number: OpNumber, x: Float<B>, slope: Float<B>) -> Float<B> {
        activation::prelu::<B>(Some(number), x, slope)
    }
    fn lhs(pass: &Passes<B>, [x, slope]: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        let v = &pass.backward;
        let negative = negative(pass, x.expect(SAVED));
        let g = pass.gradient(g);
        let scaled = v.mul(g.clone(), pass.operand(1, slope.expect(SAVED)));
        B::float_mask_where(g, negative, scaled)
    }
    fn rhs(pass: &Passes<B>, [x, _]: Operands<B>, g: Float<B>) -> FloatTensor<B> {
        let v = &pass.backward;
        let x = x.expect(SAVED);
        let positive = B::bool_not(negative(pass, x.clone()));
        let products = v.mul(pass.gradient(g), pass.operand(0, x));
        B::float_mask_fill(products, positive, 0.0.into())
    }
}
