//! What is seen of a part of a tensor.

use super::lanes::Sums;
use super::scales::{Scales, SeenScales};
use alloc::vec::Vec;

/// What is seen of a part.
#[derive(Default)]
pub(super) struct Partial {
    pub(super) non_finite: u64,
    pub(super) overflow: u64,
    pub(super) blocks: u64,
    pub(super) power: f64,
    pub(super) quantized_power: f64,
    pub(super) error: f64,
    pub(super) product: f64,
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
    /// Adds blocks.
    #[inline(always)]
    pub(super) fn blocks<const W: usize>(
        &mut self,
        maxima: [[u32; W]; 2],
        sums: &Sums<W>,
        scales: Option<&Scales>,
    ) {
        let [amax, second] = maxima;
        for i in 0..W {
            let maxima = [amax[i], second[i]];
            self.block(maxima, sums.power[i], sums.error[i], scales);
        }
    }

    /// Adds a block.
    #[inline(always)]
    pub(super) fn block(
        &mut self,
        [amax, second]: [u32; 2],
        power: f64,
        error: f64,
        scales: Option<&Scales>,
    ) {
        self.power += power;
        self.error += error;
        let Some(scales) = scales else { return };
        self.blocks += 1;
        // A block that became NaN has none, as one of zeros.
        if power == 0.0 {
            return;
        }
        self.ratios.push((error / power) as f32);
        if amax > 0
            && let Some(scale) = scales.scale(amax, second)
        {
            self.scales.see(scale);
        }
    }
}
