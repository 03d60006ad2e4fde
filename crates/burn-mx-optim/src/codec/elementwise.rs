//! Floats without a scale: a byte each, or two.

use half::f16;
use microscaling::{FloatFormat, Rounder};

use super::CodedTensor;

/// CodedTensor of a number.
pub(super) fn width(format: FloatFormat) -> usize {
    (format.bits() as usize).div_ceil(8)
}

pub(super) fn encode(format: FloatFormat, data: &[f32], rounder: Rounder) -> CodedTensor {
    let mut rounded = data.to_vec();
    format.round_slice(&mut rounded, rounder);
    let shift = 16 - format.bits();
    let code = |x: f32| match format.exponent_bits() {
        8 => (x.to_bits() >> 16) as u16 >> shift,
        _ => f16::from_f32(x).to_bits() >> shift,
    };
    // The upper half of a NaN whose payload is in the lower half alone is an Inf.
    let code = |x: f32| code(if x.is_nan() { f32::NAN } else { x });
    let codes = rounded.into_iter().map(code);
    let elements = match width(format) {
        1 => codes.map(|code| code as u8).collect(),
        _ => codes.flat_map(u16::to_le_bytes).collect(),
    };
    CodedTensor {
        elements,
        ..CodedTensor::default()
    }
}

pub(super) fn decode(format: FloatFormat, elements: &[u8]) -> Vec<f32> {
    let shift = 16 - format.bits();
    let number = |code: u16| match format.exponent_bits() {
        8 => f32::from_bits(u32::from(code << shift) << 16),
        _ => f16::from_bits(code << shift).to_f32(),
    };
    match width(format) {
        1 => elements.iter().map(|code| number((*code).into())).collect(),
        _ => elements
            .chunks_exact(2)
            .map(|code| number(u16::from_le_bytes([code[0], code[1]])))
            .collect(),
    }
}
