//! Activations, emulated by their formulas. `d…` are gradients.

use burn_backend::tensor::{BoolTensor, FloatTensor};
use burn_backend::{Scalar, TensorMetadata, get_device_settings};

use super::elementwise::{Passes, TensorArithmetic, binary, composed, emulation, selection, unary};
use crate::tensor::random_streams::OpNumber;
use crate::tensor::{Float, MxTensor, OpContext};
use burn_mx_kernels::Function;
use burn_mx_kernels::internal::formulas::plain_function;
use burn_mx_kernels::internal::formulas::{Arithmetic, activation as formula};
use burn_mx_kernels::internal::{FunctionRounding, KernelOp};
use burn_mx_kernels::{MxKernels, to_f32};

/// Whether a composed function is to be computed by its formula.
pub(crate) fn is_composed<B: MxKernels>(tensor: &Float<B>) -> bool {
    emulation(&OpContext::of([Some(tensor.meta)])).is_some()
}

/// `max(x, 0)`, rounded.
pub(crate) fn relu<B: MxKernels>(number: Option<OpNumber>, x: Float<B>) -> Float<B> {
    selection::<B>("relu", number, x, B::relu)
}

/// The gradient where the output is positive, rounded. Burn hands over the input or the output; rounded,
/// both have the same sign.
pub(crate) fn relu_backward<B: MxKernels>(output: Float<B>, grad: Float<B>) -> Float<B> {
    gradient_or::<B>(output, grad, relu_gradient::<B>, B::relu_backward)
}

/// As [`relu_backward`], in a pass that knows what the forward pass drew.
pub(crate) fn relu_gradient<B: MxKernels>(
    pass: &Passes<B>,
    x: Float<B>,
    grad: Float<B>,
) -> FloatTensor<B> {
    // A mask leaves a gradient rounded.
    B::relu_backward(pass.forward_operand(0, x), pass.gradient(grad))
}

/// `y (1 - y) g`
pub(crate) fn sigmoid_backward<B: MxKernels>(output: Float<B>, grad: Float<B>) -> Float<B> {
    let context = OpContext::of([Some(output.meta), Some(grad.meta)]);
    match TensorArithmetic::<B>::emulated(&context, None) {
        Some(arith) => {
            let dx = formula::sigmoid_backward(&arith, arith.operand(output), arith.operand(grad));
            arith.finish(dx, &context)
        }
        None => MxTensor::new(
            B::sigmoid_backward(output.inner, grad.inner),
            context.result,
        ),
    }
}

/// `-max(-x, 0) - log(z)` with `z = exp(-max(-x, 0)) + exp(-x - max(-x, 0))`: the rounded ops of Burn's composition.
pub(crate) fn log_sigmoid<B: MxKernels>(number: Option<OpNumber>, x: Float<B>) -> Float<B> {
    let formula = |arith: &TensorArithmetic<B>, [x]: [_; 1]| {
        let LogSigmoid {
            negative_max, z, ..
        } = LogSigmoid::new(arith, arith.operand(x));
        arith.sub(negative_max, arith.ln(z))
    };
    composed::<B, 1>("log_sigmoid", number, [("input", x)], formula, |[x]| {
        B::log_sigmoid(x)
    })
}

/// `(m - s (1 - 1 / z)) g` with `m` 1 and `s` 1 where x is negative, 0 and -1 elsewhere.
pub(crate) fn log_sigmoid_backward<B: MxKernels>(x: Float<B>, grad: Float<B>) -> Float<B> {
    gradient_or::<B>(x, grad, log_sigmoid_gradient::<B>, B::log_sigmoid_backward)
}

/// As [`log_sigmoid_backward`], in a pass that knows what the forward pass drew.
pub(crate) fn log_sigmoid_gradient<B: MxKernels>(
    pass: &Passes<B>,
    x: Float<B>,
    grad: Float<B>,
) -> FloatTensor<B> {
    let arith = &pass.backward;
    // Burn's formula takes nothing that the forward pass saves but x.
    let LogSigmoid { positive, z, .. } = match arith.is_exact() {
        true => LogSigmoid::new(arith, arith.operand(x)),
        false => {
            let forward = pass.forward();
            LogSigmoid::new(&forward, forward.operand(x))
        }
    };
    let (device, dtype) = (B::float_device(&z), z.dtype().into());
    let ones = B::float_ones(z.shape(), &device, dtype);
    let m = B::float_mask_fill(ones.clone(), positive.clone(), 0.0.into());
    let s = B::float_mask_fill(ones.clone(), positive, (-1.0).into());
    let derivative = arith.sub(m, arith.mul(s, arith.sub(ones, arith.recip(z))));
    arith.mul(pass.gradient(grad), derivative)
}

/// The parts of a sigmoid's logarithm that both passes compute.
struct LogSigmoid<B: MxKernels> {
    positive: BoolTensor<B>,
    /// `-max(-x, 0)`
    negative_max: FloatTensor<B>,
    z: FloatTensor<B>,
}

impl<B: MxKernels> LogSigmoid<B> {
    fn new(arith: &TensorArithmetic<B>, x: FloatTensor<B>) -> Self {
        let bool_dtype = get_device_settings::<B>(&B::float_device(&x)).bool_dtype;
        let negated = arith.neg(x);
        let positive = B::float_lower_elem(negated.clone(), 0.0.into(), bool_dtype);
        let max = B::float_mask_fill(negated.clone(), positive.clone(), 0.0.into());
        let negative_max = arith.neg(max.clone());
        let z = arith.add(
            arith.exp(negative_max.clone()),
            arith.exp(arith.sub(negated, max)),
        );
        Self {
            positive,
            negative_max,
            z,
        }
    }
}

/// `x` for positive `x`, else `slope · x`; input and output are rounded.
pub(crate) fn leaky_relu<B: MxKernels>(
    number: Option<OpNumber>,
    x: Float<B>,
    slope: Scalar,
) -> Float<B> {
    unary::<B>("leaky_relu", number, x, |x| B::leaky_relu(x, slope))
}

/// `x` for positive `x`, else `slope · x` with a learned slope; inputs and output are rounded.
pub(crate) fn prelu<B: MxKernels>(
    number: Option<OpNumber>,
    x: Float<B>,
    slope: Float<B>,
) -> Float<B> {
    binary::<B>("prelu", number, x.into_activation(), slope, B::prelu)
}

/// `(Φ + x Φ') g`
pub(crate) fn gelu_backward<B: MxKernels>(x: Float<B>, grad: Float<B>) -> Float<B> {
    let gelu = |pass: &Passes<B>, x, grad| gradient::<B>(Function::Gelu, pass, x, grad);
    gradient_or::<B>(x, grad, gelu, B::gelu_backward)
}

/// A function of one tensor: in one pass, its formula composed where that cannot be, and the wrapped backend's where elementwise
/// ops are not emulated.
pub(crate) fn function<B: MxKernels>(
    function: Function,
    number: Option<OpNumber>,
    x: Float<B>,
) -> Float<B> {
    let compute = |arith: &TensorArithmetic<B>, [x]: [Float<B>; 1]| match arith.in_one_pass() {
        Some(rounding) => {
            let op = KernelOp::Function(function, rounding);
            B::kernel(op, [to_f32::<B>(x.inner)])
        }
        None => function.of(arith, arith.operand(x)),
    };
    composed::<B, 1>(function.name(), number, [("input", x)], compute, |[x]| {
        plain_function::<B>(function, x)
    })
}

/// The gradient of a function of one tensor, in a pass that knows what the forward pass drew; `x` and `grad` are as saved and as
/// they arrived.
pub(crate) fn gradient<B: MxKernels>(
    function: Function,
    pass: &Passes<B>,
    x: Float<B>,
    grad: Float<B>,
) -> FloatTensor<B> {
    let arith = &pass.backward;
    if let Some(rounding) = arith.backward_in_one_pass() {
        return one_pass_of_two::<B>(function, x.inner, grad.inner, rounding);
    }
    let forward = pass.forward();
    let forward_x = forward.operand(x.clone());
    let g = pass.gradient(grad);
    function.gradient(&forward, arith, forward_x, || pass.operand(0, x), g)
}

/// The gradient of a function of one tensor: `gradient` where elementwise ops are emulated, else `plain`.
fn gradient_or<B: MxKernels>(
    saved: Float<B>,
    grad: Float<B>,
    gradient: impl FnOnce(&Passes<B>, Float<B>, Float<B>) -> FloatTensor<B>,
    plain: impl FnOnce(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let context = OpContext::of([Some(saved.meta), Some(grad.meta)]);
    match Passes::<B>::emulated(&context, None) {
        Some(pass) => {
            let gradient = gradient(&pass, saved, grad);
            pass.backward.finish(gradient, &context)
        }
        None => MxTensor::new(plain(saved.inner, grad.inner), context.result),
    }
}

/// The gradient by `function`, as `f32`.
fn one_pass_of_two<B: MxKernels>(
    function: Function,
    x: FloatTensor<B>,
    grad: FloatTensor<B>,
    rounding: FunctionRounding,
) -> FloatTensor<B> {
    let op = KernelOp::FunctionGradient(function, rounding);
    B::kernel(op, [to_f32::<B>(grad), to_f32::<B>(x)])
}
