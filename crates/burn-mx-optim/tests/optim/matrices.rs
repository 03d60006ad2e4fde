//! Two optimizers for one module.

use burn_core as burn;
use burn_core::{
    module::{Module, Param},
    record::{BinBytesRecorder, FullPrecisionSettings, Recorder},
    tensor::{Tensor, backend::Backend},
};
use burn_flex::Flex;
use burn_mx_optim::{AdamW, MatrixOptimizer, Muon, OptimizerStates, PackedAdaptor};
use burn_optim::{
    AdamWConfig, AdjustLrFn, GradientsParams, MultiGradientsParams, MuonConfig, Optimizer,
    grad_clipping::GradientClippingConfig,
};

use crate::{B, DEVICE, bits, tensor};

/// Two matrices in layers, and three parameters that are none: a vector, kernels, and embeddings outside of the layers.
#[derive(Module, Debug)]
struct Layer<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    bias: Param<Tensor<B, 1>>,
    kernels: Param<Tensor<B, 4>>,
}

#[derive(Module, Debug)]
struct Model<B: Backend> {
    embedding: Param<Tensor<B, 2>>,
    layers: Vec<Layer<B>>,
}

type Both = MatrixOptimizer<PackedAdaptor<Muon, Model<B>, B>, PackedAdaptor<AdamW, Model<B>, B>>;

fn model() -> Model<B> {
    let layer = |seed| Layer {
        weight: Param::from_tensor(tensor([72, 70], seed)),
        bias: Param::from_tensor(tensor([70], seed + 1)),
        kernels: Param::from_tensor(tensor([8, 3, 3, 3], seed + 2)),
    };
    Model {
        embedding: Param::from_tensor(tensor([96, 48], 1)),
        layers: vec![layer(10), layer(20)],
    }
}

/// Random gradients of the parameters that are `wanted`. The second layer's matrix has none in odd steps.
fn gradients(model: &Model<B>, step: u64, wanted: impl Fn(&str) -> bool) -> GradientsParams {
    let mut all = GradientsParams::new();
    let seed = 100 * (step + 1);
    if wanted("embedding") {
        all.register(model.embedding.id, tensor::<Flex, 2>([96, 48], seed));
    }
    for (index, layer) in model.layers.iter().enumerate() {
        let seed = seed + 10 * (index as u64 + 1);
        if wanted("weight") && (index == 0 || step.is_multiple_of(2)) {
            all.register(layer.weight.id, tensor::<Flex, 2>([72, 70], seed));
        }
        if wanted("rest") {
            all.register(layer.bias.id, tensor::<Flex, 1>([70], seed + 1));
            all.register(layer.kernels.id, tensor::<Flex, 4>([8, 3, 3, 3], seed + 2));
        }
    }
    all
}

fn all_bits(model: &Model<B>) -> Vec<u32> {
    let layers = model.layers.iter().flat_map(|layer| {
        [
            bits(layer.weight.val()),
            bits(layer.bias.val()),
            bits(layer.kernels.val()),
        ]
        .concat()
    });
    let mut all = bits(model.embedding.val());
    all.extend(layers);
    all
}

fn muon(preset: &str) -> PackedAdaptor<Muon, Model<B>, B> {
    let config = MuonConfig::new().with_adjust_lr_fn(AdjustLrFn::MatchRmsAdamW);
    OptimizerStates::preset(preset)
        .unwrap()
        .muon(&config)
        .unwrap()
}

fn adamw() -> PackedAdaptor<AdamW, Model<B>, B> {
    let clipping = Some(GradientClippingConfig::Norm(1.0));
    let config = AdamWConfig::new()
        .with_weight_decay(0.1)
        .with_grad_clipping(clipping);
    OptimizerStates::default().adamw(&config).unwrap()
}

fn both(preset: &str) -> Both {
    MatrixOptimizer::new(muon(preset), adamw(), &["layers.*"], &model()).unwrap()
}

/// Muon steps the layers' matrices, and AdamW everything else, as two optimizers that share no parameter.
#[test]
fn each_parameter_has_one_optimizer() {
    for preset in ["float32", "muon8", "muonq"] {
        let mut optimizer = both(preset);
        let mut got = model();
        let mut expected = got.clone();
        let (mut of_matrices, mut of_rest) = (muon(preset), adamw());
        for step in 0..6 {
            let all = gradients(&got, step, |_| true);
            got = optimizer.step(1e-2, got, all);
            let of_weights = gradients(&expected, step, |name| name == "weight");
            expected = of_matrices.step(1e-2, expected, of_weights);
            let others = gradients(&expected, step, |name| name != "weight");
            expected = of_rest.step(1e-2, expected, others);
            assert!(
                all_bits(&got) == all_bits(&expected),
                "{preset}: step {step}"
            );
        }
        assert!(all_bits(&got) != all_bits(&model()));
    }
}

#[test]
fn a_resumed_run_is_the_same() {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let steps = |optimizer: &mut Both, mut model: Model<B>, range: core::ops::Range<u64>| {
        for step in range {
            let all = gradients(&model, step, |_| true);
            model = optimizer.step(1e-2, model, all);
        }
        model
    };
    for preset in ["muon4", "muonq"] {
        let start = model();
        let ten = steps(&mut both(preset), start.clone(), 0..10);
        let mut first = both(preset);
        let five = steps(&mut first, start, 0..5);
        let saved =
            Recorder::<B>::record(&recorder, Optimizer::<Model<B>, B>::to_record(&first), ());
        let weights = Recorder::<B>::record(&recorder, five.into_record(), ()).unwrap();
        // Another model, whose parameters have other identities before they are loaded.
        let five = model().load_record(recorder.load(weights, &DEVICE).unwrap());
        let record = recorder.load(saved.unwrap(), &DEVICE).unwrap();
        let mut second: Both = Optimizer::<Model<B>, B>::load_record(both(preset), record);
        let resumed = steps(&mut second, five, 5..10);
        assert!(all_bits(&ten) == all_bits(&resumed), "{preset}");
    }
}

/// Gradients of several devices, of which there is one here: the same step.
#[test]
fn gradients_of_several_devices_are_divided_too() {
    use burn_core::tensor::backend::DeviceOps;

    let start = model();
    let all = gradients(&start, 0, |_| true);
    let expected = both("muon8").step(1e-2, start.clone(), all);
    let multi = MultiGradientsParams {
        grads: vec![(gradients(&start, 0, |_| true), DEVICE.id())],
    };
    let got = both("muon8").step_multi(1e-2, start, multi);
    assert!(all_bits(&got) == all_bits(&expected));
}

#[test]
fn patterns_without_a_matrix_are_refused() {
    for (pattern, part) in [
        ("layer.*", "layers.0.weight"),
        ("layers.*.bias", "layers.0.weight"),
        ("layers.[", "a glob over either"),
    ] {
        let made = MatrixOptimizer::new(muon("float32"), adamw(), &[pattern], &model());
        let error = made.err().unwrap().to_string();
        let start = format!("`patterns` is {pattern}; allowed: ");
        assert!(error.starts_with(&start) && error.contains(part), "{error}");
    }
}
