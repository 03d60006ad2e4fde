//! A residual MLP.

use burn::{
    nn::{Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig},
    prelude::*,
    tensor::backend::AutodiffBackend,
};
use clap::Args;

use crate::support::{
    Architecture,
    digits::{CLASSES, Classifier, Digits, PIXELS},
    whole_number,
};

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

#[derive(Config, Debug, Args)]
pub(crate) struct FfnConfig {
    /// Width of the residual stream; the blocks expand it fourfold
    #[arg(long, default_value_t = 128, allow_negative_numbers = true)]
    #[arg(value_parser = whole_number::<usize>(1..=4096))]
    hidden: usize,
}

impl FfnConfig {
    fn init<B: Backend>(&self, device: &B::Device) -> Ffn<B> {
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

impl Architecture for FfnConfig {
    type Task = Digits;
    type Model<B: AutodiffBackend> = Ffn<B>;

    const NAME: &'static str = "ffn";
    const ABOUT: &'static str = "Train a residual MLP on handwritten digits in FP32, then in \
        Microscaling (MX) formats, and compare";
    const TITLE: &'static str = "Residual MLP on 8×8 digits: training loss";
    const EPOCHS: &'static str = "20";
    const LR: &'static str = "5e-4";
    const FIRST_AND_LAST: [&'static str; 2] = ["embed", "head"];

    fn init<B: AutodiffBackend>(&self, device: &B::Device) -> Ffn<B> {
        FfnConfig::init(self, device)
    }
}
