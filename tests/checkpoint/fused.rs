//! Layers that engines fuse: one tensor scale in the model, in post-training quantization and in the file. An emulated engine reads the
//! files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use burn::module::{AutodiffModule, Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::activation::silu;
use burn_mx::checkpoint::{Checkpoint, CheckpointError};
use burn_mx::module::{
    fused_linear, load_checkpoint, set_specs, set_specs_at, share_tensor_scales,
};
use burn_mx::ptq::{FastFinetune, QuantConfig, Quantizer};
use burn_mx::{Dialect, FusedLayers, MxBackend, MxSpecs, WeightLayout};
use safetensors::SafeTensors;

use crate::support::*;

type B = MxBackend<TestBackend>;

const WIDTH: usize = 32;

/// A block of a Llama-like model, with fewer keys than queries.
#[derive(Module, Debug)]
struct Block<B: Backend> {
    q_proj: Linear<B>,
    k_proj: Linear<B>,
    v_proj: Linear<B>,
    o_proj: Linear<B>,
    gate_proj: Linear<B>,
    up_proj: Linear<B>,
    down_proj: Linear<B>,
}

#[derive(Module, Debug)]
struct Net<B: Backend> {
    layers: Vec<Block<B>>,
}

impl<B: Backend> Net<B> {
    fn new(device: &B::Device) -> Self {
        let linear = |outputs: usize, largest: f32, seed: u64| {
            // A weight is a leaf, not the result of an op.
            let weight = noise(WIDTH * outputs, seed)
                .into_iter()
                .map(|x| x * largest);
            let weight = TensorData::new(weight.collect::<Vec<f32>>(), [WIDTH, outputs]);
            Linear {
                weight: Param::from_data(weight, device),
                bias: None,
            }
        };
        let block = |seed: u64| Block {
            q_proj: linear(WIDTH, 1.0, seed),
            k_proj: linear(16, 0.05, seed + 1),
            v_proj: linear(16, 0.3, seed + 2),
            o_proj: linear(WIDTH, 0.5, seed + 3),
            gate_proj: linear(WIDTH, 0.1, seed + 4),
            up_proj: linear(WIDTH, 2.0, seed + 5),
            down_proj: linear(WIDTH, 0.7, seed + 6),
        };
        Self {
            layers: vec![block(10), block(20)],
        }
    }

    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.layers.iter().fold(x, |x, block| {
            let [k, v] = [&block.k_proj, &block.v_proj].map(|layer| layer.forward(x.clone()));
            let x = block
                .o_proj
                .forward(block.q_proj.forward(x) + Tensor::cat(vec![k, v], 1));
            block
                .down_proj
                .forward(silu(block.gate_proj.forward(x.clone())) * block.up_proj.forward(x))
        })
    }

    /// The weights [out, in], by their names in a file.
    fn weights(&self) -> BTreeMap<String, Vec<f32>> {
        let layers = self.layers.iter().enumerate().flat_map(|(i, block)| {
            let layers = [
                ("q_proj", &block.q_proj),
                ("k_proj", &block.k_proj),
                ("v_proj", &block.v_proj),
                ("o_proj", &block.o_proj),
                ("gate_proj", &block.gate_proj),
                ("up_proj", &block.up_proj),
                ("down_proj", &block.down_proj),
            ];
            layers.map(|(name, layer)| {
                (
                    format!("layers.{i}.{name}"),
                    values(layer.weight.val().transpose()),
                )
            })
        });
        layers.collect()
    }
}

/// Weights in NVFP4 with a tensor scale, and nothing else.
fn specs(dialect: Option<Dialect>) -> MxSpecs {
    MxSpecs {
        a_elem_format: None,
        bfloat: 0,
        quantize_backprop: false,
        dialect_w: dialect,
        ..MxSpecs::nvfp4()
    }
}

fn e4m3(code: u8) -> f32 {
    let (exponent, fraction) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    match exponent {
        0 => fraction * 2.0_f32.powi(-9),
        _ => (8.0 + fraction) * 2.0_f32.powi(exponent - 10),
    }
}

fn e2m1(code: u8) -> f32 {
    let magnitude = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
    if code > 7 { -magnitude } else { magnitude }
}

/// The weights of an engine that stacks q, k and v, and gate and up, and takes the largest of their numbers for the tensor.
fn engine(file: &Path, layout: WeightLayout) -> BTreeMap<String, Vec<f32>> {
    let bytes = fs::read(file).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let is_divisor = layout == WeightLayout::Nvfp4PackQuantized;
    let (codes, number) = match is_divisor {
        true => ("_packed", "_global_scale"),
        false => ("", "_scale_2"),
    };
    let groups: [&[&str]; 4] = [
        &["q_proj", "k_proj", "v_proj"],
        &["o_proj"],
        &["gate_proj", "up_proj"],
        &["down_proj"],
    ];
    let mut values = BTreeMap::new();
    for (layer, group) in (0..2).flat_map(|layer| groups.map(|group| (layer, group))) {
        let part = |name: &str, end: &str| {
            let tensor = file.tensor(&format!("layers.{layer}.{name}.weight{end}"));
            tensor.unwrap().data().to_vec()
        };
        let numbers = group
            .iter()
            .map(|name| f32::from_le_bytes(part(name, number).try_into().unwrap()));
        let number = numbers.fold(0.0, f32::max);
        for name in group {
            let scales = part(name, "_scale");
            let scale = |i: usize| {
                let scale = e4m3(scales[i / 16]);
                if is_divisor {
                    scale / number
                } else {
                    scale * number
                }
            };
            let codes = part(name, codes)
                .into_iter()
                .flat_map(|byte| [byte & 15, byte >> 4]);
            let weight = codes.enumerate().map(|(i, code)| e2m1(code) * scale(i));
            values.insert(
                format!("layers.{layer}.{name}"),
                weight.collect::<Vec<f32>>(),
            );
        }
    }
    values
}

fn assert_same_weights(
    got: &BTreeMap<String, Vec<f32>>,
    expected: &BTreeMap<String, Vec<f32>>,
    what: &str,
) {
    assert_eq!(got.len(), 14);
    for (name, weight) in got {
        // By value: tools have one zero.
        let differ = weight.iter().zip(&expected[name]).find(|(x, y)| x != y);
        assert_eq!(differ, None, "{what}: {name}");
    }
}

const TOOLS: [(WeightLayout, Option<Dialect>); 3] = [
    (
        WeightLayout::Nvfp4PackQuantized,
        Some(Dialect::CompressedTensors),
    ),
    (WeightLayout::ModelOptNvfp4, Some(Dialect::ModelOpt)),
    (WeightLayout::ModelOptNvfp4, None),
];

/// A model with shared scales computes with the engine's weights, saved and loaded. A save shares scales by itself, too; with scales of
/// their own, the engine has other weights.
#[test]
fn a_model_has_the_weights_of_an_engine_that_fuses() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (layout, dialect) in TOOLS {
        let device = mx_device(&specs(dialect));
        let model = Net::<B>::new(&device);
        let x = noise_tensor([4, WIDTH], 99, &device);
        let save = |model: &Net<B>, name: &str| {
            Checkpoint::new(at(name))
                .layout(layout.into())
                .save(model)
                .unwrap();
            engine(&at(name), layout)
        };
        let (shared, groups) = share_tensor_scales(model.clone(), &FusedLayers::default()).unwrap();
        let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        assert_eq!(groups.len(), 4);
        assert_eq!(groups[0], "layers.0.{q_proj,k_proj,v_proj}");
        let engines = save(&shared, "shared.safetensors");
        // Layers outside of groups are quantized by their products.
        let mut weights = shared.weights();
        for (name, weight) in &mut weights {
            if name.ends_with("o_proj") || name.ends_with("down_proj") {
                weight.clone_from(&engines[name]);
            }
        }
        assert_same_weights(&engines, &weights, &format!("{layout} {dialect:?}"));
        let loaded = load_checkpoint(Net::<B>::new(&device), at("shared.safetensors")).unwrap();
        assert_same_weights(
            &loaded.weights(),
            &engines,
            &format!("{layout} {dialect:?}"),
        );
        let outputs = values(shared.forward(x.clone()));
        assert_same_bits(&values(loaded.forward(x.clone())), &outputs, "loaded");
        assert_ne!(values(model.forward(x.clone())), outputs);
        // A shared model does not change; an unshared one gets shared scales in the file.
        let (again, _) = share_tensor_scales(loaded, &FusedLayers::default()).unwrap();
        assert_same_bits(&values(again.forward(x.clone())), &outputs, "again");
        save(&model, "model.safetensors");
        let bytes = |name: &str| fs::read(at(name)).unwrap();
        assert!(
            bytes("model.safetensors") == bytes("shared.safetensors"),
            "{layout}"
        );

        let own = Checkpoint::new(at("own.safetensors")).layout(layout.into());
        own.fused(FusedLayers::NONE).save(&model).unwrap();
        let engines = engine(&at("own.safetensors"), layout);
        let loaded = load_checkpoint(Net::<B>::new(&device), at("own.safetensors")).unwrap();
        let differ = loaded
            .weights()
            .iter()
            .filter(|(name, weight)| engines[*name] != **weight)
            .count();
        assert!(differ >= 6, "{layout}: {differ}");
        // The values are quantized, by scales of their own: to share a scale would quantize them again.
        let error = share_tensor_scales(loaded.clone(), &FusedLayers::default()).unwrap_err();
        assert!(
            error.to_string().contains("has the tensor scale"),
            "{error}"
        );
        let saved = Checkpoint::new(at("no.safetensors"))
            .layout(layout.into())
            .save(&loaded);
        let error = saved.unwrap_err();
        assert!(matches!(error, CheckpointError::Fused { .. }), "{error}");
        assert!(!at("no.safetensors").exists());
    }
}

/// Training goes on from a model with shared scales, and inference of the trained model has them.
#[test]
fn a_trained_model_shares_scales() {
    let device = mx_device(&specs(None));
    let x = noise_tensor([4, WIDTH], 99, &device);
    let model = Net::<Mx>::new(&device);
    let (shared, groups) = share_tensor_scales(model.clone(), &FusedLayers::default()).unwrap();
    assert_eq!(groups.len(), 4);
    let expected = share_tensor_scales(model.valid(), &FusedLayers::default())
        .unwrap()
        .0;
    let outputs = values(expected.forward(x.clone()));
    assert_same_bits(&values(shared.valid().forward(x)), &outputs, "valid");
    let x = noise_tensor([4, WIDTH], 99, &device);
    let y = shared.forward(x);
    assert_same_bits(&values(y.clone()), &outputs, "training");
    let gradients = named_gradients(&shared, &y.sum().backward());
    assert_eq!(gradients.len(), 14);
}

/// The product of stacked weights has one scale for all, in training and inference: the weights of the engine and of a model with shared scales.
/// With specs of the device and of parameters.
#[test]
fn one_product_of_fused_layers_trains_with_one_scale() {
    for (_, dialect) in TOOLS {
        for by_path in [false, true] {
            let specs = specs(dialect).resolve().unwrap();
            let device = match by_path {
                true => mx_device(&MxSpecs::none()),
                false => mx_device(specs.specs()),
            };
            let model = Net::<Mx>::new(&device);
            let model = if by_path {
                set_specs(model, &specs)
            } else {
                model
            };
            let block = &model.layers[0];
            let layers = [&block.q_proj, &block.k_proj, &block.v_proj];
            // The outputs of a unit matrix are the weights.
            let outputs = |layers: [&Linear<Mx>; 3], x: Tensor<Mx, 2>| {
                fused_linear(x, layers.map(|layer| (layer.weight.val(), None)))
            };
            let fused = outputs(layers, Tensor::eye(WIDTH, &device));
            let shared = share_tensor_scales(model.clone(), &FusedLayers::default())
                .unwrap()
                .0;
            let block = &shared.layers[0];
            let shared = [&block.q_proj, &block.k_proj, &block.v_proj];
            for (i, (layer, weight)) in shared.into_iter().zip(fused).enumerate() {
                let expected = values(layer.forward(Tensor::eye(WIDTH, &device)));
                let what = format!("{dialect:?} {by_path} {i}");
                assert_same_bits(&values(weight), &expected, &what);
                // Not with a scale for each layer.
                let own = values(layers[i].forward(Tensor::eye(WIDTH, &device)));
                assert_eq!(own != expected, i > 0, "{what}");
            }
            // Straight through to the weights of each layer: xᵀ · 1.
            let x = noise_tensor::<Mx, 2>([4, WIDTH], 97, &device);
            let y = Tensor::cat(outputs(layers, x.clone()).to_vec(), 1);
            let gradients = y.sum().backward();
            let expected = values(x.sum_dim(0));
            for layer in layers {
                let gradient = layer.weight.val().grad(&gradients).unwrap();
                let columns = layer.weight.dims()[1];
                assert_eq!(gradient.dims(), [WIDTH, columns]);
                let gradient = values(gradient);
                for (row, expected) in gradient.chunks(columns).zip(&expected) {
                    assert!(
                        row.iter().all(|x| (x - expected).abs() < 1e-5),
                        "{row:?} {expected}"
                    );
                }
            }
        }
    }
}

/// GPTQ and rounding to nearest with shared scales: the file has them. Without, a save refuses what GPTQ quantized.
#[test]
fn post_training_quantization_shares_scales() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let layout = WeightLayout::ModelOptNvfp4;
    let device = mx_device(&MxSpecs::none());
    let model = Net::<B>::new(&device);
    let calibration = [noise_tensor::<B, 2>([64, WIDTH], 98, &device)];
    let forward = |model: &Net<B>, x: &Tensor<B, 2>| model.forward(x.clone());
    for method in ["", "_GPTQ", "_GPTQ_MSE"] {
        let named = QuantConfig::named(&format!("MXFP4E2M1{method}")).unwrap();
        let own = QuantConfig {
            specs: specs(None),
            ..named
        };
        let fused = QuantConfig {
            fused: FusedLayers::default().kinds().to_vec(),
            ..own.clone()
        };
        assert_eq!(QuantConfig::from_json(&fused.to_json()).unwrap(), fused);
        let quantize = |config: &QuantConfig| {
            let quantizer = Quantizer::new(config.clone()).unwrap();
            quantizer
                .quantize(model.clone(), &calibration, forward)
                .unwrap()
                .model
        };
        let quantized = quantize(&fused);
        let file = at("fused.safetensors");
        Checkpoint::new(&file)
            .layout(layout.into())
            .save(&quantized)
            .unwrap();
        let engines = engine(&file, layout);
        let loaded = load_checkpoint(Net::<B>::new(&device), &file).unwrap();
        assert_same_weights(&loaded.weights(), &engines, method);
        let outputs = [&quantized, &loaded].map(|model| values(forward(model, &calibration[0])));
        assert_same_bits(&outputs[1], &outputs[0], method);
        let saved = Checkpoint::new(at("own.safetensors"))
            .layout(layout.into())
            .save(&quantize(&own));
        match (method, saved) {
            ("", saved) => assert!(saved.is_ok()),
            (_, Err(CheckpointError::Fused { group, allowed, .. })) => {
                assert_eq!(group, "layers.0.{q_proj,k_proj,v_proj}");
                assert!(allowed.contains("`fused` of a `QuantConfig`"), "{allowed}");
            }
            (method, saved) => panic!("{method}: {saved:?}"),
        }
    }
}

/// Errors name the group, the layers, and the allowed layers.
#[test]
fn layers_that_cannot_share_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let device = mx_device(&specs(None));
    let model = || Net::<B>::new(&device);
    let mxfp4 = MxSpecs::mxfp4().resolve().unwrap();
    let random = MxSpecs {
        round_mx_output: Some(burn_mx::Rounding::Stochastic),
        ..specs(None)
    };
    let random = random.resolve().unwrap();
    let set = |pattern: &str, specs| set_specs_at(model(), pattern, specs).unwrap();
    let mut longer = model();
    longer.layers[1].up_proj = LinearConfig::new(64, WIDTH).with_bias(false).init(&device);
    let mut nan = model();
    let weight = TensorData::full([WIDTH, WIDTH], f32::NAN);
    nan.layers[1].up_proj.weight = Param::from_data(weight, &device);
    let none = MxSpecs::none().resolve().unwrap();
    for (model, parts) in [
        (
            set("layers.0.k_proj", &mxfp4),
            &[
                "layers.0.{q_proj,k_proj,v_proj}",
                "`layers.0.k_proj` is mxfp4",
                "one format",
            ][..],
        ),
        (
            set("layers.1.up_proj", &none),
            &[
                "layers.1.{gate_proj,up_proj}",
                "`layers.1.up_proj` has no format",
            ],
        ),
        (
            longer,
            &[
                "`layers.1.gate_proj` has 32 inputs, and `layers.1.up_proj` has 64 inputs",
                "one number of inputs",
            ],
        ),
        (set("layers.0", &random), &["at random", "another rounding"]),
        (nan, &["`layers.1.up_proj` has a NaN or Inf"]),
    ] {
        let error = share_tensor_scales(model, &FusedLayers::default())
            .unwrap_err()
            .to_string();
        for part in parts {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    let save = |model: &Net<B>, fused: Option<FusedLayers>| {
        let checkpoint = Checkpoint::new(&path).layout(WeightLayout::ModelOptNvfp4.into());
        match fused {
            Some(fused) => checkpoint.fused(fused).save(model),
            None => checkpoint.save(model),
        }
    };
    let mixed = set("layers.1.up_proj", &none);
    let error = save(&mixed, None).unwrap_err().to_string();
    for part in [
        "layers.1.{gate_proj,up_proj}",
        "`layers.1.up_proj` is not packed",
        "FusedLayers::NONE",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!path.exists());
    save(&mixed, Some(FusedLayers::NONE)).unwrap();
    // Keys and values of cross-attention have other inputs than queries: by default, these two share a scale.
    let mut cross = model();
    cross.layers[1].q_proj = LinearConfig::new(64, WIDTH).with_bias(false).init(&device);
    let error = save(&cross, Some(FusedLayers::default()))
        .unwrap_err()
        .to_string();
    let expected = "`layers.1.q_proj` sums over 64 inputs, and `layers.1.k_proj` sums over 32";
    assert!(error.contains(expected), "{error}");
    save(&cross, None).unwrap();
    let bytes = fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let scale = |name: &str| {
        let tensor = file.tensor(&format!("layers.1.{name}.weight_scale_2"));
        tensor.unwrap().data().to_vec()
    };
    assert_eq!(scale("k_proj"), scale("v_proj"));
    assert_ne!(scale("q_proj"), scale("v_proj"));
    // Groups that the user names have an error for a NaN or Inf; by default, the error is the weight's.
    for number in [f32::NAN, f32::INFINITY] {
        let mut model = model();
        let weight = TensorData::full([WIDTH, WIDTH], number);
        model.layers[1].up_proj.weight = Param::from_data(weight, &device);
        let error = save(&model, Some(FusedLayers::default())).unwrap_err();
        let expected = "`layers.1.up_proj` has a NaN or Inf; allowed: finite weights";
        assert!(error.to_string().contains(expected), "{error}");
        let error = save(&model, None).unwrap_err().to_string();
        assert!(error.contains("layers.1.up_proj"), "{error}");
    }
    // Formats without a tensor scale have nothing to share.
    let plain = set_specs(model(), &mxfp4);
    let (_, groups) = share_tensor_scales(plain, &FusedLayers::default()).unwrap();
    assert_eq!(groups, []);
    let config = QuantConfig {
        specs: specs(None),
        exclude: vec!["layers.1.k_proj".into()],
        fused: FusedLayers::default().kinds().to_vec(),
        ..QuantConfig::named("MXFP4E2M1").unwrap()
    };
    let quantizer = Quantizer::new(config.clone()).unwrap();
    let calibration: [Tensor<B, 2>; 0] = [];
    let quantized = quantizer.quantize(model(), &calibration, |model, x| model.forward(x.clone()));
    let error = quantized.unwrap_err().to_string();
    assert!(
        error.contains(
            "`layers.1.q_proj` is nvfp4(tensor_scale=true), and `layers.1.k_proj` has no format"
        ),
        "{error}"
    );
    // Before the calibration, which has no data here.
    let mut longer = model();
    longer.layers[1].up_proj = LinearConfig::new(64, WIDTH).with_bias(false).init(&device);
    let transformed = MxSpecs {
        hadamard_forward: Some("32:none".parse().unwrap()),
        ..specs(None)
    };
    for (model, specs, fast_finetune, expected) in [
        (
            longer,
            specs(None),
            Some(FastFinetune::default()),
            "`layers.1.gate_proj` has 32 inputs, and `layers.1.up_proj` has 64 inputs",
        ),
        (
            model(),
            transformed,
            None,
            "transforms `layers.0.q_proj`; allowed: no `hadamard_forward`, or no `fused`",
        ),
    ] {
        let config = QuantConfig {
            specs,
            exclude: Vec::new(),
            fast_finetune,
            ..config.clone()
        };
        let quantized = Quantizer::new(config).unwrap().quantize(
            model,
            &calibration,
            |model, x: &Tensor<B, 2>| model.forward(x.clone()),
        );
        let error = quantized.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let twice = ["a,b", "b,c"].map(|names| names.parse().unwrap()).to_vec();
    let error = Quantizer::new(QuantConfig {
        fused: twice,
        ..config
    })
    .unwrap_err()
    .to_string();
    assert!(
        error.contains("`fused` is a list where `b` occurs twice"),
        "{error}"
    );
}
