//! ResNet-18 (He et al., "Deep Residual Learning for Image Recognition", 2016, table 1).

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;

/// Length and width of an image of three channels.
const SIZE: usize = 64;
/// Numbers in an image.
pub(super) const INPUT: usize = 3 * SIZE * SIZE;
pub(super) const CLASSES: usize = 10;

/// A convolution without bias, and batch norm.
#[derive(Module, Debug)]
struct ConvNorm<B: Backend> {
    conv: Conv2d<B>,
    norm: BatchNorm<B>,
}

impl<B: Backend> ConvNorm<B> {
    fn new(channels: [usize; 2], kernel: usize, stride: usize, device: &B::Device) -> Self {
        let padding = kernel / 2;
        Self {
            conv: Conv2dConfig::new(channels, [kernel; 2])
                .with_stride([stride; 2])
                .with_padding(PaddingConfig2d::Explicit(
                    padding, padding, padding, padding,
                ))
                .with_bias(false)
                .init(device),
            norm: BatchNormConfig::new(channels[1]).init(device),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        self.norm.forward(self.conv.forward(x))
    }
}

/// Two convolutions and a residual, which has its own convolution where sizes change.
#[derive(Module, Debug)]
struct Block<B: Backend> {
    first: ConvNorm<B>,
    second: ConvNorm<B>,
    shortcut: Option<ConvNorm<B>>,
}

impl<B: Backend> Block<B> {
    fn new(channels: [usize; 2], stride: usize, device: &B::Device) -> Self {
        let [input, output] = channels;
        let changes = stride != 1 || input != output;
        Self {
            first: ConvNorm::new(channels, 3, stride, device),
            second: ConvNorm::new([output; 2], 3, 1, device),
            shortcut: changes.then(|| ConvNorm::new(channels, 1, stride, device)),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let inner = self.second.forward(relu(self.first.forward(x.clone())));
        let residual = match &self.shortcut {
            Some(shortcut) => shortcut.forward(x),
            None => x,
        };
        relu(inner + residual)
    }
}

#[derive(Module, Debug)]
pub(super) struct ResNet18<B: Backend> {
    stem: ConvNorm<B>,
    pool: MaxPool2d,
    blocks: Vec<Block<B>>,
    average: AdaptiveAvgPool2d,
    classes: Linear<B>,
}

impl<B: Backend> ResNet18<B> {
    pub(super) fn new(device: &B::Device) -> Self {
        let stages = [
            ([64, 64], 1),
            ([64, 128], 2),
            ([128, 256], 2),
            ([256, 512], 2),
        ];
        let blocks = stages.into_iter().flat_map(|(channels, stride)| {
            let [_, output] = channels;
            [(channels, stride), ([output; 2], 1)]
        });
        Self {
            stem: ConvNorm::new([3, 64], 7, 2, device),
            pool: MaxPool2dConfig::new([3, 3])
                .with_strides([2, 2])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .init(),
            blocks: blocks
                .map(|(channels, stride)| Block::new(channels, stride, device))
                .collect(),
            average: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            classes: LinearConfig::new(512, CLASSES).init(device),
        }
    }

    /// Class scores of images that are [`INPUT`] numbers each.
    pub(super) fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let [batch, _] = x.dims();
        let x = x.reshape([batch, 3, SIZE, SIZE]);
        let x = self.pool.forward(relu(self.stem.forward(x)));
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        self.classes.forward(self.average.forward(x).flatten(1, 3))
    }
}
