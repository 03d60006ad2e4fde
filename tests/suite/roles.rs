//! The ways in which a tensor becomes a weight, or does not.

use burn::module::{AutodiffModule, Module, ModuleMapper, Param, ParamId};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::module::{conv1d, linear};
use burn::tensor::ops::ConvOptions;
use burn_mx::ElementFormat;
use burn_mx::module::{MxTensorOps, as_activation, as_weight, rms_norm};
use burn_mx::{MxBackend, MxDevice, MxSpecs};

use crate::support::*;

type Device = MxDevice<TestDevice>;
type Inference = MxBackend<TestBackend>;

/// Formats for weights only: a product quantizes nothing but them.
fn device() -> Device {
    mx_device(&MxSpecs {
        w_elem_format: Some(ElementFormat::FP4_E2M1.into()),
        ..MxSpecs::mx()
    })
}

/// Whether a product takes the tensor for a weight.
fn is_weight<B: Backend<Device = Device>>(tensor: Tensor<B, 2>) -> bool {
    let eye = Tensor::<B, 2>::eye(tensor.dims()[0], &device());
    let product = values(eye.matmul(tensor.clone()));
    product != values(tensor)
}

fn input<B: Backend<Device = Device>>() -> Tensor<B, 2> {
    noise_tensor([8, 6], 1, &device())
}

#[test]
fn an_activation_that_asks_for_no_gradient_stays_one() {
    fn assert_activations<B: MxTensorOps<Device = Device>>() {
        assert!(!is_weight::<B>(input()));
        let model = Matrix::<B> {
            w: Param::from_tensor(input()),
        };
        for device in [&model.devices()[0], &model.w.val().device()] {
            let made = noise_tensor::<B, 2>([4, 8], 2, device);
            assert!(!is_weight(made.clone()));
            assert!(
                !is_weight(made.set_require_grad(false)),
                "made where the model is"
            );
        }
        assert!(!is_weight::<B>(input().set_require_grad(false)), "input");
        let computed = input::<B>().transpose().transpose().exp();
        assert!(
            !is_weight(computed.clone().set_require_grad(false)),
            "computed"
        );
        assert!(
            !is_weight(computed.clone().detach().set_require_grad(false)),
            "detached"
        );
        let of_weight = as_weight(input::<B>()) * 2.0;
        assert!(
            !is_weight(of_weight.set_require_grad(false)),
            "computed from a weight"
        );
        assert!(
            is_weight(as_weight(input::<B>()).set_require_grad(false)),
            "weight"
        );
        assert!(
            is_weight(input::<B>().require_grad()),
            "leaf that asks for gradients"
        );
    }
    assert_activations::<Mx>();
    assert_activations::<Inference>();
}

#[derive(Module, Debug)]
struct Matrix<B: Backend> {
    w: Param<Tensor<B, 2>>,
}

/// Replaces values as loaders of pretrained weights do, who make tensors on the parameter's device.
struct Replace;

impl<B: Backend> ModuleMapper<B> for Replace {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let data = param.val().into_data();
        let loaded = Tensor::from_data(data, &param.lazy_device());
        param.transform_for_load(loaded, ParamId::new())
    }
}

/// The same of values that lie the other way round, as other frameworks have them.
struct ReplaceTransposed;

impl<B: Backend> ModuleMapper<B> for ReplaceTransposed {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let data = param.val().transpose().into_data();
        let loaded = Tensor::from_data(data, &param.lazy_device()).transpose();
        param.transform_for_load(loaded, ParamId::new())
    }
}

#[test]
fn parameters_stay_weights_when_they_are_frozen_replaced_or_taken_to_inference() {
    let matrix = || Matrix::<Mx> {
        w: Param::from_tensor(input()),
    };
    let assert_weight = |weight: bool, what: &str| assert!(weight, "{what}");
    assert_weight(is_weight(matrix().w.val()), "new");
    assert_weight(is_weight(matrix().no_grad().w.val()), "frozen");
    assert_weight(is_weight(matrix().valid().w.val()), "valid");
    assert_weight(
        is_weight(matrix().no_grad().valid().w.val()),
        "frozen, valid",
    );
    assert_weight(
        is_weight(matrix().valid().no_grad().w.val()),
        "valid, frozen",
    );
    let back = matrix().valid().train::<Mx>();
    assert_weight(is_weight(back.w.val()), "back in training");
    assert_weight(is_weight(matrix().map(&mut Replace).w.val()), "replaced");
    let frozen = matrix().no_grad().map(&mut Replace);
    assert_weight(is_weight(frozen.w.val()), "frozen, replaced");
    let valid = matrix().valid().map(&mut Replace);
    assert_weight(is_weight(valid.w.val()), "valid, replaced");
    let valid = matrix().valid().map(&mut ReplaceTransposed);
    assert_weight(is_weight(valid.w.val()), "valid, replaced, transposed");
    let inference = Matrix::<Inference> {
        w: Param::from_tensor(input()),
    };
    assert_weight(is_weight(inference.clone().w.val()), "new for inference");
    let replaced = inference.map(&mut Replace).map(&mut Replace);
    assert_weight(is_weight(replaced.w.val()), "replaced for inference");
}

/// Running statistics come from a record as parameters do, and are none.
#[test]
fn a_batch_norm_from_a_record_infers_as_the_one_that_was_saved() {
    use burn::nn::BatchNormConfig;
    use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let norm = with_noise_weights(BatchNormConfig::new(4).init::<Mx>(&device), 1);
    for seed in 2..5 {
        norm.forward(noise_tensor::<Mx, 3>([5, 4, 7], seed, &device));
    }
    let x = noise_tensor::<Inference, 3>([5, 4, 7], 6, &device);
    let expected = values(norm.valid().forward(x.clone()));
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let bytes = Recorder::<Mx>::record(&recorder, norm.into_record(), ()).expect("it saves");
    let record = Recorder::<Mx>::load(&recorder, bytes.clone(), &device).expect("it loads");
    let loaded = BatchNormConfig::new(4)
        .init::<Mx>(&device)
        .load_record(record);
    assert_same_bits(
        &values(loaded.valid().forward(x.clone())),
        &expected,
        "valid",
    );
    let record = Recorder::<Inference>::load(&recorder, bytes, &device).expect("it loads");
    let loaded = BatchNormConfig::new(4)
        .init::<Inference>(&device)
        .load_record(record);
    assert_same_bits(
        &values(loaded.forward(x)),
        &expected,
        "loaded for inference",
    );
}

#[test]
fn what_is_no_weight_in_training_is_none_in_inference() {
    let matrix = Matrix::<Mx> {
        w: Param::initialized(ParamId::new(), input()),
    };
    assert!(!is_weight(matrix.w.val()));
    assert!(!is_weight(matrix.valid().w.val()));
}

/// A use of a leaf, beside another leaf of this shape.
struct Use {
    name: &'static str,
    other: [usize; 3],
    loss: fn(Tensor<Mx, 3>, Tensor<Mx, 3>) -> Tensor<Mx, 3>,
}

const USES: [Use; 6] = [
    Use {
        name: "weight of a matmul",
        other: [4, 8, 8],
        loss: |leaf, other| (other * 1.0).matmul(leaf),
    },
    Use {
        name: "activation of a matmul",
        other: [4, 8, 8],
        loss: |leaf, other| (other * 1.0).matmul(as_activation(leaf)),
    },
    Use {
        name: "input of a linear layer",
        other: [1, 8, 5],
        loss: |leaf, other| linear(leaf, other.squeeze::<2>(), None),
    },
    Use {
        name: "input of a convolution",
        other: [5, 8, 3],
        loss: |leaf, other| conv1d(leaf, other, None, ConvOptions::new([1], [1], [1], 1)),
    },
    Use {
        name: "factor",
        other: [4, 8, 8],
        loss: |leaf, other| as_activation(leaf) * other,
    },
    Use {
        name: "input of a norm",
        other: [1, 1, 8],
        loss: |leaf, other| rms_norm(leaf, other.reshape([8]), None, 1e-5),
    },
];

/// Gradients read a leaf as their own op read it, for any role of the leaf in other ops, which may have saved it first.
#[test]
fn a_leaf_has_in_each_gradient_the_role_that_it_had_in_the_op() {
    let formats = |w: ElementFormat, a: ElementFormat| MxSpecs {
        w_elem_format: Some(w.into()),
        a_elem_format: Some(a.into()),
        bfloat: 16,
        block_size: 4,
        ..MxSpecs::mx()
    };
    let device = mx_device(&formats(ElementFormat::FP4_E2M1, ElementFormat::FP8_E5M2));
    let others_device = mx_device(&formats(ElementFormat::FP6_E3M2, ElementFormat::FP8_E4M3));
    // The gradients of the other leaves.
    let gradients = |uses: &[&Use]| -> Vec<Vec<f32>> {
        let leaf = noise_tensor::<Mx, 3>([4, 8, 8], 1, &device).require_grad();
        let others = uses.iter().map(|one| {
            let seed = 2 + one.other.iter().sum::<usize>() as u64;
            noise_tensor::<Mx, 3>(one.other, seed, &others_device).require_grad()
        });
        let others: Vec<_> = others.collect();
        let losses = uses.iter().zip(&others).map(|(one, other)| {
            let output = (one.loss)(leaf.clone(), other.clone());
            let grad = noise_tensor(output.dims(), 7, &device);
            Mx::loss_with_gradient(output, grad)
        });
        let loss = losses.reduce(|sum, loss| sum + loss);
        let grads = loss.expect("there is a use").backward();
        let gradient = |other: &Tensor<Mx, 3>| values(other.grad(&grads).expect("it is a leaf"));
        others.iter().map(gradient).collect()
    };
    let alone = USES.each_ref().map(|one| gradients(&[one]).remove(0));
    for (i, first) in USES.iter().enumerate() {
        for (j, second) in USES.iter().enumerate().filter(|(j, _)| *j != i) {
            let together = gradients(&[first, second]);
            for (got, (at, one)) in together.iter().zip([(i, first), (j, second)]) {
                let what = format!("{}, of {} and {}", one.name, first.name, second.name);
                assert_same_bits(got, &alone[at], &what);
            }
        }
    }
}
