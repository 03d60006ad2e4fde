//! A causal transformer of Burn's own modules.

use burn::{
    nn::{
        Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig,
        attention::generate_autoregressive_mask,
        transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput},
    },
    prelude::*,
    tensor::backend::AutodiffBackend,
};
use clap::Args;

use crate::support::{
    Architecture,
    addition::{Addition, CONTEXT, Language, TOKENS},
    whole_number,
};

/// Embeddings, causal self-attention blocks with the norm first, a norm, logits.
#[derive(Module, Debug)]
pub(crate) struct Adder<B: Backend> {
    tokens: Embedding<B>,
    positions: Embedding<B>,
    blocks: TransformerEncoder<B>,
    norm: LayerNorm<B>,
    head: Linear<B>,
}

#[derive(Config, Debug, Args)]
pub(crate) struct AdderConfig {
    /// Width of the residual stream; the blocks expand it fourfold
    #[arg(long, default_value_t = 64, allow_negative_numbers = true)]
    #[arg(value_parser = whole_number::<usize>(HEADS..=1024))]
    hidden: usize,

    /// Transformer blocks
    #[arg(long, default_value_t = 2, allow_negative_numbers = true)]
    #[arg(value_parser = whole_number::<usize>(1..=16))]
    blocks: usize,
}

const HEADS: usize = 4;

impl AdderConfig {
    fn init<B: Backend>(&self, device: &B::Device) -> Adder<B> {
        let blocks =
            TransformerEncoderConfig::new(self.hidden, 4 * self.hidden, HEADS, self.blocks)
                .with_dropout(0.0)
                .with_norm_first(true);
        Adder {
            tokens: EmbeddingConfig::new(TOKENS, self.hidden).init(device),
            positions: EmbeddingConfig::new(CONTEXT, self.hidden).init(device),
            blocks: blocks.init(device),
            norm: LayerNormConfig::new(self.hidden).init(device),
            head: LinearConfig::new(self.hidden, TOKENS).init(device),
        }
    }
}

impl<B: Backend> Language<B> for Adder<B> {
    fn next_token(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let device = tokens.device();
        let [batch, length] = tokens.dims();
        let positions = Tensor::arange(0..length as i64, &device).unsqueeze();
        let embedded = self.tokens.forward(tokens) + self.positions.forward(positions);
        let mask = generate_autoregressive_mask(batch, length, &device);
        let input = TransformerEncoderInput::new(embedded).mask_attn(mask);
        let hidden = self.blocks.forward(input);
        self.head.forward(self.norm.forward(hidden))
    }
}

impl Architecture for AdderConfig {
    type Task = Addition;
    type Model<B: AutodiffBackend> = Adder<B>;

    const NAME: &'static str = "transformer";
    const ABOUT: &'static str = "Train a causal transformer to add numbers in FP32, then in \
        Microscaling (MX) formats, and compare";
    const TITLE: &'static str = "Transformer that adds two numbers: training loss";
    const EPOCHS: &'static str = "15";
    const LR: &'static str = "2e-3";
    const FIRST_AND_LAST: [&'static str; 2] = ["blocks.layers.0", "head"];

    fn init<B: AutodiffBackend>(&self, device: &B::Device) -> Adder<B> {
        AdderConfig::init(self, device)
    }
}
