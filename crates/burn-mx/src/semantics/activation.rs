//! Activations by recipe; each step is one rounded op. `d…` are gradients.

use burn_backend::tensor::FloatTensor;

use super::Float;
use super::elementwise::{Passes, Vector, unary};
use crate::kernels::MxKernels;
use crate::tensor::{Join, MxTensor};

/// Whether a composed function is to be computed step by step, each step rounded.
pub(crate) fn is_composed<B: MxKernels>(tensor: &Float<B>) -> bool {
    Vector::<B>::recipe(&Join::of([Some(tensor.meta)])).is_some()
}

/// `max(x, 0)`, rounded.
pub(crate) fn relu<B: MxKernels>(x: Float<B>) -> Float<B> {
    unary::<B>(x, B::relu)
}

/// The gradient where the output is positive, rounded. Burn hands over the input or the output; rounded,
/// both have the same sign.
pub(crate) fn relu_backward<B: MxKernels>(output: Float<B>, grad: Float<B>) -> Float<B> {
    let join = Join::of([Some(output.meta), Some(grad.meta)]);
    match Passes::<B>::recipe(&join) {
        Some(Passes { forward, backward: v }) => {
            let masked = B::relu_backward(forward.operand(output), v.operand(grad));
            v.finish(v.round(masked), &join)
        }
        None => MxTensor::new(B::relu_backward(output.inner, grad.inner), join.result),
    }
}

/// `1 / (exp(-x) + 1)`
pub(crate) fn sigmoid<B: MxKernels>(x: Float<B>) -> Float<B> {
    let join = Join::of([Some(x.meta)]);
    match Vector::<B>::recipe(&join) {
        Some(v) => v.finish(sigmoid_steps(&v, v.operand(x)), &join),
        None => MxTensor::new(B::sigmoid(x.inner), join.result),
    }
}

pub(crate) fn sigmoid_steps<B: MxKernels>(v: &Vector<B>, x: FloatTensor<B>) -> FloatTensor<B> {
    let denominator = v.add_scalar(v.exp(v.neg(x)), 1.0);
    v.recip(denominator)
}

/// `y (1 - y) g`
pub(crate) fn sigmoid_backward<B: MxKernels>(output: Float<B>, grad: Float<B>) -> Float<B> {
    let join = Join::of([Some(output.meta), Some(grad.meta)]);
    match Vector::<B>::recipe(&join) {
        Some(v) => {
            let dx = sigmoid_backward_steps(&v, v.operand(output), v.operand(grad));
            v.finish(dx, &join)
        }
        None => MxTensor::new(B::sigmoid_backward(output.inner, grad.inner), join.result),
    }
}

pub(crate) fn sigmoid_backward_steps<B: MxKernels>(
    v: &Vector<B>,
    y: FloatTensor<B>,
    g: FloatTensor<B>,
) -> FloatTensor<B> {
    let derivative = v.mul(y.clone(), v.one_minus(y));
    v.mul(derivative, g)
}

/// Coefficients of the gelu recipe: the tanh approximation written as a sigmoid, in bfloat16.
mod gelu_coefficients {
    /// 2 sqrt(2 / π)
    pub(super) const SLOPE: f32 = 1.59375;
    pub(super) const CUBIC: f32 = 0.044677734;
    /// The derivative's factor of x²: 2 sqrt(2 / π) · 3 · 0.0447.
    pub(super) const CUBIC_SLOPE: f32 = 0.21386719;
}

/// `Φ = sigmoid(1.59375 (x + 0.044677734 x³))`
fn gelu_gate<B: MxKernels>(v: &Vector<B>, x: FloatTensor<B>) -> FloatTensor<B> {
    let square = v.mul(x.clone(), x.clone());
    let cube = v.mul(square, x.clone());
    let argument = v.add(v.mul_scalar(cube, gelu_coefficients::CUBIC), x);
    let argument = v.mul_scalar(argument, gelu_coefficients::SLOPE);
    sigmoid_steps(v, argument)
}

/// `x Φ`
pub(crate) fn gelu<B: MxKernels>(x: Float<B>) -> Float<B> {
    let join = Join::of([Some(x.meta)]);
    match Vector::<B>::recipe(&join) {
        Some(v) => {
            let x = v.operand(x);
            let gate = gelu_gate(&v, x.clone());
            v.finish(v.mul(x, gate), &join)
        }
        None => MxTensor::new(B::gelu(x.inner), join.result),
    }
}

/// `(Φ + x Φ') g`
pub(crate) fn gelu_backward<B: MxKernels>(x: Float<B>, grad: Float<B>) -> Float<B> {
    let join = Join::of([Some(x.meta), Some(grad.meta)]);
    match Passes::<B>::recipe(&join) {
        Some(Passes { forward, backward: v }) => {
            let gate = gelu_gate(&forward, forward.operand(x.clone()));
            let (x, g) = (v.operand(x), v.operand(grad));
            let slope = v.mul(gate.clone(), v.one_minus(gate.clone()));
            let square = v.mul(x.clone(), x.clone());
            let inner = v.mul_scalar(square, gelu_coefficients::CUBIC_SLOPE);
            let inner = v.add_scalar(inner, gelu_coefficients::SLOPE);
            let slope = v.mul(inner, slope);
            let derivative = v.add(gate, v.mul(x, slope));
            v.finish(v.mul(derivative, g), &join)
        }
        None => MxTensor::new(B::gelu_backward(x.inner, grad.inner), join.result),
    }
}
