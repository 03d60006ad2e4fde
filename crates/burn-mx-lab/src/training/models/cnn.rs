//! A convolutional network.

use burn::{
    nn::{
        BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d,
        conv::{Conv2d, Conv2dConfig},
        pool::{MaxPool2d, MaxPool2dConfig},
    },
    prelude::*,
    tensor::activation::relu,
};
use serde::Serialize;

use crate::training::tasks::digits::{CLASSES, Classifier, SIDE};

/// Two stages that each halve the picture's sides, then a classifier.
#[derive(Module, Debug)]
pub(crate) struct Cnn<B: Backend> {
    stages: [CnnStage<B>; 2],
    head: Linear<B>,
}

/// `pool(relu(norm(conv(x))))`
#[derive(Module, Debug)]
struct CnnStage<B: Backend> {
    conv: Conv2d<B>,
    norm: BatchNorm<B>,
    pool: MaxPool2d,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct CnnConfig {
    /// Channels of the first stage; the second has twice as many.
    pub(crate) channels: usize,
}

impl CnnConfig {
    pub(crate) fn init<B: Backend>(&self, device: &B::Device) -> Cnn<B> {
        let side = SIDE / 4;
        let channels = 2 * self.channels;
        Cnn {
            stages: [
                CnnStage::new([1, self.channels], device),
                CnnStage::new([self.channels, channels], device),
            ],
            head: LinearConfig::new(channels * side * side, CLASSES).init(device),
        }
    }
}

impl<B: Backend> CnnStage<B> {
    fn new(channels: [usize; 2], device: &B::Device) -> Self {
        Self {
            conv: Conv2dConfig::new(channels, [3, 3])
                .with_padding(PaddingConfig2d::Same)
                .with_bias(false) // the norm has one
                .init(device),
            norm: BatchNormConfig::new(channels[1]).init(device),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let x = self.norm.forward(self.conv.forward(x));
        self.pool.forward(relu(x))
    }
}

impl<B: Backend> Classifier<B> for Cnn<B> {
    fn logits(&self, pixels: Tensor<B, 2>) -> Tensor<B, 2> {
        let pictures = pixels.reshape([-1, 1, SIDE as i32, SIDE as i32]);
        let features = self
            .stages
            .iter()
            .fold(pictures, |x, stage| stage.forward(x));
        self.head.forward(features.flatten(1, 3))
    }
}
