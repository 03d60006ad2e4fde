//! The thread's flush-to-zero state, which other libraries set, does not matter.

use crate::float_state::{flushing, ieee};
use crate::inputs::numbers;
use microscaling::{
    BlockFormat, Dialect, ElementFormat, FloatFormat, Packed, RandomHadamard, RandomStream,
    Rounder, Rounding, ScaleMode, WeightLayout,
};
#[cfg(feature = "std")]
use microscaling::{Comparison, PartStatistics, Statistics};

#[test]
fn every_format_at_every_size() {
    let stream = RandomStream::new(0, 0);
    let others = [
        "nvfp4(tensor_scale=true)",
        "nvfp4(tensor_scale=true,square=true)",
        "mx(element=fp4_e2m1,scale_mode=rceil,square=true)",
        "nvfp4(tensor_scale=true,four_over_six=true)",
        "nvfp4(tensor_scale=true,square=true,four_over_six=true)",
        "nvfp4(tensor_scale=false,headroom=17/16,four_over_six=true)",
        "nvfp4(tensor_scale=true,headroom=4/3)",
        "nvfp4(tensor_scale=true,headroom=255/128)",
        "nvfp4(tensor_scale=true,headroom=4/3,four_over_six=true)",
        "nvfp4(tensor_scale=true,headroom=255/128,four_over_six=true)",
        "mx(element=fp4_e2m1,scale_mode=rms)",
        "mx(element=fp4_e2m1,scale_mode=rms,square=true)",
        "mx(element=fp4_e2m1,scale_mode=rceil,headroom=4/3)",
        "mx(element=int8,scale_mode=even,headroom=3/2)",
    ];
    for name in BlockFormat::NAMES.into_iter().chain(others) {
        let format: BlockFormat = name.parse().unwrap();
        let shape: &[usize] = match format.square {
            true => &[2, 32],
            false => &[64],
        };
        for center in -149..=128 {
            let data = numbers(64, center, false, center as u64);
            for rounding in Rounding::ALL {
                let run = || {
                    let mut values = data.clone();
                    format
                        .quantize(&mut values, shape, 0, rounding.with(stream))
                        .unwrap();
                    let packed =
                        Packed::encode(format, &data, shape, 0, rounding.with(stream)).unwrap();
                    let decoded = packed.decode();
                    #[cfg(feature = "half")]
                    let halves = {
                        let rows = 0..packed.view().rows();
                        let mut halves = vec![half::f16::ZERO; decoded.len()];
                        packed.view().decode_into(rows, &mut halves).unwrap();
                        halves
                            .into_iter()
                            .map(half::f16::to_bits)
                            .collect::<Vec<_>>()
                    };
                    #[cfg(not(feature = "half"))]
                    let halves = ();
                    let bits =
                        |data: Vec<f32>| data.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                    (bits(values), bits(decoded), halves, packed)
                };
                assert!(flushing(run) == ieee(run), "{name} {rounding} 2^{center}");
            }
        }
    }
}

/// Numbers whose sums, differences and products are subnormal, alone and among others, along both kinds of axis.
#[test]
fn random_hadamard() {
    for block_size in RandomHadamard::BLOCK_SIZES {
        let transform = RandomHadamard { block_size };
        for (axis, inner) in [(128, 1), (100, 1), (128, 3), (255, 7), (128, 64), (33, 129)] {
            for center in (-149..=-90).chain([0]) {
                let mut data = numbers(axis * inner, center, false, center as u64);
                if center % 3 == 0 {
                    data.iter_mut().step_by(5).for_each(|x| *x = 1.0);
                }
                let run = || {
                    let mut values = data.clone();
                    let signs = RandomStream::new(1, 2);
                    let shape = [axis, inner];
                    transform.transform(&mut values, &shape, 0, signs).unwrap();
                    let mut back = data.clone();
                    transform.inverse(&mut back, &shape, 0, signs).unwrap();
                    values.extend(back);
                    values.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                };
                assert!(
                    flushing(run) == ieee(run),
                    "{block_size} {axis} {inner} 2^{center}"
                );
            }
        }
    }
}

/// The rules of single elements and blocks.
#[test]
fn scalar_functions() {
    let elements = [ElementFormat::INT8, ElementFormat::FP8_E4M3];
    for x in (0..32).flat_map(|bit| [1 << bit, 3 << bit, u32::MAX >> bit, 0]) {
        let run = || {
            let value = f32::from_bits(x);
            let modes = ScaleMode::POWERS.into_iter();
            let modes = modes.filter(|mode| *mode != ScaleMode::Rms);
            let exponents = elements.into_iter().flat_map(move |element| {
                modes.clone().map(move |scale_mode| {
                    let format = BlockFormat {
                        scale_mode,
                        ..BlockFormat::mx(element, 32)
                    };
                    format.scale_exponent(x)
                })
            });
            let nvfp4 = BlockFormat::nvfp4(true);
            let scale = nvfp4.tensor_scale_of(x);
            let rounded = nvfp4.round_element(value, [x; 2], scale, Rounding::NearestEven, 0);
            let floats = [FloatFormat::bfloat(16), FloatFormat::fp(16)].map(|format| {
                let format = format.unwrap();
                let flushing = format.with_subnormals(false);
                [format, flushing]
                    .map(|format| format.round(value, Rounding::NearestEven, 0).to_bits())
            });
            (
                exponents.collect::<Vec<_>>(),
                scale.to_bits(),
                nvfp4.block_scale_of(&[value], scale).to_bits(),
                rounded.to_bits(),
                floats,
            )
        };
        assert_eq!(flushing(run), ieee(run), "{x:#x}");
    }
}

/// Subnormals among ordinary numbers, and alone.
#[test]
fn dialects_and_layouts() {
    for dialect in Dialect::ALL {
        for name in dialect.formats() {
            let format: BlockFormat = name.parse().unwrap();
            for center in [-149, -140, -126, -110, 0, 100, 120] {
                // A scale beyond float16 makes NaN, which equals nothing.
                if format.element == ElementFormat::INT8 && center > 0 {
                    continue;
                }
                let mut data = numbers(128, center, false, 3);
                data[..64].iter_mut().step_by(3).for_each(|x| *x *= 1e-30);
                data[5] = f32::from_bits(0x8000_0001);
                let run = || {
                    let tensor = dialect.encode(format, &data, &[2, 64]);
                    let stored = tensor.as_ref().ok().map(|tensor| {
                        WeightLayout::ALL
                            .map(|layout| layout.store("w", &tensor.packed.view(), tensor.divisor))
                    });
                    let plain =
                        Packed::encode(format, &data, &[2, 64], 1, Rounder::NearestEven).unwrap();
                    let difference = tensor.as_ref().ok().map(|tensor| {
                        let difference = tensor.packed.view().difference(&plain.view());
                        difference.map(|difference| (difference.largest.to_bits(), difference))
                    });
                    (tensor, stored, difference)
                };
                assert!(flushing(run) == ieee(run), "{dialect} {name} 2^{center}");
            }
        }
    }
}

/// All figures of tensors of subnormals, and of some beside other numbers.
#[cfg(feature = "std")]
#[test]
fn statistics() {
    let format: BlockFormat = "mx(element=int8,block_size=8)".parse().unwrap();
    for center in [-149, -140, -130, -120, 0] {
        let data = numbers(64, center, false, 11);
        let run = || {
            let mut quantized = data.clone();
            format
                .quantize(&mut quantized, &[64], 0, Rounder::NearestEven)
                .unwrap();
            let mut statistics = Statistics::of(Comparison {
                original: &data,
                quantized: &quantized,
                shape: &[64],
                axis: 0,
                format: Some(format),
            })
            .unwrap();
            let part = PartStatistics {
                blocks: 2,
                ratios: vec![f32::from_bits(3), 0.5],
                scales: vec![f32::from_bits(5), f32::from_bits(9)],
                ..PartStatistics::default()
            };
            statistics.merge(Statistics::of_parts(2, [part]));
            let doubles = [
                statistics.mse(),
                statistics.sqnr(),
                statistics.slope(),
                statistics.cosine(),
                statistics.dynamic_range(),
            ];
            let of_blocks = statistics.block_sqnr([0.0, 0.3, 1.0]);
            let range = statistics
                .scale_range()
                .map(|range| range.map(f32::to_bits));
            let bits = |x: f64| x.to_bits();
            (
                doubles.map(|x| x.map(bits)),
                of_blocks.map(|x| x.map(bits)),
                range,
                statistics.smallest().map(f32::to_bits),
                [statistics.power(), statistics.error()].map(bits),
                statistics.underflow(),
            )
        };
        assert_eq!(flushing(run), ieee(run), "2^{center}");
    }
}
