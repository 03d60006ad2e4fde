//! The errors of quantization, against sums written as their definitions are.

use microscaling::{
    BlockFormat, Comparison, ElementFormat, FloatFormat, OperandQuantization, PartStatistics,
    QuantizeError, RandomHadamard, RandomStream, Rounding, ScaleMode, Statistics, StatisticsParts,
};
use proptest::prelude::*;

use super::float_state::ieee;
use super::inputs::{formats, numbers};
use super::oracle;
use super::square;

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
}

/// The elements of each block, as places in the tensor.
pub(super) fn blocks(shape: &[usize], axis: usize, format: BlockFormat) -> Vec<Vec<usize>> {
    if format.square {
        return square::blocks(shape, axis, format.group_size());
    }
    let size = format.group_size();
    let inner: usize = shape[axis + 1..].iter().product();
    let outer: usize = shape[..axis].iter().product();
    let size = if size == 0 { shape[axis] } else { size };
    let mut blocks = Vec::new();
    for outer in 0..outer {
        for inner_at in 0..inner {
            let place = |at: usize| (outer * shape[axis] + at) * inner + inner_at;
            let places: Vec<usize> = (0..shape[axis]).map(place).collect();
            blocks.extend(places.chunks(size.max(1)).map(<[usize]>::to_vec));
        }
    }
    blocks
}

/// The largest number and the scale of an MX block of finite numbers, from its values alone.
fn mx_scale(format: &BlockFormat, block: &[f32]) -> Option<(f64, f64)> {
    let exponent = format.scale_exponent_of(block)?;
    let scale = 2_f64.powi(exponent);
    Some((scale, oracle::largest(format.element, exponent)))
}

fn check(format: BlockFormat, shape: &[usize], axis: usize, seed: u64, specials: bool) {
    let count = shape.iter().product();
    let x = numbers(count, 0, specials, seed);
    let mut q = x.clone();
    let even = Rounding::NearestEven.with(RandomStream::new(0, 0));
    format
        .quantize(&mut q, shape, axis, even)
        .expect("the format is valid");
    let statistics = Statistics::of(Comparison {
        original: &x,
        quantized: &q,
        shape,
        axis,
        format: Some(format),
    })
    .expect("all fits");

    ieee(|| {
        let pairs = x
            .iter()
            .zip(&q)
            .filter(|(x, q)| x.is_finite() && q.is_finite());
        let pairs: Vec<(f64, f64)> = pairs.map(|(x, q)| (f64::from(*x), f64::from(*q))).collect();
        let sum =
            |term: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|(x, q)| term(*x, *q)).sum::<f64>();
        assert_eq!(statistics.elements(), count as u64);
        assert_eq!(statistics.non_finite(), (count - pairs.len()) as u64);
        let overflow = x
            .iter()
            .zip(&q)
            .filter(|(x, q)| x.is_finite() && q.is_infinite());
        assert_eq!(statistics.overflow(), overflow.count() as u64);
        assert!(close(statistics.power(), sum(&|x, _| x * x)));
        assert!(close(statistics.error(), sum(&|x, q| (x - q) * (x - q))));
        let lost = pairs.iter().filter(|(x, q)| *x != 0.0 && *q == 0.0).count();
        assert_eq!(statistics.underflow(), lost as u64);
        let nonzero = pairs.iter().filter(|(x, _)| *x != 0.0).count();
        assert_eq!(statistics.nonzero(), nonzero as u64);
        let magnitudes = pairs.iter().map(|(x, _)| x.abs());
        let amax = magnitudes.clone().fold(0.0, f64::max);
        assert_eq!(f64::from(statistics.amax()), amax);
        let smallest = magnitudes.filter(|x| *x > 0.0).reduce(f64::min);
        assert_eq!(statistics.smallest().map(f64::from), smallest);
        if statistics.power() > 0.0 {
            let slope = sum(&|x, q| x * q) / sum(&|x, _| x * x);
            // A block with NaN gives its finite numbers very large values in `bfp16ebs8`.
            let tolerance = 1e-12 * slope.abs().max(1.0);
            assert!((statistics.slope().unwrap() - slope).abs() < tolerance);
            let norms = (sum(&|x, _| x * x) * sum(&|_, q| q * q)).sqrt();
            if norms > 0.0 {
                assert!((statistics.cosine().unwrap() - sum(&|x, q| x * q) / norms).abs() < 1e-12);
            }
            let sqnr = 10.0 * (sum(&|x, _| x * x) / statistics.error()).log10();
            // In dB, of which there may be none.
            assert!((statistics.sqnr().unwrap() - sqnr).abs() < 1e-9 || sqnr.is_infinite());
            assert!(close(
                statistics.mse().unwrap(),
                statistics.error() / pairs.len() as f64
            ));
        }

        // Block by block.
        let blocks = blocks(shape, axis, format);
        assert_eq!(statistics.blocks(), blocks.len() as u64);
        let mut ratios = Vec::new();
        let (mut saturated, mut scales) = (0, Vec::new());
        for block in &blocks {
            let finite: Vec<usize> = block
                .iter()
                .copied()
                .filter(|&at| x[at].is_finite() && q[at].is_finite())
                .collect();
            let power: f64 = finite.iter().map(|&at| f64::from(x[at]).powi(2)).sum();
            let error = finite
                .iter()
                .map(|&at| (f64::from(x[at]) - f64::from(q[at])).powi(2));
            if power > 0.0 {
                ratios.push((error.sum::<f64>() / power) as f32);
            }
            if format.is_mx() && power > 0.0 {
                let values: Vec<f32> = finite.iter().map(|&at| x[at]).collect();
                let before = block.iter().map(|&at| x[at]).filter(|x| x.is_finite());
                let before: Vec<f32> = before.collect();
                if let Some((scale, largest)) = mx_scale(&format, &before) {
                    scales.push(scale.log2() as i32);
                    let flushed = finite.iter().all(|&at| q[at] == 0.0);
                    let beyond = values
                        .iter()
                        .filter(|x| f64::from(x.abs()) > largest)
                        .count();
                    saturated += if flushed { 0 } else { beyond };
                }
            }
        }
        ratios.sort_by(f32::total_cmp);
        if let (Some(worst), Some(best)) = (ratios.last(), ratios.first()) {
            let decibels = |ratio: f32| -10.0 * f64::from(ratio).log10();
            let [got_worst, median, got_best] = statistics.block_sqnr([0.0, 0.5, 1.0]).unwrap();
            let near = |a: f64, b: f64| a == b || (a - b).abs() < 1e-5;
            assert!(near(got_worst, decibels(*worst)) && near(got_best, decibels(*best)));
            let place = (0.5 * (ratios.len() - 1) as f64).round() as usize;
            let place = ratios.len() - 1 - place;
            assert!(near(median, decibels(ratios[place])));
        } else {
            assert_eq!(statistics.block_sqnr([0.5]), None);
        }
        if format.is_mx() {
            assert_eq!(
                statistics.saturated(),
                saturated as u64,
                "{format} {shape:?}"
            );
            let mut histogram = std::collections::BTreeMap::new();
            scales
                .iter()
                .for_each(|scale| *histogram.entry(*scale).or_insert(0) += 1);
            assert_eq!(
                statistics.scales().collect::<Vec<_>>(),
                histogram.into_iter().collect::<Vec<_>>()
            );
        }
    });

    // On the way, nothing kept.
    let quantization = OperandQuantization {
        blocks: Some((format, Rounding::NearestEven)),
        ..OperandQuantization::default()
    };
    let on_the_way = Statistics::of_quantizing(&x, shape, axis, quantization);
    assert_eq!(on_the_way.expect("all fits"), statistics);
}

proptest! {
    #[test]
    fn every_figure_is_its_definition(
        format in formats(),
        shape in prop::collection::vec(1..40_usize, 1..4),
        axis in 0..3_usize,
        seed: u64,
        specials: bool,
    ) {
        prop_assume!(shape.len() > 1 || !format.square);
        check(format, &shape, axis % shape.len(), seed, specials);
    }
}

/// A transform and a factor come between the rounding and the blocks.
#[test]
fn of_a_transformed_tensor() {
    let stream = RandomStream::new(4, 2);
    let x: Vec<f32> = (0..6000)
        .map(|i| (stream.draw(i) as f32).sin() * 3.0)
        .collect();
    let shape = [60, 100];
    let format: BlockFormat = "nvfp4(tensor_scale=true)".parse().unwrap();
    let bfloat16 = FloatFormat::bfloat(16).unwrap();
    let transform = RandomHadamard { block_size: 32 };
    let quantization = OperandQuantization {
        elementwise: Some((bfloat16, Rounding::NearestEven)),
        hadamard: Some((transform, stream.into())),
        factor: Some(0.9),
        blocks: Some((format, Rounding::NearestEven)),
        ..OperandQuantization::default()
    };
    let rounder = Rounding::NearestEven.with(stream);
    let mut original = x.clone();
    bfloat16.round_slice(&mut original, rounder);
    transform
        .transform(&mut original, &shape, 1, stream)
        .unwrap();
    original.iter_mut().for_each(|x| *x *= 0.9);
    let mut quantized = original.clone();
    format.quantize(&mut quantized, &shape, 1, rounder).unwrap();
    let expected = Statistics::of(Comparison {
        original: &original,
        quantized: &quantized,
        shape: &shape,
        axis: 1,
        format: Some(format),
    });
    assert_eq!(
        Statistics::of_quantizing(&x, &shape, 1, quantization).unwrap(),
        expected.unwrap()
    );
}

#[test]
fn large_tensors_have_the_same_figures_on_any_number_of_threads() {
    for name in [
        "mxfp4",
        "mx9",
        "nvfp4(tensor_scale=true)",
        "nvfp4(tensor_scale=true,square=true)",
        "mx(element=fp8_e4m3,block_size=32,square=true)",
        "mx(element=int8,block_size=0)",
    ] {
        let format: BlockFormat = name.parse().unwrap();
        for (shape, axis) in [([700, 450], 0), ([700, 450], 1), ([2, 200_003], 1)] {
            let x = numbers(shape[0] * shape[1], 0, false, 7);
            let quantization = OperandQuantization {
                elementwise: Some((FloatFormat::bfloat(16).unwrap(), Rounding::NearestEven)),
                blocks: Some((format, Rounding::NearestEven)),
                ..OperandQuantization::default()
            };
            let by = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
                let look = || Statistics::of_quantizing(&x, &shape, axis, quantization).unwrap();
                pool.build().unwrap().install(look)
            };
            let one = by(1);
            assert_eq!(by(2), one, "{name} {shape:?} {axis}");
            assert_eq!(by(5), one, "{name} {shape:?} {axis}");

            let mut before = x.clone();
            let even = Rounding::NearestEven.with(RandomStream::new(0, 0));
            FloatFormat::bfloat(16)
                .unwrap()
                .round_slice(&mut before, even);
            let mut after = before.clone();
            format.quantize(&mut after, &shape, axis, even).unwrap();
            let given = Statistics::of(Comparison {
                original: &before,
                quantized: &after,
                shape: &shape,
                axis,
                format: Some(format),
            });
            assert_eq!(given.unwrap(), one, "{name} {shape:?} {axis}");
        }
    }
}

/// Standard normal numbers, by Box and Muller.
fn normal(count: usize) -> Vec<f32> {
    let stream = RandomStream::new(11, 0);
    let uniform = |i: u64| (f64::from(stream.draw(i)) + 0.5) / 2_f64.powi(32);
    let pair = |i: u64| {
        let radius = (-2.0 * uniform(2 * i).ln()).sqrt();
        (radius * (std::f64::consts::TAU * uniform(2 * i + 1)).cos()) as f32
    };
    (0..count as u64).map(pair).collect()
}

/// Computed beforehand, by another program.
#[test]
fn standard_normal_numbers_have_the_known_figures() {
    type E = ElementFormat;
    use ScaleMode::{Ceil, Even, Floor, Rceil};
    let known = [
        (
            E::FP4_E2M1,
            Floor,
            18.77,
            Some(0.9802),
            Some(8.81),
            Some(2.35),
        ),
        (
            E::FP4_E2M1,
            Even,
            19.01,
            Some(0.9896),
            Some(9.74),
            Some(0.63),
        ),
        (
            E::FP4_E2M1,
            Rceil,
            18.74,
            Some(0.9899),
            Some(10.72),
            Some(0.0),
        ),
        (
            E::FP4_E2M1,
            Ceil,
            16.81,
            Some(0.9925),
            Some(17.5),
            Some(0.0),
        ),
        (E::FP8_E4M3, Floor, 30.64, Some(0.9972), None, None),
        (E::FP8_E4M3, Rceil, 31.53, Some(0.9993), None, None),
        (E::FP6_E2M3, Floor, 30.95, None, None, None),
        (E::FP6_E3M2, Floor, 25.36, None, None, None),
    ];
    let x = normal(1 << 20);
    for (element, scale_mode, sqnr, slope, underflow, saturated) in known {
        let format = BlockFormat {
            scale_mode,
            ..BlockFormat::mx(element, 32)
        };
        let quantization = OperandQuantization {
            blocks: Some((format, Rounding::NearestEven)),
            ..OperandQuantization::default()
        };
        let statistics = Statistics::of_quantizing(&x, &[1 << 20], 0, quantization).unwrap();
        let percentage = |count: u64| 100.0 * count as f64 / x.len() as f64;
        let figures = [
            (statistics.sqnr().unwrap(), Some(sqnr)),
            (statistics.slope().unwrap(), slope),
            (percentage(statistics.underflow()), underflow),
            (percentage(statistics.saturated()), saturated),
        ];
        for (got, known) in figures {
            if let Some(known) = known {
                assert!(
                    (got - known).abs() <= 0.02 * known,
                    "{format}: {got}, known {known}"
                );
            }
        }
    }
}

#[test]
fn tensors_taken_together_are_one() {
    let format: BlockFormat = "mxfp6_e2m3".parse().unwrap();
    let x = numbers(64 * 64, 0, true, 3);
    let of = |x: &[f32]| {
        let quantization = OperandQuantization {
            blocks: Some((format, Rounding::NearestEven)),
            ..OperandQuantization::default()
        };
        Statistics::of_quantizing(x, &[x.len() / 64, 64], 1, quantization).unwrap()
    };
    let mut parts = of(&x[..20 * 64]);
    parts.merge(of(&x[20 * 64..]));
    let whole = of(&x);
    assert!(close(parts.power(), whole.power()) && close(parts.error(), whole.error()));
    let counts = |s: &Statistics| {
        [
            s.elements(),
            s.blocks(),
            s.non_finite(),
            s.nonzero(),
            s.underflow(),
            s.saturated(),
        ]
    };
    assert_eq!(counts(&parts), counts(&whole));
    assert_eq!(
        parts.block_sqnr([0.0, 0.1, 0.9]),
        whole.block_sqnr([0.0, 0.1, 0.9])
    );
    assert_eq!(
        parts.scales().collect::<Vec<_>>(),
        whole.scales().collect::<Vec<_>>()
    );
    assert_eq!(
        (parts.amax(), parts.smallest()),
        (whole.amax(), whole.smallest())
    );
    assert_eq!(parts.scale_range(), whole.scale_range());
    let mut none = Statistics::default();
    none.merge(whole.clone());
    assert_eq!(none, whole);
}

#[test]
fn what_is_not_there_has_no_figures() {
    let format = BlockFormat::nvfp4(true);
    let of = |x: &[f32]| {
        Statistics::of(Comparison {
            original: x,
            quantized: x,
            shape: &[x.len()],
            axis: 0,
            format: Some(format),
        })
        .unwrap()
    };
    let zeros = of(&[0.0; 20]);
    assert_eq!((zeros.blocks(), zeros.mse()), (2, Some(0.0)));
    assert_eq!(
        (zeros.sqnr(), zeros.slope(), zeros.cosine()),
        (None, None, None)
    );
    assert_eq!((zeros.smallest(), zeros.dynamic_range()), (None, None));
    assert_eq!((zeros.scale_log2(), zeros.scale_range()), (None, None));
    assert_eq!(of(&[]).mse(), None);
    assert_eq!(of(&[f32::NAN; 3]).non_finite(), 3);
    assert_eq!(of(&[3.0; 16]).sqnr(), Some(f64::INFINITY));
}

#[test]
fn what_does_not_fit_is_an_error() {
    let format: BlockFormat = "mxfp4".parse().unwrap();
    let of = |quantized: &[f32], axis| {
        Statistics::of(Comparison {
            original: &[1.0; 6],
            quantized,
            shape: &[2, 3],
            axis,
            format: Some(format),
        })
    };
    assert!(matches!(
        of(&[1.0; 5], 0),
        Err(QuantizeError::LengthMismatch { got: 5, .. })
    ));
    assert!(matches!(
        of(&[1.0; 6], 2),
        Err(QuantizeError::AxisOutOfRange { axis: 2, rank: 2 })
    ));
    let unsound = BlockFormat {
        tensor_scale: true,
        ..BlockFormat::mx(ElementFormat::FP4_E2M1, 32)
    };
    let quantization = OperandQuantization {
        blocks: Some((unsound, Rounding::NearestEven)),
        ..OperandQuantization::default()
    };
    let result = Statistics::of_quantizing(&[1.0], &[1], 0, quantization);
    assert!(matches!(result, Err(QuantizeError::Format(_))));
}

#[test]
fn overflow_is_what_becomes_infinite() {
    let original = [7e4, -1e5, 6e4, f32::INFINITY, f32::NAN, 0.0];
    let fp16 = FloatFormat::fp(16).expect("16 bits are allowed");
    let mut quantized = original;
    fp16.round_slice(
        &mut quantized,
        Rounding::NearestEven.with(RandomStream::new(0, 0)),
    );
    let of = |original: &[f32], quantized: &[f32]| {
        let shape = &[original.len()];
        let (axis, format) = (0, None);
        let comparison = Comparison {
            original,
            quantized,
            shape,
            axis,
            format,
        };
        Statistics::of(comparison).expect("all fits")
    };
    let mut both = of(&original, &quantized);
    assert_eq!((both.overflow(), both.non_finite()), (2, 4));
    both.merge(of(&[1e9], &[f32::INFINITY]));
    assert_eq!(
        (both.overflow(), both.non_finite(), both.elements()),
        (3, 5, 7)
    );
}

/// The scale of such a block is 2^126. Without its largest number it would be 2^125. The largest number of the block below
/// 2^128 is 3 · 2^126, and 2.6e38 lies beyond.
#[test]
fn a_block_keeps_its_scale_where_an_element_becomes_infinite() {
    let before = [3.4e38, 2.6e38, -1e38, 0.0];
    let after = [f32::INFINITY, 3.0 * 2f32.powi(126), -(2f32.powi(126)), 0.0];
    let twice = |values: [f32; 4]| values.into_iter().flat_map(|x| [x, x]).collect::<Vec<_>>();
    let line = "mx(element=fp4_e2m1,block_size=4,scale_mode=even)";
    let square = "mx(element=fp4_e2m1,block_size=2,scale_mode=even,square=true)";
    for (name, shape, axis, before, after) in [
        (line, [1, 4], 1, before.to_vec(), after.to_vec()),
        (line, [4, 2], 0, twice(before), twice(after)),
        (square, [2, 2], 1, before.to_vec(), after.to_vec()),
    ] {
        let statistics = Statistics::of(Comparison {
            original: &before,
            quantized: &after,
            shape: &shape,
            axis,
            format: Some(name.parse().unwrap()),
        });
        let statistics = statistics.unwrap();
        let blocks = shape[1 - axis] as u64 / if name == square { 2 } else { 1 };
        assert_eq!(statistics.overflow(), blocks, "{name}");
        assert_eq!(statistics.saturated(), blocks, "{name}");
        assert_eq!(
            statistics.scales().collect::<Vec<_>>(),
            [(126, blocks)],
            "{name}"
        );
    }
}

/// A scale that is not positive and finite counts as missing, as for a whole tensor.
#[test]
fn parts_may_have_scales_that_are_none() {
    for scale in [0.0, -0.0, -1.0, f32::INFINITY, f32::NAN, -f32::NAN] {
        let part = PartStatistics {
            blocks: 2,
            ratios: vec![0.1, 0.2],
            scales: vec![scale, 4.0],
            ..PartStatistics::default()
        };
        let statistics = Statistics::of_parts(64, [part]);
        assert_eq!(statistics.scales().collect::<Vec<_>>(), [(2, 1)], "{scale}");
        assert_eq!(statistics.scale_range(), Some([4.0, 4.0]));
        assert_eq!(statistics.scale_log2(), Some([2.0, 0.0]));
    }
    let part = PartStatistics {
        non_finite: 9,
        ..PartStatistics::default()
    };
    assert_eq!(Statistics::of_parts(3, [part]).mse(), None);
}

/// No parts, wherever the empty axis is, and however long the others are.
#[test]
fn tensors_without_elements_have_no_parts() {
    let names = [
        "mxfp4",
        "mx(element=int8,block_size=0)",
        "mx9",
        "nvfp4(square=true)",
    ];
    let formats = names.map(|name| Some(name.parse().unwrap()));
    for format in formats.into_iter().chain([None]) {
        for shape in [
            [0, 64, 64],
            [64, 0, 64],
            [64, 64, 0],
            [0, usize::MAX, usize::MAX],
            [0; 3],
        ] {
            for axis in 0..3 {
                let parts = StatisticsParts::of(format, &shape, axis).unwrap();
                assert_eq!((parts.count(), parts.runs(), parts.blocks()), (0, 0, 0));
            }
        }
    }
}
