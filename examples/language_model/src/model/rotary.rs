//! Rotary positions, in the layout of Hugging Face: feature i of a head forms a pair with feature i + n/2.

use burn::prelude::*;

use crate::{DecoderConfig, RotaryScaling};

/// The frequencies.
#[derive(Clone, Debug)]
pub(super) struct Rotary {
    /// Radians a position, for each pair of features.
    frequencies: Vec<f64>,
}

/// Cosines and sines `[1, 1, length, head / 2]` of some positions.
pub(super) struct Rotation<B: Backend>([Tensor<B, 4>; 2]);

impl Rotary {
    pub(super) fn new(config: &DecoderConfig) -> Self {
        let pairs = config.head / 2;
        let frequency = |pair: usize| config.rotary.theta.powf(-(pair as f64) / pairs as f64);
        let scaled = |frequency: f64| match config.rotary.scaling {
            RotaryScaling::None => frequency,
            RotaryScaling::Linear(factor) => frequency / factor,
            RotaryScaling::Llama3 {
                factor,
                low,
                high,
                context,
            } => {
                let times = context * frequency / (2.0 * core::f64::consts::PI);
                let share = ((times - low) / (high - low)).clamp(0.0, 1.0);
                frequency * (share + (1.0 - share) / factor)
            }
        };
        let frequencies = (0..pairs).map(|pair| scaled(frequency(pair)));
        Self {
            frequencies: frequencies.collect(),
        }
    }

    /// The rotation of the positions from `start` on.
    pub(super) fn at<B: Backend>(
        &self,
        start: usize,
        length: usize,
        device: &B::Device,
    ) -> Rotation<B> {
        let pairs = self.frequencies.len();
        let table = |function: fn(f64) -> f64| {
            let positions = start..start + length;
            let values = positions.flat_map(|position| {
                let angle = move |frequency: &f64| position as f64 * frequency;
                let frequencies = self.frequencies.iter();
                frequencies.map(move |frequency| function(angle(frequency)) as f32)
            });
            let values: Vec<f32> = values.collect();
            Tensor::from_data(TensorData::new(values, [1, 1, length, pairs]), device)
        };
        Rotation([table(f64::cos), table(f64::sin)])
    }
}

impl<B: Backend> Rotation<B> {
    /// Rotates queries or keys `[batch, heads, length, head]`.
    pub(super) fn apply(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let Self([cos, sin]) = self;
        let [_, _, _, head] = x.dims();
        let one = x.clone().narrow(3, 0, head / 2);
        let other = x.narrow(3, head / 2, head / 2);
        let rotated = [
            one.clone() * cos.clone() - other.clone() * sin.clone(),
            other * cos.clone() + one * sin.clone(),
        ];
        Tensor::cat(rotated.to_vec(), 3)
    }
}
