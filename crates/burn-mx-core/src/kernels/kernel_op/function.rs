//! Functions of an element that are a dozen rounded ops each, in one pass over memory.

use super::loops::{map_in_place, zip_in_place};
use super::rounding::{FunctionRounding, with_arithmetic, with_passes, with_rounding};
use super::table::{Table, Tabled};
use crate::arithmetic::{Arithmetic, activation};

/// A function of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryFunction {
    /// e to the power of x.
    Exp,
    /// 2 to the power of x.
    Exp2,
    /// The sigmoid of x.
    Sigmoid,
    /// The gelu of x.
    Gelu,
    /// The first-order gelu of x.
    GeluFirstOrder,
    /// The silu of x.
    Silu,
}

/// A function of two tensors of the same shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryFunction {
    /// The gradient of a sigmoid from its input and its output's gradient.
    SigmoidBackward,
    /// The gradient of a gelu from its input and its output's gradient.
    GeluBackward,
    /// The gradient of a first-order gelu from its input and its output's gradient.
    GeluFirstOrderBackward,
    /// The gradient of a silu from its input and its output's gradient.
    SiluBackward,
}

impl UnaryFunction {
    /// Replaces every element, which need not be rounded. Long slices of bfloat16 numbers are looked up in a table.
    pub fn apply(self, data: &mut [f32], rounding: FunctionRounding) {
        let tabled = Tabled::Function(self);
        // Only a backward pass asks for it: one table serves both.
        let forward = FunctionRounding {
            quantize_backward: true,
            ..rounding
        };
        let compute = |data: &mut [f32]| self.compute(data, forward);
        match Table::of(tabled, forward, data.len(), compute) {
            Some(table) => with_rounding!(rounding, round => table.replace(data, round)),
            None => self.compute(data, rounding),
        }
    }

    /// [`apply`](Self::apply), by the formula for every element.
    pub fn compute(self, data: &mut [f32], rounding: FunctionRounding) {
        with_arithmetic!(rounding, exp2, arith => match self {
            Self::Exp => map_in_place(
                data,
                #[inline(always)]
                move |x| arith.exp(arith.round(x)),
            ),
            Self::Exp2 => map_in_place(
                data,
                #[inline(always)]
                move |x| arith.exp2(arith.round(x)),
            ),
            Self::Sigmoid => map_in_place(
                data,
                #[inline(always)]
                move |x| activation::sigmoid(&arith, arith.round(x)),
            ),
            Self::GeluFirstOrder => map_in_place(
                data,
                #[inline(always)]
                move |x| activation::gelu_first_order(&arith, arith.round(x)),
            ),
            Self::Silu => map_in_place(
                data,
                #[inline(always)]
                move |x| activation::silu(&arith, arith.round(x)),
            ),
            Self::Gelu => map_in_place(
                data,
                #[inline(always)]
                move |x| activation::gelu(&arith, arith.round(x)),
            ),
        });
    }
}

impl BinaryFunction {
    /// Replaces every gradient by the gradient of the input; neither need be rounded. Derivatives at bfloat16 numbers are
    /// looked up in a table where slices are long.
    pub fn apply(self, grad: &mut [f32], input: &[f32], rounding: FunctionRounding) {
        let derivative = |input: &mut [f32]| {
            let mut ones = vec![1.0; input.len()];
            self.compute(&mut ones, input, rounding);
            input.copy_from_slice(&ones);
        };
        // Else the derivative is not rounded.
        let table = (rounding.quantize_backward)
            .then(|| Table::of(Tabled::Derivative(self), rounding, grad.len(), derivative));
        match table.flatten() {
            Some(table) => with_rounding!(rounding, round => table.multiply(grad, input, round)),
            None => self.compute(grad, input, rounding),
        }
    }

    /// [`apply`](Self::apply), by the formula for every element.
    pub fn compute(self, grad: &mut [f32], input: &[f32], rounding: FunctionRounding) {
        with_passes!(rounding, exp2, (forward, arith) => match self {
            Self::SigmoidBackward => zip_in_place(
                grad,
                input,
                #[inline(always)]
                move |g, x| {
                    let y = activation::sigmoid(&forward, forward.round(x));
                    activation::sigmoid_backward(&arith, y, arith.round(g))
                },
            ),
            Self::GeluFirstOrderBackward => zip_in_place(
                grad,
                input,
                #[inline(always)]
                move |g, x| {
                    let (forward_x, x, g) = (forward.round(x), arith.round(x), arith.round(g));
                    activation::gelu_first_order_backward(&forward, &arith, forward_x, x, g)
                },
            ),
            Self::SiluBackward => zip_in_place(
                grad,
                input,
                #[inline(always)]
                move |g, x| {
                    activation::silu_backward(&forward, &arith, forward.round(x), arith.round(g))
                },
            ),
            Self::GeluBackward => zip_in_place(
                grad,
                input,
                #[inline(always)]
                move |g, x| {
                    let (forward_x, x, g) = (forward.round(x), arith.round(x), arith.round(g));
                    activation::gelu_backward(&forward, &arith, forward_x, x, g)
                },
            ),
        });
    }
}
