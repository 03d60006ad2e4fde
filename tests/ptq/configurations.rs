//! Post-training quantization: configurations, the choice of layers, their results, fast fine-tuning.

use std::sync::atomic::{AtomicUsize, Ordering};

use burn::module::{Module, Param};
use burn::nn::conv::{
    Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, Conv3d, Conv3dConfig, ConvTranspose1d,
    ConvTranspose1dConfig, ConvTranspose2d, ConvTranspose2dConfig, ConvTranspose3d,
    ConvTranspose3dConfig,
};
use burn::nn::{Linear, LinearConfig, Lstm, LstmConfig, PaddingConfig2d, Relu};
use burn::prelude::*;
use burn::tensor::module::linear;
use burn_mx::module::specs_of;
use burn_mx::ptq::{FastFinetune, PtqError, QuantConfig, Quantized, Quantizer};
use burn_mx::{BlockFormat, ElementFormat, Rounder, Rounding};
use burn_mx::{MxBackend, MxDevice, MxSpecs};

use crate::support::*;

type B = MxBackend<TestBackend>;

/// A layer of each kind, one of which is used twice.
#[derive(Module, Debug)]
struct Net<B: Backend> {
    conv: Conv2d<B>,
    up: ConvTranspose2d<B>,
    hidden: Linear<B>,
    head: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn new(device: &B::Device) -> Self {
        let net = Self {
            conv: Conv2dConfig::new([4, 8], [3, 3])
                .with_padding(PaddingConfig2d::Same)
                .with_groups(2)
                .init(device),
            up: ConvTranspose2dConfig::new([8, 4], [2, 2])
                .with_stride([2, 2])
                .init(device),
            hidden: LinearConfig::new(64, 64).init(device),
            head: LinearConfig::new(64, 5).with_bias(false).init(device),
        };
        with_noise_weights(net, 71)
    }

    fn forward(&self, x: &Tensor<B, 4>) -> Tensor<B, 2> {
        self.after_conv(self.conv.forward(x.clone()))
    }

    fn after_conv(&self, x: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = Relu.forward(x);
        let x = Relu.forward(self.up.forward(x)).mean_dim(1);
        let x = self.hidden.forward(x.flatten(1, 3));
        let x = self.hidden.forward(Relu.forward(x).div_scalar(16.0));
        self.head.forward(x)
    }
}

fn device() -> MxDevice<TestDevice> {
    MxDevice::default()
}

fn net() -> Net<B> {
    Net::new(&device())
}

/// Batches of images.
fn images() -> Vec<Tensor<B, 4>> {
    let batch = |seed| noise_tensor([6, 4, 4, 4], seed, &device());
    (72..76).map(batch).collect()
}

fn quantize(config: QuantConfig) -> Result<Quantized<Net<B>>, PtqError> {
    Quantizer::new(config)?.quantize(net(), &images(), Net::forward)
}

fn named(name: &str) -> QuantConfig {
    QuantConfig::named(name).expect("it is one")
}

fn outputs(net: &Net<B>) -> Vec<f32> {
    let outputs = images().into_iter().map(|x| values(net.forward(&x)));
    outputs.flatten().collect()
}

/// ‖a − b‖² / ‖b‖².
fn error(got: &[f32], wanted: &[f32]) -> f64 {
    let squares = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>();
    let difference = squares(&mut got.iter().zip(wanted).map(|(a, b)| a - b));
    difference / squares(&mut wanted.iter().copied())
}

#[test]
fn configurations_have_quarks_names_formats_and_attributes() {
    let formats = [
        ("MX4", "w mx4, a mx4, round even"),
        ("MX6", "w mx6, a mx6, round even"),
        ("MX9", "w mx9, a mx9, round even"),
        ("MXFP8E5M2", "w fp8_e5m2, a fp8_e5m2, block 32, round even"),
        ("MXFP8E4M3", "w fp8_e4m3, a fp8_e4m3, block 32, round even"),
        ("MXFP6E3M2", "w fp6_e3m2, a fp6_e3m2, block 32, round even"),
        ("MXFP6E2M3", "w fp6_e2m3, a fp6_e2m3, block 32, round even"),
        ("MXFP4E2M1", "w fp4_e2m1, a fp4_e2m1, block 32, round even"),
        ("MXINT8", "w int8, a int8, block 32, round even"),
        ("BFP16", "w bfp16, a bfp16, round even"),
    ];
    let names: Vec<String> = QuantConfig::names().collect();
    assert_eq!(names.len(), 2 * formats.len());
    for (name, text) in formats {
        let plain = named(name);
        assert_eq!(plain.specs.resolve().unwrap().to_string(), text);
        assert_eq!(plain.specs.round, Rounding::NearestEven);
        assert_eq!(plain.fast_finetune, None);
        let tuned = named(&format!("{name}_ADAQUANT"));
        assert_eq!(tuned.fast_finetune, Some(FastFinetune::default()));
        assert_eq!(tuned.specs, plain.specs);
        assert_eq!(QuantConfig::from_json(&tuned.to_json()).unwrap(), tuned);
    }

    // The examples of Quark's documentation.
    let mx9 = QuantConfig::from_json(
        r#"{ "BFPAttributes": { "bfp_method": "to_bfp_prime", "axis": 1, "bit_width": 16, "block_size": 16,
                                "sub_block_size": 2, "sub_block_shift_bits": 1, "rounding_mode": 2 },
             "FastFinetune": { "DataSize": 100, "FixedSeed": 1705472343, "BatchSize": 2, "NumIterations": 1000,
                               "LearningRate": 0.00001, "OptimAlgorithm": "adaquant", "OptimDevice": "cpu",
                               "InferDevice": "cpu", "EarlyStop": true } }"#,
    );
    let expected = named("MX9_ADAQUANT");
    let mx9 = mx9.unwrap();
    assert_eq!(
        mx9.specs.resolve().unwrap().to_string(),
        expected.specs.resolve().unwrap().to_string()
    );
    let tuning = mx9.fast_finetune.unwrap();
    assert_eq!(
        tuning,
        FastFinetune {
            data_size: 100,
            learning_rate: Some(1e-5),
            ..FastFinetune::default()
        }
    );
    let bfp =
        QuantConfig::from_json(r#"{ "BFPAttributes": { "bit_width": 12, "rounding_mode": 0 } }"#);
    let bfp = bfp.unwrap().specs;
    assert_eq!(
        (bfp.resolve().unwrap().to_string().as_str(), bfp.round),
        (
            "w bfp(bit_width=12,block_size=8), a bfp(bit_width=12,block_size=8)",
            Rounding::NearestAway
        )
    );
}

#[test]
fn configurations_that_make_no_sense_are_refused() {
    let name = QuantConfig::named("MXFP3").unwrap_err().to_string();
    assert!(
        name.contains("`MXFP3`") && name.contains("MXINT8_ADAQUANT"),
        "{name}"
    );
    let name = QuantConfig::named("mxfp6").unwrap_err().to_string();
    assert!(name.contains("; nearest: MXFP6E3M2, "), "{name}");
    let python = "{'MXAttributes': {'axis': 1}}";
    let python = QuantConfig::from_json(python).unwrap_err().to_string();
    assert!(python.contains("json.dumps"), "{python}");
    let json = |text: &str| QuantConfig::from_json(text).unwrap_err().to_string();
    for (text, parts) in [
        (r#"{ "bits": 4 }"#, ["bits", "fast_finetune"]),
        (r#"{ "MXAttributes": { "axis": 0 } }"#, ["`axis` is 0", "1"]),
        (
            r#"{ "MXAttributes": { "rounding_mode": 1 } }"#,
            ["`rounding_mode` is 1", "0 (ties away from zero), 2"],
        ),
        (
            r#"{ "MXAttributes": { "element_dtype": "fp3" } }"#,
            ["fp3", "fp8_e4m3"],
        ),
        (
            r#"{ "MXAttributes": { "element": "int8" } }"#,
            ["element", "element_dtype"],
        ),
        (
            r#"{ "FastFinetune": {} }"#,
            ["`MXAttributes`", "one of the two"],
        ),
        (
            r#"{ "MXAttributes": {}, "BFPAttributes": {} }"#,
            ["`MXAttributes`", "one of the two"],
        ),
        (
            r#"{ "BFPAttributes": { "sub_block_size": 2 } }"#,
            ["`sub_block_size` is 2", "to_bfp"],
        ),
        (
            r#"{ "MXAttributes": {}, "FastFinetune": { "OptimAlgorithm": "gptq" } }"#,
            ["gptq", "adaround"],
        ),
        (
            r#"{ "MXAttributes": {}, "FastFinetune": { "Epochs": 3 } }"#,
            ["Epochs", "NumIterations"],
        ),
    ] {
        let message = json(text);
        assert!(
            parts.iter().all(|part| message.contains(part)),
            "{text}: {message}"
        );
    }

    let refused = |config: QuantConfig| Quantizer::new(config).unwrap_err().to_string();
    let tuning = |fast_finetune| QuantConfig {
        fast_finetune: Some(fast_finetune),
        ..named("MXINT8")
    };
    let usual = FastFinetune::default;
    for (config, parts) in [
        (
            QuantConfig::default(),
            ["`specs` is without a format", "`w_elem_format` or"],
        ),
        (
            tuning(FastFinetune {
                data_size: 0,
                ..usual()
            }),
            ["`DataSize` is 0", "1 or more"],
        ),
        (
            tuning(FastFinetune {
                batch_size: 0,
                ..usual()
            }),
            ["`BatchSize` is 0", "1 or more"],
        ),
        (
            tuning(FastFinetune {
                num_iterations: 0,
                ..usual()
            }),
            ["`NumIterations` is 0", "1 or more"],
        ),
        (
            tuning(FastFinetune {
                learning_rate: Some(-1.0),
                ..usual()
            }),
            ["`LearningRate` is -1", "a positive number"],
        ),
        (
            QuantConfig {
                specs: MxSpecs {
                    round: Rounding::Stochastic,
                    ..named("MX6").specs
                },
                ..named("MX6_ADAQUANT")
            },
            ["draw random numbers", "none that do"],
        ),
        (
            QuantConfig {
                specs: MxSpecs {
                    bfloat: 16,
                    ..named("MX6").specs
                },
                ..named("MX6_ADAQUANT")
            },
            ["with an elementwise format", "`bfloat` and `fp` 0"],
        ),
    ] {
        let message = refused(config);
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
}

#[test]
fn patterns_say_which_layers_are_quantized_and_how() {
    let specs = |net: &Net<B>| {
        let text = |specs: Option<burn_mx::ResolvedSpecs>| specs.map(|specs| specs.to_string());
        [
            text(specs_of(&net.conv.weight.val())),
            text(specs_of(&net.up.weight.val())),
            text(specs_of(&net.hidden.weight.val())),
            text(specs_of(&net.head.weight.val())),
        ]
        .map(Option::unwrap_or_default)
    };
    let int8 = "w int8, a int8, block 32, round even";
    let model = |config| specs(&quantize(config).unwrap().model);
    assert_eq!(model(named("MXINT8")), [int8; 4]);
    let config = QuantConfig {
        include: vec!["*".into()],
        exclude: vec!["head".into(), "up.weight".into()],
        layers: [("hid*".to_owned(), named("MX9").specs)].into(),
        ..named("MXINT8")
    };
    assert_eq!(model(config), [int8, "", "w mx9, a mx9, round even", ""]);
    let config = QuantConfig {
        include: vec!["conv".into()],
        ..named("MXINT8")
    };
    assert_eq!(model(config), [int8, "", "", ""]);

    let refused = |config| quantize(config).unwrap_err().to_string();
    let no_match = refused(QuantConfig {
        exclude: vec!["tail".into()],
        ..named("MX6")
    });
    assert!(
        no_match.contains("`tail`") && no_match.contains("conv, up, hidden, head"),
        "{no_match}"
    );
    let nothing = refused(QuantConfig {
        exclude: vec!["*".into()],
        ..named("MX6")
    });
    assert!(nothing.contains("no layer to quantize"), "{nothing}");
    let no_glob = refused(QuantConfig {
        layers: [("a[".to_owned(), named("MX9").specs)].into(),
        ..named("MX6")
    });
    assert!(no_glob.contains("`a[`"), "{no_glob}");
}

/// Values of which every product and sum is exact in float32, so that its order does not matter.
fn exact(shape: [usize; 2], seed: u64) -> Vec<f32> {
    let mut values = noise(shape[0] * shape[1], seed);
    for (at, value) in values.iter_mut().enumerate() {
        // Each block of 32 has a 5, and with it the scale 1.
        *value = if at % 32 == 7 {
            5.0
        } else {
            (*value * 48.0).round().clamp(-80.0, 80.0) / 16.0
        };
    }
    values
}

/// Post-training quantization is fake quantization of both operands along the summed axis, and the product of that.
#[test]
fn a_quantized_layer_multiplies_what_the_formats_hold() {
    let format = BlockFormat::mx(ElementFormat::FP4_E2M1, 32);
    let [m, k, n] = [6, 64, 10];
    // [N, K], so that blocks lie along the rows.
    let (x, weight) = (exact([m, k], 1), exact([n, k], 2));
    let rounded = |values: &[f32]| {
        let mut values = values.to_vec();
        let shape = [values.len() / k, k];
        format
            .quantize(&mut values, &shape, 1, Rounder::NearestEven)
            .unwrap();
        values
    };
    let product = |x: &[f32], weight: &[f32]| -> Vec<f32> {
        let sum = |row: usize, column: usize| {
            let terms =
                (0..k).map(|i| f64::from(x[row * k + i]) * f64::from(weight[column * k + i]));
            terms.sum::<f64>() as f32
        };
        (0..m * n).map(|at| sum(at / n, at % n)).collect()
    };
    let layer = LinearConfig::new(k, n)
        .with_bias(false)
        .init::<B>(&device());
    let device = device();
    let tensor = |values: &[f32], rows| {
        Tensor::<B, 2>::from_data(TensorData::new(values.to_vec(), [rows, k]), &device)
    };
    let of = |layer: Linear<B>, values: &[f32], rows| Linear {
        weight: layer
            .weight
            .map(|_| tensor(values, rows).transpose().require_grad()),
        ..layer
    };
    let layer = of(layer, &weight, n);
    let both = named("MXFP4E2M1");
    for (w, a) in [(true, true), (true, false), (false, true)] {
        let mut specs = both.specs.clone();
        specs.w_elem_format = specs.w_elem_format.filter(|_| w);
        specs.a_elem_format = specs.a_elem_format.filter(|_| a);
        let config = QuantConfig {
            specs,
            ..QuantConfig::default()
        };
        let quantizer = Quantizer::new(config).unwrap();
        let quantized = quantizer
            .quantize(layer.clone(), &[], |_, _: &()| ())
            .unwrap();
        assert!(quantized.tuned.is_empty());
        let got = values(quantized.model.forward(tensor(&x, m)));
        let operand = |values: &[f32], is_quantized: bool| match is_quantized {
            true => rounded(values),
            false => values.to_vec(),
        };
        let expected = product(&operand(&x, a), &operand(&weight, w));
        assert_same_bits(&got, &expected, &format!("w {w}, a {a}"));
    }
}

/// Each format, of weights alone, of activations alone, of both: another backend's operands are the same, and only the order of
/// its sums differs.
#[cfg(feature = "ndarray")]
#[test]
fn every_configuration_is_the_same_on_another_backend() {
    type Other = MxBackend<burn::backend::NdArray>;
    let image = |seed| noise([6, 4, 4, 4].iter().product(), seed);
    let data = |seed| TensorData::new(image(seed), [6, 4, 4, 4]);
    let x = Tensor::<B, 4>::from_data(data(72), &device());
    let other_x = Tensor::<Other, 4>::from_data(data(72), &MxDevice::default());
    let float = values(net().forward(&x));
    for name in QuantConfig::names().filter(|name| !name.ends_with("_ADAQUANT")) {
        for (w, a) in [(true, true), (true, false), (false, true)] {
            let mut config = named(&name);
            config.specs.w_elem_format = config.specs.w_elem_format.filter(|_| w);
            config.specs.a_elem_format = config.specs.a_elem_format.filter(|_| a);
            let quantizer = Quantizer::new(config).unwrap();
            let here = quantizer.quantize(net(), &[], Net::forward).unwrap();
            let other = Net::<Other>::new(&MxDevice::default());
            let there = quantizer.quantize(other, &[], Net::forward).unwrap();
            let here = values(here.model.forward(&x));
            let there = values(there.model.forward(&other_x));
            let apart = error(&there, &here);
            let lost = error(&here, &float);
            // A sum that is a little off may round the next layer's input another way.
            assert!(
                apart < 1e-3 * lost.max(1e-6),
                "{name}, w {w}, a {a}: {apart:e} {lost:e}"
            );
            assert!(lost > 1e-7, "{name}, w {w}, a {a}: {lost:e}");
        }
    }
}

/// Short runs, on few samples.
fn quick(name: &str) -> QuantConfig {
    QuantConfig {
        fast_finetune: Some(FastFinetune {
            data_size: 20,
            num_iterations: 200,
            learning_rate: Some(1e-3),
            ..FastFinetune::default()
        }),
        ..named(name)
    }
}

#[test]
fn tuning_brings_each_layer_closer_to_what_it_was() {
    let wanted = outputs(&net());
    for name in ["MXFP4E2M1", "MX4"] {
        let plain = quantize(named(name)).unwrap();
        let tuned = quantize(quick(name)).unwrap();
        let layers: Vec<&str> = tuned
            .tuned
            .iter()
            .map(|layer| layer.layer.as_str())
            .collect();
        assert_eq!(
            layers,
            ["conv", "up", "hidden", "head"],
            "the order of the calls"
        );
        for layer in &tuned.tuned {
            assert!(
                layer.error_after < 0.95 * layer.error_before,
                "{name}: {layer:?}"
            );
        }
        let [before, after] =
            [&plain, &tuned].map(|quantized| error(&outputs(&quantized.model), &wanted));
        assert!(after < before, "{name}: {before} {after}");
        // The report on the first layer is exact: its inputs are the float model's.
        let first = &tuned.tuned[0];
        let of_first = |net: &Net<B>| {
            let batches = images().into_iter().take(4).enumerate();
            let outputs = batches.map(|(at, x)| {
                // 20 samples, and the batches have 6.
                let x = if at == 3 { x.narrow(0, 0, 2) } else { x };
                values(net.conv.forward(x))
            });
            outputs.flatten().collect::<Vec<f32>>()
        };
        let wanted = of_first(&net());
        for (model, said) in [
            (&plain.model, first.error_before),
            (&tuned.model, first.error_after),
        ] {
            let found = error(&of_first(model), &wanted);
            assert!((found / said - 1.0).abs() < 1e-3, "{name}: {found} {said}");
        }
    }
}

#[test]
fn tuning_is_the_same_each_time_and_another_with_another_seed() {
    let tuned = |fixed_seed| {
        let config = quick("MXFP4E2M1");
        let fast_finetune = config.fast_finetune.map(|tuning| FastFinetune {
            fixed_seed,
            ..tuning
        });
        let config = QuantConfig {
            fast_finetune,
            ..config
        };
        let mut steps = Vec::new();
        let quantizer = Quantizer::new(config).unwrap();
        let progress = |done, all| steps.push((done, all));
        let forward = |net: &Net<B>, x: &Tensor<B, 4>| net.forward(x);
        let quantized = quantizer.quantize_with_progress(net(), &images(), forward, progress);
        let quantized = quantized.unwrap();
        assert_eq!(steps.last(), Some(&(800, 800)));
        assert!(steps.is_sorted(), "{steps:?}");
        (weights(&quantized.model), quantized.tuned)
    };
    let (first, layers) = tuned(1);
    let (again, layers_again) = tuned(1);
    assert_all_same_bits(&again, &first, "weight");
    assert_eq!(layers, layers_again);
    assert_ne!(tuned(2).0, first);
}

/// Tuning stops where it gets no better, and keeps the weights where it gets worse.
#[test]
fn a_layer_that_gets_worse_keeps_its_weights() {
    let config = quick("MX9");
    let fast_finetune = config.fast_finetune.map(|tuning| FastFinetune {
        learning_rate: Some(10.0),
        ..tuning
    });
    let quantized = quantize(QuantConfig {
        fast_finetune,
        ..config
    })
    .unwrap();
    for layer in &quantized.tuned {
        assert_eq!(layer.error_after, layer.error_before, "{layer:?}");
        assert_eq!(layer.iterations, 50, "{layer:?}");
    }
    assert_all_same_bits(&weights(&quantized.model), &weights(&net()), "weight");
}

#[test]
fn calibration_data_that_cannot_be_used_is_an_error() {
    let quantizer = Quantizer::new(quick("MX6")).unwrap();
    let empty = quantizer.quantize(net(), &[], Net::forward).unwrap_err();
    assert!(matches!(empty, PtqError::NoCalibration), "{empty}");
    let layer = LinearConfig::new(32, 8).init::<B>(&device());
    let nothing = Tensor::<B, 2>::empty([0, 32], &device());
    let forward = |layer: &Linear<B>, x: &Tensor<B, 2>| layer.forward(x.clone());
    let empty = quantizer.quantize(layer, &[nothing], forward).unwrap_err();
    assert!(matches!(empty, PtqError::NoCalibration), "{empty}");
    let mut batches = images();
    batches[1] = batches[1]
        .clone()
        .slice_fill([0..1, 0..1, 0..1, 0..1], f32::NAN);
    let nan = quantizer
        .quantize(net(), &batches, Net::forward)
        .unwrap_err();
    assert!(
        nan.to_string()
            .contains("on the calibration data has a NaN"),
        "{nan}"
    );
    let calls = AtomicUsize::new(0);
    let random = |net: &Net<B>, x: &Tensor<B, 4>| {
        let call = 1 + calls.fetch_add(1, Ordering::Relaxed);
        net.forward(&x.clone().narrow(0, 0, 1 + call % 3))
    };
    let changes = quantizer.quantize(net(), &images(), random).unwrap_err();
    assert!(
        changes
            .to_string()
            .contains("calls layer `conv` differently"),
        "{changes}"
    );
}

/// Asserts that only this layer is tuned, and that its reported errors match its outputs before and after.
macro_rules! assert_tuned {
    ($config:expr, $layer:expr, $shape:expr) => {{
        let layer = with_noise_weights($layer, 91);
        let what = format!("{layer}");
        // The second batch has another shape.
        let mut other = $shape;
        other[0] = 3;
        let batches = [
            noise_tensor::<B, { $shape.len() }>($shape, 92, &device()),
            noise_tensor::<B, { $shape.len() }>(other, 93, &device()),
        ];
        let outputs = |layer: &_| {
            let forward = |x: &Tensor<B, { $shape.len() }>| values(Layer::call(layer, x.clone()));
            batches.iter().flat_map(forward).collect::<Vec<f32>>()
        };
        let config: QuantConfig = $config;
        let quantizer = Quantizer::new(config.clone()).unwrap();
        let forward = |layer: &_, x: &Tensor<B, { $shape.len() }>| Layer::call(layer, x.clone());
        let tuned = quantizer
            .quantize(layer.clone(), &batches, forward)
            .unwrap();
        let plain = QuantConfig {
            fast_finetune: None,
            ..config
        };
        let plain = Quantizer::new(plain).unwrap();
        let plain = plain.quantize(layer.clone(), &batches, forward).unwrap();
        let float = outputs(&layer);
        let [report] = &tuned.tuned[..] else {
            panic!("{what}: {:?}", tuned.tuned);
        };
        assert!(
            report.error_after < 0.97 * report.error_before,
            "{what}: {report:?}"
        );
        for (model, said) in [
            (&plain.model, report.error_before),
            (&tuned.model, report.error_after),
        ] {
            let found = error(&outputs(model), &float);
            assert!(
                (found / said - 1.0).abs() < 1e-3,
                "{what}: {found:e} {said:e}"
            );
        }
    }};
}

/// The common part of the layers below.
trait Layer<const D: usize> {
    fn call(&self, x: Tensor<B, D>) -> Tensor<B, D>;
}

macro_rules! layers {
    ($($layer:ident: $dims:literal)*) => { $(
        impl Layer<$dims> for $layer<B> {
            fn call(&self, x: Tensor<B, $dims>) -> Tensor<B, $dims> {
                self.forward(x)
            }
        }
    )* };
}

layers! {
    Linear: 3
    Conv1d: 3
    Conv2d: 4
    Conv3d: 5
    ConvTranspose1d: 3
    ConvTranspose2d: 4
    ConvTranspose3d: 5
}

#[test]
fn layers_of_every_kind_are_tuned() {
    let config = || quick("MXFP4E2M1");
    let weights_alone = || {
        let mut config = config();
        config.specs.a_elem_format = None;
        config
    };
    let to_the_end = || {
        let config = config();
        let fast_finetune = config.fast_finetune.map(|tuning| FastFinetune {
            early_stop: false,
            ..tuning
        });
        QuantConfig {
            fast_finetune,
            ..config
        }
    };
    let d = device();
    assert_tuned!(
        config(),
        LinearConfig::new(40, 24).with_bias(false).init::<B>(&d),
        [8, 3, 40]
    );
    assert_tuned!(
        weights_alone(),
        LinearConfig::new(40, 24).init::<B>(&d),
        [8, 3, 40]
    );
    assert_tuned!(
        to_the_end(),
        Conv1dConfig::new(6, 10, 3).with_stride(2).init::<B>(&d),
        [8, 6, 12]
    );
    assert_tuned!(
        config(),
        Conv2dConfig::new([6, 9], [3, 2])
            .with_groups(3)
            .with_bias(false)
            .init::<B>(&d),
        [8, 6, 7, 6]
    );
    assert_tuned!(
        config(),
        Conv3dConfig::new([4, 6], [2, 2, 2]).init::<B>(&d),
        [8, 4, 4, 3, 5]
    );
    assert_tuned!(
        weights_alone(),
        ConvTranspose1dConfig::new([6, 10], 3).init::<B>(&d),
        [8, 6, 9]
    );
    assert_tuned!(
        config(),
        ConvTranspose2dConfig::new([6, 9], [3, 2])
            .with_groups(3)
            .init::<B>(&d),
        [8, 6, 5, 4]
    );
    assert_tuned!(
        config(),
        ConvTranspose3dConfig::new([4, 6], [2, 2, 2]).init::<B>(&d),
        [8, 4, 3, 3, 2]
    );
}

/// A recurrent layer is called once for each step of a sequence, and all of its calls count: 4 items make more of them than
/// there are items.
#[test]
fn a_recurrent_layer_is_tuned_on_all_steps() {
    let lstm = LstmConfig::new(8, 12, true).init::<B>(&device());
    let lstm = with_noise_weights(lstm, 81);
    let batches: Vec<Tensor<B, 3>> = (82..84)
        .map(|seed| noise_tensor([4, 9, 8], seed, &device()))
        .collect();
    let forward = |lstm: &Lstm<B>, x: &Tensor<B, 3>| lstm.forward(x.clone(), None).0;
    let tuned_on = |data_size| {
        let config = quick("MXFP4E2M1");
        let fast_finetune = config.fast_finetune.map(|tuning| FastFinetune {
            data_size,
            ..tuning
        });
        let quantizer = Quantizer::new(QuantConfig {
            fast_finetune,
            ..config
        })
        .unwrap();
        quantizer.quantize(lstm.clone(), &batches, forward).unwrap()
    };
    let float = forward(&lstm, &batches[1]);
    let plain = Quantizer::new(named("MXFP4E2M1")).unwrap();
    let plain = plain
        .quantize(lstm.clone(), &batches, forward)
        .unwrap()
        .model;
    let apart = |lstm: &Lstm<B>| error(&values(forward(lstm, &batches[1])), &values(float.clone()));
    let all = tuned_on(8);
    assert_eq!(all.tuned.len(), 8, "two linear layers a gate");
    assert!(apart(&all.model) < apart(&plain));
    // The error of a layer is that over both batches, or over one.
    assert_ne!(tuned_on(4).tuned[0].error_before, all.tuned[0].error_before);
    assert_eq!(tuned_on(1000).tuned, all.tuned);
}

#[test]
fn weights_that_are_used_in_another_way_are_not_tuned() {
    let layer = LinearConfig::new(32, 32).init::<B>(&device());
    let x = noise_tensor::<B, 2>([8, 32], 1, &device());
    let quantizer = Quantizer::new(quick("MX6")).unwrap();
    let tied = |layer: &Linear<B>, x: &Tensor<B, 2>| {
        let bias = layer.bias.as_ref().map(Param::val);
        linear(x.clone(), layer.weight.val().transpose(), bias)
    };
    let without_bias =
        |layer: &Linear<B>, x: &Tensor<B, 2>| linear(x.clone(), layer.weight.val(), None);
    type Forward = fn(&Linear<B>, &Tensor<B, 2>) -> Tensor<B, 2>;
    let both: [Forward; 2] = [tied, without_bias];
    for forward in both {
        let view = quantizer
            .quantize(layer.clone(), std::slice::from_ref(&x), forward)
            .unwrap_err();
        assert!(matches!(view, PtqError::View { .. }), "{view}");
    }
    let elsewhere = |layer: &Linear<B>, x: &Tensor<B, 2>| {
        std::thread::scope(|scope| scope.spawn(|| layer.forward(x.clone())).join().unwrap())
    };
    let unheard = quantizer
        .quantize(layer.clone(), std::slice::from_ref(&x), elsewhere)
        .unwrap_err();
    assert!(matches!(unheard, PtqError::NothingCalled), "{unheard}");
}

/// A layer that only some of the batches come by.
#[test]
fn layers_of_later_batches_are_tuned() {
    let layers =
        [1, 2].map(|seed| with_noise_weights(LinearConfig::new(32, 32).init::<B>(&device()), seed));
    let x = noise_tensor::<B, 2>([8, 32], 1, &device());
    let forward = |layers: &[Linear<B>; 2], which: &usize| layers[*which].forward(x.clone());
    let quantizer = Quantizer::new(quick("MX4")).unwrap();
    let tuned = quantizer.quantize(layers, &[1, 0], forward).unwrap().tuned;
    let tuned: Vec<_> = tuned.iter().map(|layer| layer.layer.as_str()).collect();
    assert_eq!(tuned, ["1", "0"]);
}

/// Tuning a layer does not change the weights of models that share them.
#[test]
fn the_model_that_was_given_is_left_alone() {
    let model = net();
    let before = outputs(&model);
    let quantizer = Quantizer::new(quick("MXFP4E2M1")).unwrap();
    let quantized = quantizer
        .quantize(model.clone(), &images(), Net::forward)
        .unwrap();
    assert_same_bits(&outputs(&model), &before, "output");
    assert_ne!(outputs(&quantized.model), before);
}

/// The output of a quantized layer is an ordinary activation: it takes no specs on to excluded layers or to ops between layers.
#[test]
fn layers_that_are_left_out_compute_in_float32() {
    let config = QuantConfig {
        include: vec!["conv".into()],
        ..named("MXFP4E2M1")
    };
    let quantized = quantize(config).unwrap().model;
    let float = net();
    for x in images() {
        let of_conv = quantized.conv.forward(x.clone()).into_data();
        let expected = float.after_conv(Tensor::from_data(of_conv, &device()));
        let got = values(quantized.forward(&x));
        assert_same_bits(&got, &values(expected), "after the one quantized layer");
    }
}

/// Burn draws a parameter when it is first looked at, and a clone before that draws its own.
#[test]
fn a_model_that_nobody_looked_at_is_one_model() {
    let layer: Linear<B> = LinearConfig::new(32, 16).init(&device());
    let batch = || noise_tensor::<B, 2>([8, 32], 77, &device());
    let config = QuantConfig {
        fast_finetune: Some(FastFinetune {
            num_iterations: 1,
            ..FastFinetune::default()
        }),
        ..named("MXINT8")
    };
    let quantizer = Quantizer::new(config).unwrap();
    let forward = |layer: &Linear<B>, x: &Tensor<B, 2>| layer.forward(x.clone());
    let quantized = quantizer.quantize(layer, &[batch()], forward).unwrap();
    // The loss of eight bits, not the likeness of two sets of weights.
    assert!(
        quantized.tuned[0].error_before < 1e-3,
        "{:?}",
        quantized.tuned
    );
}
