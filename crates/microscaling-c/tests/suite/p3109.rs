//! Formats of P3109: all codes, and projections.

use crate::compiled::{Compiled, has_compiler};
use crate::numbers::{bfloat16, patterns};
use microscaling::RandomStream;
use microscaling::p3109::{CodeValue, P3109Format, P3109Rounding, Projection, Saturation};
use microscaling_c::{Reference, Subject};

pub(crate) const ROUNDINGS: [&str; 9] = [
    "TowardZero",
    "TowardPositive",
    "TowardNegative",
    "NearestTiesToAway",
    "NearestTiesToEven",
    "ToOdd",
    "StochasticA",
    "StochasticB",
    "StochasticC",
];
const SATURATIONS: [Saturation; 3] = [
    Saturation::SatFinite,
    Saturation::SatPropagate,
    Saturation::SatNone,
];

fn compiled(format: P3109Format) -> Compiled {
    let subject = Subject::P3109(format);
    Compiled::new(&Reference::new(subject).unwrap(), subject, false)
}

/// The codes of a format.
fn check_codes(format: P3109Format, compiled: &Compiled) {
    let codes = 0..1_u32 << format.bits();
    let got = compiled.run(codes.clone().flat_map(|code| [0, code]).collect());
    let words = 4 + usize::from(format.fits_float32());
    for (code, got) in codes.zip(got.chunks_exact(words)) {
        let value = format.decode(code);
        let wanted = match value {
            CodeValue::Nan => [2, 0, 0, 0],
            CodeValue::Infinite { negative } => [1, u32::from(negative), 0, 0],
            CodeValue::Finite {
                negative,
                significand,
                exponent,
            } => [0, u32::from(negative), significand, exponent as u32],
        };
        assert_eq!(got[..4], wanted, "{format}: {code:#x}");
        if let Some(got) = got.get(4) {
            assert_eq!(
                *got,
                value.to_f32().unwrap().to_bits(),
                "{format}: {code:#x}"
            );
        }
    }
}

/// The numbers of a format, the means of neighbours, and numbers next to both, as float64 patterns.
fn numbers(format: P3109Format) -> Vec<u64> {
    let all = (0..1_u32 << format.bits()).filter_map(|code| format.decode(code).to_f64());
    let mut numbers: Vec<f64> = all.filter(|x| x.is_finite()).collect();
    numbers.sort_by(f64::total_cmp);
    let means = numbers.windows(2).map(|pair| pair[0] / 2.0 + pair[1] / 2.0);
    let all = numbers.iter().copied().chain(means).map(f64::to_bits);
    let special = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        f64::MAX,
        f64::MIN,
        f64::from_bits(1),
    ]
    .map(f64::to_bits);
    let near = all.flat_map(|x| [x.saturating_sub(1), x, x + 1]);
    near.chain(special).collect()
}

fn check_projections(
    format: P3109Format,
    compiled: &Compiled,
    inputs: impl Iterator<Item = u64>,
    singles: impl Iterator<Item = u32>,
) {
    let stream = RandomStream::new(9, 9);
    let (mut commands, mut cases) = (Vec::new(), Vec::new());
    let doubles = inputs.map(|x| (f64::from_bits(x), None));
    let singles = singles.map(|x| (f64::from(f32::from_bits(x)), Some(x)));
    for (i, (x, single)) in doubles.chain(singles).enumerate() {
        for (mode, name) in ROUNDINGS.iter().enumerate() {
            let bits = if mode < 6 {
                0
            } else {
                1 + stream.draw(i as u64) % 31
            };
            let random = stream.draw(1 << 32 | i as u64) & ((1_u64 << bits) - 1) as u32;
            let rounding = P3109Rounding::named(name, bits, random).unwrap();
            let number = (i + mode) % 3;
            match single {
                Some(x) => commands.extend([1, x]),
                None => commands.extend([2, x.to_bits() as u32, (x.to_bits() >> 32) as u32]),
            }
            commands.extend([mode as u32, number as u32, bits, random]);
            cases.push((
                x,
                Projection {
                    rounding,
                    saturation: SATURATIONS[number],
                },
            ));
        }
    }
    let got = compiled.run(commands);
    assert_eq!(got.len(), cases.len());
    for ((x, projection), got) in cases.into_iter().zip(got) {
        assert_eq!(
            got,
            format.project(x, projection),
            "{format}: {x:e} {projection:?}"
        );
    }
}

#[test]
fn formats_of_p3109_equal_the_library() {
    if !has_compiler() {
        return;
    }
    for (bits, precision) in [
        (3, 1),
        (3, 2),
        (4, 2),
        (6, 3),
        (8, 1),
        (8, 3),
        (8, 4),
        (8, 7),
    ] {
        for flags in 0..4 {
            let format = P3109Format::new(bits, precision, flags & 1 != 0, flags & 2 != 0).unwrap();
            let compiled = compiled(format);
            check_codes(format, &compiled);
            let stream = RandomStream::new(8, 8);
            let random = (0..500)
                .map(|i| u64::from(stream.draw(2 * i)) | u64::from(stream.draw(2 * i + 1)) << 32);
            let singles = bfloat16().step_by(7).chain(patterns(4, 500));
            check_projections(
                format,
                &compiled,
                numbers(format).into_iter().chain(random),
                singles,
            );
        }
    }
}

#[test]
fn formats_of_more_bits_equal_the_library() {
    if !has_compiler() {
        return;
    }
    for name in [
        "binary16p11se",
        "binary16p1ue",
        "binary16p16uf",
        "binary16p3sf",
        "binary12p5ue",
        "binary15p8se",
    ] {
        let format: P3109Format = name.parse().unwrap();
        let compiled = compiled(format);
        check_codes(format, &compiled);
        let inputs = numbers(format).into_iter().step_by(97);
        check_projections(format, &compiled, inputs, patterns(4, 500).into_iter());
    }
}
