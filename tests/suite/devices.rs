//! Where specs live: on devices, on tensors, pinned to parameters by path; and what keeps them.

use burn::backend::Flex;
use burn::backend::flex::FlexDevice;
use burn::module::{AutodiffModule, Module, Param};
use burn::nn::LinearConfig;
use burn::optim::{
    AdamConfig, GradientsParams, LBFGSConfig, MultiGradientsParams, Optimizer, SgdConfig,
};
use burn::prelude::DeviceOps;
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_mx::module::{PathError, set_specs, set_specs_at, specs_of};
use burn_mx::{MxBackend, MxDevice, MxSpecs, ResolvedSpecs};

use crate::models::*;
use crate::support::*;

fn resolved(specs: MxSpecs) -> ResolvedSpecs {
    specs.resolve().expect("the specs are sound")
}

fn on_device() -> ResolvedSpecs {
    resolved(MxSpecs::mxfp8_e4m3())
}

fn pinned() -> ResolvedSpecs {
    resolved(MxSpecs::mxfp4())
}

fn other_device() -> MxDevice<FlexDevice> {
    mx_device(&MxSpecs::mxint8())
}

/// Burn prints a tensor with its device.
#[test]
fn a_device_prints_as_one_short_line() {
    let device = mx_device(&MxSpecs::mxfp4());
    // Flex's own name for it.
    assert_eq!(format!("{device:?}"), "MxDevice(Cpu, mxfp4)");
    let none = MxDevice::<FlexDevice>::default();
    assert_eq!(format!("{none:?}"), "MxDevice(Cpu, no specs)");
    let own = mx_device(&MxSpecs {
        seed: 3,
        bfloat: 0,
        ..MxSpecs::mxfp4()
    });
    let line = format!("{own:?}");
    let summary = own.specs().expect("it has specs");
    assert_eq!(line, format!("MxDevice(Cpu, {summary})"));
    assert!(line.len() < 160 && !line.contains('\n'), "{line}");
    let all = format!("{device:#?}");
    assert!(all.contains("w_elem_format") && all.contains('\n'), "{all}");

    let tensor = Tensor::<Mx, 1>::from_floats([1.0, 2.0], &device);
    let printed = format!("{tensor}");
    assert!(
        printed.len() < 300,
        "{} characters: {printed}",
        printed.len()
    );
    assert!(printed.contains("MxDevice(Cpu, mxfp4)"), "{printed}");
    let parameter = format!("{:?}", Param::from_tensor(tensor));
    assert!(
        parameter.len() < 1000,
        "{} characters: {parameter}",
        parameter.len()
    );
}

/// An MLP on a device with specs, its head with others.
fn pinned_mlp() -> MlpModel<Mx> {
    let mlp = model::<Mlp, Mx>(&mx_device(&MxSpecs::mxfp8_e4m3()));
    set_specs_at(mlp, "head", &pinned()).expect("there is a head")
}

/// Asserts that the head has its own specs and the first layer has `others`, by the tensors' specs and by the model's
/// results.
#[track_caller]
fn assert_head_pinned<B>(mlp: &MlpModel<B>, others: Option<&ResolvedSpecs>, what: &str)
where
    B: burn_mx::module::MxTensorOps<Device = MxDevice<FlexDevice>>,
{
    let head = &mlp.head;
    assert_eq!(
        specs_of(&head.weight.val()),
        Some(pinned()),
        "{what}: weight of the head"
    );
    let bias = head.bias.as_ref().expect("the head has a bias").val();
    assert_eq!(specs_of(&bias), Some(pinned()), "{what}: bias of the head");
    let up = specs_of(&mlp.up.weight.val());
    assert_eq!(up.as_ref(), others, "{what}: the first layer");

    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let x = noise_tensor::<B, 2>([3, 10], 4, &device);
    let got = values(head.forward(x.clone()));
    let fresh = MxDevice::new(FlexDevice, pinned()).expect("resolved specs");
    let again = |tensor: Tensor<B, 2>| Tensor::<B, 2>::from_data(tensor.into_data(), &fresh);
    let bias = Tensor::<B, 1>::from_data(bias.into_data(), &fresh);
    let expected = burn::tensor::module::linear(again(x), again(head.weight.val()), Some(bias));
    assert_same_bits(
        &got,
        &values(expected),
        &format!("{what}: output of the head"),
    );
}

fn some_gradients(mlp: &MlpModel<Mx>) -> GradientsParams {
    let loss = mlp
        .outputs(&mx_device(&MxSpecs::mxfp8_e4m3()))
        .square()
        .sum();
    GradientsParams::from_grads(loss.backward(), mlp)
}

#[test]
fn pinned_specs_survive_optimizer_steps() {
    fn assert_kept<O: Optimizer<MlpModel<Mx>, Mx>>(mut optimizer: O, what: &str) {
        let mut mlp = pinned_mlp();
        for _ in 0..3 {
            let grads = some_gradients(&mlp);
            mlp = optimizer.step(0.01, mlp, grads);
            assert_head_pinned(&mlp, Some(&on_device()), what);
        }
        // Still by name: a move does not replace them.
        let others = resolved(MxSpecs::mxint8());
        assert_head_pinned(&mlp.fork(&other_device()), Some(&others), what);
    }
    assert_kept(SgdConfig::new().init(), "SGD");
    assert_kept(AdamConfig::new().init(), "Adam");
    assert_kept(burn::optim::AdanConfig::new().init(), "Adan");
    assert_kept(burn::optim::AdaGradConfig::new().init(), "AdaGrad");
    assert_kept(burn::optim::RmsPropConfig::new().init(), "RMSProp");
    assert_kept(
        burn::optim::AdamWConfig::new()
            .with_weight_decay(0.1)
            .init(),
        "AdamW",
    );
}

#[test]
fn pinned_specs_survive_a_step_after_the_optimizers_record_was_loaded_elsewhere() {
    let mut mlp = pinned_mlp();
    let mut optimizer = AdamConfig::new().init::<Mx, MlpModel<Mx>>();
    let grads = some_gradients(&mlp);
    mlp = optimizer.step(0.01, mlp, grads);
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let bytes = Recorder::<Mx>::record(&recorder, optimizer.to_record(), ()).expect("it saves");
    for device in [other_device(), MxDevice::default()] {
        let record = Recorder::<Mx>::load(&recorder, bytes.clone(), &device).expect("it loads");
        let mut optimizer = optimizer.clone().load_record(record);
        let grads = some_gradients(&mlp);
        mlp = optimizer.step(0.01, mlp, grads);
        assert_head_pinned(&mlp, Some(&on_device()), "after the step");
    }
}

#[test]
fn pinned_specs_survive_a_multi_device_step() {
    let mlp = pinned_mlp();
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let gradients = || {
        (
            some_gradients(&mlp).to_device::<Mx, _>(&device, &mlp),
            device.to_id(),
        )
    };
    let grads = MultiGradientsParams {
        grads: vec![gradients(), gradients()],
    };
    let mut optimizer = AdamConfig::new().init::<Mx, MlpModel<Mx>>();
    let stepped = optimizer.step_multi(0.01, mlp.clone(), grads);
    assert_head_pinned(&stepped, Some(&on_device()), "after the step");
}

/// L-BFGS joins all parameters to one vector: nothing can tell them apart when it is cut up again.
#[test]
fn an_lbfgs_step_leaves_the_models_specs_to_be_set_by_path_again() {
    let mut optimizer = LBFGSConfig::new().with_max_iter(2).init::<Mx>();
    let (mlp, _) = optimizer.step(0.01, pinned_mlp(), |mlp: MlpModel<Mx>| {
        (1.0, some_gradients(&mlp))
    });
    for tensor in [mlp.head.weight.val(), mlp.up.weight.val()] {
        assert_eq!(specs_of(&tensor), Some(on_device()));
    }
    let again = set_specs_at(mlp, "head", &pinned()).expect("the path is there");
    assert_head_pinned(&again, Some(&on_device()), "set again");
}

#[test]
fn pinned_specs_survive_loading_a_record_on_a_device_of_other_specs() {
    let mlp = pinned_mlp();
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let bytes = Recorder::<Mx>::record(&recorder, mlp.clone().into_record(), ()).expect("it saves");
    for (device, others) in [
        (other_device(), Some(resolved(MxSpecs::mxint8()))),
        (MxDevice::default(), None),
    ] {
        let record = Recorder::<Mx>::load(&recorder, bytes.clone(), &device).expect("it loads");
        let loaded = pinned_mlp().load_record(record);
        let what = format!("loaded on {others:?}");
        assert_eq!(
            specs_of(&loaded.head.weight.val()),
            Some(pinned()),
            "{what}"
        );
        assert_same_bits(
            &values(loaded.head.weight.val()),
            &values(mlp.head.weight.val()),
            &what,
        );
        // And once more, through the loaded record.
        let record = Recorder::<Mx>::load(&recorder, bytes.clone(), &device).expect("it loads");
        let again = loaded.load_record(record);
        assert_head_pinned(&again, others.as_ref(), &what);
        // A step keeps the way to load.
        let grads = some_gradients(&again);
        let stepped = SgdConfig::new().init().step(0.01, again, grads);
        let record = Recorder::<Mx>::load(&recorder, bytes.clone(), &device).expect("it loads");
        assert_head_pinned(&stepped.load_record(record), others.as_ref(), &what);
    }
}

/// Burn moves no tensor between devices that are equal but for their specs.
#[test]
fn a_parameter_that_is_loaded_has_the_specs_of_its_records_device() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let layer = || with_noise_weights(LinearConfig::new(32, 8).init::<Mx>(&device), 31);
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let record = layer().into_record();
    let bytes = Recorder::<Mx>::record(&recorder, record, ()).expect("it saves");
    let loaded_on = |record_device: &MxDevice<TestDevice>| {
        let record = Recorder::<Mx>::load(&recorder, bytes.clone(), record_device);
        layer().load_record(record.expect("it loads"))
    };
    let x = || noise_tensor::<Mx, 2>([3, 32], 32, &device);
    let expected = values(layer().forward(x()));
    let int8 = mx_device(&MxSpecs::mxint8());
    for (record_device, specs) in [
        (device.clone(), Some(resolved(MxSpecs::mxfp8_e4m3()))),
        (int8, Some(resolved(MxSpecs::mxint8()))),
        (MxDevice::default(), None),
    ] {
        let loaded = loaded_on(&record_device);
        assert_eq!(specs_of(&loaded.weight.val()), specs);
        let output = values(loaded.forward(x()));
        match record_device.specs() == Some(&resolved(MxSpecs::mxint8())) {
            true => assert_ne!(output, expected, "a weight's specs count"),
            // A weight without its own specs has the specs of the input.
            false => assert_same_bits(&output, &expected, "the model's specs"),
        }
    }
}

#[test]
fn pinned_specs_survive_a_move_and_a_fork_which_replace_the_others() {
    let others = resolved(MxSpecs::mxint8());
    let moved = pinned_mlp().to_device(&other_device());
    assert_head_pinned(&moved, Some(&others), "to_device");
    let forked = pinned_mlp().fork(&other_device());
    assert_head_pinned(&forked, Some(&others), "fork");
    let unset = pinned_mlp().fork(&MxDevice::default());
    assert_head_pinned(&unset, Some(&on_device()), "fork to a device without specs");
}

#[test]
fn pinned_specs_survive_valid_and_the_way_back() {
    let mlp = pinned_mlp();
    assert_head_pinned(&mlp.valid(), Some(&on_device()), "valid");
    let back = mlp.valid().train::<Mx>();
    assert_head_pinned(&back, Some(&on_device()), "train");
    let moved = mlp.valid().to_device(&other_device());
    assert_head_pinned(&moved, Some(&resolved(MxSpecs::mxint8())), "valid, moved");
    assert_head_pinned(&mlp.clone().no_grad(), Some(&on_device()), "no_grad");
}

#[test]
fn a_model_forked_to_its_own_device_keeps_all_specs_when_its_first_layer_is_pinned() {
    // As burn-train's learner does before the first epoch.
    let mlp = model::<Mlp, Mx>(&mx_device(&MxSpecs::mxfp8_e4m3()));
    let mlp = set_specs_at(mlp, "up", &pinned()).expect("there is such a layer");
    let device = mlp.devices()[0].clone();
    let forked = mlp.fork(&device);
    assert_eq!(specs_of(&forked.up.weight.val()), Some(pinned()));
    assert_eq!(specs_of(&forked.head.weight.val()), Some(on_device()));
}

#[test]
fn specs_can_be_set_on_a_whole_module_and_on_an_inference_module() {
    let mlp = set_specs(pinned_mlp(), &on_device());
    assert_eq!(specs_of(&mlp.head.weight.val()), Some(on_device()));
    let valid = set_specs_at(mlp.valid(), "head", &pinned()).expect("there is a head");
    assert_head_pinned(&valid, Some(&on_device()), "set on the inference module");
}

/// Ten layers and more, so that one index is a prefix of another.
#[derive(Module, Debug)]
struct Layers<B: Backend> {
    layers: Vec<burn::nn::Linear<B>>,
}

fn layers(pattern: &str) -> Result<Vec<usize>, PathError> {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let layer = || burn::nn::LinearConfig::new(2, 2).init::<Mx>(&device);
    let module = Layers {
        layers: (0..12).map(|_| layer()).collect(),
    };
    let module = set_specs_at(module, pattern, &pinned())?;
    let matches = |layer: &burn::nn::Linear<Mx>| specs_of(&layer.weight.val()) == Some(pinned());
    let matching = module
        .layers
        .iter()
        .enumerate()
        .filter(|(_, layer)| matches(layer));
    Ok(matching.map(|(i, _)| i).collect())
}

#[test]
fn a_path_matches_a_submodule_and_not_its_namesakes() {
    assert_eq!(layers("layers.1").expect("it matches"), [1]);
    assert_eq!(layers("layers.11.weight").expect("it matches"), [11]);
    assert_eq!(layers("layers.1*").expect("it matches"), [1, 10, 11]);
    assert_eq!(layers("layers.[23].*").expect("it matches"), [2, 3]);
    assert_eq!(layers("layers").expect("it matches").len(), 12);
    assert_eq!(layers("*.weight").expect("it matches").len(), 12);
}

#[test]
fn a_path_that_matches_nothing_is_an_error_that_lists_the_nearest_paths() {
    for pattern in ["layers.12", "layer", "", "weight", "layers.1."] {
        let error = layers(pattern).expect_err("nothing matches").to_string();
        assert!(error.contains(&format!("`{pattern}`")), "{error}");
        // Five of 24 parameters and their modules.
        assert!(
            error.contains("the module has layers") && error.ends_with(" other parameters"),
            "{error}"
        );
    }
    let error = layers("layers.[").expect_err("it is no glob").to_string();
    assert!(
        error.contains("`layers.[`") && error.contains("allowed:"),
        "{error}"
    );
}

#[test]
fn a_parameter_stays_a_weight_after_steps_records_forks_and_inference() {
    // Formats for weights only: where a parameter were taken for an activation, nothing would be rounded.
    let device = mx_device(&MxSpecs {
        w_elem_format: Some(burn_mx::ElementFormat::FP4_E2M1.into()),
        ..MxSpecs::mx()
    });
    #[derive(Module, Debug)]
    struct Matrix<B: Backend> {
        w: Param<Tensor<B, 2>>,
    }
    fn product<B: Backend>(matrix: &Matrix<B>, device: &B::Device) -> Vec<f32> {
        let eye = Tensor::<B, 2>::eye(8, device);
        let views = matrix.w.val().transpose().reshape([6, 8]).transpose();
        values(eye.matmul(views))
    }
    fn assert_quantized<B: Backend<Device = MxDevice<FlexDevice>>>(
        matrix: &Matrix<B>,
        device: &B::Device,
        what: &str,
    ) {
        // An E2M1 element has two significant bits.
        let two_bits = |value: &f32| value.to_bits() & 0x003f_ffff == 0;
        let product = product(matrix, device);
        assert!(product.iter().all(two_bits), "{what}: {product:?}");
        assert!(
            !values(matrix.w.val()).iter().all(two_bits),
            "{what}: the parameter is rounded"
        );
    }
    let mut matrix = Matrix::<Mx> {
        w: Param::from_tensor(noise_tensor([8, 6], 1, &device)),
    };
    assert_quantized(&matrix, &device, "new");
    let mut optimizer = AdamConfig::new().init();
    let grads = GradientsParams::from_grads(matrix.w.val().sum().backward(), &matrix);
    matrix = optimizer.step(0.1, matrix, grads);
    assert_quantized(&matrix, &device, "after a step");
    assert_quantized(&matrix.valid(), &device, "valid");
    assert_quantized(&matrix.clone().fork(&device), &device, "forked");
    assert_quantized(&matrix.clone().to_device(&device), &device, "moved");
    assert_quantized(&matrix.clone().no_grad(), &device, "frozen");
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let bytes =
        Recorder::<Mx>::record(&recorder, matrix.clone().into_record(), ()).expect("it saves");
    let record = Recorder::<Mx>::load(&recorder, bytes.clone(), &device).expect("it loads");
    assert_quantized(&matrix.clone().load_record(record), &device, "loaded");
    type Inference = MxBackend<Flex>;
    let record = Recorder::<Inference>::load(&recorder, bytes, &device).expect("it loads");
    assert_quantized(
        &matrix.valid().load_record(record),
        &device,
        "loaded for inference",
    );
}

#[test]
fn devices_are_equal_if_the_wrapped_devices_are_and_a_default_one_has_no_specs() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    assert_eq!(device, other_device());
    assert_eq!(device, MxDevice::default());
    assert_eq!(device.specs(), Some(&on_device()));
    assert_eq!(MxDevice::<FlexDevice>::default().specs(), None);
    assert_eq!(
        MxDevice::<FlexDevice>::from_id(device.to_id()).specs(),
        None
    );
    assert_eq!(MxDevice::from(FlexDevice).specs(), None);
}

#[test]
fn a_tensors_device_carries_its_specs() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let x = noise_tensor::<Mx, 2>([2, 3], 1, &device);
    assert_eq!(x.device().specs(), Some(&on_device()));
    let derived = (x.clone() * 2.0).transpose().exp();
    assert_eq!(derived.device().specs(), Some(&on_device()));
    assert_eq!(
        x.to_device(&MxDevice::default()).device().specs(),
        Some(&on_device())
    );
}

/// Specs set by path stay with the parameter: an optimizer's state, which follows from gradients, outlives them.
#[test]
fn gradients_have_the_specs_of_their_parameters_device() {
    let mlp = pinned_mlp();
    let mut grads = some_gradients(&mlp);
    let weight = grads
        .remove::<MxBackend<Flex>, 2>(mlp.head.weight.id)
        .expect("it has a gradient");
    assert_eq!(specs_of(&weight), Some(on_device()));
    let weight = grads
        .remove::<MxBackend<Flex>, 2>(mlp.up.weight.id)
        .expect("it has a gradient");
    assert_eq!(specs_of(&weight), Some(on_device()));
}
