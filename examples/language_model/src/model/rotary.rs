//! Rotary positions, in the layout of Hugging Face: feature i of a head forms a pair with feature i + n/2.

use burn::prelude::*;

use crate::{DecoderConfig, RotaryScaling};

/// The frequencies.
#[derive(Clone, Debug)]
pub(super) struct Rotary {
    /// Radians a position, for each pair of features.
    frequencies: Vec<f64>,
}

/// Cosines and sines `[1, length, 1, head]` of some positions, the sines of the first half of a head negated.
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
        let table = |of_halves: [fn(f64) -> f64; 2]| {
            let values = (start..start + length).flat_map(|position| {
                of_halves.into_iter().flat_map(move |function| {
                    let frequencies = self.frequencies.iter();
                    frequencies.map(move |frequency| function(position as f64 * frequency) as f32)
                })
            });
            let values: Vec<f32> = values.collect();
            Tensor::from_data(TensorData::new(values, [1, length, 1, 2 * pairs]), device)
        };
        Rotation([
            table([f64::cos, f64::cos]),
            table([|angle| -angle.sin(), f64::sin]),
        ])
    }
}

impl<B: Backend> Rotation<B> {
    /// Rotates queries or keys `[batch, length, heads, head]`.
    pub(super) fn apply(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let Self([cos, sin]) = self;
        let [batch, length, heads, head] = x.dims();
        // One row for all heads, so that nothing but the batch broadcasts.
        let row = |x: Tensor<B, 4>| x.reshape([0, length as i32, -1]);
        let all = |table: &Tensor<B, 4>| row(table.clone().repeat_dim(2, heads));
        let halves: Tensor<B, 3> = x.clone().reshape([batch * length * heads, 2, head / 2]);
        let other = halves.flip([1]).reshape([batch, length, heads * head]);
        let rotated = row(x) * all(cos) + other * all(sin);
        rotated.reshape([batch, length, heads, head])
    }
}
