//! Functions of an element that are a dozen rounded ops each, in one pass over memory.

use super::loops::{map_in_place, zip_in_place};
use super::rounding::{FunctionRounding, with_arithmetic, with_passes, with_rounding};
use super::table::{Table, Tabled};
use crate::arithmetic::{Arithmetic, Function, with_function};

/// The loops, for backends and tests of kernels.
impl Function {
    /// Replaces every element, which need not be rounded. Long slices of bfloat16 numbers are looked up in a table.
    #[doc(hidden)]
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
    #[doc(hidden)]
    pub fn compute(self, data: &mut [f32], rounding: FunctionRounding) {
        with_arithmetic!(rounding, exp2, arith => with_function!(self, FUNCTION => map_in_place(
            data,
            #[inline(always)]
            move |x| FUNCTION.of(&arith, arith.round(x)),
        )));
    }

    /// Replaces every gradient of the function's output by the gradient of its input; neither the gradients nor the inputs need be
    /// rounded. Derivatives at bfloat16 numbers are looked up in a table where slices are long.
    #[doc(hidden)]
    pub fn apply_gradient(self, grad: &mut [f32], input: &[f32], rounding: FunctionRounding) {
        let derivative = |input: &mut [f32]| {
            let mut ones = vec![1.0; input.len()];
            self.compute_gradient(&mut ones, input, rounding);
            input.copy_from_slice(&ones);
        };
        // Else the derivative is not rounded.
        let table = (rounding.quantize_backward)
            .then(|| Table::of(Tabled::Derivative(self), rounding, grad.len(), derivative));
        match table.flatten() {
            Some(table) => with_rounding!(rounding, round => table.multiply(grad, input, round)),
            None => self.compute_gradient(grad, input, rounding),
        }
    }

    /// [`apply_gradient`](Self::apply_gradient), by the formula for every element.
    #[doc(hidden)]
    pub fn compute_gradient(self, grad: &mut [f32], input: &[f32], rounding: FunctionRounding) {
        with_passes!(rounding, exp2, (forward, arith) => with_function!(self, FUNCTION => zip_in_place(
            grad,
            input,
            #[inline(always)]
            move |g, x| {
                let forward_x = forward.round(x);
                FUNCTION.gradient(&forward, &arith, forward_x, || arith.round(x), arith.round(g))
            },
        )));
    }
}
