//! Every figure is its definition.

use burn::nn::LinearConfig;
use burn::nn::conv::{Conv2dConfig, DeformConv2dConfig};
use burn::prelude::{Tensor, TensorData};
use burn::tensor::backend::AutodiffBackend;
use burn_mx::module::{Limit, label_parameters};
use burn_mx::record::{OperandRecord, ProductKind, ProductRecord, RecorderConfig};
use burn_mx::{BlockFormat, RandomStream, Rounding};
use burn_mx::{MxSpecs, Slot};

use super::{folder, operand, product, record_here, steps};
use crate::support::{
    Mx, Plain, TestDevice, bfloat16_only, mx_device, mx_only, noise_tensor, values,
    with_noise_weights,
};

/// The relative error of a sum: processors add in float64, devices in float32.
pub(super) const CLOSE: f64 = if cfg!(any(
    test_backend = "flex",
    test_backend = "ndarray",
    test_backend = "tch"
)) {
    1e-9
} else {
    1e-5
};

fn quantized(x: &[f32], shape: [usize; 2], axis: usize, format: &str) -> Vec<f32> {
    let format: BlockFormat = format.parse().expect("a format");
    let mut quantized = x.to_vec();
    let even = Rounding::NearestEven.with(RandomStream::new(0, 0));
    format
        .quantize(&mut quantized, &shape, axis, even)
        .expect("it fits");
    quantized
}

/// By the definitions, of a matrix before and after.
fn assert_figures(operand: &OperandRecord, x: &[f32], q: &[f32]) {
    let pairs: Vec<(f64, f64)> = x
        .iter()
        .zip(q)
        .map(|(x, q)| (f64::from(*x), f64::from(*q)))
        .collect();
    let sum = |term: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|(x, q)| term(*x, *q)).sum::<f64>();
    let (power, error) = (sum(&|x, _| x * x), sum(&|x, q| (x - q) * (x - q)));
    let count = x.len() as f64;
    let figures = &operand.figures;
    let close = |got: Option<f64>, expected: f64| {
        let got = got.expect("it is recorded");
        assert!(
            (got - expected).abs() <= CLOSE * expected.abs(),
            "{got}, not {expected}: {operand:?}"
        );
    };
    assert_eq!(figures.elements, x.len() as u64);
    close(figures.mse, error / count);
    close(figures.sqnr, 10.0 * (power / error).log10());
    close(figures.slope, sum(&|x, q| x * q) / power);
    let lost = pairs.iter().filter(|(x, q)| *x != 0.0 && *q == 0.0).count();
    let nonzero = x.iter().filter(|x| **x != 0.0).count();
    assert_eq!(figures.nonzero, Some(nonzero as u64));
    close(figures.underflow, 100.0 * lost as f64 / nonzero as f64);
    let amax = pairs
        .iter()
        .fold(0.0, |amax: f64, (x, _)| amax.max(x.abs()));
    close(figures.amax, amax);
    let smallest = pairs.iter().map(|(x, _)| x.abs()).filter(|x| *x > 0.0);
    let smallest = smallest.fold(f64::INFINITY, f64::min);
    close(figures.amin, smallest);
    close(figures.dynamic_range, (amax / smallest).log2());
}

/// `[rows, columns]` of the product of matrices, in float64.
fn matmul(a: &[f32], b: &[f32], [rows, summed, columns]: [usize; 3]) -> Vec<f64> {
    let at = |row: usize, column: usize| {
        let terms = (0..summed)
            .map(|k| f64::from(a[row * summed + k]) * f64::from(b[k * columns + column]));
        terms.sum()
    };
    (0..rows * columns)
        .map(|i| at(i / columns, i % columns))
        .collect()
}

fn transposed(x: &[f32], [rows, columns]: [usize; 2]) -> Vec<f32> {
    (0..rows * columns)
        .map(|i| x[i % rows * columns + i / rows])
        .collect()
}

/// Each block of the input has 24 zeros, as after ReLU, and 7 of the other 8 elements become zero.
#[test]
fn underflow_is_of_nonzero_elements_and_a_schedules_limit_sees_it() {
    let device = mx_device(&mx_only(MxSpecs::mxfp4()));
    let folder = folder();
    let recording = record_here(RecorderConfig::default(), &folder);
    let element = |i: usize| match i % 32 {
        0 => 6.0,
        1..8 => 0.1,
        _ => 0.0,
    };
    let x: Vec<f32> = (0..40 * 64).map(element).collect();
    let x = Tensor::<Mx, 2>::from_data(TensorData::new(x, [40, 64]), &device);
    let weight = Tensor::<Mx, 2>::ones([64, 48], &device).require_grad();
    let output = burn::tensor::module::linear(x, weight, None);
    output.sum().backward();
    let report = recording.finish().expect("the records are whole");
    let [step] = steps(&report)[..] else {
        panic!("one step")
    };
    let mut products = step.products.iter();
    let forward = products.find(|product| product.product == ProductKind::Forward);
    let operands = &forward.expect("it was computed").operands;
    let figures: Vec<_> = operands
        .iter()
        .map(|operand| (operand.figures.nonzero, operand.figures.underflow))
        .collect();
    let expected = [(Some(640), Some(87.5)), (Some(64 * 48), Some(0.0))];
    assert_eq!(figures, expected);
    // Nothing is lost in the operands of the weight's gradient, so the mean of all four is 21.875 %.
    assert!(step.is_beyond(Limit::Underflow(20.0)));
    assert!(!step.is_beyond(Limit::Underflow(22.0)));
}

#[test]
fn every_figure_of_a_linear_layer_is_its_definition() {
    let device = mx_device(&mx_only(MxSpecs::mxfp4()));
    let folder = folder();
    let recording = record_here(RecorderConfig::default().what_if(["mxfp8_rceil"]), &folder);
    let layer = LinearConfig::new(64, 48)
        .with_bias(false)
        .init::<Mx>(&device);
    let layer = label_parameters(with_noise_weights(layer, 3));
    let x = noise_tensor::<Mx, 2>([40, 64], 5, &device).require_grad();
    let gradient = noise_tensor::<Mx, 2>([40, 48], 6, &device);
    (layer.forward(x.clone()) * gradient.clone())
        .sum()
        .backward();
    let report = recording.finish().expect("the records are whole");
    let [step] = steps(&report)[..] else {
        panic!("one step")
    };

    let (x, w, g) = (values(x), values(layer.weight.val()), values(gradient));
    // (kind, operands by name with their shape and summed axis)
    let parts = [
        (
            ProductKind::Forward,
            [("input", &x, [40, 64], 1), ("weight", &w, [64, 48], 0)],
        ),
        (
            ProductKind::InputGradient,
            [
                ("output gradient", &g, [40, 48], 1),
                ("weight", &w, [64, 48], 1),
            ],
        ),
        (
            ProductKind::WeightGradient,
            [
                ("input", &x, [40, 64], 0),
                ("output gradient", &g, [40, 48], 0),
            ],
        ),
    ];
    assert_eq!(step.products.len(), 3);
    for (kind, operands) in parts {
        let product = product(step, "weight", kind);
        assert_eq!((product.uses, product.operands.len()), (1, 2));
        let matrices = operands.map(|(name, x, shape, axis)| {
            let q = quantized(x, shape, axis, "mxfp4");
            let recorded = operand(product, name);
            assert_eq!(recorded.format.as_deref(), Some("mxfp4"));
            let blocks = shape[1 - axis] * shape[axis].div_ceil(32);
            assert_eq!(recorded.figures.blocks, blocks as u64);
            assert_figures(recorded, x, &q);
            let other = OperandRecord {
                figures: recorded.what_if["mxfp8_rceil"].clone(),
                ..recorded.clone()
            };
            // The preset has bfloat16, which the operand is rounded to before.
            assert!(other.figures.sqnr > recorded.figures.sqnr);
            assert_eq!(other.figures.saturation, Some(0.0));
            (x.clone(), q)
        });
        let [(a, qa), (b, qb)] = matrices;
        let result = |a: &[f32], b: &[f32]| match kind {
            ProductKind::Forward => matmul(a, b, [40, 64, 48]),
            ProductKind::InputGradient => matmul(a, &transposed(b, [64, 48]), [40, 48, 64]),
            ProductKind::WeightGradient => matmul(&transposed(a, [40, 64]), b, [64, 40, 48]),
        };
        let (exact, got) = (result(&a, &b), result(&qa, &qb));
        let sum = |term: &dyn Fn(f64, f64) -> f64| {
            exact
                .iter()
                .zip(&got)
                .map(|(x, q)| term(*x, *q))
                .sum::<f64>()
        };
        let norm = sum(&|x, _| x * x);
        let error = (sum(&|x, q| (x - q) * (x - q)) / norm).sqrt();
        let cosine = sum(&|x, q| x * q) / (norm * sum(&|_, q| q * q)).sqrt();
        let recorded = product.result.expect("results are compared");
        assert!((recorded.relative_error.unwrap() - error).abs() < 1e-5);
        assert!((recorded.cosine.unwrap() - cosine).abs() < CLOSE.max(1e-6));
    }
}

#[test]
fn uses_of_a_layer_add_up() {
    let device = mx_device(&MxSpecs::mxfp4());
    let layer = LinearConfig::new(32, 32)
        .with_bias(false)
        .init::<Mx>(&device);
    let layer = label_parameters(with_noise_weights(layer, 3));
    let inputs = [5, 6].map(|seed| noise_tensor::<Mx, 2>([8, 32], seed, &device));
    let record = |inputs: &[Tensor<Mx, 2>]| {
        let folder = folder();
        let recording = record_here(RecorderConfig::default(), &folder);
        let outputs: Vec<_> = inputs
            .iter()
            .map(|x| layer.forward(x.clone()).sum())
            .collect();
        Tensor::cat(outputs, 0).sum().backward();
        let report = recording.finish().expect("the records are whole");
        let step = steps(&report)[0].clone();
        product(&step, "weight", ProductKind::Forward).clone()
    };
    let both = record(&inputs);
    let [first, second] = [record(&inputs[..1]), record(&inputs[1..])];
    assert_eq!((first.uses, second.uses, both.uses), (1, 1, 2));
    let figure = |product: &ProductRecord| {
        let figures = &operand(product, "input").figures;
        [
            figures.elements as f64,
            figures.mse.unwrap() * figures.elements as f64,
        ]
    };
    let [sum, first, second] = [&both, &first, &second].map(figure);
    assert_eq!(sum[0], first[0] + second[0]);
    assert!((sum[1] - first[1] - second[1]).abs() < CLOSE * sum[1]);
}

/// Output, and gradients of input and weight, of a deformable convolution.
fn deformed<B: AutodiffBackend>(device: &B::Device) -> [Vec<f32>; 3] {
    let layer = DeformConv2dConfig::new([4, 6], [3, 3])
        .with_bias(false)
        .init::<B>(device);
    let layer = with_noise_weights(layer, 3);
    let x = noise_tensor::<B, 4>([2, 4, 8, 8], 5, device).require_grad();
    let offset = noise_tensor::<B, 4>([2, 18, 6, 6], 6, device);
    let gradient = noise_tensor::<B, 4>([2, 6, 6, 6], 7, device);
    let y = layer.forward(x.clone(), offset, None);
    let grads = (y.clone() * gradient).sum().backward();
    let inner = |tensor: Option<_>| values(tensor.expect("it has a gradient"));
    [
        values(y),
        inner(x.grad(&grads)),
        inner(layer.weight.grad(&grads)),
    ]
}

#[test]
#[cfg_attr(test_backend = "tch", ignore = "burn-tch has none")]
fn results_of_a_deformable_convolution_are_compared() {
    let exact = deformed::<Plain>(&TestDevice::default());
    let folder = folder();
    let recording = record_here(RecorderConfig::default(), &folder);
    let got = deformed::<Mx>(&mx_device(&mx_only(MxSpecs::mxfp4())));
    let report = recording.finish().expect("the records are whole");
    for (kind, (exact, got)) in ProductKind::ALL.into_iter().zip(exact.iter().zip(&got)) {
        let sum = |term: &dyn Fn(f64, f64) -> f64| {
            let pairs = exact.iter().zip(got);
            pairs
                .map(|(x, q)| term(f64::from(*x), f64::from(*q)))
                .sum::<f64>()
        };
        let error = (sum(&|x, q| (x - q) * (x - q)) / sum(&|x, _| x * x)).sqrt();
        let result = product(steps(&report)[0], "convolution 0", kind).result;
        let recorded = result.expect("results are compared").relative_error;
        assert!(error > 0.05, "{kind}: {error}");
        assert!(
            (recorded.unwrap() - error).abs() < 1e-5,
            "{kind}: {recorded:?}, not {error}"
        );
    }
}

/// Without blocks the result equals the product of the drawn operands, to the bit.
#[test]
fn randomly_rounded_operands_are_compared_as_they_were_drawn() {
    for operands in [Slot::ALL.to_vec(), vec![Slot::W]] {
        let specs = MxSpecs {
            round: Rounding::Stochastic,
            seed: 79,
            ..bfloat16_only()
        };
        let folder = folder();
        let config = RecorderConfig {
            operands,
            ..RecorderConfig::default()
        };
        let recording = record_here(config, &folder);
        let device = mx_device(&specs);
        let layer = Conv2dConfig::new([4, 6], [3, 3]).init::<Mx>(&device);
        let layer = label_parameters(with_noise_weights(layer, 3));
        let x = noise_tensor::<Mx, 4>([2, 4, 8, 8], 5, &device).require_grad();
        let gradient = noise_tensor::<Mx, 4>([2, 6, 6, 6], 7, &device);
        (layer.forward(x) * gradient).sum().backward();
        let report = recording.finish().expect("the records are whole");
        for kind in ProductKind::ALL {
            let result = product(steps(&report)[0], "weight", kind).result;
            let error = result.expect("results are compared").relative_error;
            assert_eq!(error, Some(0.0), "{kind}");
        }
    }
}
