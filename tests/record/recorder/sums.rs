//! An accumulator's errors in the sums of a product.

use burn::nn::LinearConfig;
use burn::nn::conv::Conv2dConfig;
use burn_mx::module::label_parameters;
use burn_mx::record::{ProductKind, ProductRecord, RecorderConfig, Report, SumFigures};
use burn_mx::{BlockFormat, MxSpecs, RandomStream, Rounding};

use super::{folder, product, record_here, steps};
use crate::support::{Mx, assert_same_bits, mx_device, noise_tensor, values};

/// Eight bits of 8 products: errors that show, and products that are cut to nothing.
const NARROW: &str = "accumulator(order=joint,terms=8,fraction_bits=8,output=e8m8_rz)";
const WIDE: &str = "accumulator(order=exact,terms=1024,output=f32_rne)";

fn specs(accumulator: &str) -> MxSpecs {
    let format = Some("mxfp8_e4m3".into());
    MxSpecs {
        w_elem_format: format,
        a_elem_format: format,
        accumulator: Some(accumulator.parse().expect("it is an accumulator")),
        ..MxSpecs::default()
    }
}

fn config(what_if: &[&str]) -> RecorderConfig {
    RecorderConfig::default().what_if_accumulators(what_if.iter().copied())
}

fn close(got: Option<f64>, expected: f64) {
    let got = got.expect("it is recorded");
    assert!(
        (got - expected).abs() <= 1e-6 * expected.abs(),
        "{got}, not {expected}"
    );
}

/// Against the sums that the layer computed, and float64.
#[test]
fn figures_are_of_the_sums() {
    let (rows, summed, columns) = (7, 96, 5);
    let device = mx_device(&specs(NARROW));
    let layer = LinearConfig::new(summed, columns).with_bias(false);
    let layer = label_parameters(layer.init::<Mx>(&device));
    let x = noise_tensor::<Mx, 2>([rows, summed], 1, &device);
    let unseen = values(layer.forward(x.clone()));
    let folder = folder();
    let recording = record_here(config(&[WIDE, "blackwell", "ampere"]), &folder);
    let y = layer.forward(x.clone());
    let got = values(y.clone());
    y.sum().backward();
    recording.stop().expect("all is written");
    assert_same_bits(&got, &unseen, "recorded");

    let report = Report::read([folder.path()]).expect("there are records");
    let steps = steps(&report);
    let record = product(steps[0], "weight", ProductKind::Forward);
    let sums = record.sums.as_ref().expect("it has an accumulator");
    assert_eq!(sums.accumulator, NARROW);
    let quantized = |mut data: Vec<f32>, shape: [usize; 2], axis: usize| {
        let format: BlockFormat = "mxfp8_e4m3".parse().unwrap();
        let rounder = Rounding::NearestAway.with(RandomStream::new(0, 0));
        format.quantize(&mut data, &shape, axis, rounder).unwrap();
        data
    };
    let x = quantized(values(x), [rows, summed], 1);
    let w = quantized(values(layer.weight.val()), [summed, columns], 0);
    let (mut errors, mut powers, mut gots, mut dots, mut bits) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (i, got) in got.iter().enumerate() {
        let (row, column) = (i / columns, i % columns);
        let terms = (0..summed)
            .map(|k| f64::from(x[row * summed + k]) * f64::from(w[k * columns + column]));
        let (exact, got) = (terms.sum::<f64>(), f64::from(*got));
        errors += (got - exact) * (got - exact);
        powers += exact * exact;
        gots += got * got;
        dots += got * exact;
        let last_place = 2.0_f64.powi(exact.abs().log2().floor() as i32 - 23);
        bits += (1.0 + (got - exact).abs() / last_place).log2();
    }
    let figures = &sums.figures;
    assert_eq!(figures.sums, (rows * columns) as u64);
    close(figures.relative_error, (errors / powers).sqrt());
    close(figures.cosine, dots / (gots * powers).sqrt());
    close(figures.bits_lost, bits / (rows * columns) as f64);
    assert!(figures.relative_error > Some(1e-3));
    assert!(figures.cut_to_nothing > Some(0.1), "{figures:?}");

    // Ampere has no unit for FP8.
    let names: Vec<&String> = sums.what_if.keys().collect();
    assert_eq!(
        names,
        [WIDE, "blackwell"]
            .map(String::from)
            .iter()
            .collect::<Vec<_>>()
    );
    let error = |figures: &SumFigures| figures.relative_error.expect("it is defined");
    assert!(error(&sums.what_if[WIDE]) < 1e-7);
    assert_eq!(sums.what_if[WIDE].cut_to_nothing, Some(0.0));
    assert!(error(&sums.what_if["blackwell"]) < 1e-6);

    for kind in [ProductKind::InputGradient, ProductKind::WeightGradient] {
        let other = steps[0]
            .products
            .iter()
            .find(|product| product.product == kind);
        assert!(other.is_none_or(|product| product.sums.is_some()));
    }
    let table = report.table();
    assert!(table.contains("cut to nothing %"), "{table}");
    assert!(table.contains(WIDE), "{table}");
}

/// Convolutions have figures; a product without an accumulator has none.
#[test]
fn of_convolutions_and_of_nothing() {
    let recorded = |specs: &MxSpecs| -> Vec<ProductRecord> {
        let device = mx_device(specs);
        let layer = Conv2dConfig::new([6, 8], [3, 3]).with_groups(2);
        let layer = label_parameters(layer.init::<Mx>(&device));
        let x = noise_tensor::<Mx, 4>([3, 6, 9, 9], 1, &device).require_grad();
        let folder = folder();
        let recording = record_here(config(&[]), &folder);
        layer.forward(x).sum().backward();
        recording.stop().expect("all is written");
        let report = Report::read([folder.path()]).expect("there are records");
        steps(&report)[0].products.clone()
    };
    let products = recorded(&specs("hopper"));
    assert_eq!(products.len(), 3);
    for product in products {
        let figures = product.sums.expect("it has an accumulator").figures;
        assert!(
            (200..=256).contains(&figures.sums) || product.product == ProductKind::WeightGradient
        );
        assert!(
            figures.relative_error.is_some_and(|error| error < 1e-2),
            "{figures:?}"
        );
    }
    let none = MxSpecs {
        accumulator: None,
        ..specs("hopper")
    };
    assert!(recorded(&none).iter().all(|product| product.sums.is_none()));
}

#[test]
fn accumulators_that_are_none_are_refused() {
    let error = config(&["hoper"]).validate().unwrap_err().to_string();
    for part in ["what_if_accumulators", "hoper", "hopper"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(config(&["hopper", "hopper"]).validate().is_err());
}
