//! The formats: value sets, derived constants, names, serialization.

use crate::float_state::ieee;
use crate::oracle;
use microscaling::{
    BlockFormat, ElementFormat, FloatFormat, NameError, Rounding, ScaleMode, SharedExpMethod,
};
use std::collections::BTreeSet;
use std::str::FromStr;

/// The table of the specification: bits, exponent bits, mantissa bits, emax, max, smallest positive.
#[test]
fn constants() {
    let two = |e: i32| oracle::pow2(e) as f32;
    let rows = [
        ("fp8_e5m2", 8, 5, 2, 15, 57344.0, two(-16)),
        ("fp8_e4m3", 8, 4, 3, 8, 448.0, two(-9)),
        ("fp6_e3m2", 6, 3, 2, 4, 28.0, two(-4)),
        ("fp6_e2m3", 6, 2, 3, 2, 7.5, two(-3)),
        ("fp4_e2m1", 4, 2, 1, 2, 6.0, two(-1)),
        ("int8", 8, 0, 6, 0, 1.984375, two(-6)),
        ("int4", 4, 0, 2, 0, 1.75, two(-2)),
        ("int2", 2, 0, 0, 0, 1.0, 1.0),
        ("float16", 16, 5, 10, 15, 65504.0, two(-24)),
        (
            "bfloat16",
            16,
            8,
            7,
            127,
            half::bf16::MAX.to_f32(),
            two(-133),
        ),
        // Formats of other hardware and of the literature.
        ("fp8_e3m4", 8, 3, 4, 3, 15.5, two(-6)),
        ("fp8_e2m5", 8, 2, 5, 2, 7.875, two(-5)),
        ("fp8_e4m3fnuz", 8, 4, 3, 7, 240.0, two(-10)),
        ("fp8_e4m3b11fnuz", 8, 4, 3, 4, 30.0, two(-13)),
        ("fp8_e5m2fnuz", 8, 5, 2, 15, 57344.0, two(-17)),
        ("fp5_e3m1", 5, 3, 1, 4, 24.0, two(-3)),
        ("fp5_e2m2", 5, 2, 2, 2, 7.0, two(-2)),
        ("fp4_e3m0", 4, 3, 0, 4, 16.0, two(-2)),
        ("fp4_e1m2", 4, 1, 2, 0, 1.75, two(-2)),
        ("fp3_e2m0", 3, 2, 0, 2, 4.0, 1.0),
        ("int6", 6, 0, 4, 0, 1.9375, two(-4)),
        ("int5", 5, 0, 3, 0, 1.875, two(-3)),
        ("int3", 3, 0, 1, 0, 1.5, two(-1)),
    ];
    let rows = rows
        .map(|(name, a, b, c, d, e, f)| (name.parse::<ElementFormat>().unwrap(), a, b, c, d, e, f));
    assert_eq!(rows.map(|row| row.0), ElementFormat::NAMED);
    for (format, bits, exponent_bits, mantissa_bits, emax, max, min_subnormal) in rows {
        assert_eq!(format.bits(), bits, "{format}");
        assert_eq!(format.exponent_bits(), exponent_bits, "{format}");
        assert_eq!(format.mantissa_bits(), mantissa_bits, "{format}");
        assert_eq!(format.emax(), emax, "{format}");
        assert_eq!(format.max(), max, "{format}");
        assert_eq!(format.min_subnormal(), min_subnormal, "{format}");
        let smallest_normal = oracle::pow2(format.emin() - mantissa_bits as i32) as f32;
        assert_eq!(smallest_normal, min_subnormal, "{format}");
    }
}

/// All codes decode to the values of an independent table, sign and magnitude or two's complement.
#[test]
fn every_code() {
    for format in ElementFormat::NAMED {
        let table = oracle::magnitudes(format);
        let half = 1_u32 << (format.bits() - 1);
        for code in 0..half {
            let got = [format.decode(code), format.decode(code | half)];
            let expected = ieee(|| match table.get(code as usize) {
                Some(&0.0) if format.to_string().contains("fnuz") => [0.0, f32::NAN],
                Some(&value) if !format.is_integer() => [value as f32, -value as f32],
                // The negative ones are stored as 2^bits − n.
                Some(&value) => {
                    let below = oracle::magnitudes(format)
                        .get((half - code) as usize)
                        .copied();
                    [value as f32, below.map_or(-2.0, |value| -value) as f32]
                }
                None if format == ElementFormat::FP8_E4M3 => [f32::NAN; 2],
                None if code as usize == table.len() => [f32::INFINITY, -f32::INFINITY],
                None => [f32::NAN; 2],
            });
            for (got, expected) in got.into_iter().zip(expected) {
                assert!(
                    oracle::identical(got, expected),
                    "{format} code {code:#x}: {got:e}, not {expected:e}"
                );
            }
        }
        let beyond = format.decode(1 | 1 << format.bits());
        assert_eq!(beyond, format.decode(1), "{format} ignores higher bits");
        assert_eq!(table.last().copied(), Some(f64::from(format.max())));
    }
}

/// Quantizing every number between gives exactly the value set.
#[test]
fn produced_values_are_the_value_set() {
    for element in ElementFormat::NAMED
        .into_iter()
        .filter(|element| element.bits() <= 8)
    {
        let amax = element.max().to_bits();
        let format = BlockFormat::mx(element, 32);
        let produced: BTreeSet<u32> = (0..=amax)
            .step_by(4999)
            .chain([amax])
            .map(|bits| {
                format
                    .round_element(
                        f32::from_bits(bits),
                        [amax; 2],
                        1.0,
                        Rounding::NearestEven,
                        0,
                    )
                    .to_bits()
            })
            .collect();
        let table: BTreeSet<u32> = oracle::magnitudes(element)
            .into_iter()
            .map(|value| (value as f32).to_bits())
            .collect();
        assert_eq!(produced, table, "{element}");
    }
}

#[test]
fn float_format_constants() {
    for bits in 10..=32 {
        let format = FloatFormat::bfloat(bits).unwrap();
        assert_eq!((format.bits(), format.exponent_bits()), (bits, 8));
        assert_eq!(format.mantissa_bits(), bits - 9);
        assert_eq!(format.min_normal(), f32::MIN_POSITIVE);
        let max = (2.0 - oracle::pow2(9 - bits as i32)) * oracle::pow2(127);
        assert_eq!(f64::from(format.max()), max);
        assert_eq!(format.is_identity(), bits == 32);
        assert_eq!(format.to_string(), format!("bfloat{bits}"));
    }
    for bits in 7..=29 {
        let format = FloatFormat::fp(bits).unwrap();
        assert_eq!((format.bits(), format.exponent_bits()), (bits, 5));
        assert_eq!(format.mantissa_bits(), bits - 6);
        assert_eq!(format.min_normal(), half::f16::MIN_POSITIVE.to_f32());
        let max = (2.0 - oracle::pow2(6 - bits as i32)) * 32768.0;
        assert_eq!(f64::from(format.max()), max);
        assert!(!format.is_identity());
        assert_eq!(format.to_string(), format!("fp{bits}"));
    }
    assert_eq!(
        FloatFormat::bfloat(16).unwrap().max(),
        half::bf16::MAX.to_f32()
    );
    assert_eq!(FloatFormat::fp(16).unwrap().max(), half::f16::MAX.to_f32());
}

/// Names, aliases and JSON of one enum.
fn check_names<T>(all: &[T], names: &[&str], aliases: &[(&str, T)], kind: &str)
where
    T: FromStr<Err = NameError> + ToString + Copy + PartialEq + std::fmt::Debug,
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    assert_eq!(all.iter().map(T::to_string).collect::<Vec<_>>(), names);
    for (value, name) in all.iter().zip(names) {
        assert_eq!(name.parse(), Ok(*value));
        assert_eq!(serde_json::to_string(value).unwrap(), format!("\"{name}\""));
        assert_eq!(
            serde_json::from_str::<T>(&format!("\"{name}\"")).unwrap(),
            *value
        );
        assert_eq!(serde_json::from_value::<T>((*name).into()).unwrap(), *value);
    }
    for (alias, value) in aliases {
        assert_eq!(alias.parse(), Ok(*value));
        assert_eq!(
            serde_json::from_str::<T>(&format!("\"{alias}\"")).unwrap(),
            *value
        );
    }
    for wrong in ["", "nonsense", " int8", "MAX"] {
        let error = wrong.parse::<T>().unwrap_err();
        let aliases = aliases.iter().map(|(alias, _)| *alias);
        let allowed: Vec<_> = names.iter().copied().chain(aliases).collect();
        let allowed = allowed.join(", ");
        assert_eq!(
            error.to_string(),
            format!("unknown {kind} `{wrong}`: expected one of {allowed}")
        );
        let error = serde_json::from_str::<T>(&format!("\"{wrong}\""))
            .unwrap_err()
            .to_string();
        assert!(error.contains(&allowed), "{error}");
    }
    assert!(
        serde_json::from_str::<T>("8")
            .unwrap_err()
            .to_string()
            .contains(kind)
    );
}

#[test]
fn names() {
    for (name, format) in ElementFormat::NAMES.into_iter().zip(ElementFormat::NAMED) {
        assert_eq!((format.name(), name.parse()), (Some(name), Ok(format)));
    }
    for (alias, format) in [
        ("fp4", ElementFormat::FP4_E2M1),
        ("e2m1", ElementFormat::FP4_E2M1),
        ("e4m3", ElementFormat::FP8_E4M3),
        ("fp16", ElementFormat::FLOAT16),
        ("bf16", ElementFormat::BFLOAT16),
    ] {
        assert_eq!(alias.parse(), Ok(format));
    }
    check_names(
        &Rounding::ALL,
        &["nearest", "even", "floor", "stochastic"],
        &[("dither", Rounding::Stochastic)],
        "rounding mode",
    );
    check_names(
        &ScaleMode::ALL,
        &["floor", "ceil", "even", "rceil", "rms", "max_abs_finite"],
        &[],
        "scale mode",
    );
    check_names(
        &SharedExpMethod::ALL,
        &["max", "none"],
        &[],
        "shared exponent method",
    );
    assert_eq!(ScaleMode::default(), ScaleMode::Floor);
    assert_eq!(format!("[{:>6}]", ElementFormat::INT8), "[  int8]");
}
