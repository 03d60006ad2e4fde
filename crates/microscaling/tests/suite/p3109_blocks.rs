//! Blocks of IEEE P3109 against sums and quotients of whole numbers.

use crate::float_state::ieee;
use microscaling::RandomStream;
use microscaling::p3109::{
    CodeValue, P3109Block, P3109Error, P3109Format, P3109Rounding, Projection, RandomBits,
    Saturation, StochasticVariant,
};

fn format(name: &str) -> P3109Format {
    name.parse().unwrap()
}

/// A value in units of 2^−20; None for NaN and Inf.
fn units(value: CodeValue) -> Option<i128> {
    match value {
        CodeValue::Finite {
            negative,
            significand,
            exponent,
        } => {
            let magnitude = i128::from(significand) << (exponent + 20);
            Some(if negative { -magnitude } else { magnitude })
        }
        _ => None,
    }
}

fn projections() -> Vec<Projection> {
    let mut roundings = vec![
        P3109Rounding::TowardZero,
        P3109Rounding::TowardPositive,
        P3109Rounding::TowardNegative,
        P3109Rounding::NearestTiesToAway,
        P3109Rounding::NearestTiesToEven,
        P3109Rounding::ToOdd,
    ];
    for variant in [
        StochasticVariant::A,
        StochasticVariant::B,
        StochasticVariant::C,
    ] {
        roundings.push(P3109Rounding::Stochastic(
            RandomBits::new(variant, 5, 13).unwrap(),
        ));
    }
    let saturations = [
        Saturation::SatFinite,
        Saturation::SatPropagate,
        Saturation::SatNone,
    ];
    roundings
        .into_iter()
        .flat_map(|rounding| {
            saturations.map(|saturation| Projection {
                rounding,
                saturation,
            })
        })
        .collect()
}

/// A number of units of 2^−fraction as float64, whose last bit is set if there is a rest: any format rounds it as the number.
fn rounded_to_odd(whole: i128, fraction: i32) -> f64 {
    let magnitude = whole.unsigned_abs();
    let shift = (128 - magnitude.leading_zeros()).saturating_sub(53);
    let rest = magnitude & ((1 << shift) - 1) != 0;
    let kept = magnitude >> shift | u128::from(rest);
    let sign = if whole < 0 { -1.0 } else { 1.0 };
    ieee(|| sign * kept as f64 * 2_f64.powi(shift as i32 - fraction))
}

/// Sums of whole numbers.
#[test]
fn dot_products_are_exact_sums_rounded_once() {
    let (mut compared, mut special) = (0, 0);
    let stream = RandomStream::new(1, 1);
    for (seed, (element, scale, result)) in [
        ("binary8p4se", "binary6p3ue", "binary8p4se"),
        ("binary8p5sf", "binary6p4uf", "binary8p3se"),
        ("binary6p3sf", "binary8p5se", "binary8p5ue"),
        ("binary4p2se", "binary6p3ue", "binary16p12se"),
    ]
    .into_iter()
    .enumerate()
    {
        let [element, scale, result] = [element, scale, result].map(format);
        for case in 0..2000_u64 {
            let length = 1 + case % 33;
            let at = (seed as u64 * 2000 + case) * 80;
            let draw = |i: u64, bits: u32| stream.draw(at + i) >> (32 - bits);
            // Few blocks have a NaN.
            let code = |i: u64| match draw(i, element.bits()) {
                code if code == element.nan() && case % 8 != 0 => 1,
                code => code,
            };
            let a: Vec<u32> = (0..length).map(code).collect();
            let b: Vec<u32> = (length..2 * length).map(code).collect();
            let [sa, sb] = [70, 71].map(|i| draw(i, scale.bits()));
            let block = |scale_code, codes| P3109Block {
                scale_format: scale,
                scale: scale_code,
                element_format: element,
                codes,
            };
            let values = |scale_code: u32, codes: &[u32]| -> Vec<f64> {
                let value = |format: P3109Format, code| format.decode(code).to_f64().unwrap();
                let scale = value(scale, scale_code);
                codes
                    .iter()
                    .map(|code| scale * value(element, *code))
                    .collect()
            };
            let products: Vec<f64> = ieee(|| {
                let pairs = values(sa, &a).into_iter().zip(values(sb, &b));
                pairs.map(|(a, b)| a * b).collect()
            });
            let sum = match products.iter().all(|product| product.is_finite()) {
                true => {
                    let whole = products
                        .iter()
                        .map(|x| ieee(|| (x * 2_f64.powi(44)) as i128));
                    let whole: i128 = whole.sum();
                    rounded_to_odd(whole, 44)
                }
                false => {
                    special += 1;
                    ieee(|| products.iter().sum())
                }
            };
            for projection in projections() {
                let got = block(sa, &a).dot_product(block(sb, &b), result, projection);
                let expected = result.project(sum, projection);
                assert_eq!(
                    got,
                    Ok(expected),
                    "{element} {scale} {sa} {sb} {a:?} {b:?} {projection:?}"
                );
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 8000 * 27);
    assert!(special > 200, "{special}");
}

/// The numbers of formats with many exponents do not meet: their sum is the larger one, and a rest.
#[test]
fn sums_of_numbers_far_apart() {
    let wide = format("binary16p2se");
    let projection = |rounding| Projection {
        rounding,
        saturation: Saturation::SatFinite,
    };
    let one = format("binary3p1uf");
    let codes = [wide.project(1.0, projection(P3109Rounding::TowardZero)), 1];
    let of = |codes| P3109Block {
        scale_format: one,
        scale: 4,
        element_format: wide,
        codes,
    };
    assert_eq!(one.decode(4).to_f64(), Some(1.0));
    // 1 · 1 + tiny · tiny.
    let sum = |rounding| {
        let code = of(&codes)
            .dot_product(of(&codes), wide, projection(rounding))
            .unwrap();
        code - codes[0]
    };
    assert_eq!(sum(P3109Rounding::TowardPositive), 1);
    assert_eq!(sum(P3109Rounding::TowardZero), 0);
    assert_eq!(sum(P3109Rounding::NearestTiesToEven), 0);
    assert_eq!(
        of(&codes).dot_product(of(&codes[..1]), wide, projection(P3109Rounding::ToOdd)),
        Err(P3109Error::Length {
            expected: 2,
            got: 1
        })
    );
}

/// The quotient's neighbours among all codes, by products of whole numbers.
#[test]
fn quotients_are_exact() {
    let (element, scale) = (format("binary8p4se"), format("binary6p4ue"));
    let numbers: Vec<(i128, u32)> = (0..128)
        .filter_map(|code| Some((units(element.decode(code))?, code)))
        .collect();
    let stream = RandomStream::new(5, 0);
    let (mut compared, mut ties) = (0, 0);
    for scale_code in 1..62 {
        let value = scale.decode(scale_code);
        let Some(s) = units(value) else { continue };
        for case in 0..300 {
            let whole = i128::from(stream.draw(scale_code as u64 * 1000 + case) >> (case % 25 + 5));
            let x = ieee(|| whole as f64 / 16.0);
            // Compared with products in units of 2^−40.
            let x_units = whole << 36;
            let above = numbers.iter().position(|(v, _)| v * s >= x_units);
            let Some(above) = above else { continue };
            let nearest = Projection {
                rounding: P3109Rounding::NearestTiesToEven,
                saturation: Saturation::SatFinite,
            };
            let down = Projection {
                rounding: P3109Rounding::TowardZero,
                ..nearest
            };
            let (high, high_code) = numbers[above];
            let (low, low_code) = match high * s == x_units {
                true => (high, high_code),
                false => numbers[above - 1],
            };
            let (below, beyond) = (x_units - low * s, high * s - x_units);
            ties += usize::from(below == beyond && below > 0);
            let expected = match below.cmp(&beyond) {
                std::cmp::Ordering::Less => low_code,
                std::cmp::Ordering::Greater => high_code,
                std::cmp::Ordering::Equal if low_code % 2 == 0 => low_code,
                std::cmp::Ordering::Equal => high_code,
            };
            assert_eq!(
                element.project_by_scale(x, value, nearest),
                expected,
                "{x} / {scale_code}"
            );
            assert_eq!(
                element.project_by_scale(x, value, down),
                low_code,
                "{x} / {scale_code}"
            );
            compared += 1;
        }
    }
    assert!(compared > 7_000 && ties > 20, "{compared} {ties}");
}

#[test]
fn blocks_with_the_largest_finite_magnitude_for_a_scale() {
    let (element, scale) = (format("binary8p4se"), format("binary8p1uf"));
    let nearest = Projection {
        rounding: P3109Rounding::NearestTiesToEven,
        saturation: Saturation::SatPropagate,
    };
    let of = |x: &[f64]| element.convert_to_block_max_abs_finite(x, scale, [nearest; 2]);
    // 6 is half-way between the scales 4 and 8, and 4 has the even code.
    assert_eq!(
        of(&[6.0, -3.0, f64::INFINITY, f64::NAN]),
        (0x82, vec![0x44, 0xbc, 0x7f, 0x80])
    );
    assert_eq!(of(&[f64::NAN; 2]), (0xff, vec![0x80; 2]));
    assert_eq!(of(&[0.0, -0.0]), (0, vec![0; 2]));
    assert_eq!(of(&[1e-300, f64::INFINITY]), (0, vec![0; 2]));
    let infinite = CodeValue::Infinite { negative: true };
    assert_eq!(element.project_by_scale(-3.0, infinite, nearest), 0x40);
    assert_eq!(element.project_by_scale(0.0, infinite, nearest), 0);
}
