//! all-MiniLM-L6-v2: sentences to unit vectors, which are close where the sentences mean the same.

use burn::{
    module::Module,
    nn::{
        Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig,
        transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput},
    },
    prelude::*,
};

const WIDTH: usize = 384;
const TOKENS: usize = 30_522;
const POSITIONS: usize = 512;
const EPSILON: f64 = 1e-12;

/// A BERT of six layers ([Wang et al. 2020](https://arxiv.org/abs/2002.10957)), with the mean of its outputs as the vector
/// ([Reimers and Gurevych 2019](https://arxiv.org/abs/1908.10084)).
#[derive(Module, Debug)]
pub(crate) struct MiniLm<B: Backend> {
    tokens: Embedding<B>,
    positions: Embedding<B>,
    /// The types of first and second sentences; this program has only first ones.
    kinds: Embedding<B>,
    norm: LayerNorm<B>,
    encoder: TransformerEncoder<B>,
}

/// Sentences as tokens, each as long as the longest.
#[derive(Debug, Clone)]
pub(crate) struct Sentences<B: Backend> {
    /// `[N, length]`
    pub(crate) ids: Tensor<B, 2, Int>,
    /// 1 where there is a token, 0 where there is padding.
    pub(crate) mask: Tensor<B, 2, Int>,
}

impl<B: Backend> MiniLm<B> {
    pub(crate) fn new(device: &B::Device) -> Self {
        Self {
            tokens: EmbeddingConfig::new(TOKENS, WIDTH).init(device),
            positions: EmbeddingConfig::new(POSITIONS, WIDTH).init(device),
            kinds: EmbeddingConfig::new(2, WIDTH).init(device),
            norm: LayerNormConfig::new(WIDTH)
                .with_epsilon(EPSILON)
                .init(device),
            encoder: TransformerEncoderConfig::new(WIDTH, 4 * WIDTH, 12, 6)
                .with_dropout(0.0)
                .with_layer_norm_eps(EPSILON)
                .init(device),
        }
    }

    /// Unit vectors `[N, 384]`.
    pub(crate) fn forward(&self, sentences: &Sentences<B>) -> Tensor<B, 2> {
        let Sentences { ids, mask } = sentences;
        let [_, length] = ids.dims();
        let positions = Tensor::arange(0..length as i64, &ids.device()).unsqueeze::<2>();
        let x = self.tokens.forward(ids.clone())
            + self.positions.forward(positions)
            + self.kinds.forward(ids.zeros_like());
        let input = TransformerEncoderInput::new(self.norm.forward(x));
        let is_padding = mask.clone().equal_elem(0);
        let output = self.encoder.forward(input.mask_pad(is_padding));
        let mask = mask.clone().float().unsqueeze_dim::<3>(2);
        let mean = (output * mask.clone()).sum_dim(1) / mask.sum_dim(1);
        let mean = mean.squeeze_dim::<2>(1);
        let norm = mean.clone().square().sum_dim(1).sqrt();
        mean / norm
    }
}
