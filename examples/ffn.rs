//! The main example: an unmodified Burn model learns to read handwritten digits, in FP32 and in MX
//! side by side.
//!
//! ```text
//! cargo run --release --example ffn
//! cargo run --release --example ffn -- --preset mxfp8_e4m3 --preset mxfp4   # a sweep
//! cargo run --release --example ffn -- --no-quantize-backprop               # any field of MxSpecs
//! ```
//!
//! The model stands below; it knows nothing of MX. `support/train.rs` is the training loop, and
//! `support/sweep.rs` the place where `Autodiff<Flex>` becomes `MxAutodiff<Flex>`.

mod support;

use std::process::ExitCode;

use burn::{
    nn::{Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig},
    prelude::*,
    tensor::backend::AutodiffBackend,
};
use clap::{CommandFactory, Parser, error::ErrorKind};
use support::{Architecture, CLASSES, Classifier, PIXELS, SweepArgs};

/// Train a residual MLP on handwritten digits in FP32, then in Microscaling (MX) formats, and
/// compare
#[derive(Parser)]
#[command(name = "ffn")]
struct Cli {
    /// Width of the residual stream; the blocks expand it fourfold
    #[arg(long, default_value_t = 128, allow_negative_numbers = true)]
    #[arg(value_parser = support::whole_number::<usize>(1..=4096))]
    hidden: usize,

    #[command(flatten)]
    sweep: SweepArgs,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let plan = match cli.sweep.plan("ffn") {
        Ok(plan) => plan,
        Err(message) => Cli::command()
            .error(ErrorKind::ValueValidation, message)
            .exit(),
    };
    let ffn = FfnConfig::new(cli.hidden);
    match support::run("Residual MLP on 8×8 digits: training loss", &ffn, plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Pixels → hidden, two residual blocks, hidden → classes.
#[derive(Module, Debug)]
struct Ffn<B: Backend> {
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

#[derive(Config, Debug)]
struct FfnConfig {
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

impl<B: Backend> Ffn<B> {
    /// Pixels `[N, PIXELS]` to logits `[N, CLASSES]`.
    fn forward(&self, pixels: Tensor<B, 2>) -> Tensor<B, 2> {
        let embedded = self.embed.forward(pixels);
        let hidden = self
            .blocks
            .iter()
            .fold(embedded, |x, block| block.forward(x));
        self.head.forward(hidden)
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
        self.forward(pixels)
    }
}

impl Architecture for FfnConfig {
    type Model<B: AutodiffBackend> = Ffn<B>;

    fn init<B: AutodiffBackend>(&self, device: &B::Device) -> Ffn<B> {
        FfnConfig::init(self, device)
    }
}
