//! EfficientNet-Lite0: photographs to the logits of ImageNet's 1,000 classes.

use burn::{
    module::Module,
    nn::{
        BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d,
        conv::{Conv2d, Conv2dConfig},
        pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig},
    },
    prelude::*,
};

/// Of every batch norm: TensorFlow's default.
pub(crate) const EPSILON: f64 = 1e-3;

/// Of its photographs.
const SIDE: usize = 224;
const CLASSES: usize = 1000;

/// Kernel, stride, factor by which channels are expanded, channels in, channels out, blocks.
const STAGES: [[usize; 6]; 7] = [
    [3, 1, 1, 32, 16, 1],
    [3, 2, 6, 16, 24, 2],
    [5, 2, 6, 24, 40, 2],
    [3, 2, 6, 40, 80, 3],
    [5, 1, 6, 80, 112, 3],
    [5, 2, 6, 112, 192, 4],
    [3, 1, 6, 192, 320, 1],
];

/// [EfficientNet-Lite0](https://blog.tensorflow.org/2020/03/higher-accuracy-on-vision-models-with-efficientnet-lite.html):
/// EfficientNet without squeeze and excitation, with ReLU6 throughout.
#[derive(Module, Debug)]
pub(crate) struct EfficientNet<B: Backend> {
    stem: ConvNorm<B>,
    blocks: Vec<InvertedResidual<B>>,
    top: ConvNorm<B>,
    pool: AdaptiveAvgPool2d,
    head: Linear<B>,
}

/// An inverted residual block: channels are expanded, each is filtered alone, and they are projected.
#[derive(Module, Debug)]
struct InvertedResidual<B: Backend> {
    expand: Option<ConvNorm<B>>,
    filter: ConvNorm<B>,
    project: ConvNorm<B>,
    /// Whether its input is added to its output.
    is_residual: bool,
}

/// A convolution and its norm.
#[derive(Module, Debug)]
struct ConvNorm<B: Backend> {
    conv: Conv2d<B>,
    norm: BatchNorm<B>,
}

impl<B: Backend> EfficientNet<B> {
    pub(crate) fn new(device: &B::Device) -> Self {
        let stem = ConvNorm::new([3, 32], [3, 2, 1], SIDE, device);
        let mut side = SIDE / 2;
        let mut blocks = Vec::new();
        for [
            kernel,
            first_stride,
            expansion,
            first_channels,
            channels,
            count,
        ] in STAGES
        {
            for at in 0..count {
                let (stride, channels_in) = match at {
                    0 => (first_stride, first_channels),
                    _ => (1, channels),
                };
                let expanded = channels_in * expansion;
                let new = |channels, of| ConvNorm::new(channels, of, side, device);
                blocks.push(InvertedResidual {
                    expand: (expansion > 1).then(|| new([channels_in, expanded], [1, 1, 1])),
                    filter: new([expanded; 2], [kernel, stride, expanded]),
                    project: new([expanded, channels], [1, 1, 1]),
                    is_residual: stride == 1 && channels_in == channels,
                });
                side /= stride;
            }
        }
        Self {
            stem,
            blocks,
            top: ConvNorm::new([320, 1280], [1, 1, 1], side, device),
            pool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            head: LinearConfig::new(1280, CLASSES).init(device),
        }
    }

    /// `[N, 3, 224, 224]` to logits `[N, 1000]`.
    pub(crate) fn forward(&self, photos: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = relu6(self.stem.forward(photos));
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        let x = relu6(self.top.forward(x));
        self.head.forward(self.pool.forward(x).flatten(1, 3))
    }
}

impl<B: Backend> InvertedResidual<B> {
    fn forward(&self, input: Tensor<B, 4>) -> Tensor<B, 4> {
        let x = match &self.expand {
            Some(expand) => relu6(expand.forward(input.clone())),
            None => input.clone(),
        };
        let x = relu6(self.filter.forward(x));
        let x = self.project.forward(x);
        match self.is_residual {
            true => x + input,
            false => x,
        }
    }
}

impl<B: Backend> ConvNorm<B> {
    /// With TensorFlow's padding for an input of this side, which has its odd row and column at the end.
    fn new(
        channels: [usize; 2],
        [kernel, stride, groups]: [usize; 3],
        side: usize,
        device: &B::Device,
    ) -> Self {
        let needed = (side.div_ceil(stride) - 1) * stride + kernel;
        let padding = needed.saturating_sub(side);
        let (before, after) = (padding / 2, padding.div_ceil(2));
        Self {
            conv: Conv2dConfig::new(channels, [kernel; 2])
                .with_stride([stride; 2])
                .with_groups(groups)
                .with_padding(PaddingConfig2d::Explicit(before, before, after, after))
                .with_bias(false) // the norm has one
                .init(device),
            norm: BatchNormConfig::new(channels[1])
                .with_epsilon(EPSILON)
                .init(device),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        self.norm.forward(self.conv.forward(x))
    }
}

fn relu6<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    x.clamp(0.0, 6.0)
}
