//! Products with the sums of a chip's matrix unit.

use burn::module::{AutodiffModule, Module, Param};
use burn::nn::LinearConfig;
use burn_mx::{Accumulation, BlockFormat, MxSpecs, Packed, Rounder};
use microscaling_product::{AccumulatorOperand, Axis, OperandKind};

use crate::support::*;

/// Weights and activations in one format, summed by one unit.
pub(super) fn specs(format: &str, accumulator: &str) -> MxSpecs {
    let format = Some(format.parse().expect("it is a format"));
    MxSpecs {
        w_elem_format: format,
        a_elem_format: format,
        accumulator: Some(accumulator.parse().expect("it is an accumulator")),
        ..MxSpecs::default()
    }
}

/// `lhs · rhsᵀ`, `[m, k]` and `[n, k]`, by microscaling alone: quantized along k, elements and scales apart.
fn by_hand(accumulator: &str, format: &str, lhs: &[f32], rhs: &[f32], k: usize) -> Vec<f32> {
    let format: BlockFormat = format.parse().unwrap();
    let quantized = [lhs, rhs].map(|values| {
        let shape = [values.len() / k, k];
        let packed = Packed::encode(format, values, &shape, 1, Rounder::NearestAway).unwrap();
        let scale = f64::from(packed.tensor_scale().unwrap_or(1.0));
        (packed.elements_and_scales(1).unwrap(), shape[0], scale)
    });
    let operands = quantized
        .each_ref()
        .map(|([elements, scales], length, _)| AccumulatorOperand {
            kind: OperandKind::of_format(&format).unwrap(),
            elements,
            free: Axis {
                length: *length,
                stride: k,
            },
            summed: Axis {
                length: k,
                stride: 1,
            },
            scales,
        });
    let accumulation: Accumulation = accumulator.parse().unwrap();
    let accumulator = accumulation.of(operands[0].kind, operands[1].kind).unwrap();
    let mut result = vec![0.0; quantized[0].1 * quantized[1].1];
    accumulator
        .multiply(&operands[0], &operands[1], &mut result)
        .unwrap();
    let scale = quantized[0].2 * quantized[1].2;
    let scaled = |x: &f32| (f64::from(*x) * scale) as f32;
    result.iter().map(scaled).collect()
}

/// Forward product and both gradients of a linear layer are the accumulator's.
#[test]
fn a_linear_layer_is_summed_as_the_chip_does() {
    for (format, accumulator) in [
        ("mxfp8_e4m3", "hopper"),
        ("mxfp8_e5m2", "hopper_promote128"),
        ("mxfp4", "blackwell"),
        ("nvfp4(tensor_scale=true)", "blackwell"),
        (
            "mxint8",
            "accumulator(order=integer,bits=24,promote_every=32)",
        ),
        (
            "mxfp6_e3m2",
            "accumulator(order=joint,terms=4,fraction_bits=8,output=e8m7_rz)",
        ),
    ] {
        let (batch, inputs, outputs) = (64, 96, 32);
        let device = mx_device(&specs(format, accumulator));
        let model = LinearConfig::new(inputs, outputs)
            .with_bias(false)
            .init::<Mx>(&device);
        let x = noise_tensor::<Mx, 2>([batch, inputs], 1, &device).require_grad();
        let weights = values(model.weight.val());
        let turn = |values: &[f32], columns: usize| -> Vec<f32> {
            let rows = values.len() / columns;
            (0..values.len())
                .map(|i| values[i % rows * columns + i / rows])
                .collect()
        };
        let output = model.forward(x.clone());
        let given = values(x.clone());
        let expected = by_hand(
            accumulator,
            format,
            &given,
            &turn(&weights, outputs),
            inputs,
        );
        assert_eq!(values(output.clone()), expected, "{format} {accumulator}");
        let factors = noise_tensor::<Mx, 2>([batch, outputs], 2, &device);
        let gradient = values(factors.clone());
        let grads = (output * factors).sum().backward();
        // The gradient of the output is the factors.
        let dx = values(x.grad(&grads).unwrap());
        assert_eq!(
            dx,
            by_hand(accumulator, format, &gradient, &weights, outputs),
            "{format} {accumulator}"
        );
        let dw = values(model.weight.grad(&grads).unwrap());
        let of_sum = by_hand(
            accumulator,
            format,
            &turn(&given, inputs),
            &turn(&gradient, outputs),
            batch,
        );
        assert_eq!(dw, of_sum, "{format} {accumulator}");
    }
}

/// Each product may have its own accumulator.
#[test]
fn one_product_alone() {
    let narrow = "accumulator(order=joint,terms=32,fraction_bits=4,output=e8m3_rz)";
    let run = |change: &dyn Fn(&mut MxSpecs)| {
        let mut specs = MxSpecs {
            accumulator: None,
            ..specs("mxfp8_e4m3", narrow)
        };
        change(&mut specs);
        let device = mx_device(&specs);
        let weight = noise_tensor::<Mx, 2>([64, 64], 3, &device).require_grad();
        let x = noise_tensor::<Mx, 2>([64, 64], 4, &device).require_grad();
        // A computed tensor is an activation.
        let output = (x.clone() * 1.0).matmul(weight.clone());
        let result = values(output.clone());
        let grads = output.sum().backward();
        [
            result,
            values(x.grad(&grads).unwrap()),
            values(weight.grad(&grads).unwrap()),
        ]
    };
    let accumulation = Some(narrow.parse().unwrap());
    let plain = run(&|_| {});
    for (which, changed) in [
        run(&|specs| specs.accumulator_forward = accumulation),
        run(&|specs| specs.accumulator_input_grad = accumulation),
        run(&|specs| specs.accumulator_weight_grad = accumulation),
    ]
    .into_iter()
    .enumerate()
    {
        for (i, (changed, plain)) in changed.iter().zip(&plain).enumerate() {
            assert_eq!(changed != plain, i == which, "{which} {i}");
        }
    }
    let all = run(&|specs| specs.accumulator = accumulation);
    assert!(all.iter().zip(&plain).all(|(all, plain)| all != plain));
}

/// Leading axes broadcast, and a layer's gradient sums over them: blocks begin anew with each matrix.
#[test]
fn leading_axes() {
    // So wide that the sum is exact: as the backend's own, up to the backend's rounding.
    let wide = "accumulator(order=exact,terms=1024)";
    let run = |accumulator: Option<&str>| {
        let mut specs = specs("mxfp8_e4m3", wide);
        specs.accumulator = accumulator.map(|text| text.parse().unwrap());
        let device = mx_device(&specs);
        let model = LinearConfig::new(24, 16).init::<Mx>(&device);
        let model = model.clone().load_record(burn::nn::LinearRecord {
            weight: Param::from_tensor(noise_tensor([24, 16], 5, &device)),
            bias: Some(Param::from_tensor(noise_tensor([16], 6, &device))),
        });
        let x = noise_tensor::<Mx, 4>([2, 3, 10, 24], 7, &device).require_grad();
        let y = model.forward(x.clone());
        let scores = y
            .clone()
            .matmul(noise_tensor::<Mx, 4>([2, 1, 16, 40], 8, &device));
        let grads = scores.clone().sum().backward();
        [
            values(scores),
            values(x.grad(&grads).unwrap()),
            values(model.weight.grad(&grads).unwrap()),
        ]
    };
    for (exact, plain) in run(Some(wide)).iter().zip(&run(None)) {
        let largest = plain.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
        for (a, b) in exact.iter().zip(plain) {
            assert!((a - b).abs() <= 1e-5 * largest, "{a} {b}");
        }
    }
}

/// Inference, with a weight's copy that is kept.
#[test]
fn inference_is_the_forward_pass() {
    let device = mx_device(&specs("nvfp4", "blackwell"));
    let model = LinearConfig::new(64, 32).init::<Mx>(&device);
    let x = noise_tensor::<Mx, 2>([8, 64], 9, &device);
    let trained = values(model.forward(x.clone()));
    let valid = model.valid();
    for _ in 0..3 {
        assert_eq!(values(valid.forward(x.clone().inner())), trained);
    }
}

#[test]
fn what_an_accumulator_does_not_take() {
    let error = |specs: &MxSpecs| specs.resolve().unwrap_err().to_string();
    let says = |error: String, parts: &[&str]| {
        for part in parts {
            assert!(error.contains(part), "{error}: {part}");
        }
    };
    says(
        error(&specs("mx9", "hopper")),
        &["_elem_format", "mx9", "allowed: an MX format"],
    );
    says(error(&specs("hif4", "blackwell")), &["hif4", "sub_scales"]);
    let format = "mx(element=fp4_e2m1,block_size=32,sign_scales=true)";
    says(error(&specs(format, "blackwell")), &[format, "no tables"]);
    says(
        error(&specs("nvfp4(outer_size=0)", "blackwell")),
        &["outer_size=0", "or outer_size"],
    );
    let quartet = MxSpecs {
        accumulator: Some("blackwell".parse().unwrap()),
        ..MxSpecs::quartet2()
    };
    says(
        error(&quartet),
        &["eden=true", "allowed", "eden or outer_size"],
    );
    says(
        error(&specs("mxfp4", "hopper")),
        &["`accumulator` is hopper", "forward", "fp4_e2m1", "expected"],
    );
    says(
        error(&specs(
            "mxfp8_e4m3",
            "accumulator(order=integer,bits=24,promote_every=32)",
        )),
        &["fp8_e4m3", "int8"],
    );
    let alone = MxSpecs {
        accumulator: Some("hopper".parse().unwrap()),
        ..MxSpecs::default()
    };
    says(
        error(&alone),
        &[
            "`accumulator` is hopper",
            "no operand of a product has a format",
            "none",
        ],
    );
    let backward = MxSpecs {
        accumulator: None,
        accumulator_weight_grad: Some("hopper".parse().unwrap()),
        ..specs("mxfp4", "blackwell")
    };
    says(
        error(&backward),
        &["`accumulator_weight_grad` is hopper", "weight gradient"],
    );
    let json = r#"{"a_elem_format": "mxfp8_e4m3", "accumulator": "hoper"}"#;
    says(
        MxSpecs::from_json(json).unwrap_err().to_string(),
        &["accumulator", "hoper", "hopper"],
    );
}

/// JSON and the summary say it.
#[test]
fn as_text() {
    let specs = specs("mxfp8_e4m3", "hopper_promote128");
    assert_eq!(MxSpecs::from_json(&specs.to_json()), Ok(specs.clone()));
    let summary = specs.resolve().unwrap().to_string();
    assert!(
        summary.contains("accumulator hopper_promote128"),
        "{summary}"
    );
    // The text of an accumulator begins with the word, too: no repetition.
    let own = "accumulator(order=exact,terms=16,output=f32_rne)";
    let own = self::specs("mxfp8_e4m3", own)
        .resolve()
        .unwrap()
        .to_string();
    assert!(own.contains(", accumulator(order=exact,"), "{own}");
}
