//! Arithmetic on parameters themselves: soft updates and averages of weights are float32's.

use burn::backend::Flex;
use burn::backend::flex::FlexDevice;
use burn::module::{AutodiffModule, Module, Param};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::prelude::*;
use burn_mx::module::{lerp, master, set_specs_at, specs_of};
use burn_mx::{MxBackend, MxSpecs};

use crate::support::*;

type Inference = MxBackend<Flex>;

#[derive(Module, Debug)]
struct Net<B: Backend> {
    linear: Linear<B>,
    norm: BatchNorm<B>,
}

fn net<B: Backend>(seed: u64, device: &B::Device) -> Net<B> {
    let net = Net {
        linear: LinearConfig::new(8, 4).init(device),
        norm: BatchNormConfig::new(4).init(device),
    };
    with_noise_weights(net, seed)
}

/// The result of a plain backend's arithmetic.
fn expected(steps: usize) -> Vec<Vec<f32>> {
    let device = FlexDevice;
    let online = weights(&net::<Flex>(2, &device));
    (0..steps).fold(weights(&net::<Flex>(1, &device)), |target, _| {
        let pairs = target.into_iter().zip(&online);
        pairs
            .map(|(target, online)| {
                let pairs = target.into_iter().zip(online);
                pairs.map(|(t, o)| t * 0.995 + o * 0.005).collect()
            })
            .collect()
    })
}

#[test]
fn a_soft_update_is_float32s() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let expected = expected(200);
    let mut target = net::<Inference>(1, &device);
    let online = net::<Inference>(2, &device);
    for _ in 0..200 {
        target = lerp(target, &online, 0.005).expect("the same model");
    }
    assert_all_same_bits(&weights(&target), &expected, "inference");
    let mut target = net::<Mx>(1, &device);
    let online = net::<Mx>(2, &device);
    for _ in 0..200 {
        target = lerp(target, &online, 0.005).expect("the same model");
    }
    assert_all_same_bits(&weights(&target), &expected, "training");
}

#[test]
fn an_averaged_model_is_a_model_as_before() {
    let device = mx_device(&MxSpecs::mxfp4());
    let none = MxSpecs::none().resolve().expect("sound");
    let target = set_specs_at(net::<Mx>(1, &device), "norm", &none).expect("there is one");
    let target = lerp(target, &net::<Mx>(2, &device), 0.5).expect("the same model");
    assert!(target.linear.weight.val().is_require_grad());
    assert_eq!(specs_of(&target.norm.gamma.val()), Some(none));
    let x = noise_tensor::<Mx, 2>([4, 8], 3, &device);
    let out = target.linear.forward(x.clone());
    let got = values(out.clone());
    let grads = out.sum().backward();
    assert!(target.linear.weight.grad(&grads).is_some());
    // The numbers alone, in a new model.
    let fresh = Linear::<Mx> {
        weight: Param::from_tensor(Tensor::from_data(
            target.linear.weight.val().into_data(),
            &device,
        )),
        bias: target
            .linear
            .bias
            .as_ref()
            .map(|bias| Param::from_tensor(Tensor::from_data(bias.val().into_data(), &device))),
    };
    assert_same_bits(&got, &values(fresh.forward(x.clone())), "output");
    let valid = target.linear.valid();
    let twice = lerp(valid.clone(), &valid, 0.25).expect("the same model");
    let x = x.inner();
    assert_same_bits(
        &values(twice.forward(x.clone())),
        &values(valid.forward(x)),
        "itself",
    );
}

#[test]
fn modules_that_differ_are_refused() {
    let device = mx_device(&MxSpecs::mxfp4());
    let linear = |inputs| LinearConfig::new(inputs, 4).init::<Inference>(&device);
    let error = lerp(linear(8), &linear(6), 0.5).expect_err("another shape");
    let message = error.to_string();
    for part in ["`weight`", "[8, 4]", "[6, 4]"] {
        assert!(message.contains(part), "{message}");
    }
    let bare = LinearConfig::new(8, 4).with_bias(false).init(&device);
    let error = lerp(linear(8), &bare, 0.5).expect_err("no bias");
    assert!(error.to_string().contains('1'), "{error}");
}

#[test]
fn a_master_is_no_operand_until_it_is_a_parameter_again() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let weight = noise_tensor::<Inference, 2>([8, 4], 1, &device).require_grad();
    let numbers: Vec<f32> = values(weight.clone())
        .iter()
        .map(|x| x * 0.9 + 0.01)
        .collect();
    let moved = master(weight) * 0.9 + 0.01;
    assert_same_bits(&values(moved.clone()), &numbers, "inference");
    let x = noise_tensor::<Inference, 2>([4, 8], 3, &device);
    let linear = Linear::<Inference> {
        weight: Param::from_tensor(moved),
        bias: None,
    };
    let out = values(linear.forward(x) * 1.1);
    assert!(out.iter().all(|x| is_bfloat16(*x)), "{out:?}");

    let weight = noise_tensor::<Mx, 2>([8, 4], 1, &device).require_grad();
    let moved = master(weight) * 0.9 + 0.01;
    assert_same_bits(&values(moved.clone()), &numbers, "training");
    let linear = Linear::<Mx> {
        weight: Param::from_tensor(moved),
        bias: None,
    };
    let x = noise_tensor::<Mx, 2>([4, 8], 3, &device);
    assert_same_bits(&values(linear.forward(x) * 1.1), &out, "training");
}
