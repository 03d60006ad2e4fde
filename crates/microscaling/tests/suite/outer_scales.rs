//! Scales of tiles and channels, above the scales of blocks.

use half::bf16;
use microscaling::{
    BlockFormat, FormatError, OuterScale, Packed, RandomStream, Rounder, ScaleFormat,
};

/// Numbers whose magnitudes differ much from row to row.
fn numbers(rows: usize, columns: usize) -> Vec<f32> {
    let stream = RandomStream::new(11, 0);
    (0..rows * columns)
        .map(|i| {
            let uniform = stream.draw(i as u64) as f32 / 4_294_967_296.0 - 0.5;
            uniform * 2.0_f32.powi((i / columns % 7) as i32 * 5 - 12)
        })
        .collect()
}

fn turned(x: &[f32], [rows, columns]: [usize; 2]) -> Vec<f32> {
    (0..rows * columns)
        .map(|i| x[i % rows * columns + i / rows])
        .collect()
}

const ELEMENTS: [&str; 3] = ["e2m1", "int4", "e4m3"];

/// A part with a float32 scale is quantized as a tensor with a tensor scale: rows, tiles, and a shorter last tile.
#[test]
fn a_part_is_a_tensor() {
    let (rows, columns) = (6, 200);
    let x = numbers(rows, columns);
    for element in ELEMENTS {
        for size in [0, 16, 48, 128, 256] {
            let text = format!("block(element={element},scale=ue4m3,block_size=16");
            let outer: BlockFormat = format!("{text},outer_size={size})").parse().unwrap();
            let of_tensor: BlockFormat = format!("{text},tensor_scale=true)").parse().unwrap();
            for rounder in [Rounder::NearestEven, Rounder::TowardZero] {
                let mut expected = x.clone();
                for row in expected.chunks_mut(columns) {
                    for part in row.chunks_mut(if size == 0 { columns } else { size }) {
                        of_tensor.quantize(part, &[part.len()], 0, rounder).unwrap();
                    }
                }
                let mut got = x.clone();
                outer
                    .quantize(&mut got, &[rows, columns], 1, rounder)
                    .unwrap();
                assert_eq!(got, expected, "{outer}");
                let mut along_the_first = turned(&x, [rows, columns]);
                outer
                    .quantize(&mut along_the_first, &[columns, rows], 0, rounder)
                    .unwrap();
                assert_eq!(
                    turned(&along_the_first, [columns, rows]),
                    expected,
                    "{outer}"
                );
            }
        }
    }
}

/// The outer scale in bfloat16, by the crate `half`; the numbers by hand from it.
#[test]
fn an_outer_scale_has_its_own_format() {
    let format = BlockFormat {
        outer: Some(OuterScale {
            size: 32,
            scale: ScaleFormat::BFLOAT16,
        }),
        ..BlockFormat::AMDFP4
    };
    let x = numbers(1, 32);
    let mut got = x.clone();
    format
        .quantize(&mut got, &[32], 0, Rounder::NearestEven)
        .unwrap();
    let amax = |x: &[f32]| x.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
    let t = bf16::from_f32(amax(&x) / (114_688.0 * 6.0)).to_f32();
    assert_eq!(format.outer_scale_of(amax(&x).to_bits()), Some(t));
    let expected = x.chunks(16).flat_map(|block| {
        let c = format.block_scale_of(block, t);
        let round =
            move |x: &f32| format.round_scaled(*x, c, t, microscaling::Rounding::NearestEven, 0);
        block.iter().map(round)
    });
    assert_eq!(got, expected.collect::<Vec<f32>>());
    assert_eq!(BlockFormat::AMDFP4.outer_scale_of(0), None);
}

/// The bytes: t as float32, then a code for each block.
/// VS-Quant (arXiv 2102.04503): the scale of 16 elements is an integer times the channel's float scale. A float with one
/// exponent bit has the integers, of which the code for NaN takes the largest.
#[test]
fn integers_are_scales() {
    let (rows, columns) = (40, 80);
    let x = numbers(rows, columns);
    let text = "block(element=int4,scale=float(exponent_bits=1,mantissa_bits=3,bias=1,specials=nan),block_size=16,outer_size=0)";
    let format: BlockFormat = text.parse().unwrap();
    let mut quantized = x.clone();
    format
        .quantize(&mut quantized, &[rows, columns], 1, Rounder::NearestEven)
        .unwrap();
    let amax = |x: &[f32]| {
        x.iter()
            .fold(0.0_f64, |amax, x| amax.max(f64::from(x.abs())))
    };
    for (x, quantized) in x.chunks(columns).zip(quantized.chunks(columns)) {
        let unit = amax(x) / (7.0 * 14.0);
        for (x, quantized) in x.chunks(16).zip(quantized.chunks(16)) {
            let integer = (amax(x) / 7.0 / unit).round_ties_even();
            assert!((1.0..=14.0).contains(&integer));
            let scale = integer * unit;
            for (x, quantized) in x.iter().zip(quantized) {
                let element = (f64::from(*x) / scale).round_ties_even().clamp(-7.0, 7.0);
                let error = (element * scale - f64::from(*quantized)).abs();
                assert!(
                    error <= 1e-6 * 98.0 * unit,
                    "{x} became {quantized}, not {}",
                    element * scale
                );
            }
        }
    }
}

#[test]
fn a_record_by_hand() {
    let format: BlockFormat = "block(element=e2m1,scale=ue4m3,block_size=2,outer_size=4)"
        .parse()
        .unwrap();
    // 448 · 6 = 2688 makes t = 1 and c = 448; then 6 / 6 = 1. In the second part 5376 makes t = 2.
    let x = [2688.0, -448.0, 6.0, 3.0, 5376.0, 0.0];
    let packed = Packed::encode(format, &x, &[6], 0, Rounder::NearestEven).unwrap();
    let record = |t: f32, codes: [u8; 2]| [&t.to_le_bytes()[..], &codes].concat();
    // There is no second block in the second part.
    let expected = [record(1.0, [0x7e, 0x38]), record(2.0, [0x7e, 0])].concat();
    assert_eq!(packed.scales(), expected);
    assert_eq!(packed.scales_shape(), [2, 6]);
    assert_eq!(packed.elements(), [0xa7, 0x57, 0x07]);
    assert_eq!(packed.decode(), x);
    assert_eq!(packed.tensor_scale(), None);
    // 4 bits, a byte for 2, a float32 for 4.
    assert_eq!(format.bits_per_element(), 4.0 + 4.0 + 8.0);
    assert_eq!(format.group_size(), 4);
}

/// Packed along either axis, in parts that are shorter than others too, with any float for the outer scale.
#[test]
fn packing_is_quantizing() {
    let shape = [40, 72];
    let x = numbers(shape[0], shape[1]);
    for scale in ["float32", "bfloat16", "ue6m2"] {
        for size in [0, 16, 48] {
            let format: BlockFormat =
                format!("nvfp4(outer_size={size},outer_scale={scale},headroom=17/16)")
                    .parse()
                    .unwrap();
            for axis in [0, 1] {
                let rounder = Rounder::Stochastic(RandomStream::new(3, 0));
                let mut q = x.clone();
                format.quantize(&mut q, &shape, axis, rounder).unwrap();
                let packed = Packed::encode(format, &x, &shape, axis, rounder).unwrap();
                assert_eq!(packed.decode(), q, "{format} {axis}");
                let mut rows = vec![0.0_f32; 2 * shape[1]];
                packed.view().decode_into(5..7, &mut rows).unwrap();
                assert_eq!(rows, q[5 * shape[1]..7 * shape[1]], "{format} {axis}");
            }
        }
    }
}

/// Statistics count a part as one block. Its scale is the scale of the block with the largest magnitude.
#[cfg(feature = "std")]
#[test]
fn statistics_are_of_parts() {
    use microscaling::{Comparison, Statistics};
    let format: BlockFormat = "nvfp4(outer_size=64)".parse().unwrap();
    let shape = [8, 128];
    let x = numbers(shape[0], shape[1]);
    let mut q = x.clone();
    format
        .quantize(&mut q, &shape, 1, Rounder::NearestEven)
        .unwrap();
    let of = |format: BlockFormat, x: &[f32], q: &[f32], shape: &[usize]| {
        let comparison = Comparison {
            original: x,
            quantized: q,
            shape,
            axis: shape.len() - 1,
            format: Some(format),
        };
        Statistics::of(comparison).unwrap()
    };
    let whole = of(format, &x, &q, &shape);
    assert_eq!(whole.blocks(), 16);
    // One after the other, by the format with a tensor scale.
    let of_tensor: BlockFormat = "nvfp4(tensor_scale=true)".parse().unwrap();
    let parts = x.chunks(64).zip(q.chunks(64));
    let (mut error, mut saturated) = (0.0, 0);
    let mut least = f32::MAX;
    for (x, q) in parts {
        let part = of(of_tensor, x, q, &[64]);
        error += part.error();
        saturated += part.saturated();
        let [_, largest] = part.scale_range().unwrap();
        least = least.min(largest);
    }
    assert!((whole.error() / error - 1.0).abs() < 1e-12);
    assert_eq!(whole.saturated(), saturated);
    assert_eq!(whole.scale_range().unwrap()[0], least);
}

#[test]
fn what_has_no_outer_scale() {
    for text in [
        "block(element=e2m1,scale=ue4m3,block_size=16,outer_size=24)",
        "block(element=e2m1,scale=ue4m3,block_size=0,outer_size=0)",
        "block(element=e2m1,scale=float32,block_size=16,outer_size=64)",
        "block(element=e2m1,scale=ue4m3,block_size=16,outer_size=64,tensor_scale=true)",
        "block(element=e2m1,scale=ue4m3,block_size=16,outer_size=64,square=true)",
        "block(element=table(nf4),scale=ue4m3,block_size=16,outer_size=64)",
        "nvfp4(outer_size=64,four_over_six=true)",
    ] {
        let error = text.parse::<BlockFormat>().unwrap_err().to_string();
        assert!(
            error.contains("outer_size=") && error.contains("expected a multiple of block_size"),
            "{text}: {error}"
        );
    }
    for (text, expected) in [
        (
            "nvfp4(outer_scale=bfloat16)",
            "outer_scale is `bfloat16`, expected nothing without outer_size",
        ),
        (
            "nvfp4(outer_size=16,outer_scale=e8m0)",
            "outer_scale is `e8m0`, expected one of ue4m3",
        ),
        (
            "nvfp4(outer_size=all)",
            "outer_size is `all`, expected a number of at least 0",
        ),
    ] {
        let error = text.parse::<BlockFormat>().unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let format = BlockFormat {
        outer: Some(OuterScale::new(24)),
        ..BlockFormat::AMDFP4
    };
    let error = format.validate().unwrap_err();
    assert!(matches!(error, FormatError::OuterScale { .. }), "{error}");
}

#[test]
fn texts_are_read_back() {
    for text in [
        "block(element=fp4_e2m1,scale=ue4m3,block_size=16,outer_size=0,subnormal_scales=false)",
        "block(element=int4,scale=ue5m3,block_size=32,outer_size=128,outer_scale=bfloat16)",
    ] {
        let format: BlockFormat = text.parse().unwrap();
        assert_eq!(format.to_string(), text);
    }
    let nvfp4: BlockFormat = "nvfp4(outer_size=0)".parse().unwrap();
    assert_eq!(nvfp4.to_string().parse::<BlockFormat>().unwrap(), nvfp4);
}
