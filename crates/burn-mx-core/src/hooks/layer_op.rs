//! Layers that have a weight, as the wrapped backend computes them.

use burn_backend::ops::{ConvOptions, ConvTransposeOptions};
use burn_backend::tensor::FloatTensor;

use crate::specs::ProductOp;
use burn_mx_kernels::MxKernels;

/// The op of a layer that has a weight.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LayerOp {
    /// `x · w + b`, with w `[inputs, outputs]`.
    Linear,
    /// A convolution.
    Conv1d(ConvOptions<1>),
    /// A convolution.
    Conv2d(ConvOptions<2>),
    /// A convolution.
    Conv3d(ConvOptions<3>),
    /// A transposed convolution.
    ConvTranspose1d(ConvTransposeOptions<1>),
    /// A transposed convolution.
    ConvTranspose2d(ConvTransposeOptions<2>),
    /// A transposed convolution.
    ConvTranspose3d(ConvTransposeOptions<3>),
}

macro_rules! from_options {
    ($($options:ty: $op:ident)*) => { $(
        impl From<$options> for LayerOp {
            fn from(options: $options) -> Self {
                Self::$op(options)
            }
        }
    )* };
}

from_options! {
    ConvOptions<1>: Conv1d
    ConvOptions<2>: Conv2d
    ConvOptions<3>: Conv3d
    ConvTransposeOptions<1>: ConvTranspose1d
    ConvTransposeOptions<2>: ConvTranspose2d
    ConvTransposeOptions<3>: ConvTranspose3d
}

impl LayerOp {
    /// The op that its products belong to.
    pub(crate) fn product_op(&self) -> ProductOp {
        match self {
            Self::Linear => ProductOp::Linear,
            _ => ProductOp::Convolution,
        }
    }

    /// The axis of the channels of an output of this rank.
    pub fn channel_axis(&self, rank: usize) -> usize {
        match self {
            Self::Linear => rank - 1,
            _ => 1,
        }
    }

    /// The layer's output, by the wrapped backend.
    pub fn output<B: MxKernels>(
        &self,
        x: FloatTensor<B>,
        weight: FloatTensor<B>,
        bias: Option<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        match self.clone() {
            Self::Linear => B::linear(x, weight, bias),
            Self::Conv1d(options) => B::conv1d(x, weight, bias, options),
            Self::Conv2d(options) => B::conv2d(x, weight, bias, options),
            Self::Conv3d(options) => B::conv3d(x, weight, bias, options),
            Self::ConvTranspose1d(options) => B::conv_transpose1d(x, weight, bias, options),
            Self::ConvTranspose2d(options) => B::conv_transpose2d(x, weight, bias, options),
            Self::ConvTranspose3d(options) => B::conv_transpose3d(x, weight, bias, options),
        }
    }

    /// The gradients of weight and bias, by the wrapped backend.
    pub fn gradients<B: MxKernels>(
        &self,
        x: FloatTensor<B>,
        weight: FloatTensor<B>,
        bias: Option<FloatTensor<B>>,
        output: FloatTensor<B>,
    ) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
        macro_rules! convolution {
            ($weight_backward:ident, $bias_backward:ident, $options:expr) => {{
                let of_bias = bias.map(|bias| B::$bias_backward(x.clone(), bias, output.clone()));
                (B::$weight_backward(x, weight, output, $options), of_bias)
            }};
        }
        match self.clone() {
            Self::Linear => {
                let of_bias = bias.map(|_| B::linear_bias_backward(output.clone()));
                (B::linear_weight_backward(x, output), of_bias)
            }
            Self::Conv1d(options) => {
                convolution!(conv1d_weight_backward, conv1d_bias_backward, options)
            }
            Self::Conv2d(options) => {
                convolution!(conv2d_weight_backward, conv2d_bias_backward, options)
            }
            Self::Conv3d(options) => {
                convolution!(conv3d_weight_backward, conv3d_bias_backward, options)
            }
            Self::ConvTranspose1d(options) => convolution!(
                conv_transpose1d_weight_backward,
                conv_transpose1d_bias_backward,
                options
            ),
            Self::ConvTranspose2d(options) => convolution!(
                conv_transpose2d_weight_backward,
                conv_transpose2d_bias_backward,
                options
            ),
            Self::ConvTranspose3d(options) => convolution!(
                conv_transpose3d_weight_backward,
                conv_transpose3d_bias_backward,
                options
            ),
        }
    }
}
