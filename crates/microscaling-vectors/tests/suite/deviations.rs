//! Deviations planted in devices, each named from the outputs alone.

use crate::devices::{Beyond, Converter, Nearest};
use crate::report;
use half::f16;
use microscaling::{BlockFormat, ElementFormat};
use microscaling_vectors::{
    BlockSet, CheckReport, ElementOverflow, ElementRule, ElementSet, InputType,
};

const E4M3: ElementFormat = ElementFormat::FP8_E4M3;
const E5M2: ElementFormat = ElementFormat::FP8_E5M2;

/// The report about a converter of float32, whose rule overflows in this way.
fn converted(device: Converter, overflow: ElementOverflow) -> CheckReport {
    let format = device.element.to_string().parse().unwrap();
    let rule = ElementRule {
        overflow,
        ..ElementRule::default()
    };
    let set = ElementSet::new(format, InputType::Float32, rule, false, 0, None).unwrap();
    report(&set, |inputs, _| {
        vec![device.code(f64::from(f32::from_bits(inputs[0] as u32)))]
    })
}

/// That these rules are named, in any order, and explain all.
fn assert_named(report: &CheckReport, names: &[&str]) {
    assert!(report.differ > 0);
    assert_eq!(report.rules.len(), names.len(), "{report:#?}");
    for name in names {
        assert!(
            report.rules.iter().any(|rule| rule.contains(name)),
            "no {name}: {report:#?}"
        );
    }
    assert_eq!(report.unexplained, None, "{report:#?}");
    assert_eq!(report.contradicted, 0, "{report:#?}");
    let explained: u64 = report.causes.iter().map(|cause| cause.cases).sum();
    assert_eq!(explained, report.differ);
}

#[test]
fn no_deviation_is_clean() {
    for (element, overflow, beyond) in [
        (E4M3, ElementOverflow::Saturate, Beyond::Maximum),
        (E4M3, ElementOverflow::Infinity, Beyond::Nan),
        (E5M2, ElementOverflow::Saturate, Beyond::Maximum),
        (E5M2, ElementOverflow::Infinity, Beyond::Infinity),
    ] {
        let report = converted(
            Converter {
                beyond,
                ..Converter::of(element)
            },
            overflow,
        );
        assert_eq!(report.differ, 0, "{report:#?}");
        assert!(
            report.rules.is_empty() && report.causes.is_empty() && report.unexplained.is_none()
        );
    }
}

#[test]
fn deviations_of_converters_are_named() {
    use ElementOverflow::{Infinity, Saturate};
    let (e4m3, e5m2) = (Converter::of(E4M3), Converter::of(E5M2));
    for (device, overflow, name) in [
        (
            Converter {
                nearest: Nearest::Away,
                ..e4m3
            },
            Saturate,
            "ties away from zero",
        ),
        (
            Converter {
                nearest: Nearest::Zero,
                ..e4m3
            },
            Saturate,
            "ties toward zero",
        ),
        (
            Converter {
                nearest: Nearest::Truncate,
                ..e4m3
            },
            Saturate,
            "truncation",
        ),
        (
            Converter {
                flush_outputs: true,
                ..e4m3
            },
            Saturate,
            "subnormal outputs flushed",
        ),
        (
            Converter {
                lose_zero_sign: true,
                ..e4m3
            },
            Saturate,
            "-0 lost",
        ),
        (
            Converter {
                all_448: true,
                ..e4m3
            },
            Saturate,
            "256 to 448 all become 448",
        ),
        (
            Converter {
                beyond: Beyond::Maximum,
                ..e5m2
            },
            Infinity,
            "become the maximum",
        ),
        (
            Converter {
                beyond: Beyond::Infinity,
                ..e5m2
            },
            Saturate,
            "overflow becomes Inf",
        ),
        (
            Converter {
                beyond: Beyond::Nan,
                ..e5m2
            },
            Saturate,
            "become NaN",
        ),
        (
            Converter {
                beyond: Beyond::Nan,
                ..e5m2
            },
            Infinity,
            "become NaN",
        ),
        (
            Converter {
                beyond: Beyond::Nan,
                ..e4m3
            },
            Saturate,
            "become NaN",
        ),
        (
            Converter {
                beyond: Beyond::Maximum,
                ..e4m3
            },
            Infinity,
            "become the maximum",
        ),
    ] {
        assert_named(&converted(device, overflow), &[name]);
    }
}

#[test]
fn flushed_inputs_are_named() {
    // Float16 has subnormal numbers that E5M2 has, too.
    let set = ElementSet::new(
        "fp8_e5m2".parse().unwrap(),
        InputType::Float16,
        ElementRule::default(),
        true,
        0,
        None,
    )
    .unwrap();
    let device = Converter::of(E5M2);
    let report = report(&set, |inputs, _| {
        let x = f16::from_bits(inputs[0] as u16);
        let flushed = if x.is_normal() || !x.is_finite() {
            x
        } else {
            f16::ZERO.copysign(x)
        };
        vec![device.code(f64::from(flushed.to_f32()))]
    });
    assert_named(&report, &["subnormal inputs flushed"]);
}

#[test]
fn two_deviations_at_once_are_both_named() {
    use ElementOverflow::{Infinity, Saturate};
    let (e4m3, e5m2) = (Converter::of(E4M3), Converter::of(E5M2));
    for (device, overflow, names) in [
        (
            Converter {
                nearest: Nearest::Away,
                flush_outputs: true,
                ..e4m3
            },
            Saturate,
            ["ties away", "outputs flushed"],
        ),
        (
            Converter {
                nearest: Nearest::Zero,
                lose_zero_sign: true,
                ..e4m3
            },
            Saturate,
            ["ties toward", "-0 lost"],
        ),
        (
            Converter {
                nearest: Nearest::Truncate,
                beyond: Beyond::Nan,
                ..e5m2
            },
            Saturate,
            ["truncation", "NaN"],
        ),
        (
            Converter {
                nearest: Nearest::Truncate,
                flush_outputs: true,
                ..e4m3
            },
            Saturate,
            ["truncation", "outputs flushed"],
        ),
        (
            Converter {
                all_448: true,
                nearest: Nearest::Away,
                ..e4m3
            },
            Saturate,
            ["all become 448", "ties away"],
        ),
        (
            Converter {
                all_448: true,
                lose_zero_sign: true,
                ..e4m3
            },
            Saturate,
            ["all become 448", "-0 lost"],
        ),
        (
            Converter {
                nearest: Nearest::Away,
                beyond: Beyond::Maximum,
                ..e5m2
            },
            Infinity,
            ["ties away", "the maximum"],
        ),
        (
            Converter {
                flush_outputs: true,
                beyond: Beyond::Infinity,
                ..e5m2
            },
            Saturate,
            ["outputs flushed", "becomes Inf"],
        ),
        (
            Converter {
                flush_outputs: true,
                lose_zero_sign: true,
                ..e4m3
            },
            Saturate,
            ["outputs flushed", "-0 lost"],
        ),
    ] {
        assert_named(&converted(device, overflow), &names);
    }
}

#[test]
fn what_no_neighbour_does_is_unexplained() {
    let set = ElementSet::new(
        "fp8_e4m3".parse().unwrap(),
        InputType::Float32,
        ElementRule::default(),
        false,
        0,
        None,
    )
    .unwrap();
    // The lowest bit is stuck at 1 in one binade.
    let stuck = |code: u64| if code & 0x78 == 0x30 { code | 1 } else { code };
    let alone = report(&set, |_, outputs| vec![stuck(outputs[0])]);
    assert!(alone.rules.is_empty(), "{alone:#?}");
    assert_eq!(alone.unexplained.as_ref().unwrap().cases, alone.differ);
    assert_eq!(alone.share_unexplained(), 1.0);
    let example = &alone.unexplained.as_ref().unwrap().example;
    assert!(
        example.contains("expected 0x30 (0.5), got 0x31"),
        "{example}"
    );
    // Beside a deviation of the list.
    let device = Converter {
        lose_zero_sign: true,
        ..Converter::of(E4M3)
    };
    let both = report(&set, |inputs, _| {
        vec![stuck(
            device.code(f64::from(f32::from_bits(inputs[0] as u32))),
        )]
    });
    assert_eq!(both.rules, ["-0 lost"], "{both:#?}");
    assert_eq!(both.unexplained.as_ref().unwrap().cases, alone.differ);
    assert!(both.share_unexplained() > 0.05 && both.share_unexplained() < 0.95);
}

/// A quantizer of MX blocks of float32 with a scale of its own.
fn quantized(
    format: &str,
    device: Converter,
    flush: bool,
    scale: impl Fn(f64) -> i32,
) -> CheckReport {
    let format: BlockFormat = format.parse().unwrap();
    let set = BlockSet::new(
        format,
        InputType::Float32,
        ElementRule::default(),
        false,
        0,
        None,
    )
    .unwrap();
    report(&set, |inputs, _| {
        let count = inputs[0] as usize;
        let x: Vec<f64> = inputs[1..][..count]
            .iter()
            .map(|word| f32::from_bits(*word as u32))
            .map(|x| {
                if flush && x.is_subnormal() {
                    0.0_f32.copysign(x)
                } else {
                    x
                }
            })
            .map(f64::from)
            .collect();
        let mut outputs = vec![0; 1 + 32];
        if x.iter().any(|x| !x.is_finite()) {
            outputs[0] = 255;
            return outputs;
        }
        let amax = x.iter().fold(0.0_f64, |amax, x| amax.max(x.abs()));
        let exponent = if amax == 0.0 {
            -127
        } else {
            (scale(amax) - format.element.emax()).clamp(-127, 127)
        };
        outputs[0] = (exponent + 127) as u64;
        for (output, x) in outputs[1..].iter_mut().zip(&x) {
            *output = device.code(x / 2.0_f64.powi(exponent));
        }
        outputs
    })
}

#[test]
fn deviations_of_block_quantizers_are_named() {
    let floor = |amax: f64| amax.log2().floor() as i32;
    let one_too_large = |amax: f64| {
        if amax.log2().fract() == 0.0 {
            floor(amax) + 1
        } else {
            floor(amax)
        }
    };
    let up = |amax: f64| amax.log2().ceil() as i32;
    let e4m3 = Converter::of(E4M3);
    assert_eq!(quantized("mxfp8_e4m3", e4m3, false, floor).differ, 0);
    assert_named(
        &quantized("mxfp8_e4m3", e4m3, false, one_too_large),
        &["scale one too large where amax = 2^k"],
    );
    assert_named(
        &quantized("mxfp8_e4m3", e4m3, false, up),
        &["scale rounded up"],
    );
    assert_named(
        &quantized("mxfp8_e4m3", e4m3, true, floor),
        &["subnormal inputs flushed"],
    );
    let away = Converter {
        nearest: Nearest::Away,
        ..e4m3
    };
    assert_named(&quantized("mxfp8_e4m3", away, false, floor), &["ties away"]);
    assert_named(
        &quantized("mxfp8_e4m3", away, false, one_too_large),
        &["ties away", "scale one too large"],
    );
    let flushed = Converter {
        flush_outputs: true,
        ..e4m3
    };
    assert_named(
        &quantized("mxfp8_e4m3", flushed, false, up),
        &["outputs flushed", "scale rounded up"],
    );
    let all_448 = Converter {
        all_448: true,
        ..e4m3
    };
    assert_named(
        &quantized("mxfp8_e4m3", all_448, false, floor),
        &["256 to 448 all become 448"],
    );
    let truncated = Converter {
        nearest: Nearest::Truncate,
        ..Converter::of(E5M2)
    };
    assert_named(
        &quantized("mxfp8_e5m2", truncated, false, floor),
        &["truncation"],
    );
    // Every third scale is one too small, which no neighbouring rule does.
    let wrong = |amax: f64| {
        if floor(amax) % 3 == 0 {
            floor(amax) - 1
        } else {
            floor(amax)
        }
    };
    let report = quantized("mxfp8_e4m3", e4m3, false, wrong);
    assert!(
        report.rules.is_empty() && report.share_unexplained() == 1.0,
        "{report:#?}"
    );
}
