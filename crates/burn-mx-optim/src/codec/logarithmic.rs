//! SOLO's second moments (arXiv 2505.00347, code of MTandHJ/SOLO): a block's largest number times α^c with c = 0 … 3. The ratio of the
//! block's 10 % quantile to the largest number is α³. So a tenth of the block's numbers lies below the range.

use microscaling::Rounder;

use super::{CodedTensor, fractions, get, largest, put};

/// The largest code.
const LAST: f64 = 3.0;
/// The part of a block's numbers below the range.
const QUANTILE: f64 = 0.1;
/// The least scale, as in SOLO's code.
const LEAST: f32 = 1e-12;

/// The quantile, interpolated between two numbers of the block.
fn quantile(block: &[f32]) -> f64 {
    let mut sorted = block.to_vec();
    sorted.sort_by(f32::total_cmp);
    let place = QUANTILE * (sorted.len() - 1) as f64;
    let below = place as usize;
    let [low, high] = [below, (below + 1).min(sorted.len() - 1)].map(|at| f64::from(sorted[at]));
    low + (place - below as f64) * (high - low)
}

pub(super) fn encode(data: &[f32], block_size: usize, rounder: Rounder) -> CodedTensor {
    let mut bytes = CodedTensor {
        elements: vec![0; data.len().div_ceil(4)],
        ..CodedTensor::default()
    };
    let draws = fractions(rounder);
    for (number, block) in data.chunks(block_size).enumerate() {
        let most = largest(block.iter().copied());
        let scale = if most.is_nan() { most } else { most.max(LEAST) };
        let base = (quantile(block) / f64::from(scale)).powf(1.0 / LAST) as f32;
        put(&mut bytes.scales, scale);
        put(&mut bytes.scales, base);
        let logarithm = f64::from(base).ln();
        for (place, x) in block.iter().enumerate() {
            let index = number * block_size + place;
            let code = (f64::from(*x) / f64::from(scale)).ln() / logarithm;
            let code = match &draws {
                Some(draw) => (code + draw(index) - 0.5).round_ties_even(),
                None => code.round_ties_even(),
            };
            // A zero has the last code, also in a block with a base of zero. A block of equal numbers has a base of 1, and NaN becomes
            // code 0.
            let code = if *x == 0.0 {
                LAST
            } else {
                code.clamp(0.0, LAST)
            } as u8;
            bytes.elements[index / 4] |= code << (2 * (index % 4));
        }
    }
    bytes
}

pub(super) fn decode(scales: &[u8], elements: &[u8], count: usize, block_size: usize) -> Vec<f32> {
    let number = |index: usize| {
        let block = index / block_size;
        let [scale, base] = [2 * block, 2 * block + 1].map(|at| get(scales, at));
        let code = elements[index / 4] >> (2 * (index % 4)) & 3;
        base.powi(code.into()) * scale
    };
    (0..count).map(number).collect()
}
