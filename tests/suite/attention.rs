//! Attention: two products of activations and a softmax between them, forward and backward, against a composition by
//! hand; and Burn's module against its op.

use burn::backend::flex::FlexDevice;
use burn::backend::{Flex, NdArray};
use burn::nn::attention::{
    MhaInput, MultiHeadAttention, MultiHeadAttentionConfig, generate_autoregressive_mask,
};
use burn::tensor::activation::softmax;
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, Tensor, backend::Backend};
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxKernels, MxSpecs};

use super::arrays::*;
use crate::support::*;

const BATCH: usize = 2;
const HEADS: usize = 3;
const QUERIES: usize = 6;
const FEATURES: usize = 10;

/// Whether keys come after the query, or are every third one.
#[derive(Clone, Copy, Debug)]
struct Masks {
    causal: bool,
    padding: bool,
    bias: bool,
}

impl Masks {
    const NONE: Self = Self {
        causal: false,
        padding: false,
        bias: false,
    };

    fn padding<B: Backend>(self, keys: usize, device: &B::Device) -> Option<Tensor<B, 4, Bool>> {
        let values: Vec<bool> = (0..keys).map(|key| key % 3 == 1).collect();
        let mask = Tensor::<B, 1, Bool>::from_data(values.as_slice(), device);
        let mask = mask
            .reshape([1, 1, 1, keys])
            .expand([BATCH, HEADS, QUERIES, keys]);
        self.padding.then_some(mask)
    }

    fn bias<B: Backend>(self, keys: usize, device: &B::Device) -> Option<Tensor<B, 4>> {
        self.bias
            .then(|| noise_tensor([BATCH, HEADS, QUERIES, keys], 7, device))
    }

    /// The scores as the softmax takes them.
    fn apply<B: Backend>(self, scores: Tensor<B, 4>) -> Tensor<B, 4> {
        let (keys, device) = (scores.dims()[3], scores.device());
        let hidden = self.hidden(keys, &device);
        let scores = scores.mask_fill(hidden, f32::NEG_INFINITY);
        match self.bias(keys, &device) {
            Some(bias) => scores + bias,
            None => scores,
        }
    }

    /// Where nothing is attended to.
    fn hidden<B: Backend>(self, keys: usize, device: &B::Device) -> Tensor<B, 4, Bool> {
        let hidden = |at: usize| {
            let (query, key) = (at / keys % QUERIES, at % keys);
            let after = key + QUERIES > query + keys;
            (self.causal && after) || (self.padding && key % 3 == 1)
        };
        let values: Vec<bool> = (0..BATCH * HEADS * QUERIES * keys).map(hidden).collect();
        Tensor::<B, 1, Bool>::from_data(values.as_slice(), device)
            .reshape([BATCH, HEADS, QUERIES, keys])
    }
}

/// Query, key, value, and the gradient of the output.
fn inputs(keys: usize) -> [Array; 4] {
    [
        Array::noise(&[BATCH, HEADS, QUERIES, FEATURES], 1),
        Array::noise(&[BATCH, HEADS, keys, FEATURES], 2),
        Array::noise(&[BATCH, HEADS, keys, FEATURES], 3),
        Array::noise(&[BATCH, HEADS, QUERIES, FEATURES], 4),
    ]
}

/// The output and the gradients of query, key and value, by Burn's op.
fn by_op<B: Exact>(keys: usize, masks: Masks, device: &B::Device) -> Vec<Vec<f32>> {
    let [q, k, v, g] = inputs(keys);
    let leaves = [&q, &k, &v].map(|array| array.tensor::<B, 4>(device).require_grad());
    let [q, k, v] = leaves.clone();
    let options = AttentionModuleOptions {
        is_causal: masks.causal,
        ..Default::default()
    };
    let (padding, bias) = (masks.padding(keys, device), masks.bias(keys, device));
    let out = attention(q, k, v, padding, bias, options);
    let grads = B::loss_with_gradient(out.clone(), g.tensor(device)).backward();
    let gradients = leaves.map(|leaf| values(leaf.grad(&grads).expect("it is a leaf")));
    [values(out)].into_iter().chain(gradients).collect()
}

/// The same by hand on `B` alone: every operand of every product quantized along the axis that it sums over.
fn by_hand<B: Backend>(keys: usize, masks: Masks, device: &B::Device) -> Vec<Vec<f32>> {
    let [q, k, v, g] = inputs(keys);
    let operand = |array: &Array, axis, slot| {
        let quantized = array.clone().operand(false, axis, slot);
        quantized.tensor::<B, 4>(device)
    };
    let scale = 1.0 / (FEATURES as f64).sqrt();
    let scores = operand(&q, 3, A).matmul(operand(&k, 3, A).transpose()) * scale;
    let weights = softmax(masks.apply(scores), 3);
    let p = Array::of(weights.clone());
    let out = operand(&p, 3, A).matmul(operand(&v, 2, A));

    let dp = operand(&g, 3, A_BP_OS).matmul(operand(&v, 3, A_BP).transpose());
    let dv = operand(&p, 2, A_BP)
        .transpose()
        .matmul(operand(&g, 2, A_BP_OS));
    let weighted = (dp.clone() * weights.clone()).sum_dim(3);
    let ds = weights * (dp - weighted);
    let ds = Array::of(ds.mask_fill(masks.hidden(keys, device), 0.0) * scale);
    let dq = operand(&ds, 3, A_BP_OS).matmul(operand(&k, 2, A_BP));
    let dk = operand(&q, 2, A_BP)
        .transpose()
        .matmul(operand(&ds, 2, A_BP_OS));
    vec![values(out), values(dq), values(dk.transpose()), values(dv)]
}

fn assert_by_hand<B: MxKernels>(keys: usize, masks: Masks) {
    let resolved = specs(false).resolve().expect("the specs are sound");
    let device = MxDevice::new(B::Device::default(), &resolved).expect("resolved specs");
    let got = by_op::<MxAutodiff<B>>(keys, masks, &device);
    let expected = by_hand::<B>(keys, masks, &B::Device::default());
    assert_all_same_bits(
        &got,
        &expected,
        &format!("{keys} keys, {masks:?}: out, dq, dk, dv"),
    );
}

/// Leaves that require gradients are weights elsewhere; here their place makes them activations.
#[test]
fn attention_is_two_products_of_activations_in_both_passes() {
    for keys in [QUERIES, 9] {
        for masks in [
            Masks::NONE,
            Masks {
                causal: true,
                ..Masks::NONE
            },
            Masks {
                padding: true,
                ..Masks::NONE
            },
            Masks {
                causal: true,
                padding: true,
                bias: true,
            },
        ] {
            assert_by_hand::<Flex>(keys, masks);
            assert_by_hand::<NdArray>(keys, masks);
        }
    }
}

#[test]
fn attention_trains_and_infers_to_the_same_bits() {
    let device = mx_device(&MxSpecs::mxfp6_e3m2());
    for masks in [
        Masks::NONE,
        Masks {
            causal: true,
            padding: true,
            bias: true,
        },
    ] {
        let trained = by_op::<Mx>(9, masks, &device);
        let [q, k, v, _] = inputs(9).map(|array| array.tensor::<MxBackend<Flex>, 4>(&device));
        let options = AttentionModuleOptions {
            is_causal: masks.causal,
            softcap: None,
            scale: None,
        };
        let (padding, bias) = (masks.padding(9, &device), masks.bias(9, &device));
        let inferred = attention(q, k, v, padding, bias, options);
        assert_same_bits(&values(inferred), &trained[0], "out");
    }
}

#[test]
fn a_query_without_keys_attends_to_nothing() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let leaf = |seed| noise_tensor::<Mx, 4>([1, 1, 2, 4], seed, &device).require_grad();
    let [q, k, v] = [1, 2, 3].map(leaf);
    let mask = Tensor::<Mx, 2, Bool>::from_data([[true, true], [false, false]], &device);
    let mask = mask.reshape([1, 1, 2, 2]);
    let out = attention(q.clone(), k, v, Some(mask), None, Default::default());
    let grads = out.clone().sum().backward();
    let (out, dq) = (values(out), values(q.grad(&grads).expect("q is a leaf")));
    assert_eq!((&out[..4], &dq[..4]), (&[0.0; 4][..], &[0.0; 4][..]));
    assert!(
        out[4..].iter().all(|x| x.is_finite() && *x != 0.0),
        "{out:?}"
    );
    assert!(dq[4..].iter().all(|x| x.is_finite()), "{dq:?}");
}

/// The context of Burn's module, and the context of its linear layers around the op.
fn contexts<B: Backend>(
    module: &MultiHeadAttention<B>,
    keys: usize,
    causal: bool,
    device: &B::Device,
) -> [Tensor<B, 3>; 2] {
    let query = noise_tensor::<B, 3>([BATCH, QUERIES, 32], 5, device);
    let memory = noise_tensor::<B, 3>([BATCH, keys, 32], 6, device);
    let mut input = MhaInput::new(query.clone(), memory.clone(), memory.clone());
    if causal {
        input = input.mask_attn(generate_autoregressive_mask(BATCH, QUERIES, device));
    }
    let heads = |x: Tensor<B, 3>| {
        let [batch, length, _] = x.dims();
        x.reshape([batch, length, 2, 16]).swap_dims(1, 2)
    };
    let options = AttentionModuleOptions {
        is_causal: causal,
        ..Default::default()
    };
    let context = attention(
        heads(module.query.forward(query)),
        heads(module.key.forward(memory.clone())),
        heads(module.value.forward(memory)),
        None,
        None,
        options,
    );
    let context = context.swap_dims(1, 2).reshape([BATCH, QUERIES, 32]);
    [
        module.forward(input).context,
        module.output.forward(context),
    ]
}

/// Causal self-attention and cross-attention. A head of 16 features has a scale that is a power of two, so that Burn's
/// division by its root and the op's product with it are the same number.
#[test]
fn multi_head_attention_is_its_linear_layers_around_the_op() {
    for (keys, causal) in [(QUERIES, true), (9, false)] {
        let device: MxDevice<FlexDevice> = mx_device(&MxSpecs::mxfp6_e3m2());
        let config = MultiHeadAttentionConfig::new(32, 2).with_dropout(0.0);
        let module = with_noise_weights::<Mx, _>(config.init::<Mx>(&device), 50);
        let results = |which: usize| {
            let context = contexts(&module, keys, causal, &device)[which].clone();
            let grad = noise_tensor(context.dims(), 8, &device);
            let grads = Mx::loss_with_gradient(context.clone(), grad).backward();
            let mut results = vec![values(context)];
            results.extend(gradients::<Mx, _>(&module, &grads));
            results
        };
        assert_all_same_bits(
            &results(0),
            &results(1),
            "context and gradients of the parameters",
        );
    }
}
