//! A scale for the positive elements of a block and one for the negative elements: AMXFP4 (arXiv 2411.09909).

use crate::float_state::ieee;
use crate::oracle::{floor_log2, identical, magnitudes, pow2, round_to_table};
use microscaling::{
    BlockFormat, ElementFormat, Packed, RandomStream, Rounder, Rounding, ScaleFormat,
};

/// The authors' AMXFP4-FP8: E2M1 in blocks of 32, scales in E5M2.
fn amxfp4() -> BlockFormat {
    BlockFormat::AMXFP4
}

/// The authors' AMXFP4 with powers of two.
fn powers(block_size: usize) -> BlockFormat {
    BlockFormat {
        sign_scales: true,
        ..BlockFormat::mx(ElementFormat::FP4_E2M1, block_size)
    }
}

fn all_identical(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| identical(*a, *b))
}

/// Normally distributed numbers, by Box and Muller.
fn normal(count: usize) -> Vec<f32> {
    let stream = RandomStream::new(7, 0);
    let uniform = |i: u64| (f64::from(stream.draw(i)) + 0.5) / 4_294_967_296.0;
    (0..count as u64)
        .map(|i| {
            let radius = (-2.0 * uniform(2 * i).ln()).sqrt();
            (radius * (std::f64::consts::TAU * uniform(2 * i + 1)).cos()) as f32
        })
        .collect()
}

/// Numbers of all kinds: zeros, ties, subnormals, the ends of float32, and now and then a NaN or an Inf.
fn all_kinds(count: usize, seed: u64) -> Vec<f32> {
    let stream = RandomStream::new(seed, 3);
    let number = |i: u64| {
        let (word, kind) = (stream.draw(2 * i), stream.draw(2 * i + 1));
        let sign = word & 1 << 31;
        // Blocks of one size each, and of one sign now and then.
        let of_block = stream.draw(1 << 40 | (i / 48));
        let sign = match of_block >> 20 & 7 {
            0 => 0,
            1 => 1 << 31,
            _ => sign,
        };
        let center = [127, 127, 120, 3, 240, 250, 1, 130][of_block as usize % 8];
        let field = (center + word % 5).min(254) << 23;
        f32::from_bits(match kind % 128 {
            0 => word | 0x7fc0_0000,
            1 => sign | 0x7f80_0000,
            2..12 => sign,
            12..20 => sign | word & 0x007f_ffff,
            20..70 => sign | field | word & 0x0070_0000,
            _ => sign | field | word & 0x007f_ffff,
        })
    };
    (0..count as u64).map(number).collect()
}

/// A scale for the elements of one sign, by straight loops; `None` is NaN.
fn scale(format: &BlockFormat, amax: f32, t: f32) -> Option<f64> {
    if format.has_exponent() {
        let emax = floor_log2(f64::from(format.element.max()));
        let exponent = match amax {
            0.0 => -126 - emax,
            amax => floor_log2(f64::from(amax)) - emax,
        };
        let limit = (1 << (format.scale.bits() - 1)) - 1;
        return (exponent <= limit).then(|| pow2(exponent.max(-limit)));
    }
    // Each operation rounds to float32.
    let wanted = amax / format.element.max() / t;
    let numbers = match format.scale {
        ScaleFormat::UE5M2 => magnitudes(ElementFormat::FP8_E5M2),
        _ => magnitudes(ElementFormat::FP8_E4M3),
    };
    let wanted = f64::from(wanted).clamp(numbers[1], numbers[numbers.len() - 1]);
    Some(round_to_table(wanted, &numbers, Rounding::NearestEven, 0))
}

/// A block, by straight loops.
fn block(
    format: &BlockFormat,
    t: f32,
    block: &[f32],
    rounding: Rounding,
    draws: &[u32],
) -> Vec<f32> {
    let mut maxima = [0.0_f32; 2];
    for x in block {
        let own = &mut maxima[usize::from(x.is_sign_negative())];
        *own = own.max(x.abs());
        if !x.is_finite() {
            return vec![f32::NAN; block.len()];
        }
    }
    let scales = maxima.map(|amax| scale(format, amax, t));
    let [Some(positive), Some(negative)] = scales else {
        return vec![f32::NAN; block.len()];
    };
    let table = magnitudes(format.element);
    let of_element = |(x, draw): (&f32, &u32)| {
        let c = if x.is_sign_negative() {
            negative
        } else {
            positive
        };
        let scaled = match format.has_exponent() {
            true => f64::from(x.abs()) / c,
            false => f64::from(x.abs() * (1.0 / t / c as f32)),
        };
        let q = round_to_table(scaled, &table, rounding, *draw);
        let product = match format.has_exponent() {
            true => (q * c) as f32,
            false => q as f32 * (t * c as f32),
        };
        product.copysign(*x)
    };
    block.iter().zip(draws).map(of_element).collect()
}

/// Bit for bit, in blocks of every kind of length along either axis, quantized and packed.
#[test]
fn straight_loops() {
    let of_float = |tensor_scale, scale, block_size| BlockFormat {
        sign_scales: true,
        tensor_scale,
        ..BlockFormat::float_scale(ElementFormat::FP4_E2M1, scale, block_size)
    };
    let mut formats = vec![amxfp4()];
    for block_size in [0, 1, 2, 7, 8, 16, 24, 32, 64, 100] {
        formats.push(powers(block_size));
        formats.push(of_float(false, ScaleFormat::UE5M2, block_size));
        formats.push(of_float(true, ScaleFormat::UE4M3, block_size));
    }
    for element in [
        ElementFormat::FP8_E4M3,
        ElementFormat::INT8,
        ElementFormat::INT4,
    ] {
        formats.push(BlockFormat {
            element,
            scale: ScaleFormat::exponent(6).unwrap(),
            ..powers(16)
        });
    }
    let (rows, columns) = (6, 96);
    for (i, format) in formats.iter().enumerate() {
        let mut x = all_kinds(rows * columns, i as u64);
        if format.tensor_scale {
            // A NaN would make the whole tensor NaN, and tiny tensor scales have other rules.
            x = x
                .iter()
                .map(|x| (x.to_bits() & 0x83ff_ffff) | 0x3c00_0000)
                .map(f32::from_bits)
                .collect();
        }
        let t = match format.tensor_scale {
            true => x.iter().fold(0.0_f32, |max, x| max.max(x.abs())) / (448.0 * 6.0),
            false => 1.0,
        };
        for rounding in Rounding::ALL {
            let stream = RandomStream::new(5, i as u64);
            for [before, axis, inner] in [[rows, columns, 1], [1, columns, rows]] {
                let size = match format.block_size {
                    0 => axis,
                    size => size,
                };
                let mut expected = x.clone();
                for line in 0..before * inner {
                    let place = |at: usize| (line / inner * axis + at) * inner + line % inner;
                    for start in (0..axis).step_by(size) {
                        let places: Vec<usize> =
                            (start..axis.min(start + size)).map(place).collect();
                        let own: Vec<f32> = places.iter().map(|at| x[*at]).collect();
                        let draws: Vec<u32> =
                            places.iter().map(|at| stream.draw(*at as u64)).collect();
                        let own = ieee(|| block(format, t, &own, rounding, &draws));
                        for (at, q) in places.into_iter().zip(own) {
                            expected[at] = q;
                        }
                    }
                }
                let (shape, rounder) = ([before, axis, inner], rounding.with(stream));
                let mut got = x.clone();
                format.quantize(&mut got, &shape, 1, rounder).unwrap();
                assert!(
                    all_identical(&got, &expected),
                    "{format} {rounding} {shape:?}"
                );
                let packed = Packed::encode(*format, &x, &shape, 1, rounder).unwrap();
                if !format.has_negative_zero() {
                    let zero = |x: &f32| if *x == 0.0 { 0.0 } else { *x };
                    expected = expected.iter().map(zero).collect();
                }
                assert!(
                    all_identical(&packed.decode(), &expected),
                    "packed: {format} {rounding} {shape:?}"
                );
            }
        }
    }
}

/// Scales and codes of one block: 7 and −0.6 have scales of their own.
#[test]
fn one_block_by_hand() {
    let x = [7.0, -0.6, 0.3, -0.1, 0.0, -0.0];
    let packed = Packed::encode(powers(8), &x, &[6], 0, Rounder::NearestEven).unwrap();
    // 2^(2 − 2) for 7, and 2^(−1 − 2) for −0.6.
    assert_eq!(packed.scales(), [127, 124]);
    assert_eq!(packed.scales_shape(), [1, 2]);
    // −0.6 is 4.8 eighths, between 4 and 6. −0.1 is 0.8 eighths.
    assert_eq!(packed.decode(), [6.0, -0.5, 0.5, -0.125, 0.0, -0.0]);
    assert_eq!(packed.elements(), [0xe7, 0xa1, 0x80]);
    assert_eq!(powers(32).bits_per_element(), 4.5);
    assert_eq!(amxfp4().bits_per_element(), 4.5);

    // 6 / 6 is 1, and 0.6 / 6 rounds to 0.09375 = 1.5 · 2^−4.
    let packed = Packed::encode(amxfp4(), &[6.0, -0.6], &[2], 0, Rounder::NearestEven).unwrap();
    assert_eq!(packed.scales(), [15 << 2, 11 << 2 | 2]);
    assert_eq!(packed.decode(), [6.0, -0.5625]);
    assert_eq!(amxfp4().scale_values(), None);
}

/// A block of one sign is a block of the format without scales by sign. The other scale is a zero block's.
#[test]
fn a_sign_without_elements() {
    let rounder = Rounder::NearestEven;
    for format in [powers(16), amxfp4()] {
        let plain = BlockFormat {
            sign_scales: false,
            ..format
        };
        let x: Vec<f32> = normal(256).into_iter().map(f32::abs).collect();
        let negative: Vec<f32> = x.iter().map(|x| -x).collect();
        let of_zeros = Packed::encode(plain, &[0.0], &[1], 0, rounder).unwrap();
        for (i, x) in [x, negative].into_iter().enumerate() {
            let [own, other] = [format, plain]
                .map(|format| Packed::encode(format, &x, &[256], 0, rounder).unwrap());
            assert_eq!(own.decode(), other.decode());
            for (both, scale) in own.scales().chunks(2).zip(other.scales()) {
                assert_eq!(both[i], *scale);
                assert_eq!(both[1 - i], of_zeros.scales()[0]);
            }
        }
        let zeros = [0.0, -0.0, 0.0];
        let packed = Packed::encode(format, &zeros, &[3], 0, rounder).unwrap();
        let signs = packed.decode().into_iter().map(f32::is_sign_negative);
        assert_eq!(packed.decode(), zeros);
        assert_eq!(signs.collect::<Vec<_>>(), [false, true, false]);
    }
}

/// A NaN, an Inf, or a scale that is too large makes both signs NaN.
#[test]
fn nan_is_of_the_block() {
    let short = BlockFormat {
        scale: ScaleFormat::exponent(4).unwrap(),
        ..powers(4)
    };
    for (format, x) in [
        (powers(4), [1.0, -1.0, f32::NAN, 0.0]),
        (powers(4), [1.0, -1.0, f32::NEG_INFINITY, 0.0]),
        (amxfp4(), [1.0, -1.0, f32::INFINITY, 0.0]),
        // The largest scale is 2^7.
        (short, [1024.0, -1.0, 0.0, 2.0]),
        (short, [1.0, -1024.0, 0.0, 2.0]),
    ] {
        let mut q = x;
        format
            .quantize(&mut q, &[4], 0, Rounder::NearestEven)
            .unwrap();
        assert!(q.iter().all(|q| q.is_nan()), "{format} {x:?}: {q:?}");
        let packed = Packed::encode(format, &x, &[4], 0, Rounder::NearestEven).unwrap();
        assert!(packed.decode().iter().all(|q| q.is_nan()), "{format} {x:?}");
    }
}

/// Under a given scale an element becomes a number of the format without scales by sign.
#[test]
fn elements_under_a_scale() {
    for format in [powers(16), amxfp4()] {
        let plain = BlockFormat {
            sign_scales: false,
            ..format
        };
        for x in [1.0, -1.3, 2.6, -7.0, 0.1, -0.1, 0.0, -0.0] {
            for scale in [0.25, 1.0, 4.0] {
                let of = |format: BlockFormat| {
                    format.round_scaled(x, scale, 1.0, Rounding::NearestEven, 0)
                };
                assert_eq!(
                    of(format).to_bits(),
                    of(plain).to_bits(),
                    "{format} {x} {scale}"
                );
            }
        }
        assert_eq!(
            format.round_scaled(2.6, 1.0, 1.0, Rounding::NearestEven, 0),
            3.0
        );
        // The scale for each sign follows from the elements of the sign.
        let block = [7.0, -0.6, 0.3];
        assert_eq!(
            format.block_scale_of(&block, 1.0),
            plain.block_scale_of(&block[..1], 1.0)
        );
        assert_eq!(
            format.block_scale_of(&block[1..2], 1.0),
            plain.block_scale_of(&block[1..2], 1.0)
        );
    }
}

/// The statistics see the scale of the largest magnitude, and elements beyond the largest number of both signs.
#[cfg(feature = "std")]
#[test]
fn statistics() {
    use microscaling::{Comparison, Statistics};

    let of = |x: [f32; 4], format: BlockFormat| {
        let mut quantized = x;
        format
            .quantize(&mut quantized, &[4], 0, Rounder::NearestEven)
            .unwrap();
        Statistics::of(Comparison {
            original: &x,
            quantized: &quantized,
            shape: &[4],
            axis: 0,
            format: Some(format),
        })
        .unwrap()
    };
    let x = [7.0, -0.3, 0.1, -0.875];
    let of_signs = of(x, powers(4));
    assert_eq!(of_signs.scales().collect::<Vec<_>>(), [(0, 1)]);
    assert_eq!(of_signs.saturated(), 1);
    assert!(of_signs.mse() < of(x, BlockFormat::mx(ElementFormat::FP4_E2M1, 4)).mse());

    // A block of zeros has the scale 2^−126 in MXINT8, subnormal numbers have 2^−127.
    let int8 = BlockFormat {
        element: ElementFormat::INT8,
        ..powers(4)
    };
    let x = [1e-42, 2e-42, 0.0, 0.0];
    for x in [x, x.map(|x| -x)] {
        assert_eq!(of(x, int8).scales().collect::<Vec<_>>(), [(-127, 1)]);
    }
}

/// The relative squared error of quantizing.
fn error(format: BlockFormat, x: &[f32]) -> f64 {
    let mut q = x.to_vec();
    format
        .quantize(&mut q, &[x.len()], 0, Rounder::NearestEven)
        .unwrap();
    let square = |x: f64| x * x;
    let error = x
        .iter()
        .zip(&q)
        .map(|(x, q)| square(f64::from(*x) - f64::from(*q)));
    error.sum::<f64>() / x.iter().map(|x| square(f64::from(*x))).sum::<f64>()
}

/// With float scales the error is less, most of all where the signs differ, as after SiLU. With `floor` the larger elements of both signs
/// saturate, so that normally distributed numbers have a larger error.
#[test]
fn errors_beside_one_scale() {
    let x = normal(1 << 18);
    let silu: Vec<f32> = x.iter().map(|x| x / (1.0 + (-x).exp())).collect();
    let ratio = |format: BlockFormat, x: &[f32]| {
        let one_scale = BlockFormat {
            sign_scales: false,
            ..format
        };
        error(format, x) / error(one_scale, x)
    };
    let ratios = [amxfp4(), powers(32)].map(|format| [ratio(format, &x), ratio(format, &silu)]);
    println!("{ratios:?}");
    let [of_floats, of_powers] = ratios;
    assert!((of_floats[0] - 0.903).abs() < 0.005, "{ratios:?}");
    assert!((of_powers[0] - 1.041).abs() < 0.005, "{ratios:?}");
    assert!(of_floats[1] < 0.9 && of_powers[1] < 1.0, "{ratios:?}");
    let of_mxfp4 = error(BlockFormat::mx(ElementFormat::FP4_E2M1, 32), &x);
    println!("{}", error(amxfp4(), &x) / of_mxfp4);
    assert!(error(amxfp4(), &x) / of_mxfp4 < 0.85);
}

/// Text, and what scales by sign exclude.
#[test]
fn text_and_errors() {
    let text = "block(element=fp4_e2m1,scale=ue5m2,block_size=32,sign_scales=true)";
    assert_eq!(text.parse(), Ok(amxfp4()));
    assert_eq!("amxfp4".parse(), Ok(amxfp4()));
    let text = "mx(element=fp4_e2m1,block_size=16,sign_scales=true)";
    assert_eq!(text.parse(), Ok(powers(16)));
    assert_eq!(powers(16).to_string(), text);
    assert!(!amxfp4().is_element_times_scale());
    let sheet = amxfp4().datasheet();
    let row = sheet.iter().find(|(name, _)| *name == "two scales");
    assert!(row.unwrap().1.contains("negative elements"));
    for text in [
        "mx(element=e2m1,square=true,sign_scales=true)",
        "mx(element=e2m1,shared_exp_method=none,sign_scales=true)",
        "mx(element=e2m1,scale_mode=rms,sign_scales=true)",
        "block(element=table(nf4),scale=ue5m2,sign_scales=true)",
        "block(element=binary8p4ue,scale=ue5m2,sign_scales=true)",
        "block(element=e2m1,scale=ue5m2,scale_mode=max_abs_finite,sign_scales=true)",
        "block(element=e4m3,scale=ue5m2,non_finite=elements,sign_scales=true)",
        "block(element=e2m1,scale=ue4m3,four_over_six=true,sign_scales=true)",
        "block(element=e2m1,scale=ue4m3,block_size=16,tensor_scale=true,eden=true,sign_scales=true)",
        "block(element=e2m1,scale=ue4m3,block_size=16,outer_size=0,sign_scales=true)",
        "block(element=e1m2,scale=ue6m2,block_size=64,sub_scales=8/4,sign_scales=true)",
    ] {
        let error = text.parse::<BlockFormat>().unwrap_err().to_string();
        assert!(
            error.contains("sign_scales is `true`, expected `false` beside tables"),
            "{text}: {error}"
        );
    }
    let bfp = BlockFormat {
        sign_scales: true,
        ..BlockFormat::BFP16
    };
    let error = bfp.validate().unwrap_err().to_string();
    assert!(
        error.contains("sign_scales is true, expected false"),
        "{error}"
    );
    let error = "block(element=e2m1,scale=ue5m2,sign_scales=2)".parse::<BlockFormat>();
    assert!(error.unwrap_err().to_string().contains("true or false"));
}
