//! Losses: the logarithm of a softmax and its results are float32, in both passes, unless the specs emulate losses.
//!
//! The independent source is Burn alone.

use burn::backend::flex::FlexDevice;
use burn::module::AutodiffModule;
use burn::nn::LinearConfig;
use burn::nn::loss::{CrossEntropyLossConfig, MseLoss, Reduction};
use burn::prelude::*;
use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::backend::AutodiffBackend;
use burn_mx::MxSpecs;
use burn_mx::module::full_precision;

use crate::support::*;

/// The cross-entropy of logits, and their gradient, of leaves that pass for inputs.
fn cross_entropy<B: Exact>(device: &B::Device) -> [Vec<f32>; 2] {
    let logits = noise_tensor::<B, 2>([32, 10], 1, device).require_grad();
    let targets = Tensor::<B, 1, Int>::arange(0..32, device).remainder_scalar(10);
    let loss = CrossEntropyLossConfig::new().init(device);
    let loss = loss.forward(logits.clone(), targets);
    let grads = loss.backward();
    let gradient = logits.grad(&grads).expect("a leaf");
    [values(loss), values(gradient)]
}

#[test]
fn a_cross_entropy_is_float32s() {
    let expected = cross_entropy::<Plain>(&FlexDevice);
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let got = cross_entropy::<Mx>(&device);
    assert_all_same_bits(&got, &expected, "loss and gradient");
    let emulated = MxSpecs {
        quantize_loss: true,
        ..everywhere(MxSpecs::mxfp8_e4m3())
    };
    let got = cross_entropy::<Mx>(&mx_device(&emulated));
    assert_ne!(got[0], expected[0]);
    assert!(got.concat().iter().all(|x| is_bfloat16(*x)), "{got:?}");
}

#[test]
fn inference_has_the_loss_of_training() {
    let loss = |tensor: Tensor<Mx, 2>| {
        let trained = values(log_softmax(tensor.clone(), 1).mean());
        let inferred = values(log_softmax(tensor.inner(), 1).mean());
        let near = (trained[0] - inferred[0]).abs() < 1e-6;
        assert!(near, "{trained:?} {inferred:?}");
        assert!(!is_bfloat16(trained[0]) && !is_bfloat16(inferred[0]));
    };
    loss(noise_tensor(
        [32, 10],
        1,
        &mx_device(&MxSpecs::mxfp8_e4m3()),
    ));
}

/// A layer's output to the loss, the gradients of its weight and of its input: everything before the loss is emulated.
#[test]
fn what_is_before_the_loss_is_emulated_in_both_passes() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let config = LinearConfig::new(64, 10).with_bias(false);
    let linear = with_noise_weights::<Mx, _>(config.init(&device), 3);
    let x = noise_tensor::<Mx, 2>([32, 64], 4, &device).require_grad();
    let targets = Tensor::<Mx, 1, Int>::arange(0..32, &device).remainder_scalar(10);
    let logits = linear.forward(x.clone());
    let loss = CrossEntropyLossConfig::new().init(&device);
    let loss = loss.forward(logits.clone(), targets);
    assert!(values(logits).iter().all(|x| is_bfloat16(*x)));
    assert!(!is_bfloat16(loss.clone().into_scalar()));
    let grads = loss.backward();
    for leaf in [x, linear.weight.val()] {
        let gradient = values(leaf.grad(&grads).expect("a leaf"));
        assert!(gradient.iter().all(|x| is_bfloat16(*x)));
    }
}

/// A layer after a logarithm of a softmax is not a loss.
#[test]
fn a_loss_ends_where_a_layer_begins() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let linear = with_noise_weights::<Mx, _>(LinearConfig::new(10, 6).init(&device), 3);
    let x = noise_tensor::<Mx, 2>([4, 10], 1, &device);
    let log = log_softmax(x, 1);
    let rounded = |tensor: Tensor<Mx, 2>| values(tensor).iter().all(|x| is_bfloat16(*x));
    assert!(!rounded(log.clone() * 1.1));
    assert!(rounded(linear.forward(log.clone())), "linear");
    assert!(rounded(linear.forward(log.clone()) * 1.1), "after it");
    assert!(rounded(log.matmul(linear.weight.val())), "matmul");
}

/// An activation by itself is not a loss.
#[test]
fn a_softmax_is_emulated() {
    let device = mx_device(&everywhere(MxSpecs::mxfp8_e4m3()));
    let probabilities = softmax(noise_tensor::<Mx, 2>([4, 10], 1, &device), 1);
    assert!(values(probabilities).iter().all(|x| is_bfloat16(*x)));
}

/// Other losses are float32 by one word around what goes into them.
#[test]
fn a_mean_squared_error_of_a_full_precision_output_is_float32s() {
    fn loss<B: Exact>(device: &B::Device) -> [Vec<f32>; 2] {
        let output = noise_tensor::<B, 2>([8, 4], 1, device).require_grad();
        let targets = noise_tensor::<B, 2>([8, 4], 2, device);
        let loss = MseLoss::new().forward(B::exact(output.clone()), targets, Reduction::Auto);
        let grads = loss.backward();
        [values(loss), values(output.grad(&grads).expect("a leaf"))]
    }
    let expected = loss::<Plain>(&FlexDevice);
    let got = loss::<Mx>(&mx_device(&MxSpecs::mxfp8_e4m3()));
    assert_all_same_bits(&got, &expected, "loss and gradient");
}

/// Greedy decoding: a token that is chosen by logits in full precision is an ordinary token.
#[test]
fn tokens_that_full_precision_chose_exempt_nothing() {
    let device = mx_device(&MxSpecs::mxfp4());
    let model = burn::nn::EmbeddingConfig::new(10, 32).init::<Mx>(&device);
    let model = with_noise_weights::<Mx, _>(model, 3);
    let head = with_noise_weights::<Mx, _>(LinearConfig::new(32, 10).init(&device), 4);
    let next = |tokens: Tensor<Mx, 2, Int>| head.forward(model.forward(tokens));
    let decoded = |wrap: fn(Tensor<Mx, 3>) -> Tensor<Mx, 3>| {
        let mut tokens = Tensor::<Mx, 2, Int>::from_data([[1, 2]], &device);
        for _ in 0..3 {
            let chosen = wrap(next(tokens.clone())).argmax(2).squeeze_dim::<2>(2);
            tokens = Tensor::cat(vec![tokens, chosen.slice([0..1, 0..1])], 1);
        }
        values(next(tokens))
    };
    let expected = decoded(|logits| logits);
    assert_same_bits(&decoded(full_precision), &expected, "full_precision");
    assert_same_bits(
        &decoded(|logits| log_softmax(logits, 2)),
        &expected,
        "log_softmax",
    );
}

#[test]
fn a_mask_of_a_full_precision_tensor_exempts_nothing() {
    let device = mx_device(&everywhere(MxSpecs::mxfp8_e4m3()));
    let x = || noise_tensor::<Mx, 1>([64], 1, &device);
    let mask = full_precision(x()).greater_elem(0.0);
    let masked = x().mask_fill(mask.clone(), 0.0) * 1.1;
    assert!(values(masked).iter().all(|x| is_bfloat16(*x)));
    assert!(values(mask.float() * x()).iter().all(|x| is_bfloat16(*x)));
}

/// Batch norm in full precision, as semantics.md recommends: its statistics are float32's, and inference without the wrapper
/// is emulated all the same.
#[test]
fn statistics_of_a_full_precision_norm_exempt_no_inference() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let norm = burn::nn::BatchNormConfig::new(4);
    let plain = norm.init::<Plain>(&FlexDevice);
    let mx = norm.init::<Mx>(&device);
    for step in 0..3 {
        plain.forward(noise_tensor::<Plain, 2>([16, 4], step, &FlexDevice));
        mx.forward(full_precision(noise_tensor::<Mx, 2>(
            [16, 4],
            step,
            &device,
        )));
    }
    let expected = values(plain.running_var.value_sync());
    assert_same_bits(&values(mx.running_var.value_sync()), &expected, "variance");
    let x = noise_tensor::<Mx, 2>([16, 4], 9, &device).inner();
    let out = values(mx.valid().forward(x) * 1.1);
    assert!(out.iter().all(|x| is_bfloat16(*x)), "{out:?}");
}

/// An input that was moved along its own gradient is inferred with as any other.
#[test]
fn an_adversarial_input_is_emulated() {
    let device = mx_device(&MxSpecs::mxfp4());
    let config = LinearConfig::new(32, 10);
    let linear = with_noise_weights::<Mx, _>(config.init(&device), 3);
    let x = noise_tensor::<Mx, 2>([4, 32], 4, &device).require_grad();
    let grads = linear.forward(x.clone()).sum().backward();
    let step = x.grad(&grads).expect("a leaf").sign() * 0.1;
    let moved = x.inner() + step;
    let numbers = moved.to_data();
    let fresh = Tensor::<<Mx as AutodiffBackend>::InnerBackend, 2>::from_data(numbers, &device);
    let valid = linear.valid();
    let expected = values(valid.forward(fresh) * 1.1);
    assert_same_bits(&values(valid.forward(moved) * 1.1), &expected, "output");
    assert!(expected.iter().all(|x| is_bfloat16(*x)));
}
