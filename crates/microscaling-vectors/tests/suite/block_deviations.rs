//! Deviations planted in quantizers of blocks.

use crate::deviations::{E4M3, E5M2, assert_named};
use crate::devices::{Converter, Nearest};
use crate::report;
use microscaling::BlockFormat;
use microscaling_vectors::{
    BlockSet, CheckReport, ElementRounding, ElementRule, InputType, VectorSet,
};

/// The report on a device that quantizes MX blocks of float32. `scale` gives the exponent of the scale from the largest magnitude.
fn quantized(
    format: &str,
    device: Converter,
    flush: bool,
    scale: impl Fn(f64) -> i32,
) -> CheckReport {
    quantized_from(InputType::Float32, format, device, flush, scale)
}

/// The same of float32, or of FP8 (E4M3).
fn quantized_from(
    input: InputType,
    format: &str,
    device: Converter,
    flush: bool,
    scale: impl Fn(f64) -> i32,
) -> CheckReport {
    let number = |word: &u64| match input {
        InputType::Fp8E4M3 => E4M3.decode(*word as u32),
        _ => f32::from_bits(*word as u32),
    };
    let format: BlockFormat = format.parse().unwrap();
    let set = BlockSet::new(format, input, ElementRule::default(), false, 0, None).unwrap();
    report(&set, |inputs, _| {
        let count = inputs[0] as usize;
        let x: Vec<f64> = inputs[1..][..count]
            .iter()
            .map(number)
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
    let away = e4m3.nearest(Nearest::Away);
    assert_named(&quantized("mxfp8_e4m3", away, false, floor), &["ties away"]);
    assert_named(
        &quantized("mxfp8_e4m3", away, false, one_too_large),
        &["ties away", "scale one too large"],
    );
    let flushed = e4m3.flushing();
    assert_named(
        &quantized("mxfp8_e4m3", flushed, false, up),
        &["outputs flushed", "scale rounded up"],
    );
    let all_448 = e4m3.all_448();
    assert_named(
        &quantized("mxfp8_e4m3", all_448, false, floor),
        &["256 to 448 all become 448"],
    );
    let truncated = Converter::of(E5M2).nearest(Nearest::Truncate);
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

/// Blocks of FP8 whose numbers are all subnormal have the scale of the smallest normal number.
#[test]
fn scales_of_subnormal_inputs_are_named() {
    let floor = |amax: f64| amax.log2().floor() as i32;
    let e5m2 = Converter::of(E5M2);
    let of = |device, scale: &dyn Fn(f64) -> i32| {
        quantized_from(InputType::Fp8E4M3, "mxfp8_e5m2", device, false, scale)
    };
    let exact = of(e5m2, &floor);
    assert_eq!(exact.differ, 0, "{exact:#?}");
    let as_normal = |amax: f64| floor(amax).max(-6);
    let name = "scale of subnormal inputs as of the smallest normal input";
    assert_named(&of(e5m2, &as_normal), &[name]);
    let away = e5m2.nearest(Nearest::Away);
    assert_named(&of(away, &floor), &["ties away"]);
}

/// A quantizer whose scales are UE5M3, rounded up in place of half to even.
#[test]
fn a_float_scale_that_is_rounded_up_is_named() {
    let format: BlockFormat = "block(element=e2m1,scale=ue5m3,block_size=32)"
        .parse()
        .unwrap();
    let float = format.scale.float().unwrap();
    let scales: Vec<f32> = (0..255).map(|code| float.decode(code)).collect();
    let numbers = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0_f32];
    let rule = ElementRule::default();
    let set = BlockSet::new(format, InputType::Float32, rule, false, 0, None).unwrap();
    let report = report(&set, |inputs, _| {
        let count = inputs[0] as usize;
        let patterns = inputs[1..][..count].iter();
        let x: Vec<f32> = patterns.map(|word| f32::from_bits(*word as u32)).collect();
        let mut outputs = vec![0; 1 + 32];
        if x.iter().any(|x| !x.is_finite()) {
            outputs[0] = 255;
            return outputs;
        }
        let amax = x.iter().fold(0.0_f32, |amax, x| amax.max(x.abs()));
        let up = scales
            .iter()
            .position(|scale| *scale >= amax / 6.0 && *scale > 0.0);
        let code = up.unwrap_or(254);
        outputs[0] = code as u64;
        for (output, x) in outputs[1..].iter_mut().zip(&x) {
            let scaled = (x.abs() * (1.0 / scales[code])).min(6.0);
            let distance = |code: &usize| (numbers[*code] - scaled).abs();
            let nearest = (0..8).min_by(|a, b| {
                let order = distance(a).total_cmp(&distance(b));
                order.then((a % 2).cmp(&(b % 2)))
            });
            *output = nearest.unwrap() as u64 | if x.is_sign_negative() { 8 } else { 0 };
        }
        outputs
    });
    assert_named(&report, &["scale rounded up"]);
}

/// Blocks of one element whose tensor, or part of an axis, has a scale, too: the vectors have ties.
#[test]
fn ties_of_single_elements_beside_a_shared_scale_are_named() {
    for text in [
        "nvfp4(tensor_scale=true,block_size=1)",
        "block(element=fp8_e4m3,scale=ue5m3,block_size=1,tensor_scale=true)",
        "block(element=int4,scale=ue4m3,block_size=1,tensor_scale=true,headroom=3/4)",
        "block(element=e2m1,scale=ue4m3,block_size=1,outer_size=16)",
    ] {
        let format: BlockFormat = text.parse().unwrap();
        let of = |rounding| {
            let rule = ElementRule {
                rounding,
                ..ElementRule::default()
            };
            BlockSet::new(format, InputType::Float32, rule, true, 0, None).unwrap()
        };
        let (set, device) = (
            of(ElementRounding::TiesToEven),
            of(ElementRounding::TiesToAway),
        );
        let report = report(&set, |inputs, _| {
            let mut outputs = Vec::new();
            device.outputs(inputs, &[], &mut outputs);
            outputs
        });
        assert_named(&report, &["ties away"]);
        assert!(report.differ >= 16, "{text}: {report:#?}");
    }
}

/// Formats with a tensor scale, shifts or block floating point.
const WITH_PARTS: [&str; 8] = [
    "nvfp4(tensor_scale=true)",
    "nvfp4(tensor_scale=true,four_over_six=true)",
    "block(element=fp8_e4m3,scale=ue5m3,block_size=8,tensor_scale=true,headroom=3/4)",
    "nvint4",
    "mx9",
    "mx4",
    "bfp16",
    "microexponent(bit_width=13,block_size=32,sub_block_size=5,shift_bits=3)",
];

fn outputs_of(set: &BlockSet, inputs: &[u64], neighbours: &[usize]) -> Vec<u64> {
    let mut outputs = Vec::new();
    set.outputs(inputs, neighbours, &mut outputs);
    outputs
}

/// The model of neighbouring rules has the library's results: stochastic rounding with the random word 0 cuts off.
#[test]
fn the_model_of_formats_with_parts_is_the_library_s() {
    for text in WITH_PARTS {
        let format: BlockFormat = text.parse().unwrap();
        let of = |name: &str| {
            let rule = ElementRule {
                rounding: name.parse().unwrap(),
                ..ElementRule::default()
            };
            BlockSet::new(format, InputType::Float32, rule, true, 3, None).unwrap()
        };
        let (library, model) = (of("floor"), of("stochastic"));
        for (inputs, expected) in crate::cases(&library) {
            let mut words = inputs.clone();
            words.extend(std::iter::repeat_n(0, inputs.len() - 1));
            let got = outputs_of(&model, &words, &[]);
            assert_eq!(got, expected, "{text}: {inputs:x?}");
        }
    }
}

/// Other scales and other conversions of such formats.
#[test]
fn deviations_of_formats_with_parts_are_named() {
    for text in WITH_PARTS {
        let format: BlockFormat = text.parse().unwrap();
        let of = |rounding| {
            let rule = ElementRule {
                rounding,
                ..ElementRule::default()
            };
            BlockSet::new(format, InputType::Float32, rule, true, 0, Some(500)).unwrap()
        };
        let set = of(ElementRounding::TiesToEven);
        let device = of(ElementRounding::ToOdd);
        let odd = report(&set, |inputs, _| outputs_of(&device, inputs, &[]));
        assert_named(&odd, &["rounding to odd"]);
        let names = ["scale code one too large", "scale code one too small"];
        for name in names {
            let rule = set.neighbours().iter().position(|rule| rule.name == name);
            let rule = rule.unwrap_or_else(|| panic!("{text}: {name}"));
            let shifted = report(&set, |inputs, _| outputs_of(&set, inputs, &[rule]));
            assert_named(&shifted, &[name]);
        }
    }
}
