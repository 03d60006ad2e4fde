//! Weights in a format, and sums of gradients.

use burn_core::{
    module::{AutodiffModule, Param},
    tensor::Tensor,
};
use burn_flex::{Flex, FlexDevice};
use burn_mx_core::{MxAutodiff, MxDevice, MxSpecs};
use burn_mx_module::{label_of, label_parameters, set_specs_at, specs_of};
use burn_mx_optim::{GradientAccumulator, OptimizerStates};
use burn_optim::{AdamWConfig, GradientsParams, Optimizer, SgdConfig};
use half::bf16;
use microscaling::{BlockFormat, Rounder};

use crate::{B, Net, all_bits, bits, gradients, net, normal, tensor};

fn numbers(bits: Vec<u32>) -> Vec<f32> {
    bits.into_iter().map(f32::from_bits).collect()
}

#[test]
fn weights_are_numbers_of_the_masters_format() {
    let states = OptimizerStates {
        master: Some("mxfp8_e4m3".into()),
        smallest: 4096,
        ..OptimizerStates::default()
    };
    let config = SgdConfig::new();
    let start = net();
    let after = states
        .sgd(&config)
        .unwrap()
        .step(0.1, start.clone(), gradients(&start, 0));
    let plain = config.init().step(0.1, start.clone(), gradients(&start, 0));
    let mut expected = numbers(bits(plain.matrix.val()));
    let format: BlockFormat = "mxfp8_e4m3".parse().unwrap();
    format
        .quantize(&mut expected, &[5040], 0, Rounder::NearestEven)
        .unwrap();
    assert_eq!(numbers(bits(after.matrix.val())), expected);
    // The small tensor stays float32.
    assert_eq!(bits(after.kernels.val()), bits(plain.kernels.val()));
    assert!(after.matrix.val().is_require_grad());
}

/// 400 steps of 2⁻¹² from 1: bfloat16 stays at 1, Kahan's compensation and stochastic rounding arrive.
#[test]
fn small_steps_arrive_with_kahan_and_with_stochastic_rounding() {
    let run = |states: OptimizerStates| {
        let mut net = net();
        net.vector = Param::from_tensor(Tensor::ones([5000], &crate::DEVICE));
        let mut optimizer = states.sgd::<B, Net<B>>(&SgdConfig::new()).unwrap();
        for _ in 0..400 {
            let mut one = GradientsParams::new();
            one.register(
                net.vector.id,
                Tensor::<Flex, 1>::ones([5000], &crate::DEVICE),
            );
            net = optimizer.step(-1.0 / 4096.0, net, one);
        }
        let numbers = numbers(bits(net.vector.val()));
        assert!(numbers.iter().all(|x| bf16::from_f32(*x).to_f32() == *x));
        numbers.iter().map(|x| f64::from(*x)).sum::<f64>() / 5000.0
    };
    let nearest = OptimizerStates {
        master: Some("bfloat16".into()),
        ..OptimizerStates::default()
    };
    let exact = 1.0 + 400.0 / 4096.0;
    assert_eq!(run(nearest.clone()), 1.0);
    let kahan = run(OptimizerStates {
        kahan: true,
        ..nearest.clone()
    });
    assert!((kahan - exact).abs() <= 1.0 / 256.0, "{kahan}");
    let stochastic = run(OptimizerStates {
        master_rounding: microscaling::Rounding::Stochastic,
        ..nearest
    });
    assert!((stochastic - exact).abs() <= 2e-3, "{stochastic}");
}

/// Parameters keep names and specs of their own on the decorator, and arithmetic on them stays float32.
#[test]
fn on_the_decorator_parameters_keep_names_and_specs() {
    type Mx = MxAutodiff<Flex>;
    let specs = MxSpecs::mxfp4().resolve().unwrap();
    let device = MxDevice::new(FlexDevice, &specs).unwrap();
    let on =
        |seed| Tensor::<Mx, 2>::from_data(tensor::<Flex, 2>([80, 80], seed).into_data(), &device);
    let start = || {
        let net = One {
            matrix: Param::from_tensor(on(1)),
        };
        let own = MxSpecs::mxfp8_e5m2().resolve().unwrap();
        set_specs_at(label_parameters(net), "matrix", &own).unwrap()
    };
    let config = AdamWConfig::new();
    let states = OptimizerStates::preset("bfloat16_kahan").unwrap();
    let mut own = states.adamw::<Mx, One<Mx>>(&config).unwrap();
    let mut net = start();
    let (specs, label) = (specs_of(&net.matrix.val()), label_of(&net.matrix.val()));
    assert!(specs.is_some() && label.is_some());
    // The same on the plain backend.
    let mut plain = One::<B> {
        matrix: Param::from_tensor(tensor([80, 80], 1)),
    };
    let mut of_plain = states.adamw::<B, One<B>>(&config).unwrap();
    for step in 0..5 {
        let x = on(10 + step);
        let loss = (net.matrix.val() * x.clone()).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &net);
        let gradient = gradients
            .get::<burn_mx_core::MxBackend<Flex>, 2>(net.matrix.id)
            .unwrap();
        net = own.step(1e-2, net, gradients);
        let mut same = GradientsParams::new();
        same.register(
            plain.matrix.id,
            Tensor::<Flex, 2>::from_data(gradient.into_data(), &crate::DEVICE),
        );
        plain = of_plain.step(1e-2, plain, same);
        assert_eq!(specs_of(&net.matrix.val()), specs, "step {step}");
        assert_eq!(label_of(&net.matrix.val()), label, "step {step}");
        assert_eq!(
            bits(net.matrix.val()),
            bits(plain.matrix.val()),
            "step {step}"
        );
    }
    // Emulation begins again in the valid model: a product is quantized.
    let valid = net.valid().matrix.val();
    let x = on(99).inner();
    let product = bits(x.clone().matmul(valid.clone()));
    let exact = tensor::<Flex, 2>([80, 80], 99)
        .matmul(Tensor::from_data(valid.into_data(), &crate::DEVICE));
    assert_ne!(product, bits(exact));
}

use burn_core as burn;
use burn_core::{module::Module, tensor::backend::Backend};

#[derive(Module, Debug)]
struct One<B: Backend> {
    matrix: Param<Tensor<B, 2>>,
}

#[test]
fn gradients_are_summed_in_a_format() {
    let net = net();
    let sum = |text: Option<&str>| {
        let states = OptimizerStates {
            gradient_accumulation: text.map(str::to_owned),
            ..OptimizerStates::default()
        };
        let mut sums = GradientAccumulator::<B, Net<B>>::new(&states).unwrap();
        for step in 0..4 {
            sums.accumulate(&net, gradients(&net, step));
        }
        let mut all = sums.grads(&net);
        assert_eq!(all.len(), 4);
        assert!(sums.grads(&net).is_empty());
        let vector = all.remove::<Flex, 1>(net.vector.id).unwrap();
        let kernels = all.remove::<Flex, 4>(net.kernels.id).unwrap();
        [numbers(bits(vector)), numbers(bits(kernels))]
    };
    let mut plain = burn_optim::GradientsAccumulator::<Net<B>>::new();
    for step in 0..4 {
        plain.accumulate::<B>(&net, gradients(&net, step));
    }
    let mut plain = plain.grads();
    let plain = [
        numbers(bits(plain.remove::<Flex, 1>(net.vector.id).unwrap())),
        numbers(bits(plain.remove::<Flex, 4>(net.kernels.id).unwrap())),
    ];
    assert_eq!(sum(None), plain);
    // A loop that rounds after each addition.
    let mut expected = vec![0.0; 5000];
    for step in 0..4 {
        let factor = if step % 2 == 0 { 1.0 } else { 1e-3 };
        for (sum, x) in expected.iter_mut().zip(normal(5000, 100 + 10 * step)) {
            *sum = bf16::from_f32(*sum + x * factor).to_f32();
        }
    }
    let [vector, kernels] = sum(Some("bfloat16"));
    assert_eq!(vector, expected);
    assert_eq!(kernels, plain[1], "a small tensor stays float32");
    assert_ne!(all_bits(&net).len(), 0);
}
