//! The sums of a window.

use std::collections::BTreeMap;

use burn_core::{
    record::{PrecisionSettings, Record},
    tensor::backend::Backend,
};
use serde::{Deserialize, Serialize};

/// The state of [`ResettingOptimizer`](crate::ResettingOptimizer). Serde writes the bits of all numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OscillationState {
    /// Steps so far.
    pub steps: u64,
    /// Weights that were reset so far.
    pub resets: u64,
    /// The weights in the current window, by the paths of parameters; empty outside of windows.
    pub watched: BTreeMap<String, Watched>,
}

impl<B: Backend> Record<B> for OscillationState {
    type Item<S: PrecisionSettings> = Self;

    fn into_item<S: PrecisionSettings>(self) -> Self {
        self
    }

    fn from_item<S: PrecisionSettings>(item: Self, _device: &B::Device) -> Self {
        item
    }
}

/// A parameter in a window, in row-major order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// The weights after the last step.
    #[serde(with = "bits")]
    pub last: Vec<f32>,
    /// Σ|Δw| of each.
    #[serde(with = "bits")]
    pub moved: Vec<f32>,
    /// Σ|Δq(w)| of each.
    #[serde(with = "bits")]
    pub moved_quantized: Vec<f32>,
}

impl Watched {
    pub(super) fn new(weights: Vec<f32>) -> Self {
        Self {
            moved: vec![0.0; weights.len()],
            moved_quantized: vec![0.0; weights.len()],
            last: weights,
        }
    }

    /// Adds the distances of a step.
    pub(super) fn add(
        &mut self,
        path: &str,
        weights: Vec<f32>,
        quantized: impl Fn(&[f32]) -> Vec<f32>,
    ) {
        self.check(path, weights.len());
        let add = |sums: &mut [f32], before: &[f32], after: &[f32]| {
            for (sum, (before, after)) in sums.iter_mut().zip(before.iter().zip(after)) {
                *sum += (after - before).abs();
            }
        };
        add(&mut self.moved, &self.last, &weights);
        let [before, after] = [&self.last, &weights].map(|weights| quantized(weights));
        add(&mut self.moved_quantized, &before, &after);
        self.last = weights;
    }

    /// Replaces the weights that oscillated by the centres of their bins. Returns how many.
    pub(super) fn reset(
        &self,
        path: &str,
        weights: &mut [f32],
        centres: &[f32],
        threshold: f32,
    ) -> u64 {
        self.check(path, weights.len());
        let mut count = 0;
        let distances = self.moved.iter().zip(&self.moved_quantized);
        for ((weight, centre), (moved, quantized)) in weights.iter_mut().zip(centres).zip(distances)
        {
            if *moved != 0.0 && quantized / moved >= threshold {
                *weight = *centre;
                count += 1;
            }
        }
        count
    }

    fn check(&self, path: &str, count: usize) {
        let watched = self.last.len();
        assert!(
            watched == count,
            "burn-mx: the state of oscillating weights has {watched} numbers of {path}, and the model {count}; allowed: the \
             state of this model"
        );
    }
}

/// Numbers as their bits: JSON has neither NaN nor Inf.
mod bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        numbers: &[f32],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let bits: Vec<u32> = numbers.iter().map(|x| x.to_bits()).collect();
        bits.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<f32>, D::Error> {
        let bits: Vec<u32> = Vec::deserialize(deserializer)?;
        Ok(bits.into_iter().map(f32::from_bits).collect())
    }
}
