//! Integers with the step m/(2^(N − 1) − 1) of MuonQ's code, where m is the largest magnitude, of the numbers or of their logarithms.

use half::f16;
use microscaling::Rounder;

use super::{CodedTensor, largest, to_integer};

/// A format of integers with a float16 step.
#[derive(Clone, Copy)]
pub(super) struct Symmetric {
    pub(super) bits: u32,
    pub(super) is_companded: bool,
    /// Numbers with one step; 0 for all.
    pub(super) block_size: usize,
}

/// The largest number of the μ-law.
const MU: f64 = 255.0;
/// The least step before the step is rounded to float16.
const LEAST_STEP: f64 = 1e-8;

impl Symmetric {
    /// Bytes of scales and of elements.
    pub(super) fn bytes(self, count: usize) -> [usize; 2] {
        let bits = count.saturating_mul(self.bits as usize);
        let blocks = count.div_ceil(self.block(count));
        [blocks.saturating_mul(2), bits.div_ceil(8)]
    }

    fn block(self, count: usize) -> usize {
        match self.block_size {
            0 => count.max(1),
            size => size,
        }
    }

    /// The number that is divided by the step: the number itself, or sign(x)·ln(1 + 255·min(|x|, 1))/ln 256.
    fn compressed(self, x: f32) -> f64 {
        let x = f64::from(x);
        match self.is_companded {
            true => ((MU * x.clamp(-1.0, 1.0).abs()).ln_1p() / MU.ln_1p()).copysign(x),
            false => x,
        }
    }

    /// The inverse of [`compressed`](Self::compressed).
    fn expanded(self, y: f64) -> f32 {
        match self.is_companded {
            true => ((y.abs() * MU.ln_1p()).exp_m1() / MU).copysign(y) as f32,
            false => y as f32,
        }
    }

    pub(super) fn encode(self, data: &[f32], rounder: Rounder) -> CodedTensor {
        let [_, elements] = self.bytes(data.len());
        let mut bytes = CodedTensor {
            elements: vec![0; elements],
            ..CodedTensor::default()
        };
        let most = (1 << (self.bits - 1)) - 1;
        let integer = to_integer(rounder);
        let block = self.block(data.len());
        for (number, numbers) in data.chunks(block).enumerate() {
            let of_block = self.compressed(largest(numbers.iter().copied()));
            // Not `max`, which drops a NaN. The code divides by the step before the step is rounded.
            let step = match of_block / f64::from(most) {
                step if step < LEAST_STEP => LEAST_STEP,
                step => step,
            };
            bytes.scales.extend(f16::from_f64(step).to_le_bytes());
            for (index, x) in numbers.iter().enumerate() {
                let index = number * block + index;
                let code = integer(index, self.compressed(*x) / step);
                let code = (code as i32).clamp(-most - 1, most) as u8;
                match self.bits {
                    8 => bytes.elements[index] = code,
                    _ => bytes.elements[index / 2] |= (code & 15) << (4 * (index % 2)),
                }
            }
        }
        bytes
    }

    pub(super) fn decode(self, scales: &[u8], elements: &[u8], count: usize) -> Vec<f32> {
        let block = self.block(count);
        let number = |index: usize| {
            let code = match self.bits {
                8 => elements[index],
                _ => elements[index / 2] >> (4 * (index % 2)) << 4,
            };
            let code = (code as i8) >> (8 - self.bits);
            let at = 2 * (index / block);
            let step = f16::from_le_bytes([scales[at], scales[at + 1]]);
            self.expanded(f64::from(code) * step.to_f64())
        };
        (0..count).map(number).collect()
    }
}
