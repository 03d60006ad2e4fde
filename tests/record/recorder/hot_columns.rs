//! Linear layers with hot columns: rows of both parts, and the error of the whole product.

use burn::module::Param;
use burn::nn::{Linear, LinearConfig};
use burn::prelude::Tensor;
use burn_mx::module::label_parameters;
use burn_mx::record::{ProductKind, ProductRecord, RecorderConfig, Report};
use burn_mx::{MxSpecs, Rounding};

use super::{folder, operand, product, record_here, steps};
use crate::support::{Mx, mx_device, noise, noise_tensor, values};

const ROWS: usize = 6;
const COLUMNS: usize = 20;
const OUTPUTS: usize = 5;

/// `lhs` [.., terms] times `rhs` [terms, ..], in float64.
fn times(lhs: &[f32], rhs: &[f32], terms: usize) -> Vec<f64> {
    let columns = rhs.len() / terms;
    let element = |row: &[f32], column: usize| {
        let terms = row.iter().enumerate();
        let products = terms.map(|(at, x)| f64::from(*x) * f64::from(rhs[at * columns + column]));
        products.sum::<f64>()
    };
    let rows = lhs.chunks(terms);
    rows.flat_map(|row| (0..columns).map(move |column| element(row, column)))
        .collect()
}

/// The relative error of numbers beside exact ones.
fn error(got: &[f32], exact: &[f64]) -> f64 {
    let square = |x: f64| x * x;
    let errors = got
        .iter()
        .zip(exact)
        .map(|(got, x)| square(f64::from(*got) - x));
    (errors.sum::<f64>() / exact.iter().map(|x| square(*x)).sum::<f64>()).sqrt()
}

/// The recorded products of a step, forward and the weight's gradient, and the errors of what the step computed.
fn step(hot: &str) -> ([ProductRecord; 2], [f64; 2], f64) {
    let specs = MxSpecs {
        w_elem_format: "nvfp4".parse().ok(),
        a_elem_format: "nvfp4".parse().ok(),
        hot_columns: Some(hot.parse().expect(hot)),
        round: Rounding::NearestEven,
        ..MxSpecs::default()
    };
    let device = mx_device(&specs);
    let weight = noise_tensor::<Mx, 2>([COLUMNS, OUTPUTS], 1, &device);
    let layer = Linear::<Mx> {
        weight: Param::from_tensor(weight),
        ..LinearConfig::new(COLUMNS, OUTPUTS)
            .with_bias(false)
            .init(&device)
    };
    let layer = label_parameters(layer);
    let x = noise_tensor::<Mx, 2>([ROWS, COLUMNS], 2, &device).require_grad();
    let folder = folder();
    let recording = record_here(RecorderConfig::default(), &folder);
    let y = layer.forward(x);
    let loss: Tensor<Mx, 1> = (y.clone() * noise_tensor([ROWS, OUTPUTS], 3, &device)).sum();
    let grads = loss.backward();
    recording.stop().expect("all is written");
    let dw = values(layer.weight.grad(&grads).expect("the weight is a leaf"));
    let (x, w, g) = (
        noise(ROWS * COLUMNS, 2),
        noise(COLUMNS * OUTPUTS, 1),
        noise(ROWS * OUTPUTS, 3),
    );
    let turned: Vec<f32> = (0..x.len())
        .map(|at| x[at % ROWS * COLUMNS + at / ROWS])
        .collect();
    let errors = [
        error(&values(y), &times(&x, &w, COLUMNS)),
        error(&dw, &times(&turned, &g, ROWS)),
    ];
    let report = Report::read([folder.path()]).expect("there are records");
    let step = steps(&report)[0];
    let kinds = [ProductKind::Forward, ProductKind::WeightGradient];
    let rows = kinds.map(|kind| product(step, "weight", kind).clone());
    let macs = step
        .cost_products()
        .iter()
        .map(|product| product.macs)
        .sum();
    (rows, errors, macs)
}

#[test]
fn the_error_is_of_the_whole_product() {
    let format = "hot_columns(percent=20,format=mxfp8_e4m3)";
    let residual = "hot_columns(percent=20,treatment=residual)";
    let exact_hot = "hot_columns(percent=20)";
    let mut of_forward = Vec::new();
    for hot in [format, residual, exact_hot] {
        let (rows, errors, macs) = step(hot);
        for (row, expected) in rows.iter().zip(errors) {
            let got = row.result.expect("it is recorded").relative_error;
            let got = got.expect("results are not 0");
            assert!(
                (got / expected - 1.0).abs() < 1e-4,
                "{hot}: {row:?}, {expected}"
            );
            assert_eq!(row.macs, (ROWS * COLUMNS * OUTPUTS) as u64, "{hot}");
        }
        let [forward, gradient] = &rows;
        assert_eq!(forward.result_elements, (ROWS * OUTPUTS) as u64);
        assert_eq!(gradient.result_elements, (COLUMNS * OUTPUTS) as u64);
        of_forward.push(errors[0]);
        // The input's gradient has as many multiplications.
        let all = 3.0 * (ROWS * COLUMNS * OUTPUTS) as f64;
        assert!((macs - all).abs() < 1e-6 * all, "{hot}: {macs}");
        let names: Vec<&str> = forward
            .operands
            .iter()
            .map(|operand| &*operand.operand)
            .collect();
        if hot == residual {
            assert_eq!(names, ["input", "weight"], "{hot}");
            continue;
        }
        assert_eq!(names, ["input", "weight", "hot input", "hot weight"]);
        if hot == exact_hot {
            let operand = operand(forward, "hot input");
            assert!(
                operand.format.is_none() && operand.figures.exact,
                "{operand:?}"
            );
            continue;
        }
        for (name, format, elements) in [
            ("input", "nvfp4", ROWS * 16),
            ("hot input", "mxfp8_e4m3", ROWS * 4),
            ("weight", "nvfp4", OUTPUTS * 16),
            ("hot weight", "mxfp8_e4m3", OUTPUTS * 4),
        ] {
            let operand = operand(forward, name);
            assert_eq!(operand.format.as_deref(), Some(format), "{name}");
            assert_eq!(operand.figures.elements, elements as u64, "{name}");
            assert!(operand.figures.blocks > 0, "{name}");
        }
        let [hot, usual] = ["hot input", "input"].map(|name| {
            operand(forward, name)
                .figures
                .sqnr
                .expect("it has an error")
        });
        assert!(hot > usual + 3.0, "{hot}, {usual}");
        assert!(
            gradient
                .operands
                .iter()
                .any(|operand| operand.operand == "hot output gradient")
        );
    }
    // Hot columns that are treated better lose less.
    assert!(
        of_forward.iter().all(|error| *error > 0.01 && *error < 0.2),
        "{of_forward:?}"
    );
}
