//! Activations and their gradients. `forward` is the arithmetic of the forward pass, whose results a gradient computes
//! again. `forward_x` is the input as the forward pass rounded it, and `x` the input as the backward pass rounds it.

use super::Arithmetic;

/// `1 / (exp(-x) + 1)`
#[inline(always)]
pub fn sigmoid<A: Arithmetic>(arith: &A, x: A::Value) -> A::Value {
    let denominator = arith.add_scalar(arith.exp(arith.neg(x)), 1.0);
    arith.recip(denominator)
}

/// `y (1 - y) g` with `y` the output.
#[inline(always)]
pub fn sigmoid_backward<A: Arithmetic>(arith: &A, y: A::Value, g: A::Value) -> A::Value {
    let derivative = arith.mul(y.clone(), arith.one_minus(y));
    arith.mul(derivative, g)
}

/// `x sigmoid(x)`
#[inline(always)]
pub fn silu<A: Arithmetic>(arith: &A, x: A::Value) -> A::Value {
    arith.mul(x.clone(), sigmoid(arith, x))
}

/// `(σ + y (1 - σ)) g` with `σ` the sigmoid and `y` the output.
#[inline(always)]
pub fn silu_backward<V: Clone>(
    forward: &impl Arithmetic<Value = V>,
    arith: &impl Arithmetic<Value = V>,
    forward_x: V,
    g: V,
) -> V {
    let gate = sigmoid(forward, forward_x.clone());
    let y = forward.mul(forward_x, gate.clone());
    let derivative = arith.add(gate.clone(), arith.mul(y, arith.one_minus(gate)));
    arith.mul(derivative, g)
}

/// `t = tanh(ln(1 + exp(x)))`, computed as `1 / (exp(-x) / (exp(x) / 2 + 1) + 1)`. Every op is rounded. No subtraction cancels digits,
/// and an infinite `exp` gives 1 or 0.
#[inline(always)]
fn mish_gate<A: Arithmetic>(arith: &A, x: A::Value) -> A::Value {
    let half = arith.mul_scalar(arith.exp(x.clone()), 0.5);
    let quotient = arith.div(arith.exp(arith.neg(x)), arith.add_scalar(half, 1.0));
    arith.recip(arith.add_scalar(quotient, 1.0))
}

/// `x t`
#[inline(always)]
pub fn mish<A: Arithmetic>(arith: &A, x: A::Value) -> A::Value {
    arith.mul(x.clone(), mish_gate(arith, x))
}

/// `(t + x ((1 - t t) σ)) g` with `σ` the sigmoid. `t` and `σ` are the forward pass's. Every op is rounded.
#[inline(always)]
pub fn mish_backward<V: Clone>(
    forward: &impl Arithmetic<Value = V>,
    arith: &impl Arithmetic<Value = V>,
    forward_x: V,
    x: V,
    g: V,
) -> V {
    let gate = mish_gate(forward, forward_x.clone());
    let rest = arith.one_minus(arith.mul(gate.clone(), gate.clone()));
    let slope = arith.mul(rest, sigmoid(forward, forward_x));
    let derivative = arith.add(gate, arith.mul(x, slope));
    arith.mul(derivative, g)
}

/// The slope of the first-order gelu's sigmoid, 1.702 in bfloat16.
const FIRST_ORDER_SLOPE: f32 = 1.703125;

/// `x sigmoid(1.703125 x)`
#[inline(always)]
pub fn gelu_first_order<A: Arithmetic>(arith: &A, x: A::Value) -> A::Value {
    let gate = sigmoid(arith, arith.mul_scalar(x.clone(), FIRST_ORDER_SLOPE));
    arith.mul(x, gate)
}

/// `(Φ + x Φ') g`
#[inline(always)]
pub fn gelu_first_order_backward<V: Clone>(
    forward: &impl Arithmetic<Value = V>,
    arith: &impl Arithmetic<Value = V>,
    forward_x: V,
    x: V,
    g: V,
) -> V {
    let gate = sigmoid(forward, forward.mul_scalar(forward_x, FIRST_ORDER_SLOPE));
    let slope = arith.mul(gate.clone(), arith.one_minus(gate.clone()));
    let slope = arith.mul_scalar(slope, FIRST_ORDER_SLOPE);
    let derivative = arith.add(gate, arith.mul(x, slope));
    arith.mul(derivative, g)
}

/// Coefficients of gelu: the tanh approximation written as a sigmoid, in bfloat16.
mod gelu_coefficients {
    /// 2 sqrt(2 / π)
    pub(super) const SLOPE: f32 = 1.59375;
    pub(super) const CUBIC: f32 = 0.044677734;
    /// The derivative's factor of x²: 2 sqrt(2 / π) · 3 · 0.0447.
    pub(super) const CUBIC_SLOPE: f32 = 0.21386719;
}

/// `Φ = sigmoid(1.59375 (x + 0.044677734 x³))`
#[inline(always)]
fn gelu_gate<A: Arithmetic>(arith: &A, x: A::Value) -> A::Value {
    let square = arith.mul(x.clone(), x.clone());
    let cube = arith.mul(square, x.clone());
    let argument = arith.add(arith.mul_scalar(cube, gelu_coefficients::CUBIC), x);
    let argument = arith.mul_scalar(argument, gelu_coefficients::SLOPE);
    sigmoid(arith, argument)
}

/// `x Φ`
#[inline(always)]
pub fn gelu<A: Arithmetic>(arith: &A, x: A::Value) -> A::Value {
    let gate = gelu_gate(arith, x.clone());
    arith.mul(x, gate)
}

/// `(Φ + x Φ') g`
#[inline(always)]
pub fn gelu_backward<V: Clone>(
    forward: &impl Arithmetic<Value = V>,
    arith: &impl Arithmetic<Value = V>,
    forward_x: V,
    x: V,
    g: V,
) -> V {
    let gate = gelu_gate(forward, forward_x);
    let slope = arith.mul(gate.clone(), arith.one_minus(gate.clone()));
    let square = arith.mul(x.clone(), x.clone());
    let inner = arith.mul_scalar(square, gelu_coefficients::CUBIC_SLOPE);
    let inner = arith.add_scalar(inner, gelu_coefficients::SLOPE);
    let slope = arith.mul(inner, slope);
    let derivative = arith.add(gate, arith.mul(x, slope));
    arith.mul(derivative, g)
}
