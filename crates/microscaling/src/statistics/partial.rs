//! The sums over a part of a tensor.

use super::scales::SeenScales;
use crate::round::bits::INFINITY;
use alloc::vec::Vec;

/// The sums over a part.
#[derive(Default)]
pub(super) struct Partial {
    pub(super) non_finite: u64,
    pub(super) overflow: u64,
    pub(super) blocks: u64,
    pub(super) power: f64,
    pub(super) quantized_power: f64,
    pub(super) error: f64,
    pub(super) product: f64,
    pub(super) nonzero: u64,
    pub(super) underflow: u64,
    pub(super) saturated: u64,
    pub(super) amax: u32,
    /// 0 if there is none.
    pub(super) smallest: u32,
    /// Error over power, of each block that has power.
    pub(super) ratios: Vec<f32>,
    /// Of the same blocks.
    pub(super) scales: SeenScales,
}

impl Partial {
    /// Adds blocks: their sums, and the patterns of their scales, which are not positive if a block has none; `None`
    /// without a block format.
    #[inline(always)]
    pub(super) fn blocks(&mut self, power: &[f64], error: &[f64], scales: Option<&[u32]>) {
        for (power, error) in power.iter().zip(error) {
            self.power += power;
            self.error += error;
        }
        let Some(scales) = scales else { return };
        self.blocks += scales.len() as u64;
        self.ratios.reserve(scales.len());
        for ((power, error), scale) in power.iter().zip(error).zip(scales) {
            // A block that became NaN has none, as one of zeros.
            if *power == 0.0 {
                continue;
            }
            self.ratios.push((error / power) as f32);
            if (1..INFINITY).contains(scale) {
                self.scales.see(f32::from_bits(*scale));
            }
        }
    }
}
