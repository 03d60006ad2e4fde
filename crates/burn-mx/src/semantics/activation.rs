//! Activations by recipe; each step is one rounded op. `d…` are gradients.

use burn_backend::tensor::{BoolTensor, FloatTensor};
use burn_backend::{Scalar, TensorMetadata, get_device_settings};

use super::Float;
use super::elementwise::{Passes, TensorArithmetic, binary, emulation, selection, unary};
use crate::arithmetic::Arithmetic;
use crate::kernels::{BinaryFunction, FunctionRounding, MxKernels, UnaryFunction, to_f32};
use crate::random::OpNumber;
use crate::tensor::{Join, MxTensor};

/// Whether a composed function is to be computed step by step, each step rounded.
pub(crate) fn is_composed<B: MxKernels>(tensor: &Float<B>) -> bool {
    emulation(&Join::of([Some(tensor.meta)])).is_some()
}

/// `max(x, 0)`, rounded.
pub(crate) fn relu<B: MxKernels>(number: Option<OpNumber>, x: Float<B>) -> Float<B> {
    selection::<B>(number, x, B::relu)
}

/// The gradient where the output is positive, rounded. Burn hands over the input or the output; rounded,
/// both have the same sign.
pub(crate) fn relu_backward<B: MxKernels>(output: Float<B>, grad: Float<B>) -> Float<B> {
    let join = Join::of([Some(output.meta), Some(grad.meta)]);
    match Passes::<B>::emulated(&join, None) {
        Some(pass) => pass
            .backward
            .finish(relu_gradient::<B>(&pass, output, grad), &join),
        None => MxTensor::new(B::relu_backward(output.inner, grad.inner), join.result),
    }
}

/// As [`relu_backward`], in a pass that knows what the forward pass drew.
pub(crate) fn relu_gradient<B: MxKernels>(
    pass: &Passes<B>,
    x: Float<B>,
    grad: Float<B>,
) -> FloatTensor<B> {
    // A masked gradient is as rounded as it was.
    B::relu_backward(pass.forward_operand(0, x), pass.gradient(grad))
}

/// `1 / (exp(-x) + 1)`
pub(crate) fn sigmoid<B: MxKernels>(number: Option<OpNumber>, x: Float<B>) -> Float<B> {
    by_recipe::<B>(number, x, UnaryFunction::Sigmoid, sigmoid_steps, B::sigmoid)
}

#[inline(always)]
pub(crate) fn sigmoid_steps<A: Arithmetic>(s: &A, x: A::Value) -> A::Value {
    let denominator = s.add_scalar(s.exp(s.neg(x)), 1.0);
    s.recip(denominator)
}

/// `y (1 - y) g`
pub(crate) fn sigmoid_backward<B: MxKernels>(output: Float<B>, grad: Float<B>) -> Float<B> {
    let join = Join::of([Some(output.meta), Some(grad.meta)]);
    match TensorArithmetic::<B>::emulated(&join, None) {
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

/// `-max(-x, 0) - log(z)` with `z = exp(-max(-x, 0)) + exp(-x - max(-x, 0))`: the steps of Burn's composition.
pub(crate) fn log_sigmoid<B: MxKernels>(number: Option<OpNumber>, x: Float<B>) -> Float<B> {
    let join = Join::of([Some(x.meta)]);
    let Some(v) = TensorArithmetic::<B>::emulated(&join, number) else {
        return MxTensor::new(B::log_sigmoid(x.inner), join.result);
    };
    let LogSigmoid {
        negative_max, z, ..
    } = LogSigmoid::new(&v, v.operand(x));
    v.finish(v.sub(negative_max, v.round(B::float_log(z))), &join)
}

/// `(m - s (1 - 1 / z)) g` with `m` 1 and `s` 1 where x is negative, 0 and -1 elsewhere.
pub(crate) fn log_sigmoid_backward<B: MxKernels>(x: Float<B>, grad: Float<B>) -> Float<B> {
    let join = Join::of([Some(x.meta), Some(grad.meta)]);
    match Passes::<B>::emulated(&join, None) {
        Some(pass) => pass
            .backward
            .finish(log_sigmoid_gradient::<B>(&pass, x, grad), &join),
        None => MxTensor::new(B::log_sigmoid_backward(x.inner, grad.inner), join.result),
    }
}

/// As [`log_sigmoid_backward`], in a pass that knows what the forward pass drew.
pub(crate) fn log_sigmoid_gradient<B: MxKernels>(
    pass: &Passes<B>,
    x: Float<B>,
    grad: Float<B>,
) -> FloatTensor<B> {
    let v = &pass.backward;
    // Burn's formula takes nothing that the forward pass saves but x.
    let LogSigmoid { positive, z, .. } = match v.is_exact() {
        true => LogSigmoid::new(v, v.operand(x)),
        false => {
            let forward = pass.forward();
            LogSigmoid::new(&forward, forward.operand(x))
        }
    };
    let (device, dtype) = (B::float_device(&z), z.dtype().into());
    let ones = B::float_ones(z.shape(), &device, dtype);
    let m = B::float_mask_fill(ones.clone(), positive.clone(), 0.0.into());
    let s = B::float_mask_fill(ones.clone(), positive, (-1.0).into());
    let derivative = v.sub(m, v.mul(s, v.sub(ones, v.recip(z))));
    v.mul(pass.gradient(grad), derivative)
}

/// What both passes compute of a sigmoid's logarithm.
struct LogSigmoid<B: MxKernels> {
    positive: BoolTensor<B>,
    /// `-max(-x, 0)`
    negative_max: FloatTensor<B>,
    z: FloatTensor<B>,
}

impl<B: MxKernels> LogSigmoid<B> {
    fn new(v: &TensorArithmetic<B>, x: FloatTensor<B>) -> Self {
        let bool_dtype = get_device_settings::<B>(&B::float_device(&x)).bool_dtype;
        let negated = v.neg(x);
        let positive = B::float_lower_elem(negated.clone(), 0.0.into(), bool_dtype);
        let max = B::float_mask_fill(negated.clone(), positive.clone(), 0.0.into());
        let negative_max = v.neg(max.clone());
        let z = v.add(v.exp(negative_max.clone()), v.exp(v.sub(negated, max)));
        Self {
            positive,
            negative_max,
            z,
        }
    }
}

/// `x sigmoid(x)`
pub(crate) fn silu<B: MxKernels>(number: Option<OpNumber>, x: Float<B>) -> Float<B> {
    by_recipe::<B>(number, x, UnaryFunction::Silu, silu_steps, |x| {
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
pub(crate) fn gelu_first_order<B: MxKernels>(number: Option<OpNumber>, x: Float<B>) -> Float<B> {
    by_recipe::<B>(
        number,
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
pub(crate) fn leaky_relu<B: MxKernels>(
    number: Option<OpNumber>,
    x: Float<B>,
    slope: Scalar,
) -> Float<B> {
    unary::<B>(number, x, |x| B::leaky_relu(x, slope))
}

/// `x` where it is positive, `slope · x` elsewhere, of a slope that is learned; rounded in and out.
pub(crate) fn prelu<B: MxKernels>(
    number: Option<OpNumber>,
    x: Float<B>,
    slope: Float<B>,
) -> Float<B> {
    binary::<B>(number, x.into_activation(), slope, B::prelu)
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
pub(crate) fn gelu<B: MxKernels>(number: Option<OpNumber>, x: Float<B>) -> Float<B> {
    by_recipe::<B>(number, x, UnaryFunction::Gelu, gelu_steps, B::gelu)
}

#[inline(always)]
pub(crate) fn gelu_steps<A: Arithmetic>(s: &A, x: A::Value) -> A::Value {
    let gate = gelu_gate(s, x.clone());
    s.mul(x, gate)
}

/// `(Φ + x Φ') g`
pub(crate) fn gelu_backward<B: MxKernels>(x: Float<B>, grad: Float<B>) -> Float<B> {
    let join = Join::of([Some(x.meta), Some(grad.meta)]);
    match Passes::<B>::emulated(&join, None) {
        Some(pass) => pass
            .backward
            .finish(gelu_gradient::<B>(&pass, x, grad), &join),
        None => MxTensor::new(B::gelu_backward(x.inner, grad.inner), join.result),
    }
}

/// As [`gelu_backward`], in a pass that knows what the forward pass drew.
pub(crate) fn gelu_gradient<B: MxKernels>(
    pass: &Passes<B>,
    x: Float<B>,
    grad: Float<B>,
) -> FloatTensor<B> {
    let v = &pass.backward;
    if let Some(steps) = v.backward_in_one_pass() {
        let recipe = BinaryFunction::GeluBackward;
        return one_pass_of_two::<B>(recipe, x.inner, grad.inner, steps);
    }
    let forward = pass.forward();
    let forward_x = forward.operand(x.clone());
    gelu_backward_steps(
        &forward,
        v,
        forward_x,
        pass.operand(0, x),
        pass.gradient(grad),
    )
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
    number: Option<OpNumber>,
    x: Float<B>,
    recipe: UnaryFunction,
    steps: impl FnOnce(&TensorArithmetic<B>, FloatTensor<B>) -> FloatTensor<B>,
    plain: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let join = Join::of([Some(x.meta)]);
    let Some(v) = TensorArithmetic::<B>::emulated(&join, number) else {
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
