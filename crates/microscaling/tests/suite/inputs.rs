//! Formats and data for property tests.

use crate::float_state::ieee;
use crate::oracle::headrooms;
use microscaling::{
    BlockFormat, ElementFormat, RandomStream, ScaleFormat, ScaleMode, SharedExpMethod, Subnormals,
};
use proptest::prelude::*;
use proptest::sample::select;

/// Formats of all kinds, valid ones.
pub(crate) fn formats() -> impl Strategy<Value = BlockFormat> {
    let elements = (
        select(ElementFormat::NAMED.to_vec()),
        select(vec![0, 1, 16, 32, 64_usize]),
    );
    let rest = (
        1..=8_u32,
        select(ScaleMode::POWERS.to_vec()),
        select(SharedExpMethod::ALL.to_vec()),
        any::<bool>(),
        select(headrooms()),
    );
    let mx = (elements, rest, any::<bool>()).prop_map(|((element, block_size), rest, square)| {
        let (scale_bits, scale_mode, shared_exp_method, flush_fp32_subnorms, headroom) = rest;
        let element = match scale_mode {
            ScaleMode::Rms => ElementFormat::FP4_E2M1,
            _ => element,
        };
        BlockFormat {
            scale: ScaleFormat::exponent(scale_bits).unwrap(),
            scale_mode,
            shared_exp_method,
            subnormals: match flush_fp32_subnorms {
                true => Subnormals::FlushBlocks,
                false => Subnormals::Kept,
            },
            square: square && block_size > 0 && shared_exp_method == SharedExpMethod::Max,
            headroom,
            ..BlockFormat::mx(element, block_size)
        }
    });
    let bfp = (10..=32_u32, 1..100_usize)
        .prop_map(|(bit_width, block_size)| BlockFormat::bfp(bit_width, block_size).unwrap());
    let microexponent = (10..=32_u32, 1..100_usize, 1..10_usize, 0..=8_u32).prop_map(
        |(bit_width, block_size, sub_block_size, shift_bits)| {
            let sub_block_size = sub_block_size.min(block_size);
            BlockFormat::microexponent(bit_width, block_size, sub_block_size, shift_bits).unwrap()
        },
    );
    let nvfp4 = (nvfp4_formats(), any::<bool>());
    let nvfp4 = nvfp4.prop_map(|(format, square)| BlockFormat { square, ..format });
    let named = select(BlockFormat::NAMES.to_vec()).prop_map(|name| name.parse().unwrap());
    prop_oneof![mx, bfp, microexponent, nvfp4, named]
}

/// NVFP4 with every option except square blocks.
pub(crate) fn nvfp4_formats() -> impl Strategy<Value = BlockFormat> {
    let parameters = (any::<bool>(), select(headrooms()), any::<bool>());
    parameters.prop_map(|(tensor_scale, headroom, four_over_six)| BlockFormat {
        headroom,
        four_over_six,
        ..BlockFormat::nvfp4(tensor_scale)
    })
}

/// Numbers of different sizes around 2^center; now and then a special value.
pub(crate) fn numbers(count: usize, center: i32, specials: bool, seed: u64) -> Vec<f32> {
    ieee(|| {
        let stream = RandomStream::new(seed, 1);
        let number = |i: u64| {
            let exponent = center + (stream.draw(3 * i) % 9) as i32 - 4;
            let x = f64::from(stream.draw(3 * i + 1) as i32) * 2.0_f64.powi(exponent - 31);
            // Few bits, so that there are ties.
            let x = if i.is_multiple_of(3) {
                (x / 2.0_f64.powi(exponent - 4)).round() * 2.0_f64.powi(exponent - 4)
            } else {
                x
            };
            match stream.draw(3 * i + 2) % 401 {
                0 if specials => f32::NAN,
                1 if specials => f32::NEG_INFINITY,
                2 => f32::from_bits(x.to_bits() as u32 & 0x807f_ffff),
                3..20 => 0.0_f32.copysign(x as f32),
                _ => (x as f32).clamp(-f32::MAX, f32::MAX),
            }
        };
        (0..count as u64).map(number).collect()
    })
}

/// Numbers around 2^exponent, many of them on or between few-bit numbers, and zeros. `special` of 2^24 numbers are infinities and as many NaN,
/// `subnormal` of 2^24 are subnormal.
pub(crate) fn mixed_numbers(
    seed: u64,
    exponent: i32,
    [special, subnormal]: [u32; 2],
    count: usize,
) -> Vec<f32> {
    const ZEROS: u32 = 3_000_000;
    let stream = RandomStream::new(seed, 0);
    let number = |i: u64| {
        let (word, kind) = (stream.draw(2 * i), stream.draw(2 * i + 1));
        let few = match kind & 3 {
            0 => 0xff80_0000_u32 >> (kind >> 2 & 15),
            _ => u32::MAX,
        };
        let field = (exponent + 127 + (word >> 23 & 15) as i32 - 8).clamp(0, 254) as u32;
        f32::from_bits(match kind >> 8 {
            kind if kind < special => 0x7f80_0000 | (word & 0x8000_0000),
            kind if kind < 2 * special => word | 0x7fc0_0000,
            kind if kind < ZEROS => word & 0x8000_0000,
            kind if kind < ZEROS + subnormal => word & 0x807f_ffff,
            _ => (word & 0x807f_ffff & (few | 1 << 31)) | field << 23,
        })
    };
    (0..count as u64).map(number).collect()
}
