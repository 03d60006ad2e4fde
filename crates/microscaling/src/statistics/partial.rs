//! What is seen of a part of a tensor.

use super::lanes::{Sums, product};
use super::scales::{Scales, SeenScales};
use crate::round::bits::ABS;
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
    /// Adds a number before and after, and whether it is beyond what its block can hold: what needs no block's sum.
    pub(super) fn see(&mut self, x: f32, q: f32, saturated: bool) {
        let abs = x.to_bits() & ABS;
        self.product += product(f64::from(x), f64::from(q));
        self.quantized_power += product(f64::from(q), f64::from(q));
        self.underflow += u64::from(abs != 0 && q.to_bits() & ABS == 0);
        self.saturated += u64::from(saturated);
        self.amax = self.amax.max(abs);
        if abs != 0 && (self.smallest == 0 || abs < self.smallest) {
            self.smallest = abs;
        }
    }

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
