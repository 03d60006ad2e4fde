//! The portable kernels give any backend the same bits as Flex's native kernels.

use std::sync::Mutex;

use burn::backend::{Flex, NdArray};
use burn::module::AutodiffModule;
use burn::nn::conv::Conv2dConfig;
use burn::nn::{LayerNormConfig, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::prelude::*;
use burn_mx::Rounding;
use burn_mx::module::emulated;
use burn_mx::process::host_round_trips;
use burn_mx::{MxAutodiff, MxDevice, MxKernels, MxSpecs, Portable};
use burn_mx_core::internal::{OpWatch, SeenTensors};
use burn_mx_kernels::internal::{KernelSet, PortableKernels};

use crate::models::*;
use crate::support::*;

fn device<B: MxKernels>(specs: &MxSpecs) -> MxDevice<B::Device> {
    let specs = specs.resolve().expect("the specs are sound");
    let device = MxDevice::new(B::Device::default(), &specs).expect("resolved specs");
    // The same random numbers for every backend: all users in this process share specs, so each test has its own seed.
    MxAutodiff::<B>::seed(&device, specs.seed());
    device
}

/// Specs of every rounding mode, both scalings of a block, all kinds of elementwise format.
fn specs(seed: u64) -> Vec<(String, MxSpecs)> {
    let mut all = Vec::new();
    for round in Rounding::ALL {
        for base in [MxSpecs::mxfp8_e4m3(), MxSpecs::mxfp4(), MxSpecs::mxint8()] {
            let specs = MxSpecs {
                round,
                seed,
                ..base
            };
            all.push((
                format!("{} {round:?}", specs.resolve().expect("sound")),
                specs,
            ));
        }
    }
    let odd = MxSpecs {
        block_size: 5,
        bfloat: 0,
        fp: 12,
        bfloat_subnorms: false,
        seed,
        ..MxSpecs::mxfp6_e2m3()
    };
    all.push(("block 5, fp12".into(), odd));
    // Hadamard transforms of both passes, a headroom, and masks.
    let quartet = MxSpecs {
        seed,
        ..MxSpecs::quartet()
    };
    all.push(("quartet".into(), quartet));
    all
}

fn assert_portable_equals_native<A: Architecture>(seed: u64) {
    for (name, specs) in specs(seed) {
        let (native, native_grads) = training_pass::<A, MxAutodiff<Flex>>(&device::<Flex>(&specs));
        let portable =
            training_pass::<A, MxAutodiff<Portable<Flex>>>(&device::<Portable<Flex>>(&specs));
        assert_same_bits(&portable.0, &native, &format!("{name}: output"));
        assert_all_same_bits(&portable.1, &native_grads, &format!("{name}: gradient"));
    }
}

#[test]
fn an_mlp_with_layer_norm_trains_to_the_same_bits_by_portable_kernels() {
    assert_portable_equals_native::<Mlp>(11);
}

#[test]
fn a_transformer_trains_to_the_same_bits_by_portable_kernels() {
    assert_portable_equals_native::<Transformer>(12);
}

#[test]
fn convolutions_train_to_the_same_bits_by_portable_kernels() {
    assert_portable_equals_native::<Convolutions>(13);
}

#[test]
fn every_function_has_the_same_bits_by_portable_kernels() {
    assert_portable_equals_native::<Functions>(14);
}

/// Weights after two SGD steps of a convolution, a norm and a linear layer.
#[derive(Module, Debug)]
struct Stack<B: Backend> {
    conv: nn::conv::Conv2d<B>,
    norm: nn::LayerNorm<B>,
    head: nn::Linear<B>,
}

fn trained<B: MxKernels>(specs: &MxSpecs) -> (Vec<Vec<f32>>, Vec<f32>) {
    let device = device::<B>(specs);
    let stack = Stack::<MxAutodiff<B>> {
        conv: Conv2dConfig::new([3, 5], [2, 2]).init(&device),
        norm: LayerNormConfig::new(45).init(&device),
        head: LinearConfig::new(45, 7).init(&device),
    };
    let mut stack = with_noise_weights(stack, 3);
    let mut optimizer = SgdConfig::new().init();
    fn forward<B: Backend>(stack: &Stack<B>, device: &B::Device) -> Tensor<B, 2> {
        let x = stack.conv.forward(noise_tensor([4, 3, 4, 4], 5, device));
        stack.head.forward(stack.norm.forward(x.flatten::<2>(1, 3)))
    }
    for _ in 0..2 {
        let loss = forward(&stack, &device).square().mean();
        let grads = GradientsParams::from_grads(loss.backward(), &stack);
        stack = optimizer.step(0.01, stack, grads);
    }
    let outputs = forward(&stack.valid(), &device);
    (weights(&stack), values(outputs))
}

#[test]
fn training_steps_and_inference_have_the_same_bits_by_portable_kernels() {
    for (name, specs) in specs(15) {
        let before = host_round_trips();
        let (weights, outputs) = trained::<Portable<Flex>>(&specs);
        assert!(host_round_trips() > before, "{name}");
        let (expected, expected_outputs) = trained::<Flex>(&specs);
        assert_all_same_bits(&weights, &expected, &format!("{name}: weight"));
        assert_same_bits(&outputs, &expected_outputs, &format!("{name}: output"));
    }
}

#[test]
fn stochastic_rounding_repeats_with_its_seed_and_differs_with_another() {
    let run = |seed| {
        let specs = MxSpecs {
            round: Rounding::Stochastic,
            seed,
            ..MxSpecs::mxfp4()
        };
        training_pass::<Mlp, Mx>(&device::<Flex>(&specs))
    };
    assert_eq!(run(16), run(16));
    assert_ne!(run(16).0, run(17).0);
}

/// Elementwise rounding is exact, so where a model is made of exact operations, backends agree, too.
#[test]
fn quantized_values_are_the_same_on_ndarray_and_flex() {
    fn quantized<B: MxKernels>(specs: &MxSpecs) -> Vec<f32> {
        let device = device::<B>(specs);
        let x = noise_tensor::<MxAutodiff<B>, 3>([3, 40, 7], 6, &device);
        // A product with the identity shows the quantized operand; transposed, blocks lie strided.
        // A constant has no blocks.
        let eye = emulated(Tensor::<MxAutodiff<B>, 2>::eye(40, &device)).unsqueeze::<3>();
        let [rows, columns] = [x.clone().swap_dims(1, 2), x.clone() * 1.0];
        let rows = values(rows.matmul(eye.clone()));
        let columns = values(eye.matmul(columns));
        [rows, columns].concat()
    }
    for (name, specs) in specs(18) {
        let flex = quantized::<Flex>(&specs);
        assert_same_bits(
            &quantized::<NdArray>(&specs),
            &flex,
            &format!("ndarray, {name}"),
        );
        assert_same_bits(
            &quantized::<Portable<Flex>>(&specs),
            &flex,
            &format!("portable, {name}"),
        );
    }
}

/// Writes down each op and the bytes of its operands and its result.
#[derive(Clone, Copy, Debug, Default)]
struct Noted;

static OPS: Mutex<Vec<(&str, u64, u64)>> = Mutex::new(Vec::new());

impl<B: Backend> OpWatch<B> for Noted {
    type Call = (&'static str, u64);

    fn kernels() -> &'static dyn KernelSet<Portable<B, Self>> {
        &PortableKernels
    }

    fn before(op: &'static str, tensors: &[SeenTensors<'_>]) -> Self::Call {
        (op, tensors.iter().map(|seen| seen.bytes).sum())
    }

    fn after((op, read): Self::Call, written: u64) {
        OPS.lock().unwrap().push((op, read, written));
    }
}

/// A watch sees every op of the backend within, with the bytes of its tensors: floats, integers, and several results.
#[test]
fn a_watch_sees_the_bytes_of_each_op() {
    type B = Portable<Flex, Noted>;
    let device = Default::default();
    let x = Tensor::<B, 2>::from_floats([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], &device);
    let w = Tensor::<B, 2>::ones([3, 5], &device);
    OPS.lock().unwrap().clear();
    let (largest, places) = (x.clone() + 1.0).max_dim_with_indices(1);
    let joined = Tensor::cat(vec![x.clone(), largest], 1);
    let product = x.matmul(w);
    let float = 4;
    let int = places.dtype().size() as u64;
    let expected = [
        ("float_add_scalar", 6 * float, 6 * float),
        ("float_max_dim_with_indices", 6 * float, 2 * float + 2 * int),
        ("float_cat", 8 * float, 8 * float),
        ("float_matmul", 21 * float, 10 * float),
    ];
    assert_eq!(*OPS.lock().unwrap(), expected);
    assert_eq!(
        joined.into_data().to_vec::<f32>().unwrap()[3..],
        [4.0, 4.0, 5.0, 6.0, 7.0]
    );
    assert_eq!(
        product.into_data().to_vec::<f32>().unwrap()[..2],
        [6.0, 6.0]
    );
}
