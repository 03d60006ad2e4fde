//! Scaled dot-product attention: two products of activations with a softmax between them.
//!
//! query [B, H, Q, D], key [B, H, K, D], value [B, H, K, E].

pub(crate) mod formatted;
mod points;
pub(crate) mod scope;

use burn_backend::ops::AttentionModuleOptions;
use burn_backend::tensor::{BoolTensor, FloatTensor};
use burn_backend::{Backend, Shape, TensorMetadata, get_device_settings};

/// The axis of the keys in the scores [B, H, Q, K].
const KEYS: usize = 3;

/// `softmax(scale · q kᵀ) v`, composed of the ops of `B`: the same on both sides of the decorator. A query to which
/// every key is masked attends to nothing and gives 0. Scores of −Inf that no mask has made, as by an overflow, give what softmax
/// makes of them: NaN where a query has no others.
///
/// Burn's own fallback writes the softmax out, which is not the reference's formula.
pub(crate) fn composed<B: Backend>(
    query: FloatTensor<B>,
    key: FloatTensor<B>,
    value: FloatTensor<B>,
    mask: Option<BoolTensor<B>>,
    bias: Option<FloatTensor<B>>,
    options: AttentionModuleOptions,
) -> FloatTensor<B> {
    let features = query.shape()[3];
    let scale = options
        .scale
        .unwrap_or_else(|| 1.0 / (features as f64).sqrt());
    let mut scores = B::float_matmul(query, B::float_transpose(key));
    scores = B::float_mul_scalar(scores, scale.into());
    if let Some(cap) = options.softcap {
        assert!(
            cap > 0.0,
            "burn-mx: attention: `softcap` is {cap}; allowed: a positive number"
        );
        let capped = B::float_tanh(B::float_div_scalar(scores, cap.into()));
        scores = B::float_mul_scalar(capped, cap.into());
    }
    // The causal mask alone leaves each query its own key, unless there are more queries than keys.
    let [queries, keys] = [2, KEYS].map(|axis| scores.shape()[axis]);
    let may_mask_all = mask.is_some() || bias.is_some() || options.is_causal && queries > keys;
    let causal = options.is_causal.then(|| causal_mask::<B>(&scores));
    for mask in [mask, causal].into_iter().flatten() {
        scores = B::float_mask_fill(scores, mask, f32::NEG_INFINITY.into());
    }
    if let Some(bias) = bias {
        scores = B::float_add(scores, bias);
    }
    let weights = match may_mask_all {
        true => softmax_of_masked::<B>(scores),
        false => B::softmax(scores, KEYS),
    };
    B::float_matmul(weights, value)
}

/// Softmax along the keys, 0 where all of them are masked.
fn softmax_of_masked<B: Backend>(scores: FloatTensor<B>) -> FloatTensor<B> {
    let bool_dtype = get_device_settings::<B>(&B::float_device(&scores)).bool_dtype;
    let max = B::float_max_dim(B::float_detach(scores.clone()), KEYS);
    let all_masked = B::float_equal_elem(max, f32::NEG_INFINITY.into(), bool_dtype);
    let all_masked = B::bool_expand(all_masked, scores.shape());
    let scores = B::float_mask_fill(scores, all_masked.clone(), 0.0.into());
    B::float_mask_fill(B::softmax(scores, KEYS), all_masked, 0.0.into())
}

/// True where a key comes after its query; the last query sees all keys.
fn causal_mask<B: Backend>(scores: &FloatTensor<B>) -> BoolTensor<B> {
    let device = B::float_device(scores);
    let settings = get_device_settings::<B>(&device);
    let shape = scores.shape();
    let (queries, keys) = (shape[2], shape[3]);
    let positions = |from: i64, count: usize, shape: [usize; 4]| {
        let range = B::int_arange(from..from + count as i64, &device, settings.int_dtype);
        B::int_reshape(range, Shape::new(shape))
    };
    let query = positions(keys as i64 - queries as i64, queries, [1, 1, queries, 1]);
    let key = positions(0, keys, [1, 1, 1, keys]);
    let key = B::int_expand(key, Shape::new([1, 1, queries, keys]));
    let query = B::int_expand(query, Shape::new([1, 1, queries, keys]));
    B::bool_expand(B::int_greater(key, query, settings.bool_dtype), shape)
}
