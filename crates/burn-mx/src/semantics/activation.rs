//! Activations by recipe; each step is one rounded op. `d…` are gradients.

use burn_backend::Scalar;
use burn_backend::tensor::FloatTensor;

use super::Float;
use super::elementwise::{Passes, TensorArithmetic, emulation, selection, unary};
use crate::arithmetic::Arithmetic;
use crate::kernels::{BinaryFunction, FunctionRounding, MxKernels, UnaryFunction, to_f32};
use crate::tensor::{Join, MxTensor};

/// Whether a composed function is to be computed step by step, each step rounded.
pub(crate) fn is_composed<B: MxKernels>(tensor: &Float<B>) -> bool {
    emulation(&Join::of([Some(tensor.meta)])).is_some()
}

/// `max(x, 0)`, rounded.
pub(crate) fn relu<B: MxKernels>(x: Float<B>) -> Float<B> {
    selection::<B>(x, B::relu)
}

/// The gradient where the output is positive, rounded. Burn hands over the input or the output; rounded,
/// both have the same sign.
pub(crate) fn relu_backward<B: MxKernels>(output: Float<B>, grad: Float<B>) -> Float<B> {
    let join = Join::of([Some(output.meta), Some(grad.meta)]);
    match Passes::<B>::emulated(&join) {
        Some(Passes {
            forward,
            backward: v,
        }) => {
            // A masked gradient is as rounded as it was.
            let masked = B::relu_backward(forward.operand(output), v.operand(grad));
            v.finish(masked, &join)
        }
        None => MxTensor::new(B::relu_backward(output.inner, grad.inner), join.result),
    }
}

/// `1 / (exp(-x) + 1)`
pub(crate) fn sigmoid<B: MxKernels>(x: Float<B>) -> Float<B> {
    by_recipe::<B>(x, UnaryFunction::Sigmoid, sigmoid_steps, B::sigmoid)
}

#[inline(always)]
pub(crate) fn sigmoid_steps<A: Arithmetic>(s: &A, x: A::Value) -> A::Value {
    let denominator = s.add_scalar(s.exp(s.neg(x)), 1.0);
    s.recip(denominator)
}

/// `y (1 - y) g`
pub(crate) fn sigmoid_backward<B: MxKernels>(output: Float<B>, grad: Float<B>) -> Float<B> {
    let join = Join::of([Some(output.meta), Some(grad.meta)]);
    match TensorArithmetic::<B>::emulated(&join) {
        Some(v) => {
            let dx = sigmoid_backward_steps(&v, v.operand(output), v.operand(grad));
            v.finish(dx, &join)
        }
        None => MxTensor::new(B::sigmoid_backward(output.inner, grad.inner), join.result),
    }
}

#[inline(always)]
pub(crate) fn sigmoid_backward_steps<A: Arithmetic>(s: &A, y: A::Value, g: A::Value) -> A::Value {
    let derivative = s.mul(y.clone(), s.one_minus(y));
    s.mul(derivative, g)
}

/// `x sigmoid(x)`
pub(crate) fn silu<B: MxKernels>(x: Float<B>) -> Float<B> {
    by_recipe::<B>(x, UnaryFunction::Silu, silu_steps, |x| {
        B::float_mul(x.clone(), B::sigmoid(x))
    })
}

#[inline(always)]
pub(crate) fn silu_steps<A: Arithmetic>(s: &A, x: A::Value) -> A::Value {
    s.mul(x.clone(), sigmoid_steps(s, x))
}

/// `(σ + y (1 - σ)) g` with `σ` the sigmoid and `y` the output; `x` is as the forward pass rounded it.
#[inline(always)]
pub(crate) fn silu_backward_steps<V: Clone>(
    forward: &impl Arithmetic<Value = V>,
    s: &impl Arithmetic<Value = V>,
    x: V,
    g: V,
) -> V {
    let gate = sigmoid_steps(forward, x.clone());
    let y = forward.mul(x, gate.clone());
    let derivative = s.add(gate.clone(), s.mul(y, s.one_minus(gate)));
    s.mul(derivative, g)
}

/// The slope of the first-order gelu's sigmoid, 1.702 in bfloat16.
const FIRST_ORDER_SLOPE: f32 = 1.703125;

/// `x sigmoid(1.702 x)`
pub(crate) fn gelu_first_order<B: MxKernels>(x: Float<B>) -> Float<B> {
    by_recipe::<B>(
        x,
        UnaryFunction::GeluFirstOrder,
        gelu_first_order_steps,
        |x| {
            let gate = B::sigmoid(B::float_mul_scalar(x.clone(), GELU_SLOPE.into()));
            B::float_mul(x, gate)
        },
    )
}

/// The slope of the first-order gelu's sigmoid where nothing is emulated.
pub(crate) const GELU_SLOPE: f32 = 1.702;

#[inline(always)]
pub(crate) fn gelu_first_order_steps<A: Arithmetic>(s: &A, x: A::Value) -> A::Value {
    let gate = sigmoid_steps(s, s.mul_scalar(x.clone(), FIRST_ORDER_SLOPE));
    s.mul(x, gate)
}

/// `(Φ + x Φ') g`; `forward_x` is the input as the forward pass rounded it, `x` as this pass does.
#[inline(always)]
pub(crate) fn gelu_first_order_backward_steps<V: Clone>(
    forward: &impl Arithmetic<Value = V>,
    s: &impl Arithmetic<Value = V>,
    forward_x: V,
    x: V,
    g: V,
) -> V {
    let gate = sigmoid_steps(forward, forward.mul_scalar(forward_x, FIRST_ORDER_SLOPE));
    let slope = s.mul(gate.clone(), s.one_minus(gate.clone()));
    let slope = s.mul_scalar(slope, FIRST_ORDER_SLOPE);
    let derivative = s.add(gate, s.mul(x, slope));
    s.mul(derivative, g)
}

/// `x` where it is positive, `slope · x` elsewhere; rounded in and out.
pub(crate) fn leaky_relu<B: MxKernels>(x: Float<B>, slope: Scalar) -> Float<B> {
    unary::<B>(x, |x| B::leaky_relu(x, slope))
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
#[inline(always)]
fn gelu_gate<A: Arithmetic>(s: &A, x: A::Value) -> A::Value {
    let square = s.mul(x.clone(), x.clone());
    let cube = s.mul(square, x.clone());
    let argument = s.add(s.mul_scalar(cube, gelu_coefficients::CUBIC), x);
    let argument = s.mul_scalar(argument, gelu_coefficients::SLOPE);
    sigmoid_steps(s, argument)
}

/// `x Φ`
pub(crate) fn gelu<B: MxKernels>(x: Float<B>) -> Float<B> {
    by_recipe::<B>(x, UnaryFunction::Gelu, gelu_steps, B::gelu)
}

#[inline(always)]
pub(crate) fn gelu_steps<A: Arithmetic>(s: &A, x: A::Value) -> A::Value {
    let gate = gelu_gate(s, x.clone());
    s.mul(x, gate)
}

/// `(Φ + x Φ') g`
pub(crate) fn gelu_backward<B: MxKernels>(x: Float<B>, grad: Float<B>) -> Float<B> {
    let join = Join::of([Some(x.meta), Some(grad.meta)]);
    let Some(Passes {
        forward,
        backward: v,
    }) = Passes::<B>::emulated(&join)
    else {
        return MxTensor::new(B::gelu_backward(x.inner, grad.inner), join.result);
    };
    let dx = match v.backward_in_one_pass() {
        Some(steps) => {
            one_pass_of_two::<B>(BinaryFunction::GeluBackward, x.inner, grad.inner, steps)
        }
        None => gelu_backward_steps(
            &forward,
            &v,
            forward.operand(x.clone()),
            v.operand(x),
            v.operand(grad),
        ),
    };
    v.finish(dx, &join)
}

/// `forward_x` is the input as the forward pass rounded it, `x` as this pass does.
#[inline(always)]
pub(crate) fn gelu_backward_steps<V: Clone>(
    forward: &impl Arithmetic<Value = V>,
    s: &impl Arithmetic<Value = V>,
    forward_x: V,
    x: V,
    g: V,
) -> V {
    let gate = gelu_gate(forward, forward_x);
    let slope = s.mul(gate.clone(), s.one_minus(gate.clone()));
    let square = s.mul(x.clone(), x.clone());
    let inner = s.mul_scalar(square, gelu_coefficients::CUBIC_SLOPE);
    let inner = s.add_scalar(inner, gelu_coefficients::SLOPE);
    let slope = s.mul(inner, slope);
    let derivative = s.add(gate, s.mul(x, slope));
    s.mul(derivative, g)
}

/// A function of one tensor: `recipe` in one pass, the same steps composed where that cannot be, and `plain`
/// where elementwise ops are not emulated.
fn by_recipe<B: MxKernels>(
    x: Float<B>,
    recipe: UnaryFunction,
    steps: impl FnOnce(&TensorArithmetic<B>, FloatTensor<B>) -> FloatTensor<B>,
    plain: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let join = Join::of([Some(x.meta)]);
    let Some(v) = TensorArithmetic::<B>::emulated(&join) else {
        return MxTensor::new(plain(x.inner), join.result);
    };
    let y = match v.in_one_pass() {
        Some(rounding) => B::unary_function(recipe, to_f32::<B>(x.inner), rounding),
        None => steps(&v, v.operand(x)),
    };
    v.finish(y, &join)
}

/// The gradient by `recipe`, as `f32`.
pub(crate) fn one_pass_of_two<B: MxKernels>(
    recipe: BinaryFunction,
    x: FloatTensor<B>,
    grad: FloatTensor<B>,
    steps: FunctionRounding,
) -> FloatTensor<B> {
    B::binary_function(recipe, to_f32::<B>(x), to_f32::<B>(grad), steps)
}
