//! What the layers of a model are called with, as a pass through it shows.
//!
//! Layers are known by the labels of their weights, and heard where `MxBackend` computes them: models need no change.

use core::any::Any;
use std::cell::RefCell;

use burn_backend::ops::{ConvOptions, ConvTransposeOptions};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::calibration::Largest;
use super::norms::{Given, Norms};
use crate::alone::alone;
use crate::kernels::{MxKernels, to_f32};
use crate::semantics::Float;
use crate::semantics::conv::Geometry;
use crate::semantics::linear;
use crate::semantics::product::{ForwardOperand, Op};

/// The op of a layer that has a weight.
#[derive(Clone, Debug)]
pub(crate) enum LayerOp {
    Linear,
    Conv1d(ConvOptions<1>),
    Conv2d(ConvOptions<2>),
    Conv3d(ConvOptions<3>),
    ConvTranspose1d(ConvTransposeOptions<1>),
    ConvTranspose2d(ConvTransposeOptions<2>),
    ConvTranspose3d(ConvTransposeOptions<3>),
}

/// The op of a linear layer.
pub(crate) struct Linear;

impl From<Linear> for LayerOp {
    fn from(_: Linear) -> Self {
        Self::Linear
    }
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
    /// As a product is called.
    pub(super) fn op(&self) -> Op {
        match self {
            Self::Linear => Op::Linear,
            _ => Op::Convolution,
        }
    }

    /// The axis of the channels of an output of this rank.
    pub(super) fn channel_axis(&self, rank: usize) -> usize {
        match self {
            Self::Linear => rank - 1,
            _ => 1,
        }
    }

    /// x and weight, for tensors of these ranks.
    pub(super) fn operands(&self, x_rank: usize, weight_rank: usize) -> [ForwardOperand; 2] {
        let convolution = |geometry: Geometry| geometry.forward_operands();
        match self {
            Self::Linear => linear::forward_operands(x_rank, weight_rank),
            Self::Conv1d(options) => convolution(options.into()),
            Self::Conv2d(options) => convolution(options.into()),
            Self::Conv3d(options) => convolution(options.into()),
            Self::ConvTranspose1d(options) => convolution(options.into()),
            Self::ConvTranspose2d(options) => convolution(options.into()),
            Self::ConvTranspose3d(options) => convolution(options.into()),
        }
    }

    /// The layer's output, by the wrapped backend.
    pub(super) fn output<B: MxKernels>(
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
    pub(super) fn gradients<B: MxKernels>(
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

/// What is kept of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Input,
    Output,
}

/// One call of a layer.
#[derive(Clone, Debug)]
pub(super) struct Call<B: MxKernels> {
    pub(super) op: LayerOp,
    /// The input, or the output, in `f32`.
    pub(super) value: FloatTensor<B>,
    pub(super) output: Shape,
    /// Whether the weight is the layer's parameter as it is, and no view of it.
    pub(super) is_plain: bool,
    pub(super) has_bias: bool,
    /// Entries of the first axis that count, from the first on.
    pub(super) samples: usize,
}

/// What a thread listens to.
pub(super) enum Listener<B: MxKernels> {
    /// The labels of all layers, in the order in which they are called first.
    Order(Vec<&'static str>),
    /// The calls of one layer.
    Calls {
        label: &'static str,
        side: Side,
        calls: Vec<Call<B>>,
    },
    /// The batch norms, and the layers that may give them their inputs.
    Norms(Norms<B>),
    /// The largest magnitudes of all layers' inputs.
    Largest(Largest),
}

impl<B: MxKernels> Listener<B> {
    pub(super) fn norms(&mut self) -> Option<&mut Norms<B>> {
        match self {
            Self::Norms(norms) => Some(norms),
            _ => None,
        }
    }
}

thread_local! {
    /// The [`Listener`] of the backend that computes.
    static LISTENER: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// The labels of the weights that `pass` uses, in the order in which it comes by them.
pub(super) fn order<B: MxKernels>(pass: impl FnOnce() + Send) -> Vec<&'static str> {
    match listen::<B>(Listener::Order(Vec::new()), pass) {
        Listener::Order(order) => order,
        _ => unreachable!("a listener stays what it is"),
    }
}

/// One side of the calls of the layer whose weight has this label.
pub(super) fn calls<B: MxKernels>(
    label: &'static str,
    side: Side,
    pass: impl FnOnce() + Send,
) -> Vec<Call<B>> {
    let listener = Listener::Calls {
        label,
        side,
        calls: Vec::new(),
    };
    match listen::<B>(listener, pass) {
        Listener::Calls { calls, .. } => calls,
        _ => unreachable!("a listener stays what it is"),
    }
}

/// The batch norms of a pass, and its layers.
pub(super) fn norms<B: MxKernels>(pass: impl FnOnce() + Send) -> Norms<B> {
    match listen::<B>(Listener::Norms(Norms::new()), pass) {
        Listener::Norms(norms) => norms,
        _ => unreachable!("a listener stays what it is"),
    }
}

/// What the layers of a pass are given at most.
pub(super) fn largest<B: MxKernels>(pass: impl FnOnce() + Send) -> Largest {
    match listen::<B>(Listener::Largest(Largest::default()), pass) {
        Listener::Largest(largest) => largest,
        _ => unreachable!("a listener stays what it is"),
    }
}

fn listen<B: MxKernels>(listener: Listener<B>, pass: impl FnOnce() + Send) -> Listener<B> {
    /// Ends it, also where the pass panics.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            LISTENER.take();
        }
    }
    alone(|| {
        LISTENER.set(Some(Box::new(listener)));
        let end = End;
        pass();
        let listener = LISTENER.take().and_then(|any| any.downcast().ok());
        drop(end);
        *listener.expect("it is the one that was set")
    })
}

/// The output of a layer, by `forward`; a listener hears of it.
pub(crate) fn layer<B: MxKernels, O: Into<LayerOp>>(
    op: impl FnOnce() -> O,
    x: Float<B>,
    weight: Float<B>,
    bias: Option<Float<B>>,
    forward: impl FnOnce(Float<B>, Float<B>, Option<Float<B>>) -> Float<B>,
) -> Float<B> {
    let label = weight.meta.label;
    let Some((label, heard)) = label.and_then(|label| Some((label, heard::<B>(label)?))) else {
        return forward(x, weight, bias);
    };
    // Views keep no copies.
    let is_plain = weight.kept.is_some();
    let has_bias = bias.is_some();
    let samples = x.shape()[0];
    let weight_rank = weight.rank();
    let input = (heard == Some(Side::Input)).then(|| x.inner.clone());
    let output = forward(x, weight, bias);
    with_listener::<B, _>(|listener| match listener {
        Listener::Order(order) => order.push(label),
        Listener::Calls { calls, .. } => calls.push(Call {
            op: op().into(),
            value: to_f32::<B>(input.unwrap_or_else(|| output.inner.clone())),
            output: output.shape(),
            is_plain,
            has_bias,
            samples,
        }),
        Listener::Norms(norms) => norms.layers.push(Given {
            label,
            op: op().into(),
            output: output.inner.clone(),
            is_plain,
            has_bias,
        }),
        Listener::Largest(largest) => {
            if let Some(input) = input {
                largest.hear::<B>(label, &op().into(), input, weight_rank);
            }
        }
    });
    output
}

/// Whether a listener wants to hear of this layer now, and which side of it to keep.
fn heard<B: MxKernels>(layer: &'static str) -> Option<Option<Side>> {
    let wants = |listener: &mut Listener<B>| match listener {
        Listener::Order(order) => (!order.contains(&layer)).then_some(None),
        Listener::Calls { label, side, .. } => (*label == layer).then_some(Some(*side)),
        Listener::Norms(_) => Some(None),
        Listener::Largest(_) => Some(Some(Side::Input)),
    };
    with_listener::<B, _>(wants).flatten()
}

pub(super) fn with_listener<B: MxKernels, R>(
    work: impl FnOnce(&mut Listener<B>) -> R,
) -> Option<R> {
    LISTENER.with_borrow_mut(|listener| listener.as_mut()?.downcast_mut().map(work))
}
