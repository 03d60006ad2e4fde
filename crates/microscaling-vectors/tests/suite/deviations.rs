//! Deviations planted in devices, each named from the outputs alone.

use crate::devices::{Beyond, Converter, Nearest};
use crate::report;
use half::f16;
use microscaling::ElementFormat;
use microscaling_vectors::{CheckReport, ElementOverflow, ElementRule, ElementSet, InputType};

pub(crate) const E4M3: ElementFormat = ElementFormat::FP8_E4M3;
pub(crate) const E5M2: ElementFormat = ElementFormat::FP8_E5M2;

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
pub(crate) fn assert_named(report: &CheckReport, names: &[&str]) {
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
        let report = converted(Converter::of(element).beyond(beyond), overflow);
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
        (e4m3.nearest(Nearest::Away), Saturate, "ties away from zero"),
        (e4m3.nearest(Nearest::Zero), Saturate, "ties toward zero"),
        (e4m3.nearest(Nearest::Truncate), Saturate, "truncation"),
        (e4m3.flushing(), Saturate, "subnormal outputs flushed"),
        (e4m3.without_negative_zero(), Saturate, "-0 lost"),
        (e4m3.all_448(), Saturate, "256 to 448 all become 448"),
        (e5m2.beyond(Beyond::Maximum), Infinity, "become the maximum"),
        (
            e5m2.beyond(Beyond::Infinity),
            Saturate,
            "overflow becomes Inf",
        ),
        (e5m2.beyond(Beyond::Nan), Saturate, "become NaN"),
        (e5m2.beyond(Beyond::Nan), Infinity, "become NaN"),
        (e4m3.beyond(Beyond::Nan), Saturate, "become NaN"),
        (e4m3.beyond(Beyond::Maximum), Infinity, "become the maximum"),
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
            e4m3.nearest(Nearest::Away).flushing(),
            Saturate,
            ["ties away", "outputs flushed"],
        ),
        (
            e4m3.nearest(Nearest::Zero).without_negative_zero(),
            Saturate,
            ["ties toward", "-0 lost"],
        ),
        (
            e5m2.nearest(Nearest::Truncate).beyond(Beyond::Nan),
            Saturate,
            ["truncation", "NaN"],
        ),
        (
            e4m3.nearest(Nearest::Truncate).flushing(),
            Saturate,
            ["truncation", "outputs flushed"],
        ),
        (
            e4m3.all_448().nearest(Nearest::Away),
            Saturate,
            ["all become 448", "ties away"],
        ),
        (
            e4m3.all_448().without_negative_zero(),
            Saturate,
            ["all become 448", "-0 lost"],
        ),
        (
            e5m2.nearest(Nearest::Away).beyond(Beyond::Maximum),
            Infinity,
            ["ties away", "the maximum"],
        ),
        (
            e5m2.flushing().beyond(Beyond::Infinity),
            Saturate,
            ["outputs flushed", "becomes Inf"],
        ),
        (
            e4m3.flushing().without_negative_zero(),
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
    let device = Converter::of(E4M3).without_negative_zero();
    let both = report(&set, |inputs, _| {
        vec![stuck(
            device.code(f64::from(f32::from_bits(inputs[0] as u32))),
        )]
    });
    assert_eq!(both.rules, ["-0 lost"], "{both:#?}");
    assert_eq!(both.unexplained.as_ref().unwrap().cases, alone.differ);
    assert!(both.share_unexplained() > 0.05 && both.share_unexplained() < 0.95);
}
