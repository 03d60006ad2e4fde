//! The errors of roundings to the elementwise format, op by op.

use burn::nn::{LayerNormConfig, LinearConfig};
use burn::prelude::Tensor;
use burn::tensor::activation::{gelu, softmax};
use burn::tensor::module::attention;
use burn_mx::Rounding;
use burn_mx::module::{label_parameters, scope};
use burn_mx::record::{ElementwiseRecord, Figures, Pass, RecorderConfig, StepHalf, StepRecord};
use burn_mx::{BlockFormat, MxBackend, MxDevice, MxSpecs, Rounder};
use half::{bf16, f16};

use super::{folder, record_here, steps};
use crate::support::{
    Mx, TestBackend, bfloat16_only, mx_device, noise_tensor, values, with_noise_weights,
};

/// bfloat16 and nothing else, ties to even.
fn specs() -> MxSpecs {
    MxSpecs {
        round: Rounding::NearestEven,
        ..bfloat16_only()
    }
}

/// The step that ends with the backward pass of what `loss` computes.
fn recorded(
    config: RecorderConfig,
    specs: &MxSpecs,
    loss: impl FnOnce(&MxDevice<crate::support::TestDevice>) -> Tensor<Mx, 1>,
) -> StepRecord {
    let device = mx_device(specs);
    let folder = folder();
    let recording = record_here(config, &folder);
    loss(&device).backward();
    let report = recording.finish().expect("the records are whole");
    let [step] = steps(&report)[..] else {
        panic!("one step")
    };
    step.clone()
}

fn elementwise() -> RecorderConfig {
    RecorderConfig {
        elementwise: true,
        ..RecorderConfig::default()
    }
}

fn op<'a>(step: &'a StepRecord, layer: &str, op: &str, pass: StepHalf) -> &'a ElementwiseRecord {
    let mut found = step.elementwise.iter();
    let found = found.find(|found| (&*found.layer, &*found.op, found.pass) == (layer, op, pass));
    found.unwrap_or_else(|| panic!("{op} of {layer}, {pass}: {:#?}", step.elementwise))
}

fn rounding<'a>(op: &'a ElementwiseRecord, name: &str) -> &'a Figures {
    let found = op.roundings.iter().find(|found| found.rounding == name);
    &found.unwrap_or_else(|| panic!("{name}: {op:#?}")).figures
}

/// The figures by their definitions, from a tensor before and after; `tolerance` is for the tensor before.
#[track_caller]
fn assert_figures(figures: &Figures, x: &[f64], q: &[f64], tolerance: f64) {
    let sum =
        |term: &dyn Fn(f64, f64) -> f64| x.iter().zip(q).map(|(x, q)| term(*x, *q)).sum::<f64>();
    let (power, error) = (sum(&|x, _| x * x), sum(&|x, q| (x - q) * (x - q)));
    let close = |got: Option<f64>, expected: f64, tolerance: f64| {
        let got = got.expect("it is recorded");
        let is_close = (got - expected).abs() <= tolerance * expected.abs();
        assert!(is_close, "{got}, not {expected}: {figures:?}");
    };
    assert!(error > 0.0, "there is something to see");
    assert_eq!(figures.elements, x.len() as u64);
    close(figures.mse, error / x.len() as f64, tolerance);
    close(figures.sqnr, 10.0 * (power / error).log10(), tolerance);
    close(
        figures.slope,
        sum(&|x, q| x * q) / power,
        tolerance.min(1e-6),
    );
    let lost = x.iter().zip(q).filter(|(x, q)| **x != 0.0 && **q == 0.0);
    assert_eq!(
        figures.underflow,
        Some(100.0 * lost.count() as f64 / x.iter().filter(|x| **x != 0.0).count() as f64)
    );
    let amax = x.iter().fold(0.0, |amax: f64, x| amax.max(x.abs()));
    close(figures.amax, amax, tolerance.min(1e-6));
    assert_eq!((figures.blocks, figures.saturation), (0, Some(0.0)));
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

fn rounded(x: &[f32]) -> Vec<f32> {
    x.iter().map(|x| bf16::from_f32(*x).to_f32()).collect()
}

/// The sums of float32 numbers hold for float64 ones up to this.
const OF_FLOAT32: f64 = 1e-3;

#[test]
fn sums_and_products_are_rounded_operands_and_results() {
    let mut data = None;
    let step = recorded(elementwise(), &specs(), |device| {
        let x = noise_tensor::<Mx, 2>([40, 24], 3, device).require_grad();
        let y = noise_tensor::<Mx, 2>([40, 24], 4, device);
        let g = noise_tensor::<Mx, 2>([40, 24], 5, device);
        data = Some([&x, &y, &g].map(|tensor| values(tensor.clone())));
        let z = scope("first", || x.clone() + y.clone());
        let z = scope("second", || z * g.clone());
        z.sum()
    });
    let [x, y, g] = data.expect("it was computed");
    let [qx, qy, qg] = [&x, &y, &g].map(|x| rounded(x));
    let add = op(&step, "first", "add", StepHalf::Forward);
    assert_eq!(
        (add.uses, &*add.format, add.roundings.len()),
        (1, "bfloat16", 3)
    );
    assert_figures(rounding(add, "lhs"), &wide(&x), &wide(&qx), 1e-9);
    assert_figures(rounding(add, "rhs"), &wide(&y), &wide(&qy), 1e-9);
    let sum: Vec<f32> = qx.iter().zip(&qy).map(|(x, y)| x + y).collect();
    let z = rounded(&sum);
    assert_figures(rounding(add, "output"), &wide(&sum), &wide(&z), 1e-9);

    let mul = op(&step, "second", "mul", StepHalf::Forward);
    // The left operand is known to be rounded.
    assert_eq!(mul.roundings.len(), 2);
    let product: Vec<f32> = z.iter().zip(&qg).map(|(x, y)| x * y).collect();
    let output = rounding(mul, "output");
    assert_figures(output, &wide(&product), &wide(&rounded(&product)), 1e-9);

    // The gradient of the sum of all is one: the result is g, which is rounded already.
    let backward = op(&step, "second", "mul", StepHalf::Backward);
    let gradient = rounding(backward, "lhs gradient");
    assert!(gradient.exact && gradient.elements == 40 * 24);
    assert!(
        rounding(
            op(&step, "first", "add", StepHalf::Backward),
            "lhs gradient"
        )
        .exact
    );
}

#[test]
fn functions_are_compared_with_themselves_without_roundings() {
    let mut data = None;
    let step = recorded(elementwise(), &specs(), |device| {
        let x = noise_tensor::<Mx, 2>([40, 24], 3, device).require_grad();
        let g = noise_tensor::<Mx, 2>([40, 24], 5, device);
        let y = scope("a", || gelu(x.clone()));
        let z = scope("b", || softmax(x.clone(), 1));
        data = Some([&x, &g, &y, &z].map(|tensor| values(tensor.clone())));
        scope("c", || (y + z) * g.clone()).sum()
    });
    let [x, g, y, z] = data.expect("it was computed");
    let [qx, qg] = [&x, &g].map(|x| wide(&rounded(x)));

    let gate =
        |x: f64| 1.0 / (1.0 + (-1.59375 * (x + f64::from(0.044677734_f32) * x * x * x)).exp());
    let exact: Vec<f64> = qx.iter().map(|x| x * gate(*x)).collect();
    let recorded = op(&step, "a", "gelu", StepHalf::Forward);
    assert_figures(rounding(recorded, "input"), &wide(&x), &qx, 1e-9);
    assert_figures(rounding(recorded, "output"), &exact, &wide(&y), OF_FLOAT32);

    let softmax = |row: &[f64]| -> Vec<f64> {
        let total: f64 = row.iter().map(|x| x.exp()).sum();
        row.iter().map(|x| x.exp() / total).collect()
    };
    let exact: Vec<f64> = qx.chunks(24).flat_map(softmax).collect();
    let recorded = op(&step, "b", "softmax", StepHalf::Forward);
    assert_figures(rounding(recorded, "output"), &exact, &wide(&z), OF_FLOAT32);

    // Gradients: against the derivative of the formula, in float64, of numbers that are rounded.
    let backward = op(&step, "a", "gelu", StepHalf::Backward);
    let power: f64 = qx
        .iter()
        .zip(&qg)
        .map(|(x, g)| {
            let (gate, slope) = (gate(*x), f64::from(0.21386719_f32) * x * x + 1.59375);
            (g * (gate + x * slope * gate * (1.0 - gate))).powi(2)
        })
        .sum();
    let figures = rounding(backward, "input gradient");
    let signal = 10_f64.powf(figures.sqnr.unwrap() / 10.0) * figures.mse.unwrap();
    let signal = signal * figures.elements as f64;
    assert!(
        (signal / power - 1.0).abs() < OF_FLOAT32,
        "{signal}, {power}"
    );
    assert!(figures.sqnr.unwrap() > 35.0, "{figures:?}");
    let backward = op(&step, "b", "softmax", StepHalf::Backward);
    assert!(rounding(backward, "input gradient").sqnr.unwrap() > 30.0);
}

#[test]
fn a_norm_has_the_name_of_its_parameter() {
    for round in [Rounding::NearestEven, Rounding::Stochastic] {
        let specs = MxSpecs {
            round,
            seed: 77,
            ..specs()
        };
        let mut data = None;
        let step = recorded(elementwise(), &specs, |device| {
            let norm = LayerNormConfig::new(24).init::<Mx>(device);
            let norm = label_parameters(with_noise_weights(norm, 9));
            let x = noise_tensor::<Mx, 2>([40, 24], 3, device).require_grad();
            let y = norm.forward(x.clone());
            data = Some(values(y.clone()));
            let g = noise_tensor::<Mx, 2>([40, 24], 5, device);
            (y * g).sum()
        });
        let forward = op(&step, "gamma", "layer_norm", StepHalf::Forward);
        let names: Vec<_> = forward.roundings.iter().map(|x| &*x.rounding).collect();
        assert_eq!(names, ["input", "gamma", "beta", "output"]);
        let y = data.expect("it was computed");
        let amax = y.iter().fold(0.0, |amax: f32, y| amax.max(y.abs()));
        let output = rounding(forward, "output");
        assert!((output.amax.unwrap() / f64::from(amax) - 1.0).abs() < 0.02);
        assert!(output.sqnr.unwrap() > 35.0, "{round}: {output:?}");
        let backward = op(&step, "gamma", "layer_norm", StepHalf::Backward);
        let names: Vec<_> = backward.roundings.iter().map(|x| &*x.rounding).collect();
        let gradients = ["input gradient", "gamma gradient", "beta gradient"];
        assert!(names.ends_with(&gradients), "{names:?}");
        for name in gradients {
            let figures = rounding(backward, name);
            assert!(figures.sqnr.unwrap() > 35.0, "{round}, {name}: {figures:?}");
        }
    }
}

/// The result is compared with the operands after the random rounding.
#[test]
fn stochastic_roundings_are_seen_as_they_were_drawn() {
    let specs = MxSpecs {
        round: Rounding::Stochastic,
        seed: 78,
        ..specs()
    };
    let mut data = None;
    let step = recorded(elementwise(), &specs, |device| {
        // Operands that no rounding changes.
        let of = |seed| {
            let noise = noise_tensor::<Mx, 2>([40, 24], seed, device);
            let exact = rounded(&values(noise.clone()));
            Tensor::<Mx, 2>::from_data(burn::tensor::TensorData::new(exact, [40, 24]), device)
        };
        let (x, y) = (of(3).require_grad(), of(4));
        let z = scope("a", || x.clone() * y.clone());
        data = Some([&x, &y, &z].map(|tensor| values(tensor.clone())));
        z.sum()
    });
    let [x, y, z] = data.expect("it was computed");
    let mul = op(&step, "a", "mul", StepHalf::Forward);
    assert!(rounding(mul, "lhs").exact && rounding(mul, "rhs").exact);
    let product: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x * y).collect();
    assert_figures(rounding(mul, "output"), &wide(&product), &wide(&z), 1e-9);
    assert_ne!(z, rounded(&product), "some are not the nearest");
}

#[test]
fn what_overflows_saturates() {
    let specs = MxSpecs {
        bfloat: 0,
        fp: 16,
        ..specs()
    };
    let step = recorded(elementwise(), &specs, |device| {
        let x = Tensor::<Mx, 1>::from_data([1e5_f32, 7e4, 6e4, -1e-9, 0.0, f32::INFINITY], device);
        scope("a", || x.require_grad() + 0.0).sum()
    });
    let figures = rounding(op(&step, "a", "add_scalar", StepHalf::Forward), "input");
    assert_eq!(f16::from_f32(7e4), f16::INFINITY);
    assert_eq!((figures.elements, figures.non_finite), (6, 3));
    assert_eq!(figures.saturation, Some(100.0 * 2.0 / 5.0));
    assert_eq!(figures.nonzero, Some(2));
    assert_eq!(figures.underflow, Some(50.0));
}

#[test]
fn nothing_is_recorded_that_nobody_asks_for() {
    let loss = |device: &_| {
        let x = noise_tensor::<Mx, 2>([8, 8], 3, device).require_grad();
        let y = scope("a", || x.clone().exp());
        scope("b.c", || y * x).sum()
    };
    let json = serde_json::to_string(&elementwise()).expect("it is plain JSON");
    let config: RecorderConfig = serde_json::from_str(&json).expect("it was written so");
    assert_eq!(config, elementwise());
    let layers = |config| -> Vec<String> {
        let step = recorded(config, &specs(), loss).elementwise.into_iter();
        step.map(|op| op.layer).collect()
    };
    let chosen = RecorderConfig {
        layers: vec!["b".into()],
        ..elementwise()
    };
    let all = layers(elementwise());
    assert!(all.iter().any(|layer| layer == "a") && all.iter().any(|layer| layer == "b.c"));
    let chosen = layers(chosen);
    assert!(!chosen.is_empty() && chosen.iter().all(|layer| layer == "b.c"));
}

#[test]
fn inference_has_ops_too() {
    let folder = folder();
    let config = RecorderConfig {
        pass: Pass::Inference,
        ..elementwise()
    };
    let recording = record_here(config, &folder);
    let device = mx_device(&specs());
    let x = noise_tensor::<MxBackend<TestBackend>, 2>([8, 8], 3, &device);
    let y = scope("a", || gelu(x));
    recording.next_step();
    // Training is another pass.
    let x = noise_tensor::<Mx, 2>([8, 8], 3, &device).require_grad();
    (gelu(x.clone()) + x).sum().backward();
    drop(y);
    let report = recording.finish().expect("the records are whole");
    let [step] = steps(&report)[..] else {
        panic!("one step")
    };
    let [gelu] = &step.elementwise[..] else {
        panic!("one op: {:?}", step.elementwise)
    };
    assert_eq!((&*gelu.layer, &*gelu.op, gelu.uses), ("a", "gelu", 1));
}

#[test]
fn results_of_products_are_rounded_too() {
    let mut data = None;
    let step = recorded(elementwise(), &specs(), |device| {
        let layer = LinearConfig::new(24, 16).init::<Mx>(device);
        let layer = label_parameters(with_noise_weights(layer, 9));
        let x = noise_tensor::<Mx, 2>([40, 24], 3, device).require_grad();
        let g = noise_tensor::<Mx, 2>([40, 16], 5, device);
        let y = layer.forward(x.clone());
        let (w, b) = (layer.weight.val(), layer.bias.as_ref().unwrap().val());
        data = Some((
            values(x),
            values(w),
            values(b),
            values(g.clone()),
            values(y.clone()),
        ));
        (y * g).sum()
    });
    let (x, w, b, g, y) = data.expect("it was computed");
    let [x, w, b, g] = [&x, &w, &b, &g].map(|x| wide(&rounded(x)));
    let product = |i: usize| -> f64 {
        (0..24)
            .map(|k| x[i / 16 * 24 + k] * w[k * 16 + i % 16])
            .sum()
    };
    let product: Vec<f64> = (0..40 * 16).map(product).collect();
    let narrow: Vec<f32> = product.iter().map(|x| *x as f32).collect();
    let before_bias = rounded(&narrow);
    let linear = op(&step, "weight", "linear", StepHalf::Forward);
    assert_eq!(linear.uses, 1);
    assert_figures(
        rounding(linear, "output"),
        &product,
        &wide(&before_bias),
        OF_FLOAT32,
    );
    let with_bias: Vec<f64> = wide(&before_bias)
        .iter()
        .zip(b.iter().cycle())
        .map(|(x, b)| x + b)
        .collect();
    assert_figures(
        rounding(linear, "output with bias"),
        &with_bias,
        &wide(&y),
        OF_FLOAT32,
    );

    let bias: Vec<f64> = (0..16)
        .map(|i| g.iter().skip(i).step_by(16).sum())
        .collect();
    let narrow: Vec<f32> = bias.iter().map(|x| *x as f32).collect();
    let backward = step
        .elementwise
        .iter()
        .find(|found| found.op == "bias")
        .expect("it has a gradient");
    assert_figures(
        rounding(backward, "bias gradient"),
        &bias,
        &wide(&rounded(&narrow)),
        OF_FLOAT32,
    );
    let gradients = op(&step, "weight", "linear", StepHalf::Backward);
    let names: Vec<_> = gradients.roundings.iter().map(|x| &*x.rounding).collect();
    assert_eq!((gradients.uses, names.len()), (2, 2), "{names:?}");
}

/// Attention with formats has a row for each point, in the layer of its scope.
#[test]
fn each_point_of_attention_has_a_row() {
    let text = "attention(q=nvfp4,k=mxfp8_e4m3,v=nvfp4,scores=bfloat16,scaled_scores=fp16,maximum=bfloat16,\
                differences=bfloat12,exponentials=fp8_e4m3,sum=bfloat16,output=mxfp4,tile=8,statistics=bfloat12)";
    let specs = MxSpecs {
        attention: Some(text.parse().expect(text)),
        round: Rounding::NearestEven,
        ..MxSpecs::default()
    };
    let mut query = Vec::new();
    let step = recorded(elementwise(), &specs, |device| {
        let leaf = |seed| noise_tensor::<Mx, 4>([1, 2, 12, 16], seed, device).require_grad();
        let [q, k, v] = [1, 2, 3].map(leaf);
        query = values(q.clone());
        scope("block", || {
            attention(q, k, v, None, None, Default::default())
        })
        .sum()
    });
    let forward = [
        ("attention q", "nvfp4"),
        ("attention k", "mxfp8_e4m3"),
        ("attention v", "nvfp4"),
        ("attention scores", "bfloat16"),
        ("attention scaled scores", "fp16"),
        ("attention maximum", "bfloat16"),
        ("attention differences", "bfloat12"),
        ("attention exponentials", "fp8_e4m3"),
        ("attention sum", "bfloat16"),
        ("attention output", "mxfp4"),
        ("attention statistics", "bfloat12"),
    ];
    for (name, format) in forward {
        assert_eq!(op(&step, "block", name, StepHalf::Forward).format, format);
    }
    let backward = op(
        &step,
        "block",
        "attention probabilities",
        StepHalf::Backward,
    );
    assert_eq!(backward.format, "fp8_e4m3");
    assert_eq!(step.elementwise.len(), forward.len() + 1);
    // Two tiles are 8 and 4 keys of 24 rows.
    let exponentials = op(&step, "block", "attention exponentials", StepHalf::Forward);
    assert_eq!(rounding(exponentials, "output").elements, 24 * 12);

    let mut quantized = query.clone();
    let format: BlockFormat = "nvfp4".parse().expect("it is a name");
    let rounded = format.quantize(&mut quantized, &[24, 16], 1, Rounder::NearestEven);
    rounded.expect("axis 1 is one of two");
    let figures = rounding(
        op(&step, "block", "attention q", StepHalf::Forward),
        "output",
    );
    assert_figures(figures, &wide(&query), &wide(&quantized), 1e-9);
}
