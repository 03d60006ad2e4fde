//! Softmax along one axis, and its logarithm.

use burn_backend::TensorMetadata;
use microscaling::Rounding;

use super::Float;
use super::elementwise::{TensorArithmetic, emulation};
use crate::arithmetic::Arithmetic;
use crate::kernels::{FunctionRounding, LogSoftmax, MxKernels, Softmax, to_f32};
use crate::registry::Interned;
use crate::tensor::{Join, MxTensor};

/// ln 2 rounded down to what the reference uses for the derivative of a base-2 softmax.
pub(crate) const LN_2: f32 = 0.69140625;

/// `p / sum p` with `p = exp(x - max x)`, base 2 with `softmax_exp2`.
pub(crate) fn forward<B: MxKernels>(x: Float<B>, dim: usize) -> Float<B> {
    let join = Join::of([Some(x.meta)]);
    let Some(v) = TensorArithmetic::<B>::emulated(&join, None) else {
        return MxTensor::new(B::softmax(x.inner, dim), join.result);
    };
    if let Some(recipe) = in_one_pass(&v, &x, dim) {
        return v.finish(B::rounded_softmax(recipe, to_f32::<B>(x.inner)), &join);
    }
    let x = v.operand(x);
    let max = B::float_max_dim(x.clone(), dim);
    let shifted = v.sub(x, max);
    let powers = if v.softmax_exp2() {
        v.exp2(shifted)
    } else {
        v.exp(shifted)
    };
    let sum = v.sum_dim(powers.clone(), dim);
    v.finish(v.div(powers, sum), &join)
}

/// `y (g - sum (g y))`, where `output` is [`forward`]'s result; the gradient goes on with the specs of
/// `output`.
pub(crate) fn backward<B: MxKernels>(output: Float<B>, grad: Float<B>, dim: usize) -> Float<B> {
    let join = Join::of([Some(output.meta)]);
    let Some(interned) = join.emulation() else {
        unreachable!("softmax has a step of its own only where something is emulated")
    };
    let v = TensorArithmetic::<B>::of_backward(interned, &join);
    if let Some(recipe) = in_one_pass(&v, &output, dim) {
        let (y, g) = (v.operand(output), to_f32::<B>(grad.inner));
        let dx = B::rounded_softmax_backward(recipe, y, g);
        return v.finish(dx, &join);
    }
    let (y, g) = (v.operand(output), v.operand(grad));
    let weighted = v.sum_dim(v.mul(g.clone(), y.clone()), dim);
    let mut dx = v.mul(y, v.sub(g, weighted));
    if v.softmax_exp2() {
        dx = v.mul_scalar(dx, LN_2);
    }
    v.finish(dx, &join)
}

/// How a kernel computes the function row by row; `None` if it has to be composed.
fn in_one_pass<B: MxKernels>(
    v: &TensorArithmetic<B>,
    tensor: &Float<B>,
    dim: usize,
) -> Option<Softmax> {
    let steps = v.in_one_pass().filter(|_| dim + 1 == tensor.rank())?;
    Some(Softmax {
        steps,
        base2: v.softmax_exp2(),
        reciprocal: v.uses_recip(),
    })
}

/// Whether the logarithm of a softmax is computed row by row, by a kernel with the steps of Burn's composition.
pub(crate) fn log_in_one_pass<B: MxKernels>(x: &Float<B>, dim: usize) -> bool {
    let is_random = |interned: &'static Interned| interned.specs.round() == Rounding::Stochastic;
    let join = Join::of([Some(x.meta)]);
    dim + 1 == x.rank()
        && join.quantization().is_some()
        && emulation(&join).is_some_and(|interned| !is_random(interned))
}

/// `z - log(sum(exp(z)))` with `z = x - max x` over the last axis, where [`log_in_one_pass`].
pub(crate) fn log_forward<B: MxKernels>(x: Float<B>) -> Float<B> {
    let join = Join::of([Some(x.meta)]);
    let vector = TensorArithmetic::<B>::emulated(&join, None)
        .and_then(|v| v.in_one_pass().map(|steps| (v, steps)));
    let Some((v, steps)) = vector else {
        unreachable!("a logarithm of a softmax is computed here only if it can be in one pass")
    };
    let recipe = log_recipe(&v, steps);
    v.finish(B::rounded_log_softmax(recipe, to_f32::<B>(x.inner)), &join)
}

/// How the kernel computes [`log_forward`] and its gradient.
pub(crate) fn log_recipe<B: MxKernels>(
    v: &TensorArithmetic<B>,
    steps: FunctionRounding,
) -> LogSoftmax {
    LogSoftmax {
        steps,
        reciprocal: v.uses_recip(),
    }
}
