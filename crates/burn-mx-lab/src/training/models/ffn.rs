//! A residual MLP.

use burn::{
    nn::{Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig},
    prelude::*,
};
use serde::Serialize;

use crate::training::tasks::digits::{CLASSES, Classifier, PIXELS};

/// Pixels → hidden, two residual blocks, hidden → classes.
#[derive(Module, Debug)]
pub(crate) struct Ffn<B: Backend> {
    embed: Linear<B>,
    blocks: [ResidualBlock<B>; 2],
    head: Linear<B>,
}

/// `x + contract(gelu(expand(norm(x))))`
#[derive(Module, Debug)]
struct ResidualBlock<B: Backend> {
    norm: LayerNorm<B>,
    expand: Linear<B>,
    gelu: Gelu,
    contract: Linear<B>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct FfnConfig {
    /// Width of the residual stream; the blocks expand it fourfold.
    pub(crate) hidden: usize,
}

impl FfnConfig {
    pub(crate) fn init<B: Backend>(&self, device: &B::Device) -> Ffn<B> {
        Ffn {
            embed: LinearConfig::new(PIXELS, self.hidden).init(device),
            blocks: [self.block(device), self.block(device)],
            head: LinearConfig::new(self.hidden, CLASSES).init(device),
        }
    }

    fn block<B: Backend>(&self, device: &B::Device) -> ResidualBlock<B> {
        ResidualBlock {
            norm: LayerNormConfig::new(self.hidden).init(device),
            expand: LinearConfig::new(self.hidden, 4 * self.hidden).init(device),
            gelu: Gelu::new(),
            contract: LinearConfig::new(4 * self.hidden, self.hidden).init(device),
        }
    }
}

impl<B: Backend> ResidualBlock<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let hidden = self
            .gelu
            .forward(self.expand.forward(self.norm.forward(x.clone())));
        x + self.contract.forward(hidden)
    }
}

impl<B: Backend> Classifier<B> for Ffn<B> {
    fn logits(&self, pixels: Tensor<B, 2>) -> Tensor<B, 2> {
        let embedded = self.embed.forward(pixels);
        let hidden = self
            .blocks
            .iter()
            .fold(embedded, |x, block| block.forward(x));
        self.head.forward(hidden)
    }
}
