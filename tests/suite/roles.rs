//! What makes a weight of a tensor, and what does not.

use burn::module::{AutodiffModule, Module, ModuleMapper, Param, ParamId};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_mx::microscaling::ElementFormat;
use burn_mx::module::{MxTensorOps, as_weight};
use burn_mx::{MxBackend, MxDevice, MxSpecs};

use super::support::*;

type Device = MxDevice<TestDevice>;
type Inference = MxBackend<TestBackend>;

/// Formats for weights only: a product quantizes nothing but them.
fn device() -> Device {
    mx_device(&MxSpecs {
        w_elem_format: Some(ElementFormat::Fp4E2M1.into()),
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
