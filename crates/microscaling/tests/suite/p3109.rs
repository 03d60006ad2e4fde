//! The formats of IEEE P3109: the values of all codes, projections by an exact model, and random numbers against a second model.

use crate::float_state::ieee;
use flate2::read::GzDecoder;
use microscaling::p3109::{
    CodeValue, P3109Error, P3109Format, P3109Rounding, ParseP3109Error, Projection, RandomBits,
    Saturation, StochasticVariant,
};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The rows of a file of `tests/data/p3109`, without the header.
fn rows(name: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/p3109");
    let file = File::open(path.join(name)).unwrap();
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let fields = |line: &str| line.split(',').map(str::to_owned).collect();
    text.lines().skip(1).map(fields).collect()
}

/// `-3p-1` is −3 · 2^−1.
fn value(text: &str) -> CodeValue {
    match text {
        "nan" => CodeValue::Nan,
        "inf" => CodeValue::Infinite { negative: false },
        "-inf" => CodeValue::Infinite { negative: true },
        _ => {
            let (significand, exponent) = text.split_once('p').unwrap_or((text, "0"));
            let significand: i32 = significand.parse().unwrap();
            CodeValue::Finite {
                negative: significand < 0,
                significand: significand.unsigned_abs(),
                exponent: exponent.parse().unwrap(),
            }
        }
    }
}

/// The same number with an odd significand.
fn reduced(value: CodeValue) -> CodeValue {
    match value {
        CodeValue::Finite {
            negative,
            significand,
            exponent,
        } => {
            let zeros = match significand {
                0 => {
                    return CodeValue::Finite {
                        negative,
                        significand,
                        exponent: 0,
                    };
                }
                significand => significand.trailing_zeros(),
            };
            CodeValue::Finite {
                negative,
                significand: significand >> zeros,
                exponent: exponent + zeros as i32,
            }
        }
        special => special,
    }
}

#[test]
fn every_code_has_the_value_of_the_working_groups_tables() {
    let rows = rows("values.csv.gz");
    let mut formats = std::collections::HashSet::new();
    for row in &rows {
        let format: P3109Format = row[0].parse().unwrap();
        let code: u32 = row[1].parse().unwrap();
        assert_eq!(
            reduced(format.decode(code)),
            reduced(value(&row[2])),
            "{row:?}"
        );
        formats.insert(format);
    }
    assert_eq!((formats.len(), rows.len()), (120, 13_296));
    for format in formats {
        assert_eq!(format.to_string().parse(), Ok(format));
        let codes = rows
            .iter()
            .filter(|row| row[0].parse() == Ok(format))
            .count();
        assert_eq!(codes, 1 << format.bits(), "{format}");
    }
}

#[test]
fn projections_are_those_of_an_exact_model() {
    let rows = rows("project.csv.gz");
    assert_eq!(rows.len(), 19_440);
    for row in rows {
        let format: P3109Format = row[0].parse().unwrap();
        let x = f32::from_bits(u32::from_str_radix(&row[1], 16).unwrap());
        let [random_bits, random, code] = [4, 5, 6].map(|i| row[i].parse().unwrap());
        let projection = Projection {
            rounding: P3109Rounding::named(&row[2], random_bits, random).unwrap(),
            saturation: row[3].parse().unwrap(),
        };
        assert_eq!(projection.rounding.name(), row[2]);
        // The conversion is the test's, whose thread may flush subnormal numbers.
        let x = ieee(|| f64::from(x));
        assert_eq!(format.project(x, projection), code, "{row:?}");
    }
}

/// All formats of 3 to 16 bits.
fn formats() -> impl Iterator<Item = P3109Format> {
    (3..=16).flat_map(|bits| {
        (1..=bits).flat_map(move |precision| {
            [(true, true), (true, false), (false, true), (false, false)]
                .into_iter()
                .filter_map(move |(signed, extended)| {
                    P3109Format::new(bits, precision, signed, extended).ok()
                })
        })
    })
}

#[test]
fn what_a_code_is_projects_onto_the_code() {
    let mut held = 0;
    for format in formats() {
        for code in 0..1 << format.bits() {
            let Some(x) = format.decode(code).to_f64() else {
                continue;
            };
            held += 1;
            if let CodeValue::Finite {
                negative,
                significand,
                exponent,
            } = format.decode(code)
            {
                let magnitude = || {
                    f64::from(significand)
                        * 2.0_f64.powi(exponent / 2)
                        * 2.0_f64.powi(exponent - exponent / 2)
                };
                let expected = ieee(|| if negative { -magnitude() } else { magnitude() });
                assert_eq!(x.to_bits(), expected.to_bits(), "{format} {code:#x}");
                let single = format.decode(code).to_f32();
                let same = |single: f32| ieee(|| f64::from(single)).to_bits() == x.to_bits();
                assert_eq!(
                    single.is_some_and(same),
                    ieee(|| f64::from(x as f32)).to_bits() == x.to_bits()
                );
            }
            for rounding in [P3109Rounding::TowardZero, P3109Rounding::ToOdd] {
                let saturation = Saturation::SatPropagate;
                let projection = Projection {
                    rounding,
                    saturation,
                };
                assert_eq!(format.project(x, projection), code, "{format} {x}");
            }
        }
    }
    assert!(held > 2_000_000, "{held}");
}

/// Between two neighbours the nearest one counts, by a search in the values of all codes.
#[test]
fn to_nearest_is_the_nearest_number() {
    for format in formats().filter(|format| format.bits() <= 8 && format.fits_float32()) {
        let mut numbers: Vec<(f64, u32)> = (0..1 << format.bits())
            .filter_map(|code| match format.decode(code) {
                CodeValue::Finite { .. } => Some((format.decode(code).to_f64().unwrap(), code)),
                _ => None,
            })
            .collect();
        numbers.sort_by(|a, b| a.0.total_cmp(&b.0));
        let project = |x: f64, rounding| {
            let saturation = Saturation::SatFinite;
            format.project(
                x,
                Projection {
                    rounding,
                    saturation,
                },
            )
        };
        for pair in numbers.windows(2) {
            let ([(low, low_code), (high, high_code)], middle) =
                ([pair[0], pair[1]], (pair[0].0 + pair[1].0) / 2.0);
            let quarter = (high - low) / 4.0;
            let nearest = P3109Rounding::NearestTiesToEven;
            assert_eq!(
                project(middle - quarter, nearest),
                low_code,
                "{format} {low}"
            );
            assert_eq!(
                project(middle + quarter, nearest),
                high_code,
                "{format} {high}"
            );
            let even = if low_code & 1 == 0 {
                low_code
            } else {
                high_code
            };
            let odd = low_code + high_code - even;
            assert_eq!(project(middle, nearest), even, "{format} {middle}");
            assert_eq!(
                project(middle, P3109Rounding::ToOdd),
                odd,
                "{format} {middle}"
            );
            assert_eq!(project(middle, P3109Rounding::TowardPositive), high_code);
            assert_eq!(project(middle, P3109Rounding::TowardNegative), low_code);
            let away = if high > 0.0 { high_code } else { low_code };
            assert_eq!(project(middle, P3109Rounding::NearestTiesToAway), away);
            // A quarter of all random numbers of 3 bits gives the upper number at a quarter of the way.
            for variant in [
                StochasticVariant::A,
                StochasticVariant::B,
                StochasticVariant::C,
            ] {
                let ups = (0..8).filter(|&random| {
                    let random = RandomBits::new(variant, 3, random).unwrap();
                    project(low + quarter, P3109Rounding::Stochastic(random)) == high_code
                });
                assert_eq!(ups.count(), 2, "{format} {low}");
            }
        }
    }
}

#[test]
fn errors_name_the_field_the_value_and_what_is_allowed() {
    let parse = |text: &str| text.parse::<P3109Format>();
    for text in [
        "",
        "binary",
        "binary8",
        "binary8p4",
        "binary8p4s",
        "binary8p4xe",
        "binary8p4sex",
        "fp8_e4m3",
        "binary+8p4se",
        "binary8p-4se",
        "binary8p4sé",
    ] {
        let error = parse(text).unwrap_err();
        assert!(matches!(error, ParseP3109Error::Name { .. }), "{error}");
        assert!(
            error
                .to_string()
                .contains("expected `binary`, the bits (3 to 16)"),
            "{error}"
        );
    }
    for (text, expected) in [
        ("binary2p1se", "P3109: bits is 2, expected 3 to 16"),
        ("binary17p4se", "P3109: bits is 17, expected 3 to 16"),
        ("binary8p8se", "P3109: precision is 8, expected 1 to 7"),
        ("binary8p0ue", "P3109: precision is 0, expected 1 to 8"),
    ] {
        assert_eq!(parse(text).unwrap_err().to_string(), expected);
    }
    let named = |name, bits, random| {
        P3109Rounding::named(name, bits, random)
            .unwrap_err()
            .to_string()
    };
    assert!(named("nearest", 0, 0).contains("expected one of TowardZero, "));
    assert_eq!(
        named("ToOdd", 3, 0),
        "P3109: random_bits is 3, expected 0 to 0"
    );
    assert_eq!(
        named("StochasticA", 0, 0),
        "P3109: random_bits is 0, expected 1 to 31"
    );
    assert_eq!(
        named("StochasticA", 2, 4),
        "P3109: random is 4, expected less than 2^2"
    );
    assert!(
        "Sat"
            .parse::<Saturation>()
            .unwrap_err()
            .to_string()
            .contains("SatPropagate")
    );
    assert_eq!(
        RandomBits::new(StochasticVariant::A, 32, 0),
        Err(P3109Error::Range {
            field: "random_bits",
            min: 1,
            max: 31,
            got: 32
        })
    );
}
