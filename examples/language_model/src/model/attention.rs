//! Grouped-query attention.

use burn::nn::{RmsNorm, RmsNormConfig};
use burn::prelude::*;
use burn::tensor::{Bool, module::attention, ops::AttentionModuleOptions};
use burn_mx::module::MxTensorOps;

use super::cache::Kept;
use super::rotary::Rotation;
use super::{Projection, projection};
use crate::DecoderConfig;

/// Attention whose heads of queries share heads of keys and values.
#[derive(Module, Debug)]
pub struct Attention<B: Backend> {
    /// `[width, heads · head]`
    pub q_proj: Projection<B>,
    /// `[width, kv_heads · head]`
    pub k_proj: Projection<B>,
    /// `[width, kv_heads · head]`
    pub v_proj: Projection<B>,
    /// `[heads · head, width]`
    pub o_proj: Projection<B>,
    /// Qwen3's norm of the queries of a head.
    pub q_norm: Option<RmsNorm<B>>,
    /// Qwen3's norm of the keys of a head.
    pub k_norm: Option<RmsNorm<B>>,
    head: usize,
    window: Option<usize>,
}

impl<B: Backend> Attention<B> {
    pub(super) fn new(config: &DecoderConfig, window: Option<usize>, device: &B::Device) -> Self {
        let [queries, keys] = [config.heads, config.kv_heads].map(|heads| heads * config.head);
        let norm = || {
            let norm = RmsNormConfig::new(config.head).with_epsilon(config.epsilon);
            config.has_qk_norm.then(|| norm.init(device))
        };
        let (width, bias) = (config.width, config.has_qkv_bias);
        Self {
            q_proj: projection([width, queries], bias, device),
            k_proj: projection([width, keys], bias, device),
            v_proj: projection([width, keys], bias, device),
            o_proj: projection([queries, width], config.has_output_bias, device),
            q_norm: norm(),
            k_norm: norm(),
            head: config.head,
            window,
        }
    }
}

impl<B: MxTensorOps> Attention<B> {
    /// `x` is `[batch, length, width]`. With a cache its positions follow those that are kept.
    pub(super) fn forward(
        &self,
        x: Tensor<B, 3>,
        rotation: &Rotation<B>,
        kept: Option<&mut Kept<B>>,
    ) -> Tensor<B, 3> {
        let [batch, length, _] = x.dims();
        let split = |x: Tensor<B, 3>| {
            let [_, _, features] = x.dims();
            x.reshape([batch, length, features / self.head, self.head])
        };
        let normed = |x: Tensor<B, 4>, norm: &Option<RmsNorm<B>>| match norm {
            Some(norm) => norm.forward(x),
            None => x,
        };
        let q = normed(split(self.q_proj.forward(x.clone())), &self.q_norm);
        let k = normed(split(self.k_proj.forward(x.clone())), &self.k_norm);
        let [q, k] = [q, k].map(|x| rotation.apply(x).swap_dims(1, 2));
        let v = split(self.v_proj.forward(x)).swap_dims(1, 2);
        let mut keys_and_values = [k, v];
        if let Some(kept) = kept {
            keys_and_values = kept.extended(keys_and_values);
        }
        let [_, count, _, _] = q.dims();
        let [k, v] = keys_and_values.map(|x| repeated(x, count));
        let mask = self.mask(&q, &k);
        // Queries are the last of the keys' positions.
        let causal = AttentionModuleOptions {
            is_causal: true,
            ..Default::default()
        };
        let y = attention(q, k, v, mask, None, causal);
        let y = y.swap_dims(1, 2);
        self.o_proj
            .forward(y.reshape([batch as i32, length as i32, -1]))
    }

    /// True where a key is too old for a query. `None` where none is.
    fn mask(&self, q: &Tensor<B, 4>, k: &Tensor<B, 4>) -> Option<Tensor<B, 4, Bool>> {
        let [batch, heads, queries, _] = q.dims();
        let [_, _, keys, _] = k.dims();
        let window = self.window.filter(|window| keys > *window)?;
        let oldest = |query: usize| (keys - queries + query + 1).saturating_sub(window);
        let rows = (0..queries).flat_map(|query| (0..keys).map(move |key| key < oldest(query)));
        let rows: Vec<bool> = rows.collect();
        let rows = TensorData::new(rows, [1, 1, queries, keys]);
        let mask = Tensor::<B, 4, Bool>::from_data(rows, &q.device());
        Some(mask.expand([batch, heads, queries, keys]))
    }
}

/// Each head of keys or values `[batch, kv_heads, length, head]` as often as it takes for `heads` heads.
fn repeated<B: Backend>(x: Tensor<B, 4>, heads: usize) -> Tensor<B, 4> {
    let [batch, kv_heads, length, head] = x.dims();
    if kv_heads == heads {
        return x;
    }
    let groups = heads / kv_heads;
    let x = x.reshape([batch, kv_heads, 1, length, head]);
    let x = x.expand([batch, kv_heads, groups, length, head]);
    x.reshape([batch, heads, length, head])
}
