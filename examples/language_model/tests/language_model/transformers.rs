//! The same logits as transformers, for every architecture.

use std::{fs, sync::Arc};

use burn::prelude::*;
use burn_mx::MxDevice;
use language_model::{Cache, Decoder, Folder, Stored, folder};

use super::{B, fixture};

pub(super) const MODELS: [&str; 6] = [
    "llama",
    "llama_tied",
    "mistral",
    "qwen2",
    "qwen3",
    "mixtral",
];

/// The tokens `[2, 24]` of a fixture, and transformers' logits.
pub(super) fn reference(name: &str) -> (Tensor<B, 2, Int>, Vec<f32>) {
    let read = |file| fs::read(fixture(name).join(file)).unwrap();
    let (tokens, logits) = (read("tokens.bin"), read("logits.bin"));
    let tokens = tokens.as_chunks().0.iter().map(|x| i64::from_le_bytes(*x));
    let tokens = TensorData::new(tokens.collect(), [2, 24]);
    let logits = logits.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x));
    let device = MxDevice::default();
    (Tensor::from_data(tokens, &device), logits.collect())
}

pub(super) fn load(name: &str) -> Decoder<B> {
    Folder::open(fixture(name))
        .unwrap()
        .load(&MxDevice::default())
        .unwrap()
}

pub(super) fn values<const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().to_vec().unwrap()
}

/// The largest difference, as a part of the largest logit.
pub(super) fn difference(got: &[f32], wanted: &[f32]) -> f32 {
    assert_eq!(got.len(), wanted.len());
    let largest = wanted.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
    let differences = got.iter().zip(wanted).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, f32::max) / largest
}

#[test]
fn logits_are_those_of_transformers() {
    for name in MODELS {
        let (tokens, wanted) = reference(name);
        let logits = values(load(name).forward(tokens));
        let difference = difference(&logits, &wanted);
        println!("{name}: {difference:.1e}");
        assert!(difference < 1e-5, "{name}: {difference:.1e}");
    }
}

/// A prompt, then token by token, or in pieces of any length: the cache changes nothing.
#[test]
fn a_cache_changes_no_logits() {
    for name in MODELS {
        let model = load(name);
        let (tokens, wanted) = reference(name);
        for pieces in [vec![10, 1, 1, 1, 7, 4], vec![1; 24], vec![5, 19]] {
            let mut cache = Cache::new(model.model.layers.len(), None);
            let mut logits = Vec::new();
            for piece in pieces {
                let tokens = tokens.clone().narrow(1, cache.positions(), piece);
                logits.push(model.forward_cached(tokens, &mut cache));
            }
            assert_eq!(cache.positions(), 24);
            let difference = difference(&values(Tensor::cat(logits, 1)), &wanted);
            assert!(difference < 1e-5, "{name}: {difference:.1e}");
        }
    }
}

/// Blocks along time are rounded once, when they are full. Queries see the rounded numbers from the next call on.
#[test]
fn a_cache_rounds_full_blocks() {
    let model = load("llama");
    let (tokens, _) = reference("llama");
    let zeros = Stored::<B> {
        positions: 8,
        round: Arc::new(|x| {
            assert_eq!(x.dims()[2] % 8, 0);
            x.zeros_like()
        }),
    };
    let mut cache = Cache::new(2, Some(&zeros));
    let mut plain = Cache::new(2, None);
    let mut step = |length| {
        let tokens = tokens.clone().narrow(1, cache.positions(), length);
        let one = values(model.forward_cached(tokens.clone(), &mut cache));
        let other = values(model.forward_cached(tokens, &mut plain));
        one == other
    };
    assert!(step(7), "nothing is stored yet");
    assert!(step(1), "the block becomes full");
    assert!(!step(1), "the block has zeros");
}

/// A saved model is loaded again, bit for bit, and its config means the same.
#[test]
fn a_saved_model_is_the_same() {
    for name in MODELS {
        let original = Folder::open(fixture(name)).unwrap();
        let temporary = tempfile::tempdir().unwrap();
        let model = load(name);
        folder::save(
            temporary.path(),
            &original.config,
            &original.tokenizer,
            &model,
        )
        .unwrap();
        let saved = Folder::open(temporary.path()).unwrap();
        assert_eq!(saved.config, original.config, "{name}");
        let again: Decoder<B> = saved.load(&MxDevice::default()).unwrap();
        let (tokens, _) = reference(name);
        let [one, other] = [model, again].map(|model| values(model.forward(tokens.clone())));
        assert_eq!(one, other, "{name}");
    }
}
