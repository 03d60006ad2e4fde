//! The process-wide default of specs, and the warnings that occur once: for missing specs, mixed specs of devices, dropped fields, and
//! activations that a checkpoint's config does not have. All are state of the process, so these tests have their own binary and take turns.

use std::sync::{Mutex, MutexGuard};

use burn::backend::flex::FlexDevice;
use burn::backend::{Autodiff, Flex};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn_mx::Rounding;
use burn_mx::checkpoint::CheckpointLayout;
use burn_mx::module::{full_precision, save_checkpoint, set_specs_at, with_specs};
use burn_mx::ptq::{QuantConfig, Quantizer};
use burn_mx::{MxArgs, MxAutodiff, MxBackend, MxDevice, MxSpecs, WeightLayout, process};
use clap::{Args, Command, FromArgMatches};
use log::{Level, LevelFilter, Log, Metadata, Record};

type Mx = MxAutodiff<Flex>;

/// Keeps burn-mx's log lines, except traces and the line about the path of products.
struct Recorded;

static MESSAGES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());
static TURN: Mutex<()> = Mutex::new(());

impl Log for Recorded {
    fn enabled(&self, _: &Metadata) -> bool {
        true
    }

    fn log(&self, record: &Record) {
        if record.target().starts_with("burn_mx") && record.level() < Level::Trace {
            let message = record.args().to_string();
            if !message.contains("are computed in bfloat16 by") {
                MESSAGES.lock().unwrap().push((record.level(), message));
            }
        }
    }

    fn flush(&self) {}
}

/// Waits for the other tests of this binary, with nothing installed.
fn turn() -> MutexGuard<'static, ()> {
    let guard = TURN.lock().unwrap_or_else(|poison| poison.into_inner());
    if log::set_logger(&Recorded).is_ok() {
        log::set_max_level(LevelFilter::Debug);
    }
    process::clear_default();
    guard
}

fn messages() -> Vec<(Level, String)> {
    MESSAGES.lock().unwrap().clone()
}

/// Output and gradient of the weight of a linear layer.
fn step<B: AutodiffBackend>(device: &B::Device) -> [Vec<f32>; 2] {
    let layer: Linear<B> = LinearConfig::new(3, 2).with_bias(false).init(device);
    let weight = [
        [0.123_456, -1.234_567],
        [2.345_678, 0.456_789],
        [-0.777_777, 1.111_111],
    ];
    let weight = Tensor::<B, 2>::from_floats(weight, device).require_grad();
    let layer = Linear {
        weight: layer.weight.map(|_| weight),
        bias: None,
    };
    let x = Tensor::<B, 2>::from_floats([[0.987_654, 0.333_333, -1.999_999]], device);
    let out = layer.forward(x);
    let grads = out.clone().sum().backward();
    let grad = layer.weight.val().grad(&grads).expect("it is a parameter");
    [values(out), values(grad)]
}

fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().into_vec().expect("the tensor holds f32")
}

#[test]
fn a_product_without_specs_says_so_once() {
    let _turn = turn();
    let before = messages().len();
    // Silent: deliberate full precision, specs, a full-precision piece, other ops than products.
    for specs in [MxSpecs::none(), MxSpecs::mxfp8_e4m3()] {
        step::<Mx>(&MxDevice::new(FlexDevice, &specs).unwrap());
    }
    let x = Tensor::<Mx, 2>::ones([2, 2], &MxDevice::default());
    let _ = full_precision(x.clone()).matmul(x.clone());
    let _ = x + 1.0;
    assert_eq!(messages().len(), before, "{:?}", messages());

    for _ in 0..3 {
        step::<Mx>(&MxDevice::default());
    }
    // Once in the process: another test of this binary may have been the first.
    let mut said = messages();
    said.retain(|(_, message)| {
        let others = ["different specs", "is dropped", "quantize", "no blocks"];
        !others.iter().any(|other| message.contains(other))
    });
    let [(level, message)] = said.as_slice() else {
        panic!("one message, not {said:?}");
    };
    assert_eq!(*level, Level::Warn);
    for named in [
        "linear",
        "without MxSpecs",
        "MxDevice::new",
        "install_default",
        "MxSpecs::none",
    ] {
        assert!(message.contains(named), "{message}: names {named}");
    }
}

#[test]
fn a_product_that_its_accumulator_does_not_take_says_so_once() {
    let _turn = turn();
    let specs = r#"{ "a_elem_format": "mxfp8_e4m3", "accumulator": "hopper", "quantize_matmul": false, "w_elem_format": "mxfp8_e4m3" }"#;
    let device = MxDevice::new(FlexDevice, MxSpecs::from_json(specs).unwrap()).unwrap();
    let weight = Tensor::<Mx, 2>::ones([4, 4], &device).require_grad();
    let x = Tensor::<Mx, 2>::from_floats([[2.0; 4]; 4], &device) * weight;
    (0..3).for_each(|_| drop(x.clone().matmul(x.clone())));
    let said = |(_, message): &(Level, String)| message.contains("no blocks");
    assert_eq!(messages().into_iter().filter(said).count(), 1);
}

#[test]
fn a_field_without_effect_is_dropped_and_says_so_once() {
    let _turn = turn();
    let specs = r#"{ "round_m": "even", "w_elem_format": "int8", "custom_cuda": true }"#;
    let expected = MxSpecs {
        w_elem_format: Some("int8".into()),
        ..MxSpecs::none()
    };
    for _ in 0..2 {
        assert_eq!(MxSpecs::from_json(specs), Ok(expected.clone()));
        let config = format!(r#"{{ "specs": {specs}, "layers": {{ "head": {specs} }} }}"#);
        let config = QuantConfig::from_json(&config).unwrap();
        assert_eq!(config.specs, expected);
        assert_eq!(config.layers["head"], expected);
        let written = config.to_json();
        assert!(!written.contains("round_m\"") && !written.contains("custom_cuda"));

        let line = [
            "train",
            "--round-m",
            "even",
            "--custom_cuda",
            "--w-elem-format=int8",
        ];
        let command = MxArgs::augment_args(Command::new("train"));
        let args = MxArgs::from_arg_matches(&command.get_matches_from(line)).unwrap();
        assert_eq!(args.apply(MxSpecs::none()), expected);
    }
    for field in ["`round_m`", "`custom_cuda`"] {
        let mut said = messages();
        said.retain(|(_, message)| message.contains(field) && message.contains("is dropped"));
        assert!(matches!(said.as_slice(), [(Level::Warn, _)]), "{said:?}");
    }
}

#[test]
fn an_op_that_meets_specs_of_two_devices_says_so_once() {
    use burn::backend::flex::FlexDevice as Cpu;
    use burn::module::Module;
    use burn::optim::{AdamConfig, GradientsParams, Optimizer};
    let _turn = turn();
    let said = || {
        let mut said = messages();
        said.retain(|(_, message)| message.contains("different specs"));
        said
    };
    let [first, second] =
        [MxSpecs::mxint8(), MxSpecs::mxfp4()].map(|specs| specs.resolve().unwrap());
    let device = MxDevice::<Cpu>::new(FlexDevice, &first).unwrap();
    let other = MxDevice::<Cpu>::new(FlexDevice, &second).unwrap();
    let layer = || LinearConfig::new(3, 3).init::<Mx>(&device);
    let input = |device: &MxDevice<Cpu>| Tensor::<Mx, 2>::ones([2, 3], device);
    let train = |layer: Linear<Mx>, x: Tensor<Mx, 2>| {
        // Later ops have the specs of the activations, and meet the model's device again.
        let out = layer.forward(layer.forward(x));
        let out = out.clone() * Tensor::ones(out.dims(), &device);
        let grads = GradientsParams::from_grads(out.exp().sum().backward(), &layer);
        AdamConfig::new().init().step(0.1, layer, grads)
    };
    // Silent: one device, others without specs, specs by path, of a piece, moved, or a parameter's device at the end.
    train(layer(), input(&device));
    train(layer(), input(&MxDevice::default()));
    let pinned = set_specs_at(layer(), "*", &second).unwrap();
    let pinned = train(train(pinned, input(&device)), input(&device));
    train(
        pinned.clone(),
        pinned.weight.val().detach().set_require_grad(false) + 1.0,
    );
    train(layer(), with_specs(input(&device), &second));
    let chosen = with_specs(input(&device), &second);
    train(layer(), chosen.clone() + input(&chosen.device()));
    train(layer(), input(&other).to_device(&device));
    train(layer().fork(&other).fork(&device), input(&device));
    let _ = full_precision(input(&device)) * input(&other);
    assert_eq!(said(), []);

    for _ in 0..2 {
        layer().forward(input(&other));
    }
    let said = said();
    let [(Level::Warn, message)] = said.as_slice() else {
        panic!("one warning, not {said:?}");
    };
    for named in [
        "int8",
        "fp4_e2m1",
        "set_specs_at",
        "with_specs",
        "Create inputs on",
    ] {
        assert!(message.contains(named), "{message}: names {named}");
    }
}

#[test]
fn devices_without_specs_compute_by_the_installed_default() {
    let _turn = turn();
    let exact = step::<Autodiff<Flex>>(&FlexDevice);
    let specs = MxSpecs::mxfp4().resolve().unwrap();
    let emulated = step::<Mx>(&MxDevice::new(FlexDevice, &specs).expect("resolved specs"));
    assert_ne!(emulated[0], exact[0]);
    assert_ne!(emulated[1], exact[1]);

    process::install_default(&specs).unwrap();
    let before = messages().len();
    assert_eq!(step::<Mx>(&MxDevice::default()), emulated);
    assert_eq!(step::<Mx>(&MxDevice::from(FlexDevice)), emulated);
    // A tensor's own specs win over the default, also if they say not to emulate.
    let none = MxSpecs::none().resolve().unwrap();
    assert_eq!(
        step::<Mx>(&MxDevice::new(FlexDevice, &none).expect("resolved specs")),
        exact
    );
    let other = MxSpecs::mxint8().resolve().unwrap();
    let by_other = step::<Mx>(&MxDevice::new(FlexDevice, &other).expect("resolved specs"));
    assert_ne!(by_other, emulated);
    assert_eq!(messages().len(), before, "{:?}", messages());

    process::install_default(&other).unwrap();
    assert_eq!(step::<Mx>(&MxDevice::default()), by_other);
    process::clear_default();
    assert_eq!(step::<Mx>(&MxDevice::default())[0], exact[0]);
}

/// Master values stay out of reach of a default, too.
#[test]
fn the_installed_default_does_not_touch_the_optimizer() {
    use burn::optim::{AdamConfig, GradientsParams, Optimizer};
    let _turn = turn();
    process::install_default("mxfp4").unwrap();
    fn stepped<B: AutodiffBackend>(device: &B::Device) -> Vec<f32> {
        let weight = Tensor::<B, 2>::from_floats([[0.123_456, -1.234_567]], device).require_grad();
        let layer: Linear<B> = LinearConfig::new(1, 2).with_bias(false).init(device);
        let layer = Linear {
            weight: layer.weight.map(|_| weight),
            bias: None,
        };
        // The gradient is exactly 1 with every format.
        let grads = layer.weight.val().sum().backward();
        let grads = GradientsParams::from_grads(grads, &layer);
        let mut optimizer = AdamConfig::new().init();
        values(optimizer.step(0.1, layer, grads).weight.val())
    }
    let got = stepped::<Mx>(&MxDevice::default());
    process::clear_default();
    assert_eq!(got, stepped::<Autodiff<Flex>>(&FlexDevice));
}

/// Tensors of a device without specs compute by the default, so seeding this device seeds the default's random numbers.
#[test]
fn a_seed_on_a_device_without_specs_is_that_of_the_default() {
    let _turn = turn();
    let stochastic = |bfloat| MxSpecs {
        bfloat,
        round: Rounding::Stochastic,
        seed: 2026,
        ..MxSpecs::none()
    };
    let specs = |bfloat| stochastic(bfloat).resolve().expect("the specs are sound");
    let without = MxDevice::from(FlexDevice);
    let of_its_own = MxDevice::new(FlexDevice, specs(12)).expect("resolved specs");
    let drawn = |device: &MxDevice<FlexDevice>| {
        let ones = Tensor::<Mx, 1>::from_data([1.0; 200], device);
        values(ones * 1.234_567)
    };
    process::install_default(specs(10)).unwrap();

    Mx::seed(&without, 1);
    let [first, second] = [drawn(&without), drawn(&without)];
    assert_ne!(first, second, "rounding is random");
    Mx::seed(&without, 1);
    assert_eq!(drawn(&without), first);
    Mx::seed(&without, 2);
    assert_ne!(drawn(&without), first);

    // A device with specs has no part in the default's numbers.
    Mx::seed(&without, 1);
    Mx::seed(&of_its_own, 1);
    drawn(&of_its_own);
    assert_eq!(drawn(&without), first);
    process::clear_default();
    let exact = drawn(&without);
    Mx::seed(&without, 1);
    assert_eq!(drawn(&without), exact);
}

/// Post-training quantization computes outside of layers in float32 on purpose. Quantization turns the warning for missing specs
/// off in its process. Another test looks for this warning, so this test runs in another process.
#[test]
fn quantization_of_a_model_without_specs_is_silent_and_with_specs_says_so() {
    const CHILD: &str = "MX_TEST_QUANTIZATION";
    if std::env::var_os(CHILD).is_none() {
        let name = "quantization_of_a_model_without_specs_is_silent_and_with_specs_says_so";
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let _turn = turn();
    let quantize = |device: &MxDevice<FlexDevice>| {
        let layers = [(32, 32), (32, 4)].map(|(inputs, outputs)| {
            LinearConfig::new(inputs, outputs).init::<MxBackend<Flex>>(device)
        });
        let config = QuantConfig {
            exclude: vec!["1".into()],
            ..QuantConfig::named("MXFP4E2M1").unwrap()
        };
        let forward = |model: &Vec<Linear<MxBackend<Flex>>>, x: &Tensor<MxBackend<Flex>, 2>| {
            model[1].forward(model[0].forward(x.clone()))
        };
        let x = Tensor::ones([2, 32], device);
        let quantizer = Quantizer::new(config).unwrap();
        let quantized = quantizer
            .quantize(layers.into(), std::slice::from_ref(&x), forward)
            .unwrap();
        forward(&quantized.model, &x);
    };
    quantize(&MxDevice::default());
    quantize(&MxDevice::new(FlexDevice, "none").unwrap());
    assert_eq!(messages(), []);
    quantize(&MxDevice::new(FlexDevice, "mxfp4").unwrap());
    let said = messages();
    let [(Level::Warn, message)] = said.as_slice() else {
        panic!("one warning, not {said:?}");
    };
    for named in ["w fp4_e2m1", "everything outside", "\"none\""] {
        assert!(message.contains(named), "{message}: names {named}");
    }
}

#[test]
fn a_checkpoint_whose_config_has_no_activations_says_so() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let said = |specs: MxSpecs, layout: CheckpointLayout| {
        let device = MxDevice::new(FlexDevice, specs).unwrap();
        let model = vec![LinearConfig::new(32, 4).init::<Mx>(&device)];
        let before = messages().len();
        save_checkpoint(&model, folder.path().join("x.safetensors"), layout).unwrap();
        messages().split_off(before)
    };
    let engine = CheckpointLayout::Weights(WeightLayout::Mxfp4PackQuantized);
    let weights = MxSpecs {
        a_elem_format: None,
        ..MxSpecs::mxfp4()
    };
    assert_eq!(said(weights, engine), []);
    assert_eq!(said(MxSpecs::mxfp4(), CheckpointLayout::Microscaling), []);
    let said = said(MxSpecs::mxfp4(), engine);
    let [(Level::Warn, message)] = said.as_slice() else {
        panic!("one warning, not {said:?}");
    };
    for named in [
        "x.safetensors",
        "mxfp4",
        "mxfp4-pack-quantized",
        "a_elem_format",
    ] {
        assert!(message.contains(named), "{message}: names {named}");
    }
}
