//! Softmax along one axis, and its logarithm.

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use microscaling::Rounding;

use super::elementwise::{TensorArithmetic, composed, emulation};
use super::rows::TensorRows;
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::{Float, OpContext};
use burn_mx_kernels::internal::formulas::softmax;
use burn_mx_kernels::internal::{FunctionRounding, KernelOp, LogSoftmax, Softmax};
use burn_mx_kernels::{MxKernels, to_f32};

/// `p / sum p` with `p = exp(x - max x)`, base 2 with `softmax_exp2`.
pub(crate) fn forward<B: MxKernels>(x: Float<B>, dim: usize) -> Float<B> {
    let compute = |arith: &TensorArithmetic<B>, [x]: [Float<B>; 1]| {
        if let Some(function) = in_one_pass(arith, &x, dim) {
            return B::kernel(KernelOp::Softmax(function), [to_f32::<B>(x.inner)]);
        }
        let (rows, base2) = (TensorRows::<B>::along(dim), arith.softmax_exp2());
        softmax::softmax(&rows, arith, arith.operand(x), base2)
    };
    composed::<B, 1>("softmax", None, [("input", x)], compute, |[x]| {
        B::softmax(x, dim)
    })
}

/// `y (g - sum (g y))`, where `output` is [`forward`]'s result; the gradient goes on with the specs of `output`.
/// `layer` is the op's layer in the forward pass, as the recorder names it.
pub(crate) fn backward<B: MxKernels>(
    layer: Option<&'static str>,
    output: Float<B>,
    grad: Float<B>,
    dim: usize,
) -> Float<B> {
    let context = OpContext::of([Some(output.meta)]);
    let Some(shared) = context.emulation() else {
        unreachable!("softmax has a backward op of its own only where something is emulated")
    };
    let arith = TensorArithmetic::<B>::of_backward(shared, &context);
    let compute = |arith: &TensorArithmetic<B>, [output, grad]: [Float<B>; 2]| {
        if let Some(function) = in_one_pass(arith, &output, dim) {
            let (y, g) = (arith.operand(output), to_f32::<B>(grad.inner));
            return B::kernel(KernelOp::SoftmaxBackward(function), [g, y]);
        }
        let (y, g) = (arith.operand(output), arith.operand(grad));
        let (rows, base2) = (TensorRows::<B>::along(dim), arith.softmax_exp2());
        softmax::softmax_backward(&rows, arith, &y, g, base2)
    };
    let operands = [("output", output), ("output gradient", grad)];
    let dx = arith.function_of("softmax", layer, operands, "input gradient", compute);
    arith.finish(dx, &context)
}

/// How a kernel computes the function row by row; `None` if it has to be composed.
fn in_one_pass<B: MxKernels>(
    arith: &TensorArithmetic<B>,
    tensor: &Float<B>,
    dim: usize,
) -> Option<Softmax> {
    let rounding = arith.in_one_pass().filter(|_| dim + 1 == tensor.rank())?;
    Some(Softmax {
        rounding,
        base2: arith.softmax_exp2(),
    })
}

/// Whether the logarithm of a softmax begins a loss, which is computed in full precision.
pub(crate) fn log_begins_loss<B: MxKernels>(x: &Float<B>) -> bool {
    // Also for data or parameters that activations meet later in the loss.
    let specs = OpContext::of_product([Some(x.meta)]).emulation();
    !x.meta.is_constant() && specs.is_some_and(|shared| !shared.specs.quantize_loss())
}

/// Whether the logarithm of a softmax is computed row by row, by a kernel with the rounded ops of Burn's composition.
pub(crate) fn log_in_one_pass<B: MxKernels>(x: &Float<B>, dim: usize) -> bool {
    let is_random = |shared: &'static SharedSpecs| shared.specs.round() == Rounding::Stochastic;
    let context = OpContext::of([Some(x.meta)]);
    dim + 1 == x.rank()
        && context.quantization().is_some()
        && emulation(&context).is_some_and(|shared| !is_random(shared))
}

const IN_ONE_PASS: &str = "a logarithm of a softmax is computed here only if it can be in one pass";

/// `z - log(sum(exp(z)))` with `z = x - max x` over the last axis, where [`log_in_one_pass`].
pub(crate) fn log_forward<B: MxKernels>(x: Float<B>) -> Float<B> {
    let context = OpContext::of([Some(x.meta)]);
    let arith = TensorArithmetic::<B>::emulated(&context, None);
    let arith = arith.expect(IN_ONE_PASS);
    let compute = |arith: &TensorArithmetic<B>, [x]: [Float<B>; 1]| {
        let rounding = arith.in_one_pass().expect(IN_ONE_PASS);
        let op = KernelOp::LogSoftmax(LogSoftmax { rounding });
        B::kernel(op, [to_f32::<B>(x.inner)])
    };
    arith.finish(
        arith.function("log_softmax", [("input", x)], compute),
        &context,
    )
}

/// The gradient of [`log_forward`]'s input, which rounds as `rounding` says.
pub(crate) fn log_backward<B: MxKernels>(
    x: Float<B>,
    grad: Float<B>,
    rounding: FunctionRounding,
) -> FloatTensor<B> {
    let (x, grad) = (to_f32::<B>(x.inner), to_f32::<B>(grad.inner));
    let op = KernelOp::LogSoftmaxBackward(LogSoftmax { rounding });
    B::kernel(op, [grad, x])
}
