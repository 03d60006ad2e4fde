//! A build without post-training quantization: nobody listens to layers.

use burn_backend::Scalar;

use crate::kernels::MxKernels;
use crate::semantics::Float;

/// The op of a linear layer.
pub(crate) struct Linear;

pub(crate) fn layer<B: MxKernels, O>(
    _: impl FnOnce() -> O,
    x: Float<B>,
    weight: Float<B>,
    bias: Option<Float<B>>,
    forward: impl FnOnce(Float<B>, Float<B>, Option<Float<B>>) -> Float<B>,
) -> Float<B> {
    forward(x, weight, bias)
}

pub(crate) fn scalar_added<B: MxKernels>(_: &Float<B>, _: &Scalar) {}

pub(crate) fn subtracted<B: MxKernels>(_: &Float<B>, _: &Float<B>) {}

pub(crate) fn multiplied<B: MxKernels>(_: &Float<B>) {}
