//! Weights that are used again: their quantized copies match the current weight and the current specs.

use burn::backend::Flex;
use burn::module::AutodiffModule;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::prelude::*;
use burn::tensor::module::conv_transpose2d;
use burn::tensor::ops::ConvTransposeOptions;
use burn_mx::Rounding;
use burn_mx::module::set_specs;
use burn_mx::{MxBackend, MxSpecs};

use crate::support::*;

type Inference = MxBackend<Flex>;

#[derive(Module, Debug)]
struct Net<B: Backend> {
    conv: Conv2d<B>,
    hidden: Linear<B>,
    head: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn new(device: &B::Device) -> Self {
        let net = Self {
            conv: Conv2dConfig::new([3, 40], [2, 2]).init(device),
            hidden: LinearConfig::new(160, 48).init(device),
            head: LinearConfig::new(48, 5).init(device),
        };
        with_noise_weights(net, 21)
    }

    fn forward(&self, device: &B::Device) -> Tensor<B, 2> {
        let x = noise_tensor::<B, 4>([6, 3, 3, 3], 8, device);
        let x = self.conv.forward(x).flatten::<2>(1, 3);
        self.head.forward(self.hidden.forward(x))
    }
}

/// Outputs of one pass after another.
fn outputs<B: Backend>(net: &Net<B>, device: &B::Device) -> [Vec<f32>; 4] {
    core::array::from_fn(|_| values(net.forward(device)))
}

#[track_caller]
fn assert_all_are(got: &[Vec<f32>], expected: &[f32], what: &str) {
    for (pass, got) in got.iter().enumerate() {
        assert_same_bits(got, expected, &format!("{what}, pass {pass}"));
    }
}

#[test]
fn every_pass_of_an_evaluation_gives_what_training_computes() {
    for specs in [
        MxSpecs::mxfp4(),
        mx_only(MxSpecs::mxfp6_e2m3()),
        bfloat16_only(),
    ] {
        let device = mx_device(&specs);
        let net = Net::<Mx>::new(&device);
        let expected = values(net.forward(&device));
        assert_all_are(&outputs(&net.valid(), &device), &expected, "first");
        assert_all_are(&outputs(&net.valid(), &device), &expected, "second");
        assert_all_are(&outputs(&net, &device), &expected, "training");
    }
}

#[test]
fn an_optimizer_step_leaves_no_copy_behind() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let mut net = Net::<Mx>::new(&device);
    let mut optimizer = SgdConfig::new().init();
    for step in 0..3 {
        let before = outputs(&net.valid(), &device);
        // Several passes, so that training keeps copies, too.
        let loss = (net.forward(&device) + net.forward(&device) + net.forward(&device)).sum();
        let grads = GradientsParams::from_grads(loss.backward(), &net);
        net = optimizer.step(0.05, net, grads);
        // The same weights in tensors that nobody has used yet.
        let fresh = Net::<Mx>::new(&device).load_record(net.clone().into_record());
        let expected = values(fresh.forward(&device));
        assert_ne!(expected, before[0], "step {step} changes the weights");
        assert_all_are(&outputs(&net.valid(), &device), &expected, "after a step");
    }
}

#[test]
fn other_specs_on_the_same_weights_have_copies_of_their_own() {
    let presets = [
        MxSpecs::mxfp8_e4m3(),
        MxSpecs::mxfp4(),
        MxSpecs::mxint8(),
        MxSpecs {
            block_size: 8,
            ..MxSpecs::mxfp4()
        },
    ];
    let device = mx_device(&presets[0]);
    let net = Net::<Mx>::new(&device).valid();
    let first = outputs(&net, &device);
    for specs in &presets {
        let resolved = specs.resolve().expect("the specs are sound");
        let device = mx_device(specs);
        let expected = values(Net::<Inference>::new(&device).forward(&device));
        let changed = set_specs(net.clone(), &resolved);
        assert_all_are(&outputs(&changed, &device), &expected, "changed specs");
        // An input with its own specs; the weights' count.
        assert_all_are(
            &outputs(&net, &mx_device(&presets[0])),
            &first[0],
            "as before",
        );
    }
}

#[test]
fn stochastic_weights_are_drawn_anew_in_each_pass() {
    let specs = MxSpecs {
        round: Rounding::Stochastic,
        seed: 77,
        ..MxSpecs::mxfp4()
    };
    let device = mx_device(&specs);
    let [first, second, third, fourth] = outputs(&Net::<Mx>::new(&device).valid(), &device);
    assert_ne!(first, second);
    assert_ne!(second, third);
    assert_ne!(third, fourth);
}

/// A transform of the weight must not mix the channels of two groups, so that a copy has a number of groups.
#[test]
fn convolutions_of_other_groups_have_copies_of_their_own() {
    let specs = MxSpecs {
        hadamard_forward: Some("16:0x5a5a".parse().expect("it is a transform")),
        ..mx_only(MxSpecs::mxfp4())
    };
    let device = mx_device(&specs);
    let weight = || noise_tensor::<Inference, 4>([48, 6, 1, 1], 22, &device).set_require_grad(true);
    let output = |weight: &Tensor<Inference, 4>, groups| {
        let x = noise_tensor::<Inference, 4>([2, 48, 3, 3], 23, &device);
        let options = ConvTransposeOptions::new([1, 1], [0, 0], [0, 0], [1, 1], groups);
        values(conv_transpose2d(x, weight.clone(), None, options))
    };
    let expected = [1, 2].map(|groups| output(&weight(), groups));
    let shared = weight();
    for pass in 0..3 {
        for groups in [1, 2] {
            let what = format!("{groups} groups, pass {pass}");
            for _ in 0..2 {
                assert_same_bits(&output(&shared, groups), &expected[groups - 1], &what);
            }
        }
    }
}

#[test]
fn threads_share_a_model() {
    let device = mx_device(&MxSpecs::mxfp6_e3m2());
    let net = Net::<Mx>::new(&device).valid();
    let expected = values(Net::<Mx>::new(&device).forward(&device));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (net, device, expected) = (net.clone(), device.clone(), &expected);
            scope.spawn(move || assert_all_are(&outputs(&net, &device), expected, "thread"));
        }
    });
}
