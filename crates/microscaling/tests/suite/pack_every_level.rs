//! Bytes of packed blocks: every instruction set gives the bytes of the codecs.

use crate::inputs::mixed_numbers;
use microscaling::{BlockFormat, NonFinite, Packed, RandomStream, Rounding};
use microscaling_processor::instruction_set::{Level, with_level};
use proptest::prelude::*;
use proptest::sample::select;

/// For blocks that are packed together, and for other blocks.
const FORMATS: [&str; 28] = [
    "mxfp8_e5m2",
    "mxfp8_e4m3",
    "mxfp6_e3m2",
    "mxfp6_e2m3",
    "mxfp4",
    "mxint8",
    "mxfp8_rceil",
    "mx4",
    "mx6",
    "mx9",
    "bfp16",
    "nvfp4",
    "nvfp4(tensor_scale=true)",
    "nvfp4(tensor_scale=true,four_over_six=true)",
    "mx(element=fp4_e2m1,block_size=16,scale_mode=even)",
    "mx(element=fp6_e2m3,block_size=16,scale_mode=ceil,headroom=4/3)",
    "mx(element=fp4_e2m1,scale_mode=rms)",
    "mx(element=fp8_e4m3,block_size=8,scale_bits=5)",
    "mx(element=fp8_e5m2,flush_fp32_subnorms=true)",
    "mx(element=int4)",
    "mx(element=int2,block_size=8)",
    "mx(element=float16)",
    "mx(element=fp4_e2m1,block_size=24)",
    "bfp(bit_width=12,block_size=16)",
    "microexponent(bit_width=13,block_size=16,sub_block_size=4,shift_bits=2)",
    "microexponent(bit_width=13,block_size=32,sub_block_size=5,shift_bits=3)",
    "mx(element=fp4_e2m1,block_size=16,square=true)",
    "nvfp4(tensor_scale=true,square=true)",
];

/// The bytes of blocks along the middle one of these axes, from both ways.
fn assert_same(format: BlockFormat, data: &[f32], shape: [usize; 3], rounding: Rounding) {
    let rounder = rounding.with(RandomStream::new(7, 8));
    let expected = with_level(Level::Baseline, || {
        Packed::encode_by_codec(format, data, &shape, 1, rounder).unwrap()
    });
    for level in Level::available() {
        let packed = with_level(level, || Packed::encode(format, data, &shape, 1, rounder));
        assert!(
            packed.unwrap() == expected,
            "{format} {rounding} {level:?}, shape {shape:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_is_packed_is_the_codecs(
        format in select(FORMATS.to_vec()),
        rows in prop_oneof![Just(1_usize), 1..6_usize],
        axis in prop_oneof![
            3 => (1..70_usize).prop_map(|blocks| 32 * blocks),
            1 => (1..90_usize).prop_map(|blocks| 8 * blocks),
            1 => 1..700_usize,
        ],
        inner in prop_oneof![3 => Just(1_usize), 1 => 2..9_usize, 1 => (1..20_usize).prop_map(|eights| 8 * eights)],
        exponent in prop_oneof![4 => -20..20_i32, 1 => -149..127_i32],
        zero_blocks: bool,
        special: bool,
        seed: u64,
    ) {
        let format: BlockFormat = format.parse().unwrap();
        let special = special && format.non_finite == NonFinite::OfBlock;
        let shares = [if special { 2_000 } else { 0 }, 100_000];
        let mut data = mixed_numbers(seed, exponent, shares, rows * axis * inner);
        if zero_blocks {
            for block in data.chunks_mut(32).step_by(3) {
                block.fill(0.0);
            }
        }
        for rounding in Rounding::ALL {
            assert_same(format, &data, [rows, axis, inner], rounding);
        }
    }
}

/// Every number of 8 significant bits in the twelve binades below the largest one of its block. The largest one is around 1,
/// or near an end of the ordinary range.
#[test]
fn every_tie_of_every_element() {
    for name in FORMATS {
        let format: BlockFormat = name.parse().unwrap();
        for exponent in [-126, -100, -99, -80, -1, 0, 1, 99, 100, 101, 125, 126] {
            for fraction in [0, 0x40_0000, 0x60_0000, 0x7f_ffff] {
                let amax = ((exponent + 127) as u32) << 23 | fraction;
                let lowest = amax.saturating_sub(12 << 23) >> 16;
                let magnitudes = lowest..=amax >> 16;
                let mut patterns =
                    magnitudes.flat_map(|upper| [upper << 16, upper << 16 | 1 << 31]);
                let mut data = Vec::new();
                loop {
                    let block = patterns.by_ref().take(7).map(f32::from_bits);
                    data.push(f32::from_bits(amax));
                    data.extend(block);
                    if !data.len().is_multiple_of(8) {
                        break;
                    }
                }
                data.resize(data.len().next_multiple_of(512), 0.0);
                for rounding in [
                    Rounding::NearestAway,
                    Rounding::NearestEven,
                    Rounding::TowardZero,
                ] {
                    assert_same(format, &data, [1, data.len(), 1], rounding);
                }
            }
        }
    }
}
