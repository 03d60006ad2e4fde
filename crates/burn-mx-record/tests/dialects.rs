//! Operands by the rules of another tool, beside their formats' own rules.

use burn_core::tensor::module::linear;
use burn_core::tensor::{Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_mx_core::{MxAutodiff, MxDevice, MxSpecs};
use burn_mx_module::as_activation;
use burn_mx_record::{Figures, ProductKind, Recorder, RecorderConfig, Report};
use microscaling::{BlockFormat, Dialect, Rounder};

const INPUTS: usize = 96;
const OUTPUTS: usize = 24;

/// Normal numbers by the sum of twelve uniform ones of a linear congruential generator.
fn numbers(count: usize, mut seed: u64) -> Vec<f32> {
    let mut uniform = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 40) as f32 / (1_u64 << 24) as f32
    };
    (0..count)
        .map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0)
        .collect()
}

fn weight() -> Vec<f32> {
    numbers(INPUTS * OUTPUTS, 7)
}

/// A step of a layer whose weight has a dialect, used so often: the report if the step is recorded, and the output.
fn step(
    format: &str,
    dialect: Option<Dialect>,
    recorded: bool,
    uses: usize,
) -> (Option<Report>, Vec<f32>) {
    let format = Some(format.parse().unwrap());
    let specs = MxSpecs {
        w_elem_format: format,
        a_elem_format: format,
        dialect_w: dialect,
        ..MxSpecs::default()
    };
    let device = MxDevice::new(FlexDevice, specs.resolve().unwrap()).unwrap();
    let tensor = |values, shape| {
        Tensor::<MxAutodiff<Flex>, 2>::from_data(TensorData::new(values, shape), &device)
    };
    let w = tensor(weight(), [INPUTS, OUTPUTS]).require_grad();
    let x = tensor(numbers(5 * INPUTS, 1), [5, INPUTS]).require_grad();
    let folder = tempfile::tempdir().unwrap();
    let recording = recorded.then(|| {
        let recorder = Recorder::new(RecorderConfig::default()).on_this_thread();
        recorder.start(&folder).unwrap()
    });
    let y = (0..uses).map(|_| {
        burn_mx_record::scope("layer", || {
            linear(as_activation(x.clone()), w.clone(), None)
        })
    });
    let y = y.reduce(|a, b| a + b).unwrap();
    let output = y.clone().into_data().to_vec().unwrap();
    y.sum().backward();
    let report = recording.map(|recording| {
        recording.stop().unwrap();
        Report::read([folder.path()]).unwrap()
    });
    (report, output)
}

/// The figures of an operand in all products of a kind.
fn figures(report: &Report, name: &str, kind: ProductKind) -> Vec<Figures> {
    let step = report.steps().next().unwrap();
    let products = step.products.iter();
    let operands = products
        .filter(|product| product.product == kind)
        .flat_map(|product| &product.operands);
    let found: Vec<_> = operands
        .filter(|operand| operand.operand == name)
        .map(|operand| operand.figures.clone())
        .collect();
    assert!(!found.is_empty(), "{name} {kind}: {step:?}");
    found
}

fn of_weight(report: &Report) -> Figures {
    figures(report, "weight", ProductKind::Forward)[0].clone()
}

/// The count of elements of the weight that differ, and the squared errors by tool and own rule.
fn expected(format: &str, dialect: Dialect) -> (u64, [f64; 2]) {
    let (shape, format) = ([INPUTS, OUTPUTS], format.parse::<BlockFormat>().unwrap());
    let [mut tool, mut own] = [weight(), weight()];
    dialect.quantize(format, &mut tool, &shape, 0).unwrap();
    let rounder = Rounder::NearestEven;
    format.quantize(&mut own, &shape, 0, rounder).unwrap();
    let differ = tool.iter().zip(&own).filter(|(a, b)| a != b).count();
    let error = |quantized: &[f32]| {
        let pairs = weight().into_iter().zip(quantized);
        pairs
            .map(|(x, q)| (f64::from(x) - f64::from(*q)).powi(2))
            .sum()
    };
    (differ as u64, [error(&tool), error(&own)])
}

#[test]
fn a_dialect_beside_the_own_rule() {
    for (format, name) in [
        ("mxfp4", "modelopt"),
        ("mxfp8_e4m3", "compressed-tensors"),
        ("mxfp6_e2m3", "quark"),
        ("nvfp4(tensor_scale=true)", "transformer-engine-fast-math"),
        // The format's own rule.
        ("mxfp4", "ocp"),
    ] {
        let dialect: Dialect = name.parse().unwrap();
        let (report, output) = step(format, Some(dialect), true, 1);
        let report = report.unwrap();
        let recorded = of_weight(&report);
        let shown = recorded.dialect.expect("it has a dialect");
        let (count, [tool, own]) = expected(format, dialect);
        let close = |a: f64, b: f64| assert!((a - b).abs() <= 1e-9 * b, "{name}: {a}, {b}");
        assert_eq!((shown.dialect, shown.differing), (dialect, count), "{name}");
        let elements = weight().len() as f64;
        close(
            shown.differing_share.unwrap(),
            100.0 * count as f64 / elements,
        );
        close(shown.plain_mse.unwrap(), own / elements);
        close(shown.error_ratio.unwrap(), tool / own);
        let power: f64 = weight().iter().map(|x| f64::from(*x).powi(2)).sum();
        close(shown.plain_sqnr.unwrap(), 10.0 * (power / own).log10());
        close(recorded.mse.unwrap(), tool / elements);
        match name {
            "ocp" => assert_eq!((count, shown.error_ratio), (0, Some(1.0))),
            _ => assert!(count > 0, "{name}"),
        }

        // Only this operand has a dialect.
        let inputs = figures(&report, "input", ProductKind::Forward);
        let gradients = figures(&report, "weight", ProductKind::InputGradient);
        let others = inputs.iter().chain(&gradients);
        assert!(others.into_iter().all(|figures| figures.dialect.is_none()));
        let table = report.table();
        assert!(table.contains("error over the own rule's"), "{table}");
        assert!(table.contains(name), "{table}");
        assert!(report.json().contains("\"dialect_differing\":["));
        let csv = report.csv();
        let header = csv.lines().next().unwrap();
        assert!(
            header.ends_with("dialect_differing_percent,plain_sqnr_db,plain_mse"),
            "{header}"
        );
        let mse = shown.plain_mse.unwrap().to_string();
        assert!(
            csv.lines().any(|line| line.ends_with(&format!(",{mse}"))),
            "{csv}"
        );

        // No bit of the output changes.
        let (_, unseen) = step(format, Some(dialect), false, 1);
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&output), bits(&unseen), "{name}");
    }
}

/// Without a dialect a record has no such figures.
#[test]
fn no_dialect() {
    let report = step("mxfp4", None, true, 1).0.unwrap();
    assert_eq!(of_weight(&report).dialect, None);
    assert!(!report.table().contains("own rule"));
    assert!(!report.json().contains("dialect_differing"));
}

/// The uses of a layer in a step count together, or as products of their own.
#[test]
fn two_uses() {
    let report = step("mxfp4", Some(Dialect::ModelOpt), true, 2).0.unwrap();
    let uses = figures(&report, "weight", ProductKind::Forward);
    let counts = uses.iter().map(|use_| use_.dialect.unwrap().differing);
    let (count, [tool, own]) = expected("mxfp4", Dialect::ModelOpt);
    assert_eq!(counts.sum::<u64>(), 2 * count);
    for use_ in uses {
        let ratio = use_.dialect.unwrap().error_ratio.unwrap();
        assert!((ratio - tool / own).abs() < 1e-9, "{ratio}");
    }
}
