//! Static activations: scales of a layer's input that calibration fixed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::nn::conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::module::linear;
use burn_mx::module::{set_specs, specs_of};
use burn_mx::ptq::{Activations, FastFinetune, PtqError, QuantConfig, Quantizer};
use burn_mx::{MxBackend, MxDevice, MxKernels};

use crate::support::*;

type B = MxBackend<TestBackend>;

fn device() -> MxDevice<TestDevice> {
    MxDevice::default()
}

fn fixed(name: &str) -> QuantConfig {
    QuantConfig {
        activations: Activations::Static,
        ..QuantConfig::named(name).expect("it is one")
    }
}

/// The model, quantized by a configuration.
macro_rules! quantized {
    ($config:expr, $model:expr, $calibration:expr, $forward:expr) => {
        Quantizer::new($config)
            .unwrap()
            .quantize($model.clone(), $calibration, $forward)
            .unwrap()
            .model
    };
}

fn names() -> impl Iterator<Item = String> {
    QuantConfig::names().filter(|name| !name.ends_with("_ADAQUANT"))
}

/// Noise below 4, with a number of 4 to 8 in each block of 8 along the axis, with alternating signs: all blocks, of any size,
/// have one scale.
fn even_blocks<const D: usize>(shape: [usize; D], axis: usize, seed: u64) -> Tensor<B, D> {
    let stride: usize = shape[axis + 1..].iter().product();
    let mut values = noise(shape.iter().product(), seed);
    for (at, value) in values.iter_mut().enumerate() {
        let along = at / stride % shape[axis];
        *value = value.clamp(-3.9, 3.9);
        if along % 8 == 5 {
            *value = (4.0 + value.abs() * 0.9).copysign(*value);
        }
    }
    Tensor::from_data(TensorData::new(values, shape), &device())
}

/// Where each block of an input has the scale that calibration found, fixed scales are those that come.
#[test]
fn the_scales_that_come_are_those_that_are_fixed() {
    let d = device();
    let dense = with_noise_weights(LinearConfig::new(70, 9).init::<B>(&d), 1);
    let conv = Conv2dConfig::new([38, 6], [3, 2]).with_groups(2);
    let conv = with_noise_weights(conv.init::<B>(&d), 2);
    let up = ConvTranspose2dConfig::new([38, 6], [3, 2]).with_groups(2);
    let up = with_noise_weights(up.init::<B>(&d), 3);
    for name in names() {
        macro_rules! same {
            ($layer:ident: $type:ty, $shape:expr, $axis:expr) => {
                let batches = [even_blocks($shape, $axis, 4), even_blocks($shape, $axis, 5)];
                let forward =
                    |layer: &$type, x: &Tensor<B, { $shape.len() }>| layer.forward(x.clone());
                let dynamic = QuantConfig::named(&name).unwrap();
                let dynamic = quantized!(dynamic, $layer, &batches, forward);
                let fixed = quantized!(fixed(&name), $layer, &batches, forward);
                let specs = specs_of(&fixed.weight.val()).unwrap();
                assert!(specs.has_static_input(), "{specs}");
                for x in &batches {
                    let [got, expected] = [&fixed, &dynamic].map(|layer| values(forward(layer, x)));
                    assert_same_bits(&got, &expected, &format!("{name} {}", stringify!($layer)));
                    // And they stay for an input with other ones.
                    let small = x.clone() * 0.11;
                    let [got, other] =
                        [&fixed, &dynamic].map(|layer| values(forward(layer, &small)));
                    assert_ne!(got, other, "{name} {}", stringify!($layer));
                }
            };
        }
        same!(dense: Linear<B>, [3, 4, 70], 2);
        same!(conv: Conv2d<B>, [3, 38, 4, 5], 1);
        same!(up: ConvTranspose2d<B>, [3, 38, 4, 5], 1);
    }
}

/// A layer that gives its quantized input.
fn identity<K: MxKernels>(length: usize, device: &MxDevice<K::Device>) -> Linear<MxBackend<K>> {
    let layer = LinearConfig::new(length, length)
        .with_bias(false)
        .init::<MxBackend<K>>(device);
    Linear {
        weight: layer
            .weight
            .map(|_| Tensor::eye(length, device).require_grad()),
        ..layer
    }
}

/// The values follow the calibrated scale: rounded to its steps, and cut off at its end.
fn quantizes_by_the_scale_that_was_found<K: MxKernels>() {
    let device = MxDevice::<K::Device>::default();
    let layer = identity::<K>(40, &device);
    let row = |values: [f32; 40]| Tensor::<MxBackend<K>, 2>::from_data([values], &device);
    let mut calibration = [[0.25; 40]; 2];
    // The largest ones of the first block are in different items.
    (calibration[0][3], calibration[1][4]) = (-3.0, 5.5);
    let calibration = calibration.map(row);
    let forward =
        |layer: &Linear<MxBackend<K>>, x: &Tensor<MxBackend<K>, 2>| layer.forward(x.clone());
    let output = |name: &str, input: [f32; 40]| {
        let mut config = fixed(name);
        config.specs.w_elem_format = None;
        let layer = quantized!(config, layer, &calibration, forward);
        let x = row(input);
        values(forward(&layer, &x))
    };
    let input: [f32; 40] = core::array::from_fn(|at| match at {
        0 => 100.0,
        1 => -f32::MAX,
        2 => 5.9,
        3 => -7.99,
        at => (at as f32 - 17.3) * 0.031,
    });
    // Steps of 1/16 in the first 32, of 1/256 in the other 8, whose largest one was 0.25; 127 of them at most. A sum has no −0.
    let steps = |x: f32, step: f32| (x / step).round_ties_even().clamp(-127.0, 127.0) * step + 0.0;
    let int8: Vec<f32> = (0..40)
        .map(|at| steps(input[at], if at < 32 { 1.0 / 16.0 } else { 1.0 / 256.0 }))
        .collect();
    assert_same_bits(&output("MXINT8", input), &int8, "int8");
    let fp4 = output("MXFP4E2M1", input);
    assert_eq!(fp4[..5], [6.0, -6.0, 6.0, -6.0, -0.5]);
    assert!(
        fp4[5..32].iter().all(|x| [0.0, 0.5].contains(&x.abs())),
        "{fp4:?}"
    );
    // Blocks of 8: but for the first one, which has 5.5, the largest is 0.25.
    let bfp: Vec<f32> = (0..40)
        .map(|at| steps(input[at], if at < 8 { 1.0 / 16.0 } else { 1.0 / 256.0 }))
        .collect();
    assert_same_bits(&output("BFP16", input), &bfp, "bfp16");
    // The shift of a pair is its own, so that steps are half as large where a pair has nothing of 4 or more.
    let mx9: Vec<f32> = (0..40)
        .map(|at| {
            let [shared, shifted] = if at < 16 {
                [1.0 / 16.0, 1.0 / 32.0]
            } else {
                [1.0 / 256.0, 1.0 / 512.0]
            };
            let is_large = |at: usize| input[at].abs() >= if at < 16 { 4.0 } else { 0.25 };
            let pair = at / 2 * 2;
            let step = if is_large(pair) || is_large(pair + 1) {
                shared
            } else {
                shifted
            };
            steps(input[at], step)
        })
        .collect();
    assert_same_bits(&output("MX9", input), &mx9, "mx9");

    // Neither is cut off: as in blocks with scales of their own, nothing that came of one is a number.
    for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for name in ["MXINT8", "MXFP4E2M1", "MXFP8E4M3", "BFP16", "MX9"] {
            let mut with_special = input;
            with_special[7] = special;
            let got = output(name, with_special);
            assert!(
                got.iter().all(|x| !x.is_finite()),
                "{name}: {special} is not cut off: {got:?}"
            );
        }
    }
}

#[test]
fn inputs_are_quantized_by_the_scale_that_was_found() {
    quantizes_by_the_scale_that_was_found::<TestBackend>();
}

#[cfg(feature = "ndarray")]
#[test]
fn inputs_are_quantized_by_the_scale_that_was_found_on_another_backend() {
    quantizes_by_the_scale_that_was_found::<burn::backend::NdArray>();
}

/// Layers are tuned on their own outputs.
#[test]
fn layers_with_fixed_scales_are_tuned() {
    let layer = LinearConfig::new(40, 24).init::<B>(&device());
    let layer = with_noise_weights(layer, 1);
    let batches = [2, 3].map(|seed| noise_tensor::<B, 2>([32, 40], seed, &device()));
    let forward = |layer: &Linear<B>, x: &Tensor<B, 2>| layer.forward(x.clone());
    let tuning = FastFinetune {
        num_iterations: 200,
        learning_rate: Some(1e-3),
        ..FastFinetune::default()
    };
    let config = QuantConfig {
        fast_finetune: Some(tuning),
        ..fixed("MXFP4E2M1")
    };
    let tuned = Quantizer::new(config).unwrap();
    let tuned = tuned.quantize(layer.clone(), &batches, forward).unwrap();
    let plain = quantized!(fixed("MXFP4E2M1"), layer, &batches, forward);
    let outputs = |layer: &Linear<B>| {
        batches
            .each_ref()
            .map(|x| values(forward(layer, x)))
            .concat()
    };
    let wanted = outputs(&layer);
    let error = |layer: &Linear<B>| {
        let squares =
            |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>();
        let got = outputs(layer);
        let difference = squares(&mut got.iter().zip(&wanted).map(|(a, b)| a - b));
        difference / squares(&mut wanted.iter().copied())
    };
    let report = &tuned.tuned[0];
    assert!(report.error_after < report.error_before, "{report:?}");
    for (model, said) in [
        (&plain, report.error_before),
        (&tuned.model, report.error_after),
    ] {
        let found = error(model);
        assert!((found / said - 1.0).abs() < 1e-3, "{found:e} {said:e}");
    }
}

/// A layer's calibration does not touch products without layers, or layers that are left out.
#[test]
fn scales_are_those_of_one_layer_alone() {
    let d = device();
    let layers = [(40, 24), (24, 5)].map(|(from, to)| LinearConfig::new(from, to).init::<B>(&d));
    let layers = with_noise_weights(layers, 1);
    let x = noise_tensor::<B, 2>([32, 40], 2, &d);
    let forward = |layers: &[Linear<B>; 2], x: &Tensor<B, 2>| {
        let hidden = layers[0].forward(x.clone());
        let scores = hidden.clone().matmul(hidden.clone().transpose());
        layers[1].forward(scores.div_scalar(64.0).matmul(hidden))
    };
    let of_first = |config| QuantConfig {
        exclude: vec!["1".into()],
        ..config
    };
    let calibration = std::slice::from_ref(&x);
    let got = quantized!(of_first(fixed("MXINT8")), layers, calibration, forward);
    let specs = |layer: &Linear<B>| specs_of(&layer.weight.val());
    assert!(specs(&got[0]).unwrap().has_static_input());
    assert!(specs(&got[1]).is_none());
    let dynamic = QuantConfig::named("MXINT8").unwrap();
    let dynamic = quantized!(of_first(dynamic), layers, calibration, forward);
    // By the first layer alone they differ, and not by much.
    let [got, dynamic] = [&got, &dynamic].map(|layers| values(forward(layers, &x)));
    let squares = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>();
    let apart = squares(&mut got.iter().zip(&dynamic).map(|(a, b)| a - b));
    let apart = (apart / squares(&mut dynamic.iter().copied())).sqrt();
    assert!(apart < 0.2, "{apart}");
}

#[test]
fn what_does_not_fit_is_said() {
    let d = device();
    let forward = |layer: &Linear<B>, x: &Tensor<B, 2>| layer.forward(x.clone());
    let layer = LinearConfig::new(32, 16).init::<B>(&d);
    let x = noise_tensor::<B, 2>([4, 32], 1, &d);
    let quantizer = Quantizer::new(fixed("MX6")).unwrap();

    let model = quantizer
        .quantize(layer.clone(), std::slice::from_ref(&x), forward)
        .unwrap()
        .model;
    let specs = specs_of(&model.weight.val()).unwrap();
    assert!(specs.to_string().contains("static input"), "{specs}");
    // Any number of items may come.
    forward(&model, &noise_tensor([7, 32], 2, &d));
    let other = set_specs(LinearConfig::new(48, 16).init::<B>(&d), &specs);
    let longer = noise_tensor::<B, 2>([4, 48], 1, &d);
    let panic = catch_unwind(AssertUnwindSafe(|| forward(&other, &longer))).unwrap_err();
    let panic = panic.downcast_ref::<String>().unwrap();
    assert!(
        panic.contains("calibrated for 32 elements") && panic.contains("[4, 48]"),
        "{panic}"
    );

    let refused = |calibration: &[Tensor<B, 2>],
                   forward: fn(&Linear<B>, &Tensor<B, 2>) -> Tensor<B, 2>| {
        quantizer
            .quantize(layer.clone(), calibration, forward)
            .unwrap_err()
    };
    let empty = refused(&[], forward);
    assert!(matches!(empty, PtqError::NoCalibration), "{empty}");
    let nan = refused(&[x.clone() / 0.0], forward);
    assert!(
        matches!(nan, PtqError::NotFinite { what: "input", .. }),
        "{nan}"
    );
    let unused = refused(std::slice::from_ref(&x), |_, x| x.clone());
    assert!(matches!(unused, PtqError::NotCalibrated { .. }), "{unused}");
    let tied = refused(std::slice::from_ref(&x), |layer, x| {
        let hidden = layer.forward(x.clone());
        linear(hidden, layer.weight.val().transpose(), None)
    });
    assert!(tied.to_string().contains("[4, 32] and [4, 16]"), "{tied}");
}

#[test]
fn is_dynamic_is_quarks_word_for_it() {
    let config = fixed("MXINT8");
    let json = config.to_json();
    assert!(json.contains("\"is_dynamic\": false"), "{json}");
    assert_eq!(QuantConfig::from_json(&json).unwrap(), config);
    let usual = QuantConfig::named("MXINT8").unwrap();
    assert_eq!(usual.activations, Activations::Dynamic);
    assert!(!usual.to_json().contains("is_dynamic"));
    let read =
        QuantConfig::from_json(r#"{ "specs": { "a_elem_format": "int8" }, "is_dynamic": true }"#);
    assert_eq!(read.unwrap().activations, Activations::Dynamic);

    let refused = |change: fn(&mut burn_mx::MxSpecs)| {
        let mut config = fixed("MXFP4E2M1");
        change(&mut config.specs);
        Quantizer::new(config).unwrap_err().to_string()
    };
    for (message, part) in [
        (
            refused(|specs| specs.a_elem_format = None),
            "`a_elem_format`; or true",
        ),
        (
            refused(|specs| {
                specs.a_elem_format = Some("nvfp4".into());
            }),
            "`is_dynamic` is false with the specs",
        ),
        (
            refused(|specs| specs.bfloat = 16),
            "`is_dynamic` is false with the specs",
        ),
        (
            refused(|specs| specs.round = burn_mx::Rounding::Stochastic),
            "random rounding; or true",
        ),
        (
            refused(|specs| specs.accumulator = Some("blackwell".parse().unwrap())),
            "an accumulator and",
        ),
    ] {
        assert!(message.contains(part), "{message}");
    }
}
