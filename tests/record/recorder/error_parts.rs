//! The parts of an operand's squared error.

use burn::module::Param;
use burn::nn::LinearConfig;
use burn_mx::module::label_parameters;
use burn_mx::record::{Figures, PartFigures, ProductKind, RecorderConfig, Report};
use burn_mx::{BlockFormat, MxSpecs, RandomStream, Rounding};
use microscaling::{Comparison, ErrorParts};

use super::{folder, operand, product, record_here, steps};
use crate::support::{Mx, assert_same_bits, mx_device, noise_tensor, values};

const FORMAT: &str = "mx(element=fp4_e2m1,scale_mode=rceil)";

/// The parts of a matrix with blocks along its first axis, rounded as the specs do by default.
fn parts(x: &[f32], shape: [usize; 2], format: &str) -> PartFigures {
    let format: BlockFormat = format.parse().unwrap();
    let rounding = Rounding::NearestEven;
    let mut quantized = x.to_vec();
    let rounder = rounding.with(RandomStream::new(0, 0));
    format.quantize(&mut quantized, &shape, 0, rounder).unwrap();
    let comparison = Comparison {
        original: x,
        quantized: &quantized,
        shape: &shape,
        axis: 0,
        format: Some(format),
    };
    let parts = ErrorParts::of(comparison, rounding).unwrap().unwrap();
    let share = parts.dead_zone_elements() as f64 / x.len() as f64;
    PartFigures {
        scale: parts.scale(),
        dead_zone: parts.dead_zone(),
        grid: parts.grid(),
        cosine: parts.cosine(),
        scale_bias: parts.scale_bias(),
        dead_zone_elements: Some(100.0 * share),
    }
}

/// A layer of one use, recorded or not: the report, the weight, and the output.
fn trained(config: RecorderConfig, uses: usize) -> (Report, Vec<f32>, Vec<f32>) {
    let format = Some(FORMAT.parse().expect("it is a format"));
    let specs = MxSpecs {
        w_elem_format: format,
        a_elem_format: format,
        ..MxSpecs::default()
    };
    let device = mx_device(&specs);
    let layer = LinearConfig::new(96, 24).with_bias(false);
    let mut layer = layer.init::<Mx>(&device);
    layer.weight = Param::from_tensor(noise_tensor([96, 24], 7, &device));
    let layer = label_parameters(layer);
    let x = noise_tensor::<Mx, 2>([5, 96], 1, &device);
    let folder = folder();
    let recording = record_here(config, &folder);
    let y = (0..uses).map(|_| layer.forward(x.clone()));
    let y = y.reduce(|a, b| a + b).expect("it is used");
    let output = values(y.clone());
    y.sum().backward();
    recording.stop().expect("all is written");
    let report = Report::read([folder.path()]).expect("there are records");
    (report, values(layer.weight.val()), output)
}

fn of_weight(report: &Report) -> Figures {
    let steps = steps(report);
    let record = product(steps[0], "weight", ProductKind::Forward);
    operand(record, "weight").figures.clone()
}

#[test]
fn parts_are_of_the_operands() {
    let config = RecorderConfig {
        error_parts: true,
        ..RecorderConfig::default()
    };
    let config = config.what_if(["nvfp4", "mx9"]);
    let (report, weight, output) = trained(config, 1);
    let expected = parts(&weight, [96, 24], FORMAT);
    assert_eq!(of_weight(&report).error_parts, Some(expected));
    let step = steps(&report)[0];
    let record = product(step, "weight", ProductKind::Forward);
    let what_if = &operand(record, "weight").what_if;
    // NVFP4's scales are nearly exact.
    let nvfp4 = what_if["nvfp4"].error_parts.unwrap();
    assert!(nvfp4.scale < expected.scale, "{nvfp4:?}");
    assert!(nvfp4.scale_bias.unwrap().abs() < 0.02, "{nvfp4:?}");
    assert_eq!(what_if["mx9"].error_parts, None);

    let shown = format!("{:.3}", expected.scale.unwrap());
    let table = report.table();
    assert!(
        table.contains("error by scale") && table.contains(&shown),
        "{table}"
    );
    assert!(report.json().contains("\"error_scale\":["));
    let csv = report.csv();
    assert!(
        csv.contains(&expected.scale_bias.unwrap().to_string()),
        "{csv}"
    );

    // Without the option a record has no parts. No bit of the output changes.
    let (plain, _, same) = trained(RecorderConfig::default(), 1);
    assert_same_bits(&output, &same, "recorded");
    assert_eq!(of_weight(&plain).error_parts, None);
    assert!(!plain.table().contains("error by scale"));
    assert!(!plain.json().contains("error_scale"));
}

/// Figures of a layer that is used twice are of both uses.
#[test]
fn parts_of_two_uses_are_together() {
    let config = RecorderConfig {
        error_parts: true,
        ..RecorderConfig::default()
    };
    let of = |uses| of_weight(&trained(config.clone(), uses).0);
    let [one, two] = [of(1), of(2)];
    assert_eq!(two.elements, 2 * one.elements);
    let [one, two] = [one, two].map(|figures| figures.error_parts.expect("it has parts"));
    let close = |a: Option<f64>, b: Option<f64>| (a.unwrap() - b.unwrap()).abs() < 1e-12;
    assert!(close(one.scale, two.scale) && close(one.scale_bias, two.scale_bias));
    assert_eq!(one.dead_zone_elements, two.dead_zone_elements);
}
