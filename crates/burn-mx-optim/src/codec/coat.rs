//! COAT's expanded FP8 (arXiv 2410.19313): E4M3 of y = sign(x)·(|x| / √(max·min))^k with a float32 scale. k makes the ratio of a block's
//! largest to its smallest magnitude fill the range of E4M3.

use microscaling::{PackError, Packed, PackedView, Rounder};

use super::{CodedTensor, get, largest, put};
use crate::StateFormat;

/// Ratio of E4M3's largest number to half of its smallest, as COAT's code has it.
const RANGE: f64 = 448.0 * 448.0 / 2.0;
/// k is a multiple of 1/16.
const STEPS: f64 = 16.0;
/// COAT's code adds this number to the largest and to the smallest magnitude.
const LEAST: f64 = 1e-30;
/// The largest k, for blocks whose magnitudes hardly differ. COAT's code has no limit, and divides by zero where all magnitudes are equal.
const LARGEST_POWER: f64 = 64.0;

/// √(max·min) and k of a block.
fn expansion(block: &[f32]) -> [f32; 2] {
    let most = largest(block.iter().copied());
    if most.is_nan() {
        return [f32::NAN, 1.0];
    }
    let magnitudes = block.iter().map(|x| x.abs()).filter(|x| *x > 0.0);
    let least = magnitudes.fold(most, f32::min);
    let [most, least] = [most, least].map(|x| f64::from(x) + LEAST);
    let power = (STEPS * RANGE.log2() / (most / least).log2()).floor() / STEPS;
    [
        (most * least).sqrt() as f32,
        power.min(LARGEST_POWER) as f32,
    ]
}

fn power(x: f32, exponent: f64) -> f64 {
    f64::from(x.abs()).powf(exponent)
}

pub(super) fn encode(
    format: StateFormat,
    data: &[f32],
    block_size: usize,
    rounder: Rounder,
) -> Result<CodedTensor, PackError> {
    let mut expanded = Vec::with_capacity(data.len());
    let mut expansions = Vec::new();
    for block in data.chunks(block_size) {
        let [middle, k] = expansion(block);
        put(&mut expansions, middle);
        put(&mut expansions, k);
        // Zeros stay zeros: 0^k = 0. A NaN for the middle makes the block NaN.
        let expand = |x: &f32| {
            let magnitude = power((f64::from(*x) / f64::from(middle)) as f32, k.into());
            (magnitude as f32).copysign(*x)
        };
        expanded.extend(block.iter().map(expand));
    }
    let block = format.as_block().expect("powers are packed in blocks");
    let parts = Packed::encode(block, &expanded, &[data.len()], 0, rounder)?.into_parts();
    let mut scales = parts.scales;
    scales.append(&mut expansions);
    Ok(CodedTensor {
        tensor_scale: None,
        scales,
        elements: parts.elements,
    })
}

pub(super) fn decode(
    format: StateFormat,
    scales: &[u8],
    elements: &[u8],
    count: usize,
    block_size: usize,
) -> Vec<f32> {
    let block = format.as_block().expect("powers are packed in blocks");
    let (scales, expansions) = scales.split_at(4 * count.div_ceil(block_size));
    let view = PackedView::new(
        block,
        core::slice::from_ref(&count),
        0,
        None,
        scales,
        elements,
    );
    let mut numbers = view.expect("the bytes were checked").decode();
    for (index, block) in numbers.chunks_mut(block_size).enumerate() {
        let [middle, k] = [2 * index, 2 * index + 1].map(|at| get(expansions, at));
        for x in block {
            let magnitude = power(*x, 1.0 / f64::from(k)) * f64::from(middle);
            *x = (magnitude as f32).copysign(*x);
        }
    }
    numbers
}
