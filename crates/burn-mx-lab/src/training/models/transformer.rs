//! A causal transformer of Burn's own modules.

use burn::{
    nn::{
        Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig,
        attention::generate_autoregressive_mask,
        transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput},
    },
    prelude::*,
};
use serde::Serialize;

use crate::training::tasks::sums::{CONTEXT, Language, TOKENS};

/// Embeddings, causal self-attention blocks with the norm first, a norm, logits.
#[derive(Module, Debug)]
pub(crate) struct Adder<B: Backend> {
    tokens: Embedding<B>,
    positions: Embedding<B>,
    blocks: TransformerEncoder<B>,
    norm: LayerNorm<B>,
    head: Linear<B>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct AdderConfig {
    /// Width of the residual stream; the blocks expand it fourfold.
    pub(crate) hidden: usize,
    /// Transformer blocks.
    pub(crate) blocks: usize,
}

/// Attention heads, which share the width evenly.
pub(crate) const HEADS: usize = 4;

impl AdderConfig {
    pub(crate) fn init<B: Backend>(&self, device: &B::Device) -> Adder<B> {
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
