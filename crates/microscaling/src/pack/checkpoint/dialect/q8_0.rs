//! ggml's Q8_0: integers from −127 to 127 with a scale in float16.

use super::encoding::{Blocks, is_finite, power_of_two};
use crate::quantize::largest::largest;
use crate::round::bits::{self, ABS};
use alloc::vec::Vec;

/// Elements of a block.
pub(super) const BLOCK: usize = 32;
/// The largest integer, as a pattern.
const LARGEST: u32 = 127.0_f32.to_bits();

/// The bytes of finite numbers, a whole number of blocks.
pub(super) fn encode(data: &[f32]) -> Blocks {
    let (mut scales, mut elements) = (Vec::new(), Vec::with_capacity(data.len()));
    for data in data.as_chunks().0 {
        let block = IntegerBlock::of(data);
        scales.extend(block.scale.code.to_le_bytes());
        elements.extend(block.integers.map(|integer| integer as u8));
    }
    Blocks { scales, elements }
}

/// The numbers of these bytes in place of a whole number of blocks. A block becomes NaN if it has a NaN or Inf, or a scale beyond float16.
pub(super) fn quantize(data: &mut [f32]) {
    for data in data.as_chunks_mut().0 {
        let block = is_finite(data).then(|| IntegerBlock::of(data));
        *data = match block {
            // Exact: 7 bits times 11.
            Some(IntegerBlock { scale, integers }) if scale.number.is_finite() => {
                integers.map(|integer| (f64::from(integer) * scale.number) as f32)
            }
            _ => [f32::NAN; BLOCK],
        };
    }
}

struct IntegerBlock {
    scale: Float16,
    integers: [i8; BLOCK],
}

impl IntegerBlock {
    fn of(data: &[f32; BLOCK]) -> Self {
        let amax = largest(data);
        let scale = Float16::nearest(bits::quotient(amax, LARGEST));
        if amax == 0 {
            let integers = [0; BLOCK];
            return Self { scale, integers };
        }
        let factor = bits::quotient(LARGEST, amax);
        let integers = data.map(|x| {
            let scaled = bits::product(x.to_bits() & ABS, factor);
            // Beyond float32 is a number whose scale is 0 in float16.
            let magnitude = rounded(bits::widen(scaled.min(LARGEST))) as i8;
            if x.to_bits() & !ABS == 0 {
                magnitude
            } else {
                -magnitude
            }
        });
        Self { scale, integers }
    }
}

/// A number of float16 that is not negative.
struct Float16 {
    code: u16,
    number: f64,
}

impl Float16 {
    /// Of a pattern of float32.
    fn nearest(abs: u32) -> Self {
        let exponent = match abs {
            0 => -14,
            abs => bits::exponent(abs).max(-14),
        };
        let unit = power_of_two(exponent - 10);
        let steps = rounded(bits::widen(abs) / unit);
        // Steps of 1024 and more carry into the exponent.
        let code = (((exponent + 14) as u32) << 10) + steps;
        match code {
            0x7c00.. => Self {
                code: 0x7c00,
                number: f64::INFINITY,
            },
            code => Self {
                code: code as u16,
                number: f64::from(steps) * unit,
            },
        }
    }
}

/// The nearest integer of a number that is not negative, and the even one of two.
fn rounded(x: f64) -> u32 {
    let below = x as u32;
    let rest = x - f64::from(below);
    below + u32::from(rest > 0.5 || (rest == 0.5 && below % 2 == 1))
}
