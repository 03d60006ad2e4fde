//! The formats with more than one level of scale, in f64 (NVFP4 in f32, which is its rule).

use super::{floor_log2, goes_up, magnitudes, pow2, round_to_table};
use crate::float_state::ieee;
use microscaling::{BlockFormat, ElementFormat, Rounding};

pub(crate) fn amax(block: &[f32]) -> f32 {
    ieee(|| {
        block.iter().fold(0.0, |max, x| {
            if x.abs() > max || x.is_nan() {
                x.abs()
            } else {
                max
            }
        })
    })
}

/// The exponent field of a float32 magnitude.
fn biased(x: f32) -> i32 {
    match f64::from(x) {
        x if x < pow2(-126) => 0,
        x => floor_log2(x) + 127,
    }
}

/// To a multiple of 2^exponent, at most `most` of them.
fn fixed_point(x: f32, exponent: i32, most: f64, rounding: Rounding, draw: u32) -> f32 {
    let steps = f64::from(x.abs()) / pow2(exponent);
    let lower = steps.floor();
    let up = goes_up(steps - lower, lower % 2.0 == 0.0, rounding, draw);
    let steps = (lower + f64::from(u8::from(up))).min(most);
    ((steps * pow2(exponent)) as f32).copysign(x)
}

pub(crate) fn bfp(
    format: &BlockFormat,
    block: &[f32],
    rounding: Rounding,
    draws: &[u32],
) -> Vec<f32> {
    ieee(|| {
        let m = format.element.bits() as i32 - 1;
        let finite: Vec<f32> = block.iter().copied().filter(|x| x.is_finite()).collect();
        let exponent = biased(amax(&finite)) - 127 - (m - 1);
        let round = |(x, draw): (&f32, &u32)| match x.is_finite() {
            true => fixed_point(*x, exponent, pow2(m) - 1.0, rounding, *draw),
            false => *x,
        };
        block.iter().zip(draws).map(round).collect()
    })
}

pub(crate) fn microexponent(
    format: &BlockFormat,
    block: &[f32],
    rounding: Rounding,
    draws: &[u32],
) -> Vec<f32> {
    ieee(|| {
        if block.iter().any(|x| !x.is_finite()) {
            return vec![f32::NAN; block.len()];
        }
        let m = format.element.bits() as i32 - 1;
        let shared = biased(amax(block));
        let shifts = format.shifts.expect("the format has shifts");
        let size = shifts.block_size;
        let sub_blocks = block.chunks(size).zip(draws.chunks(size));
        sub_blocks
            .flat_map(|(sub_block, draws)| {
                let shift = (shared - biased(amax(sub_block))).min((1 << shifts.bits) - 1);
                let exponent = shared - 127 - shift + 1 - m;
                sub_block.iter().zip(draws).map(move |(x, draw)| {
                    let x = if biased(x.abs()) == 0 {
                        0.0_f32.copysign(*x)
                    } else {
                        *x
                    };
                    fixed_point(x, exponent, pow2(m) - 1.0, rounding, *draw)
                })
            })
            .collect()
    })
}

/// A block of a tensor whose largest magnitude is `tensor_amax`.
pub(crate) fn nvfp4(
    format: &BlockFormat,
    tensor_amax: f32,
    block: &[f32],
    rounding: Rounding,
    draws: &[u32],
) -> Vec<f32> {
    ieee(|| {
        let h = f32::from(format.headroom.numerator()) / f32::from(format.headroom.denominator());
        let t = match (format.tensor_scale, format.four_over_six) {
            (false, _) => 1.0,
            (true, false) => tensor_amax / 2688.0 * h,
            (true, true) => tensor_amax / 1536.0 * h,
        };
        if !t.is_finite() || block.iter().any(|x| !x.is_finite()) {
            return vec![f32::NAN; block.len()];
        }
        if t == 0.0 {
            return block.iter().map(|x| 0.0_f32.copysign(*x)).collect();
        }
        let scales = magnitudes(ElementFormat::FP8_E4M3);
        let scale = |factor: f32| {
            let wanted = amax(block) / 6.0 / t * h * factor;
            let wanted = wanted.clamp(2.0_f32.powi(-6), 448.0);
            round_to_table(f64::from(wanted), &scales, Rounding::NearestEven, 0) as f32
        };
        let (six, four) = (scale(1.0), scale(1.5));
        let plain: Vec<f32> = block.iter().map(|x| x.abs()).collect();
        let error = |c: f32| -> u128 {
            let none = vec![0; block.len()];
            let rounded = nvfp4_elements(&plain, t, c, Rounding::NearestEven, &none);
            let unit = pow2(floor_log2(f64::from(amax(block))) - 17);
            let errors = rounded.iter().zip(&plain).map(|(q, x)| {
                let error = (f64::from((q - x).abs()) / unit).floor().min(65535.0) as u128;
                error * error
            });
            errors.sum()
        };
        let is_zero = amax(block) == 0.0;
        let c = match format.four_over_six && !is_zero && error(four) < error(six) {
            true => four,
            false => six,
        };
        nvfp4_elements(block, t, c, rounding, draws)
    })
}

/// The elements of a block with the scale c.
fn nvfp4_elements(block: &[f32], t: f32, c: f32, rounding: Rounding, draws: &[u32]) -> Vec<f32> {
    let inverse = 1.0 / t / c;
    let elements = magnitudes(ElementFormat::FP4_E2M1);
    let round = |(x, draw): (&f32, &u32)| {
        let scaled = match () {
            () if t * c == 0.0 => 0.0,
            () if inverse.is_infinite() => x.abs() / (t * c),
            () => x.abs() * inverse,
        };
        let unit = round_to_table(f64::from(scaled), &elements, rounding, *draw) as f32;
        (unit * (t * c)).copysign(*x)
    };
    block.iter().zip(draws).map(round).collect()
}
