//! The events of a layer.

use core::any::Any;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::installed::observers;
use super::{Events, LayerOp};
use crate::tensor::Float;
use burn_mx_kernels::{MxKernels, to_f32};

/// A linear layer or a convolution that was computed.
pub struct LayerCall<'a> {
    /// The label of its weight.
    pub label: &'static str,
    /// Its op.
    pub op: LayerOp,
    /// Whether the weight is the layer's parameter itself, not a view of the parameter.
    pub is_plain: bool,
    /// Whether it has a bias.
    pub has_bias: bool,
    /// The shape of the input.
    pub input_shape: Shape,
    /// The shape of the weight.
    pub weight: Shape,
    /// The shape of the output.
    pub output_shape: Shape,
    /// Tensors of the backend that computes.
    input: &'a dyn Any,
    output: &'a dyn Any,
}

impl LayerCall<'_> {
    /// Multiplications of the layer, each with an addition.
    pub fn macs(&self) -> u64 {
        let shapes = [&self.input_shape, &self.output_shape];
        self.op.macs(shapes, &self.weight) as u64
    }

    /// The input, in `f32`; `None` if `B` is not the backend that computes.
    pub fn input<B: MxKernels>(&self) -> Option<FloatTensor<B>> {
        tensor::<B>(self.input)
    }

    /// The output, in `f32`; `None` if `B` is not the backend that computes.
    pub fn output<B: MxKernels>(&self) -> Option<FloatTensor<B>> {
        tensor::<B>(self.output)
    }
}

impl core::fmt::Debug for LayerCall<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LayerCall")
            .field("label", &self.label)
            .field("op", &self.op)
            .finish_non_exhaustive()
    }
}

fn tensor<B: MxKernels>(tensor: &dyn Any) -> Option<FloatTensor<B>> {
    let tensor = tensor.downcast_ref::<FloatTensor<B>>()?;
    Some(to_f32::<B>(tensor.clone()))
}

/// The output of a layer, by `forward`, shown to its observers.
pub(crate) fn layer<B: MxKernels>(
    op: impl FnOnce() -> LayerOp,
    x: Float<B>,
    weight: Float<B>,
    bias: Option<Float<B>>,
    forward: impl FnOnce(Float<B>, Float<B>, Option<Float<B>>) -> Float<B>,
) -> Float<B> {
    let Some(label) = weight.meta.label else {
        return forward(x, weight, bias);
    };
    let mut observers = observers(Events::LAYERS);
    observers.retain(|observer| observer.wants_layer(label));
    if observers.is_empty() {
        return forward(x, weight, bias);
    }
    // Views keep no copies.
    let is_plain = weight.kept.is_some();
    let has_bias = bias.is_some();
    let shape = weight.shape();
    let input = x.inner.clone();
    let output = forward(x, weight, bias);
    let call = LayerCall {
        label,
        op: op(),
        is_plain,
        has_bias,
        input_shape: input.shape(),
        weight: shape,
        output_shape: output.shape(),
        input: &input,
        output: &output.inner,
    };
    for observer in observers {
        observer.layer(&call);
    }
    output
}
