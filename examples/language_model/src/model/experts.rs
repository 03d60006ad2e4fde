//! A mixture of experts, as in Mixtral ([2401.04088](https://arxiv.org/abs/2401.04088)).

use burn::nn::Linear;
use burn::prelude::*;
use burn::tensor::IndexingUpdateOp;
use burn::tensor::activation::{silu, softmax};
use burn_mx::module::{MxTensorOps, full_precision};

use super::{DecoderConfig, Projection, linear, projection};

/// Several feed-forward networks, of which a router chooses some for each token.
#[derive(Module, Debug)]
pub struct SparseMoe<B: Backend> {
    /// The router: `[width, experts]`.
    pub gate: Linear<B>,
    /// The networks.
    pub experts: Vec<Expert<B>>,
    /// Networks that compute a token.
    pub(super) per_token: usize,
    /// The factor of the balance of loads in the training loss.
    pub balance: f64,
}

/// `w2(silu(w1(x)) · w3(x))`.
#[derive(Module, Debug)]
pub struct Expert<B: Backend> {
    /// `[width, hidden]`
    pub w1: Projection<B>,
    /// `[hidden, width]`
    pub w2: Projection<B>,
    /// `[width, hidden]`
    pub w3: Projection<B>,
}

impl<B: Backend> SparseMoe<B> {
    pub(super) fn new(config: &DecoderConfig, experts: &Experts, device: &B::Device) -> Self {
        let expert = |_| Expert {
            w1: projection([config.width, config.hidden], false, device),
            w2: projection([config.hidden, config.width], false, device),
            w3: projection([config.width, config.hidden], false, device),
        };
        Self {
            gate: linear([config.width, experts.count], false, device),
            experts: (0..experts.count).map(expert).collect(),
            per_token: experts.per_token,
            balance: experts.balance,
        }
    }
}

impl<B: MxTensorOps> SparseMoe<B> {
    /// The sum of the chosen networks' outputs, weighted by the softmax of their routers' logits. An expert that no token chose
    /// computes nothing, and gets no gradient. The second result is the router's logits `[batch · length, experts]`.
    pub(super) fn forward(&self, x: Tensor<B, 3>) -> (Tensor<B, 3>, Tensor<B, 2>) {
        let [batch, length, width] = x.dims();
        let device = x.device();
        let x = x.reshape([batch * length, width]);
        let routed = self.gate.forward(x.clone());
        let (logits, chosen) = routed.clone().topk_with_indices(self.per_token, 1);
        let weights = softmax(logits, 1).reshape([batch * length * self.per_token, 1]);
        let chosen: Vec<i64> = chosen.into_data().iter().collect();
        let mut sum = x.zeros_like();
        for (number, expert) in self.experts.iter().enumerate() {
            let places = chosen.iter().zip(0_i64..);
            let places = places.filter(|(expert, _)| **expert == number as i64);
            let places: Vec<i64> = places.map(|(_, place)| place).collect();
            if places.is_empty() {
                continue;
            }
            let indices = |all: Vec<i64>| Tensor::<B, 1, Int>::from_data(&all[..], &device);
            let tokens = (places.iter()).map(|place| place / self.per_token as i64);
            let tokens = indices(tokens.collect());
            let output = expert.forward(x.clone().select(0, tokens.clone()));
            let weighted = output * weights.clone().select(0, indices(places));
            sum = sum.select_assign(0, tokens, weighted, IndexingUpdateOp::Add);
        }
        (sum.reshape([batch, length, width]), routed)
    }
}

impl<B: MxTensorOps> Expert<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.w2
            .forward(silu(self.w1.forward(x.clone())) * self.w3.forward(x))
    }
}

/// The sizes of a mixture of experts.
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// Feed-forward networks of a layer.
    pub count: usize,
    /// Networks that compute a token.
    pub per_token: usize,
    /// The factor of [`balance_loss`] in the training loss: `router_aux_loss_coef` of `config.json` where `output_router_logits` is true,
    /// else 0.
    pub balance: f64,
}

/// The balance of loads over experts, by the logits `[tokens, experts]` of each layer's router. The balance is the number of experts times
/// the sum over experts of two factors: the share of tokens that chose the expert, and the mean of the expert's probability. A token chooses
/// `per_token` experts. Equal loads give `per_token`, the least number where probabilities follow loads. The shares have no gradient (Switch Transformer,
/// [2101.03961](https://arxiv.org/abs/2101.03961), (4) to (6); `load_balancing_loss_func` of transformers). All is in float32.
///
/// # Panics
///
/// If `logits` is empty.
pub fn balance_loss<B: MxTensorOps>(logits: Vec<Tensor<B, 2>>, per_token: usize) -> Tensor<B, 1> {
    let logits = full_precision(Tensor::cat(logits, 0));
    let [tokens, experts] = logits.dims();
    let (_, chosen) = logits.clone().topk_with_indices(per_token, 1);
    let mut counts = vec![0_u32; experts];
    let chosen: Vec<i64> = chosen.into_data().iter().collect();
    for expert in chosen {
        counts[expert as usize] += 1;
    }
    let share = |count: u32| count as f32 / tokens as f32;
    let shares: Vec<f32> = counts.into_iter().map(share).collect();
    let shares = Tensor::<B, 1>::from_floats(&shares[..], &logits.device());
    let probabilities = softmax(logits, 1).mean_dim(0).squeeze_dim::<1>(0);
    (probabilities * full_precision(shares)).sum() * experts as f64
}
