//! A tensor's device passes its specs on to tensors that are created there or moved there. The device never passes on
//! an exemption, of a full-precision piece or of an optimizer.

use burn::backend::Flex;
use burn::backend::flex::FlexDevice;
use burn::module::{AutodiffModule, Module};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor};
use burn_mx::module::full_precision;
use burn_mx::{MxBackend, MxDevice, MxSpecs};

use crate::models::*;
use crate::support::*;

type Device = MxDevice<FlexDevice>;
type Inference = MxBackend<Flex>;

/// Devices of tensors that are exempt from the emulation, each for another reason.
fn devices_of_exempt_tensors(device: &Device) -> [(&'static str, Device); 4] {
    let w = noise_tensor::<Mx, 2>([3, 4], 1, device).require_grad();
    let loss = full_precision(w.clone() * 2.0).sum();
    let grads = loss.clone().backward();
    let gradient = w.grad(&grads).expect("it is a leaf");
    let piece = full_precision(noise_tensor::<Inference, 1>([3], 1, device));
    [
        ("full-precision loss", loss.device()),
        ("full-precision piece of an inference", piece.device()),
        ("gradient", gradient.device()),
        ("parameter outside of autodiff", w.inner().device()),
    ]
}

fn outputs(model: &MlpModel<Mx>, device: &Device) -> [Vec<f32>; 2] {
    [
        values(model.outputs(device)),
        values(model.valid().outputs(device)),
    ]
}

#[test]
fn a_model_moved_to_the_device_of_an_exempt_tensor_is_emulated_as_before() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let mlp = model::<Mlp, Mx>(&device);
    let expected = outputs(&mlp, &device);
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let record = Recorder::<Mx>::record(&recorder, mlp.clone().into_record(), ());
    let bytes = record.expect("it saves");
    for (what, other) in devices_of_exempt_tensors(&device) {
        assert_eq!(other.specs(), device.specs(), "{what}");
        let assert_as_before = |mlp: &MlpModel<Mx>, how: &str| {
            let got = outputs(mlp, &device);
            assert_all_same_bits(&got, &expected, &format!("{how} device of {what}: output"));
        };
        assert_as_before(&mlp.clone().to_device(&other), "moved to the");
        assert_as_before(&mlp.clone().fork(&other), "forked to the");
        let record = Recorder::<Mx>::load(&recorder, bytes.clone(), &other).expect("it loads");
        assert_as_before(&mlp.clone().load_record(record), "loaded on the");
        let created = with_noise_weights(Mlp::init::<Mx>(&other), 40);
        assert_as_before(&created, "created on the");
        let valid = mlp.valid().to_device(&other);
        assert_same_bits(&values(valid.outputs(&device)), &expected[1], what);
    }
}

#[test]
fn inputs_on_the_device_of_an_exempt_tensor_are_emulated() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let mlp = model::<Mlp, Mx>(&device);
    let expected = outputs(&mlp, &device);
    for (what, other) in devices_of_exempt_tensors(&device) {
        // The model creates its input on the device that it is given.
        assert_all_same_bits(&outputs(&mlp, &other), &expected, what);
    }
}

#[test]
fn whatever_is_created_in_training_on_the_device_of_an_exempt_tensor_is_emulated() {
    let device = mx_device(&everywhere(MxSpecs::mxfp8_e4m3()));
    for (what, other) in devices_of_exempt_tensors(&device) {
        let uniform = Distribution::Uniform(1.0, 2.0);
        let positions = Tensor::<Mx, 1, Int>::arange(1..13, &other);
        let created: [(&str, Tensor<Mx, 1>); 7] = [
            ("data", noise_tensor([12], 1, &other)),
            ("random", Tensor::random([12], uniform, &other)),
            ("ones", Tensor::ones([12], &other)),
            ("zeros", Tensor::zeros([12], &other) + 1.0),
            ("full", Tensor::full([12], 1.1, &other)),
            ("int", positions.clone().float()),
            ("bool", positions.greater_elem(3).float() + 1.0),
        ];
        for (how, tensor) in created {
            // A tensor that is created without data is a constant until it meets an input.
            let one = Tensor::<Mx, 1>::from_data([1.0; 12], &device);
            let thirds = values(tensor * one / 3.0);
            let rounded = thirds.iter().all(|x| is_bfloat16(*x));
            assert!(rounded, "{how} on the device of a {what}: {thirds:?}");
        }
        let moved = noise_tensor::<Mx, 1>([12], 1, &device).to_device(&other) * 1.1;
        assert!(
            values(moved).iter().all(|x| is_bfloat16(*x)),
            "moved to {what}"
        );
    }
}

/// Moved, and not created: the piece ends where it ends.
#[test]
fn a_full_precision_tensor_that_is_moved_stays_one() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let x = full_precision(noise_tensor::<Mx, 1>([12], 1, &device));
    let moved = x.to_device(&mx_device(&MxSpecs::mxfp4()));
    assert_same_bits(&values(moved * 1.0), &noise(12, 1), "value");
}

/// burn-autodiff creates the first gradient, and others on the way, on the devices of tensors.
#[test]
fn gradients_inside_a_full_precision_piece_are_exact() {
    fn gradient<B: Exact>(device: &B::Device) -> Vec<f32> {
        let x = noise_tensor::<B, 2>([3, 5], 1, device).require_grad();
        let y = B::exact(x.clone());
        let loss =
            (y.clone().mean_dim(1) * 1.1).mean() + y.clone().sum_dim(0).tanh().mean() + y.prod();
        values(x.grad(&loss.backward()).expect("it is a leaf"))
    }
    let got = gradient::<Mx>(&mx_device(&bfloat16_only()));
    // The gradient leaves the piece by `x`, which is a leaf and rounds nothing.
    assert_same_bits(&got, &gradient::<Plain>(&FlexDevice), "gradient");
}

/// A constant of a piece takes part in the piece; results of constants alone do not.
#[test]
fn constants_on_the_device_of_a_full_precision_tensor_take_part_in_its_ops() {
    fn assert_exact<B: Backend<Device = Device> + burn_mx::module::MxTensorOps>() {
        let device = mx_device(&everywhere(MxSpecs::mxfp8_e4m3()));
        let x = full_precision(noise_tensor::<B, 1>([12], 1, &device));
        let constant = noise_tensor::<B, 1>([12], 2, &x.device());
        let sums = noise(12, 1).into_iter().zip(noise(12, 2));
        let sums: Vec<f32> = sums.map(|(x, c)| x + c).collect();
        assert_same_bits(&values(x + constant.clone()), &sums, "sum");
        let alone = values(constant * 1.1);
        assert!(alone.iter().all(|x| is_bfloat16(*x)), "{alone:?}");
    }
    assert_exact::<Mx>();
    assert_exact::<Inference>();
}
