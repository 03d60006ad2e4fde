//! Packing from bf16 and f16: the bytes of the float32 numbers that they are.

use crate::inputs::numbers;
use half::{bf16, f16};
use microscaling::{BlockFormat, EncodeNumber, PackError, Packed, RandomStream, Rounding};

/// That both ways give the same bytes, along every axis and by every rounding.
fn assert_widened<T: EncodeNumber>(
    format: BlockFormat,
    data: &[T],
    widen: impl Fn(T) -> f32,
    shape: &[usize],
) {
    let wide: Vec<f32> = data.iter().map(|x| widen(*x)).collect();
    for axis in 0..shape.len() {
        for rounding in Rounding::ALL {
            let rounder = rounding.with(RandomStream::new(9, 9));
            let got = Packed::encode_from(format, data, shape, axis, rounder);
            let expected = Packed::encode(format, &wide, shape, axis, rounder);
            assert!(got == expected, "{format} {rounding} {shape:?} {axis}");
        }
    }
}

fn formats() -> impl Iterator<Item = BlockFormat> {
    let others = [
        "nvfp4(tensor_scale=true)",
        "nvfp4(tensor_scale=true,four_over_six=true)",
        "mx(element=fp4_e2m1,scale_mode=rms)",
        "mx(element=fp8_e4m3,block_size=16,square=true)",
        "mx(element=float16)",
    ];
    let names = BlockFormat::NAMES.into_iter().chain(others);
    names.map(|name| name.parse().unwrap())
}

/// All 2^16 patterns, as they follow each other: blocks of numbers alike, of subnormal ones, of NaN.
#[test]
fn every_pattern() {
    for format in formats() {
        let wide: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
        let narrow: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        assert_widened(format, &wide, bf16::to_f32, &[256, 256]);
        assert_widened(format, &narrow, f16::to_f32, &[256, 256]);
    }
}

/// All finite patterns in an order that puts small ones beside large ones: for tensor scales and for BFP.
#[test]
fn every_finite_pattern_among_others() {
    let shuffled = (0..=u16::MAX).map(|i| i.wrapping_mul(40_503));
    let finite_bf16 = shuffled.clone().map(bf16::from_bits);
    let mut finite_bf16: Vec<bf16> = finite_bf16.filter(|x| x.is_finite()).collect();
    let mut finite_f16: Vec<f16> = shuffled
        .map(f16::from_bits)
        .filter(|x| x.is_finite())
        .collect();
    finite_bf16.truncate(64_000);
    finite_f16.truncate(60_000);
    for format in formats() {
        assert_widened(format, &finite_bf16, bf16::to_f32, &[100, 640]);
        assert_widened(format, &finite_f16, f16::to_f32, &[125, 480]);
    }
}

/// Ordinary numbers, which are packed many blocks at a time, in tensors large enough for threads.
#[test]
fn ordinary_numbers() {
    for format in formats() {
        for shape in [&[300, 512][..], &[3, 41, 37]] {
            let data = numbers(shape.iter().product(), 0, false, 3);
            let wide: Vec<bf16> = data.iter().map(|x| bf16::from_f32(*x)).collect();
            let narrow: Vec<f16> = data.iter().map(|x| f16::from_f32(*x)).collect();
            assert_widened(format, &wide, bf16::to_f32, shape);
            assert_widened(format, &narrow, f16::to_f32, shape);
        }
    }
}

#[test]
fn what_bfp_refuses() {
    let mut data = [bf16::ONE; 16];
    data[9] = bf16::NEG_INFINITY;
    let rounder = Rounding::NearestEven.with(RandomStream::new(0, 0));
    let error = Packed::encode_from("bfp16".parse().unwrap(), &data, &[16], 0, rounder);
    assert_eq!(
        error,
        Err(PackError::NotFinite {
            format: "bfp",
            position: 9
        })
    );
}
