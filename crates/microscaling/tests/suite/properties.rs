//! Rules for all data, all formats and all rounding modes.

use crate::float_state::ieee;
use crate::oracle::{self, headrooms, pow2};
use microscaling::{
    BlockFormat, ElementFormat, FloatFormat, RandomStream, Rounder, Rounding, ScaleFormat,
    ScaleMode, SharedExpMethod, Subnormals,
};
use proptest::prelude::*;
use proptest::sample::select;

const DETERMINISTIC: [Rounding; 3] = [
    Rounding::NearestAway,
    Rounding::NearestEven,
    Rounding::TowardZero,
];

fn quantized(format: BlockFormat, data: &[f32], rounding: Rounding) -> Vec<f32> {
    let mut data = data.to_vec();
    let shape = [data.len()];
    format
        .quantize(&mut data, &shape, 0, rounding.with(RandomStream::new(3, 9)))
        .unwrap();
    data
}

fn bits(data: &[f32]) -> Vec<u32> {
    data.iter().map(|x| x.to_bits()).collect()
}

/// Numbers whose exponents are close together, in the middle or at an end of float32.
fn finite_block(len: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<f32>> {
    let one = (any::<bool>(), 0..16_u32, 0..1_u32 << 23);
    let base = prop_oneof![Just(120_u32), Just(0), Just(238), 0..=238_u32];
    (base, prop::collection::vec(one, len)).prop_map(|(base, parts)| {
        let number = |(negative, exponent, mantissa): (bool, u32, u32)| {
            f32::from_bits(u32::from(negative) << 31 | (base + exponent) << 23 | mantissa)
        };
        parts.into_iter().map(number).collect()
    })
}

fn formats() -> impl Strategy<Value = BlockFormat> {
    let block_size = prop_oneof![Just(0_usize), Just(16), Just(32), 1..40_usize];
    let scale_bits = prop_oneof![3 => Just(8_u32), 1 => 1..=8_u32];
    let methods = prop_oneof![4 => Just(SharedExpMethod::Max), 1 => Just(SharedExpMethod::None)];
    let modes = (
        select(ScaleMode::POWERS.to_vec()),
        methods,
        select(headrooms()),
    );
    let elements = select(ElementFormat::NAMED.to_vec());
    (elements, block_size, scale_bits, modes, any::<bool>()).prop_map(
        |(element, block_size, scale_bits, modes, flush_fp32_subnorms)| {
            let (scale_mode, shared_exp_method, headroom) = modes;
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
                headroom,
                ..BlockFormat::mx(element, block_size)
            }
        },
    )
}

/// Formats as OCP has them.
fn plain_formats() -> impl Strategy<Value = BlockFormat> {
    select(ElementFormat::NAMED.to_vec()).prop_map(|element| BlockFormat::mx(element, 0))
}

fn amax(block: &[f32]) -> f32 {
    ieee(|| block.iter().fold(0.0, |max, x| x.abs().max(max)))
}

/// The exponent of a block's scale 2^s.
fn scale(format: BlockFormat, block: &[f32]) -> i32 {
    format.scale_exponent(amax(block).to_bits()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A quantized tensor is its own quantization. Only with OCP's scale: a mode that rounds scales up
    /// may find a smaller one for the result.
    #[test]
    fn idempotent(format in plain_formats(), data in finite_block(1..70)) {
        for rounding in DETERMINISTIC {
            let once = quantized(format, &data, rounding);
            for again in Rounding::ALL {
                prop_assert_eq!(bits(&quantized(format, &once, again)), bits(&once));
            }
        }
    }

    #[test]
    fn float_formats_are_idempotent(bits in 7..=32_u32, data in finite_block(1..70)) {
        let formats = [FloatFormat::bfloat(bits), FloatFormat::fp(bits)];
        for format in formats.into_iter().filter_map(Result::ok) {
            for rounding in Rounding::ALL {
                let mut once = data.clone();
                format.round_slice(&mut once, rounding.with(RandomStream::new(1, 1)));
                for again in Rounding::ALL {
                    let mut twice = once.clone();
                    format.round_slice(&mut twice, again.with(RandomStream::new(2, 2)));
                    prop_assert!(twice == once, "{}", format);
                }
            }
        }
    }

    /// A larger element of a block never becomes smaller than a lesser one.
    #[test]
    fn monotonic(format in formats(), mut data in finite_block(1..70)) {
        data.sort_by(f32::total_cmp);
        let format = BlockFormat { block_size: 0, shared_exp_method: SharedExpMethod::Max, ..format };
        for rounding in DETERMINISTIC {
            let output = quantized(format, &data, rounding);
            let nan = output.iter().all(|x| x.is_nan());
            prop_assert!(nan || output.is_sorted(), "{:?}", output);
        }
    }

    #[test]
    fn float_formats_are_monotonic(n in 7..=32_u32, mut data in finite_block(1..70)) {
        data.sort_by(f32::total_cmp);
        let formats = [FloatFormat::bfloat(n), FloatFormat::fp(n)];
        for format in formats.into_iter().filter_map(Result::ok) {
            for rounding in DETERMINISTIC {
                let output = data.iter().map(|x| format.round(*x, rounding, 0));
                prop_assert!(output.is_sorted(), "{}", format);
            }
        }
    }

    #[test]
    fn symmetric(format in formats(), data in finite_block(1..70)) {
        let negative: Vec<f32> = data.iter().map(|x| -x).collect();
        for rounding in Rounding::ALL {
            let output = quantized(format, &data, rounding);
            let of_negative = quantized(format, &negative, rounding);
            for (a, b) in output.into_iter().zip(of_negative) {
                prop_assert!(a.to_bits() == (-b).to_bits() || a.is_nan() && b.is_nan());
            }
        }
    }

    /// The error is at most half a step (a whole one with `floor`) of the grid around the element,
    /// unless it saturates, and there it becomes the largest number.
    #[test]
    fn error_is_bounded(format in plain_formats(), data in finite_block(1..40)) {
        let element = format.element;
        let s = scale(format, &data);
        let max = oracle::largest(element, s);
        for rounding in DETERMINISTIC {
            let output = quantized(format, &data, rounding);
            ieee(|| {
            for (x, y) in data.iter().zip(output) {
                let (x, y) = (f64::from(x.abs()), f64::from(y.abs()));
                if x > max {
                    prop_assert_eq!(y, max);
                    continue;
                }
                let exponent = if x > 0.0 { x.log2().floor() as i32 } else { i32::MIN };
                let step = 2.0_f64.powi(exponent.max(element.emin() + s) - element.mantissa_bits() as i32);
                let bound = if rounding == Rounding::TowardZero { step } else { step / 2.0 };
                prop_assert!((x - y).abs() <= bound, "{} {}: {:e} became {:e}", element, rounding, x, y);
                prop_assert!(rounding != Rounding::TowardZero || y <= x);
            }
            Ok(())
            })?;
        }
    }

    /// The order of the elements of a block does not matter to any of them.
    #[test]
    fn permutation(format in formats(), data in finite_block(2..40), shift in 1..40_usize) {
        let format = BlockFormat { block_size: 0, ..format };
        let shift = shift % data.len();
        let mut rotated = data.clone();
        rotated.rotate_left(shift);
        for rounding in DETERMINISTIC {
            let mut expected = quantized(format, &data, rounding);
            expected.rotate_left(shift);
            prop_assert_eq!(bits(&quantized(format, &rotated, rounding)), bits(&expected));
        }
    }

    /// A block with a NaN or Inf is all NaN, and only that block.
    #[test]
    fn non_finite_block(
        format in formats(),
        data in finite_block(1..100),
        at in any::<prop::sample::Index>(),
        bad in select(vec![f32::NAN, -f32::NAN, f32::INFINITY, -f32::INFINITY]),
    ) {
        let mut poisoned = data.clone();
        let at = at.index(data.len());
        poisoned[at] = bad;
        let block = match (format.shared_exp_method, format.block_size) {
            (SharedExpMethod::None, _) => 1,
            (SharedExpMethod::Max, 0) => data.len(),
            (SharedExpMethod::Max, size) => size,
        };
        for rounding in Rounding::ALL {
            let clean = quantized(format, &data, rounding);
            for (i, x) in quantized(format, &poisoned, rounding).into_iter().enumerate() {
                if i / block == at / block {
                    prop_assert!(x.is_nan());
                } else {
                    prop_assert_eq!(x.to_bits(), clean[i].to_bits());
                }
            }
        }
    }

    /// The slice kernels equal the scalar functions, for any axis. So the result along a strided axis equals a
    /// transposed tensor's result.
    #[test]
    fn any_axis_is_the_scalar_rule(
        format in formats(),
        outer in 1..4_usize,
        axis in prop_oneof![1..10_usize, 1..100_usize],
        inner in prop_oneof![1..10_usize, 1..100_usize],
        seed in any::<u64>(),
    ) {
        let stream = RandomStream::new(seed, 0);
        let data: Vec<f32> = (0..outer * axis * inner)
            .map(|i| {
                // Magnitudes of very different sizes; now and then a special value.
                let x = (stream.draw(i as u64) as i32) as f32 * 2.0_f32.powi(i as i32 % 41 - 50);
                match stream.draw(!(i as u64)) % 501 {
                    0 => f32::NAN,
                    1 => f32::INFINITY,
                    2 => f32::from_bits(x.to_bits() & 0x807f_ffff),
                    3 => 0.0,
                    _ => x,
                }
            })
            .collect();
        for rounding in Rounding::ALL {
            let mut got = data.clone();
            format.quantize(&mut got, &[outer, axis, inner], 1, rounding.with(stream)).unwrap();
            let block = match (format.shared_exp_method, format.block_size) {
                (SharedExpMethod::None, _) => 1,
                (SharedExpMethod::Max, 0) => axis,
                (SharedExpMethod::Max, size) => size,
            };
            for i in 0..data.len() {
                let (o, a, n) = (i / (axis * inner), i / inner % axis, i % inner);
                let first = a / block * block;
                let of_block = (first..axis.min(first + block)).map(|a| data[(o * axis + a) * inner + n]);
                let amax = of_block.clone().map(|x| x.abs().to_bits()).max().unwrap();
                let draw = stream.draw(i as u64);
                let expected = match format.scale_mode {
                    ScaleMode::Rms if format.subnormals == Subnormals::FlushBlocks && amax < 0x0080_0000 => 0.0_f32.copysign(data[i]),
                    ScaleMode::Rms => match format.scale_exponent_of(&of_block.collect::<Vec<_>>()) {
                        Some(exponent) => {
                            let scale = ieee(|| pow2(exponent) as f32);
                            format.round_scaled(data[i], scale, 1.0, rounding, draw)
                        }
                        None => f32::NAN,
                    },
                    _ => format.round_element(data[i], [amax; 2], 1.0, rounding, draw),
                };
                if format.subnormals == Subnormals::FlushBlocks && amax < 0x0080_0000 {
                    prop_assert_eq!(expected, 0.0);
                }
                prop_assert_eq!(got[i].to_bits(), expected.to_bits(), "element {}", i);
            }
        }
    }

    /// Elements in units of their tensor scale have 6 significant bits, and times the scale they equal the quantized
    /// tensor. For smaller numbers the function returns no elements.
    #[test]
    fn tensor_scales_are_told_apart(
        options in select(vec!["", ",square=true", ",four_over_six=true", ",headroom=17/16"]),
        rounding in select(vec![Rounding::NearestEven, Rounding::Stochastic]),
        axis in 0..2_usize,
        data in finite_block(15 * 17),
    ) {
        let format: BlockFormat = format!("nvfp4(tensor_scale=true{options})").parse().unwrap();
        let rounder = rounding.with(RandomStream::new(3, 9));
        let shape = [15, 17];
        let mut whole = data.clone();
        format.quantize(&mut whole, &shape, axis, rounder).unwrap();
        let mut apart = data.clone();
        let scale = format.quantize_without_tensor_scale(&mut apart, &shape, axis, rounder).unwrap();
        let expected = format.tensor_scale_of(amax(&data).to_bits());
        let Some(scale) = scale else {
            prop_assert!(expected < 2.0_f32.powi(-80), "{}", expected);
            prop_assert_eq!(bits(&apart), bits(&data));
            return Ok(());
        };
        prop_assert_eq!(scale.to_bits(), expected.to_bits());
        ieee(|| {
        for (apart, whole) in apart.into_iter().zip(whole) {
            prop_assert_eq!(apart.to_bits() & 0x3_ffff, 0, "{}", apart);
            let product = f64::from(apart) * f64::from(scale);
            let error = (product - f64::from(whole)).abs();
            prop_assert!(error <= product.abs() * f64::from(f32::EPSILON), "{} {}", product, whole);
        }
        Ok(())
        })?;
    }

    /// Stochastic rounding gives one of the two neighbours, and each with its probability.
    #[test]
    fn stochastic(format in plain_formats(), x in finite_block(1), largest in 1.0..4.0_f32) {
        let x = x[0];
        let amax = (x.abs() * largest).min(f32::MAX);
        let draws = RandomStream::new(11, 0);
        let count = 4000;
        let one = |i| format.round_element(x, [amax.to_bits(); 2], 1.0, Rounding::Stochastic, draws.draw(i));
        let outputs: Vec<f32> = (0..count).map(one).collect();
        ieee(|| {
        let s = scale(format, &[amax]);
        let magnitude = f64::from(x.abs());
        let max = oracle::largest(format.element, s);
        if magnitude >= max {
            prop_assert!(outputs.iter().all(|y| f64::from(y.abs()) == max));
            return Ok(());
        }
        let exponent = if magnitude > 0.0 { magnitude.log2().floor() as i32 } else { i32::MIN };
        let finest = format.element.emin() + s;
        let step = 2.0_f64.powi(exponent.max(finest) - format.element.mantissa_bits() as i32);
        let lower = (magnitude / step).floor() * step;
        let probability = (magnitude - lower) / step;
        let upper = (lower + step).min(max);
        let ups = outputs.iter().filter(|y| f64::from(y.abs()) == upper).count();
        let downs = outputs.iter().filter(|y| f64::from(y.abs()) == lower).count();
        prop_assert_eq!(ups + downs, count as usize);
        if upper == lower + step {
            // Five standard deviations, and room for the rounding of the bound itself.
            let bound = 5.0 * (probability * (1.0 - probability) / count as f64).sqrt() + 1e-3;
            prop_assert!((ups as f64 / count as f64 - probability).abs() <= bound);
        }
        Ok(())
        })?;
    }
}

/// Large enough for threads: pools of one and four threads agree, for many blocks, for few and for
/// one, along contiguous and strided axes.
#[test]
fn threads_do_not_matter() {
    let stream = RandomStream::new(7, 7);
    let shapes: [(&[usize], usize); 7] = [
        (&[600, 513], 1),
        (&[600, 513], 0),
        (&[2, 40_001, 4], 1),
        (&[3, 33, 5001], 1),
        (&[300_001], 0),
        (&[100_000, 3], 0),
        (&[60, 5003], 0),
    ];
    let data: Vec<f32> = (0..500_000)
        .map(|i| (stream.draw(i) as i32) as f32 * 2.0_f32.powi((i % 13) as i32))
        .collect();
    let pool = |threads| {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap()
    };
    let (one, four) = (pool(1), pool(4));
    for (shape, axis) in shapes {
        let data = &data[..shape.iter().product()];
        for block_size in [32, 0, 1] {
            for rounding in [Rounding::NearestEven, Rounding::Stochastic] {
                let format = BlockFormat::mx(ElementFormat::FP8_E4M3, block_size);
                let run = || {
                    let mut data = data.to_vec();
                    format
                        .quantize(&mut data, shape, axis, rounding.with(stream))
                        .unwrap();
                    data
                };
                assert!(
                    one.install(run) == four.install(run),
                    "{shape:?} {axis} {block_size} {rounding}"
                );
            }
        }
    }
    for rounding in [Rounding::NearestEven, Rounding::Stochastic] {
        let run = || {
            let mut data = data.clone();
            FloatFormat::fp(12)
                .unwrap()
                .round_slice(&mut data, rounding.with(stream));
            data
        };
        assert!(one.install(run) == four.install(run));
    }
}

#[test]
fn stochastic_depends_on_seed_and_stream_alone() {
    let data: Vec<f32> = (0..1000).map(|i| i as f32 * 0.37).collect();
    let run = |seed, stream| {
        let mut data = data.clone();
        let format = BlockFormat::mx(ElementFormat::FP4_E2M1, 32);
        let stream = RandomStream::new(seed, stream);
        format
            .quantize(&mut data, &[10, 100], 1, Rounder::Stochastic(stream))
            .unwrap();
        data
    };
    assert_eq!(run(1, 2), run(1, 2));
    assert_ne!(run(1, 2), run(2, 2));
    assert_ne!(run(1, 2), run(1, 3));
}
