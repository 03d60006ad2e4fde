//! How well a model predicts a text.

use burn::prelude::*;
use burn_mx::module::MxTensorOps;

use crate::{Cache, Decoder, Stored, text::Tokens};

/// How well a model predicts a text.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Score {
    /// The mean loss in nats a token.
    pub loss: f64,
    /// e to the power of the loss.
    pub perplexity: f64,
    /// Bits of the predicted tokens for a character of the text.
    pub bits_per_character: f64,
}

impl Score {
    /// The score for a loss in nats a token on this text.
    pub fn of(loss: f64, text: &Tokens) -> Self {
        let tokens_per_character = text.len() as f64 / text.characters as f64;
        Self {
            loss,
            perplexity: loss.exp(),
            bits_per_character: loss / core::f64::consts::LN_2 * tokens_per_character,
        }
    }
}

/// The mean loss of a model over batches of windows, in nats a token.
pub fn held_out<B: MxTensorOps>(
    model: &Decoder<B>,
    batches: impl IntoIterator<Item = Tensor<B, 2, Int>>,
) -> f32 {
    let mut sum = 0.0;
    let mut count = 0.0;
    for windows in batches {
        let [windows_here, _] = windows.dims();
        let loss = model.loss(windows).into_scalar().elem::<f64>();
        sum += loss * windows_here as f64;
        count += windows_here as f64;
    }
    (sum / count) as f32
}

/// The mean loss of a model that keeps keys and values as `stored` says. Windows are read in pieces of `piece` tokens.
pub fn held_out_cached<B: MxTensorOps>(
    model: &Decoder<B>,
    batches: impl IntoIterator<Item = Tensor<B, 2, Int>>,
    stored: &Stored<B>,
) -> f32 {
    let mut sum = 0.0;
    let mut count = 0.0;
    for windows in batches {
        let [batch, length] = windows.dims();
        let mut cache = Cache::new(model.model.layers.len(), Some(stored));
        let mut logits = Vec::new();
        let mut start = 0;
        while start < length - 1 {
            // Block by block: a query sees the blocks before its own as they are stored.
            let piece = match stored.positions {
                1 => length - 1,
                positions => positions.min(length - 1 - start),
            };
            let tokens = windows.clone().narrow(1, start, piece);
            logits.push(model.forward_cached(tokens, &mut cache));
            start += piece;
        }
        let targets = windows.narrow(1, 1, length - 1).flatten::<1>(0, 1);
        let logits = Tensor::cat(logits, 1).flatten::<2>(0, 1);
        let loss = burn::nn::loss::CrossEntropyLossConfig::new().init(&targets.device());
        let loss = loss.forward(logits, targets).into_scalar().elem::<f64>();
        sum += loss * batch as f64;
        count += batch as f64;
    }
    (sum / count) as f32
}
