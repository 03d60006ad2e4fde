//! Checkpoints with packed weights: the lossless chain, layouts of others, names, shards, refusals.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use burn::backend::NdArray;
use burn::module::{AutodiffModule, Module};
use burn::nn::conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use burn::nn::{
    Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, LinearLayout,
    Relu,
};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::prelude::*;
use burn_mx::checkpoint::{
    Checkpoint, CheckpointError, CheckpointLayout, Saved, difference, inspect,
};
use burn_mx::module::{MxTensorOps, load_checkpoint, save_checkpoint, specs_of};
use burn_mx::ptq::{Activations, QuantConfig, Quantizer};
use burn_mx::{BlockFormat, Dialect, Packed, Rounding, WeightLayout};
use burn_mx::{MxBackend, MxDevice, MxKernels, MxSpecs};
use microscaling::safetensors::PackedFile;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::support::*;

type B = MxBackend<TestBackend>;

/// Layers of every kind that is packed, and some that are not.
#[derive(Module, Debug)]
struct Net<B: Backend> {
    embedding: Embedding<B>,
    conv: Conv2d<B>,
    up: ConvTranspose2d<B>,
    hidden: Vec<Linear<B>>,
    norm: LayerNorm<B>,
    head: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn new(seed: u64, device: &B::Device) -> Self {
        let net = Self {
            embedding: EmbeddingConfig::new(8, 64).init(device),
            conv: Conv2dConfig::new([64, 32], [1, 1]).init(device),
            up: ConvTranspose2dConfig::new([32, 64], [1, 1]).init(device),
            hidden: vec![
                LinearConfig::new(64, 96).init(device),
                LinearConfig::new(96, 64).with_bias(false).init(device),
            ],
            norm: LayerNormConfig::new(64).init(device),
            head: LinearConfig::new(64, 5).init(device),
        };
        with_noise_weights(net, seed)
    }

    /// Logits of two sequences.
    fn forward(&self, device: &B::Device) -> Tensor<B, 2> {
        let tokens = Tensor::<B, 2, Int>::from_ints([[1, 4, 2], [7, 0, 2]], device);
        let [items, length] = tokens.dims();
        let x = self.embedding.forward(tokens).swap_dims(1, 2);
        let x = self.conv.forward(x.reshape([items, 64, length, 1]));
        let x = self.up.forward(x.div_scalar(64.0));
        let x = x.reshape([items, 64, length]).swap_dims(1, 2);
        let x = self.hidden[0].forward(x.div_scalar(64.0));
        let x = self.hidden[1].forward(Relu.forward(x.div_scalar(16.0)));
        let x = self.norm.forward(x).mean_dim(1);
        self.head.forward(x.flatten(1, 2))
    }
}

/// The parts of transformers, each with a place in other tools' layouts.
#[derive(Module, Debug)]
struct Block<B: Backend> {
    norm: LayerNorm<B>,
    hidden: Linear<B>,
    head: Linear<B>,
}

impl<B: Backend> Block<B> {
    fn new(seed: u64, device: &B::Device) -> Self {
        let block = Self {
            norm: LayerNormConfig::new(64).init(device),
            hidden: LinearConfig::new(64, 128).init(device),
            head: LinearConfig::new(128, 32).with_bias(false).init(device),
        };
        with_noise_weights(block, seed)
    }

    fn forward(&self, device: &B::Device) -> Vec<f32> {
        let x = noise_tensor::<B, 2>([5, 64], 101, device);
        let x = self.hidden.forward(self.norm.forward(x));
        values(self.head.forward(Relu.forward(x)))
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("there is room for temporary files")
}

fn files_in(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Specs whose forward product of weights can be had again. Dialects pack no convolution, a packed weight has no hot rows, and other
/// random numbers are drawn in each product.
fn repeatable() -> Vec<(&'static str, MxSpecs)> {
    let names = MxSpecs::PRESETS.iter().copied();
    let specs = names.map(|name| (name, MxSpecs::preset(name).unwrap()));
    specs
        .filter(|(name, specs)| *name != "none" && specs.hadamard_forward.is_none())
        .filter(|(_, specs)| specs.dialect_w.is_none())
        .filter(|(_, specs)| specs.round_mx_output != Some(Rounding::Stochastic))
        .filter(|(_, specs)| specs.resolve().unwrap().hot_columns().is_none())
        .collect()
}

/// A model that was trained for a step, saved, and loaded into another one: logits before and after.
fn chain<K: MxKernels<Device: Default>>(specs: &MxSpecs, path: &Path) -> [Vec<f32>; 2]
where
    burn_mx::MxAutodiff<K>: burn::tensor::backend::AutodiffBackend<
            InnerBackend = MxBackend<K>,
            Device = MxDevice<K::Device>,
        >,
{
    type Train<K> = burn_mx::MxAutodiff<K>;
    let specs = specs.resolve().unwrap();
    let device = MxDevice::new(K::Device::default(), &specs).expect("resolved specs");
    let model = Net::<Train<K>>::new(102, &device);
    let loss = model.forward(&device).powf_scalar(2.0).mean();
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    let model = SgdConfig::new().init().step(1e-3, model, gradients);
    save_checkpoint(&model, path, CheckpointLayout::Microscaling).unwrap();
    let before = values(model.valid().forward(&device));

    let other = Net::<MxBackend<K>>::new(103, &device);
    let loaded = load_checkpoint(other, path).unwrap();
    [before, values(loaded.forward(&device))]
}

#[test]
fn a_loaded_model_computes_what_the_saved_one_did() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    for (name, specs) in repeatable() {
        let [before, after] = chain::<TestBackend>(&specs, &path);
        assert_same_bits(&after, &before, name);
    }
    for name in ["mxfp4", "nvfp4", "mx6"] {
        let [before, after] = chain::<NdArray>(&MxSpecs::preset(name).unwrap(), &path);
        assert_same_bits(&after, &before, &format!("{name} on NdArray"));
    }
    // Without an elementwise format NVFP4's weights do not fit in bfloat16 either.
    let [before, after] = chain::<TestBackend>(&mx_only(MxSpecs::nvfp4()), &path);
    assert_same_bits(&after, &before, "nvfp4 alone");
}

#[test]
fn what_is_packed_is_what_the_product_multiplies_with() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let names = BlockFormat::NAMES.into_iter();
    let more = [
        "nvfp4(tensor_scale=true)",
        "nvfp4(tensor_scale=true,square=true)",
        "mx(element=fp4_e2m1,block_size=32,square=true)",
        "mx(element=fp6_e2m3,block_size=24,scale_mode=even)",
        "bfp(bit_width=12)",
        "mx(element=int4,block_size=0)",
    ];
    for format in names.chain(more) {
        for bfloat in [0, 16] {
            let specs = MxSpecs {
                w_elem_format: Some(format.into()),
                bfloat,
                ..MxSpecs::none()
            };
            let device = mx_device(&specs);
            let layer = LinearConfig::new(48, 80).with_bias(false);
            let layer = with_noise_weights::<B, _>(layer.init(&device), 104);
            let identity = Tensor::<B, 2>::eye(48, &device);
            // One product for each sum, which is exact.
            let multiplied = values(layer.forward(identity));

            save_checkpoint(&layer, &path, CheckpointLayout::Microscaling).unwrap();
            let bytes = fs::read(&path).unwrap();
            let packed = PackedFile::read(&bytes).unwrap();
            let packed: Packed = packed.get("weight").unwrap().unwrap();
            assert_eq!(packed.shape(), [80, 48], "{format}");
            let mut decoded = vec![0.0; 48 * 80];
            for (i, x) in packed.decode().into_iter().enumerate() {
                decoded[i % 48 * 80 + i / 48] = x;
            }
            // The product is rounded to bfloat16 once more, where there is one.
            if bfloat == 16 {
                let result = Tensor::<B, 1>::from_floats(&decoded[..], &device);
                decoded = values(result * 1.0);
            }
            for x in &mut decoded {
                // Integers have no -0; nor does a sum that begins with 0.
                *x += 0.0;
            }
            assert_same_bits(&multiplied, &decoded, &format!("{format}, bfloat {bfloat}"));
        }
    }
}

fn mxfp8() -> MxSpecs {
    MxSpecs::mxfp8_e4m3()
}

/// The layouts of others, and specs whose weights they have.
fn foreign() -> Vec<(WeightLayout, MxSpecs)> {
    vec![
        (WeightLayout::Mxfp4PackQuantized, MxSpecs::mxfp4()),
        (WeightLayout::Mxfp6PackQuantized, MxSpecs::mxfp6_e2m3()),
        (WeightLayout::Mxfp8Quantized, mxfp8()),
        (WeightLayout::ModelOptNvfp4, MxSpecs::nvfp4()),
        (WeightLayout::GptOss, MxSpecs::mxfp4()),
        (WeightLayout::GgufMxfp4, MxSpecs::mxfp4()),
    ]
}

/// The names, types and shapes of the tensors in a file.
fn stored(path: &Path) -> BTreeMap<String, (String, Vec<usize>)> {
    let bytes = fs::read(path).unwrap();
    let file = PackedFile::read(&bytes).unwrap();
    let of = |name: &str| {
        let tensor = file.tensor(name).unwrap();
        (name.to_owned(), (tensor.dtype, tensor.shape))
    };
    file.names().into_iter().map(of).collect()
}

#[test]
fn layouts_of_others_keep_logits_too() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    for (layout, specs) in foreign() {
        let device = mx_device(&specs);
        let model = Block::<B>::new(105, &device);
        let saved = save_checkpoint(&model, &path, layout.into()).unwrap();
        let loaded = load_checkpoint(Block::<B>::new(106, &device), &path).unwrap();
        assert_same_bits(
            &loaded.forward(&device),
            &model.forward(&device),
            layout.name(),
        );
        assert_eq!(saved.packed.len(), 2);

        // PyTorch's names, and its order of a linear layer's axes.
        let stored = stored(&path);
        assert_eq!(stored["norm.weight"], ("F32".to_owned(), vec![64]));
        assert_eq!(stored["hidden.bias"], ("F32".to_owned(), vec![128]));
        let of = |part: &str| {
            let (dtype, shape) = &stored[&format!("hidden.weight{part}")];
            (dtype.clone(), shape.clone())
        };
        let is = |dtype: &str, shape: &[usize]| (dtype.to_owned(), shape.to_vec());
        match layout {
            WeightLayout::Mxfp4PackQuantized => {
                assert_eq!(of("_packed"), is("U8", &[128, 32]));
                assert_eq!(of("_scale"), is("U8", &[128, 2]));
            }
            WeightLayout::Mxfp6PackQuantized => {
                assert_eq!(of("_packed"), is("U8", &[128, 48]));
                assert_eq!(of("_scale"), is("U8", &[128, 2]));
            }
            WeightLayout::Mxfp8Quantized => {
                assert_eq!(of(""), is("F8_E4M3", &[128, 64]));
                assert_eq!(of("_scale"), is("U8", &[128, 2]));
            }
            WeightLayout::ModelOptNvfp4 => {
                assert_eq!(of(""), is("U8", &[128, 32]));
                assert_eq!(of("_scale"), is("F8_E4M3", &[128, 4]));
                assert_eq!(of("_scale_2"), is("F32", &[]));
            }
            WeightLayout::GptOss => {
                assert_eq!(of("_blocks"), is("U8", &[128, 2, 16]));
                assert_eq!(of("_scales"), is("U8", &[128, 2]));
            }
            _ => assert_eq!(of(""), is("U8", &[128, 34])),
        }
        let config = folder.path().join("model.config.json");
        let written = saved
            .quantization_config
            .map(|config| serde_json::json!({ "quantization_config": config }).to_string());
        let read = fs::read_to_string(&config).ok().map(|text| {
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            value.to_string()
        });
        assert_eq!(read, written);
        let _ = fs::remove_file(config);
    }
}

/// The file without this project's metadata, as another tool would write it.
fn without_metadata(path: &Path) {
    let bytes = fs::read(path).unwrap();
    let file = PackedFile::read(&bytes).unwrap();
    let views = file.names().into_iter().map(|name| {
        let tensor = file.tensor(name).unwrap();
        let dtype = match tensor.dtype.as_str() {
            "F32" => safetensors::Dtype::F32,
            "F8_E4M3" => safetensors::Dtype::F8_E4M3,
            _ => safetensors::Dtype::U8,
        };
        let view = safetensors::tensor::TensorView::new(dtype, tensor.shape, tensor.bytes);
        (name, view.unwrap())
    });
    let views: Vec<_> = views.collect();
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn files_of_others_are_understood_by_their_tensors() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    for (layout, specs) in foreign() {
        let device = mx_device(&specs);
        let model = Block::<B>::new(107, &device);
        save_checkpoint(&model, &path, layout.into()).unwrap();
        without_metadata(&path);
        let mut checkpoint = Checkpoint::new(&path);
        if layout == WeightLayout::GgufMxfp4 {
            // Bytes like any others.
            assert!(inspect(&path).unwrap().weights.is_empty());
            checkpoint = checkpoint.layout(layout.into());
        }
        // A device without specs: the weights get the layout's format, nothing else is emulated.
        let plain = MxDevice::<TestDevice>::default();
        let loaded = checkpoint.load(Block::<B>::new(108, &plain)).unwrap();
        let specs = specs_of(&loaded.model.hidden.weight.val()).unwrap();
        let alone = MxSpecs {
            w_elem_format: specs.specs().w_elem_format,
            ..MxSpecs::none()
        };
        assert_eq!(specs, alone.resolve().unwrap(), "{layout}");
        assert_eq!(loaded.packed, ["hidden.weight", "head.weight"]);

        // A device with those that it was saved with.
        let loaded = checkpoint.load(Block::<B>::new(108, &device)).unwrap();
        assert!(loaded.missing.is_empty() && loaded.unused.is_empty());
        let logits = loaded.model.forward(&device);
        assert_same_bits(&logits, &model.forward(&device), layout.name());
    }
}

/// FP8 weights with scales of higher precision: one for the tensor, for each row, or for each block of rows and columns.
#[test]
fn fp8_weights_of_others_become_their_values() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let device = mx_device(&mxfp8());
    let fp8 = burn_mx::ElementFormat::FP8_E4M3;
    let codes: Vec<u8> = (0..128 * 64)
        .map(|i| (i * 7 % 120) as u8 | (i as u8 & 128))
        .collect();
    let head: Vec<u8> = (0..32 * 128)
        .flat_map(|i| (i as f32).to_le_bytes())
        .collect();
    let ones = |count: usize| 1_f32.to_le_bytes().repeat(count);
    // The end of the scales' name, their shape, and the number of the scale of an element.
    type Case = (&'static str, &'static [usize], fn(usize, usize) -> usize);
    let cases: [Case; 6] = [
        ("_scale", &[], |_, _| 0),
        ("_scale", &[1], |_, _| 0),
        ("_scale", &[128], |row, _| row),
        ("_scale", &[128, 1], |row, _| row),
        ("_scale_inv", &[1, 1], |_, _| 0),
        ("_scale_inv", &[4, 2], |row, column| {
            row / 32 * 2 + column / 32
        }),
    ];
    for (end, shape, scale_of) in cases {
        for dtype in [safetensors::Dtype::F32, safetensors::Dtype::BF16] {
            let count: usize = shape.iter().product();
            let scales: Vec<f32> = (0..count).map(|i| 0.75 + i as f32 / 128.0).collect();
            let bytes: Vec<u8> = match dtype {
                safetensors::Dtype::F32 => scales.iter().flat_map(|x| x.to_le_bytes()).collect(),
                _ => {
                    let halves = scales.iter().map(|x| half::bf16::from_f32(*x));
                    halves.flat_map(half::bf16::to_le_bytes).collect()
                }
            };
            let name = format!("hidden.weight{end}");
            let (one, bias) = (ones(64), ones(128));
            let view = |dtype, shape: &[usize], bytes| {
                safetensors::tensor::TensorView::new(dtype, shape.to_vec(), bytes).unwrap()
            };
            let f32 = safetensors::Dtype::F32;
            let tensors = [
                ("norm.weight", view(f32, &[64], &one)),
                ("norm.bias", view(f32, &[64], &one)),
                (
                    "hidden.weight",
                    view(safetensors::Dtype::F8_E4M3, &[128, 64], &codes),
                ),
                (name.as_str(), view(dtype, shape, &bytes)),
                ("hidden.bias", view(f32, &[128], &bias)),
                ("head.weight", view(f32, &[32, 128], &head)),
            ];
            fs::write(&path, safetensors::serialize(tensors, None).unwrap()).unwrap();
            if shape == [4, 2] {
                // Blocks of 32 to 42 rows would give as many scales: nobody guesses.
                let error = Checkpoint::new(&path).load(Block::<B>::new(120, &device));
                let error = error.map(|_| ()).unwrap_err().to_string();
                for part in [
                    "`hidden.weight`",
                    "`hidden.weight_scale_inv` has shape [4, 2]",
                    "allowed: `weight_block_size`",
                ] {
                    assert!(error.contains(part), "{error}");
                }
                let config = r#"{"quantization_config": {"quant_method": "fp8", "weight_block_size": [32, 32]}}"#;
                fs::write(folder.path().join("config.json"), config).unwrap();
            }

            let loaded = Checkpoint::new(&path)
                .load(Block::<B>::new(120, &device))
                .unwrap();
            assert!(loaded.packed.is_empty() && loaded.missing.is_empty());
            assert!(loaded.unused.is_empty(), "{:?}", loaded.unused);
            let _ = fs::remove_file(folder.path().join("config.json"));
            assert!(loaded.others.contains(&"hidden.weight".to_owned()));
            let weight = loaded.model.hidden.weight.val();
            assert_eq!(specs_of(&weight).unwrap(), mxfp8().resolve().unwrap());
            let got = values(weight.transpose());
            for (i, got) in got.into_iter().enumerate() {
                let scale = scales[scale_of(i / 64, i % 64)];
                let scale = match dtype {
                    safetensors::Dtype::F32 => scale,
                    _ => half::bf16::from_f32(scale).to_f32(),
                };
                let expected = fp8.decode(codes[i].into()) * scale;
                assert_eq!(got, expected, "{end} {shape:?} {dtype:?} {i}");
            }
        }
    }
}

#[derive(Module, Debug)]
struct One<B: Backend> {
    layer: Linear<B>,
}

/// Checkpoints that GPTQ, AWQ, compressed-tensors, transformers and Model Optimizer wrote become the values that these libraries
/// give: integers, FP8 with scales, and packed weights beside them.
#[test]
fn weights_of_other_libraries_become_their_values() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("crates/microscaling-cli/tests/data/checkpoints");
    let device = mx_device(&mxfp8());
    for (name, count) in [
        ("gptq", 4),
        ("awq", 1),
        ("ct-int4", 1),
        ("ct-fp8-block", 1),
        ("fp8-scale-inv", 2),
        ("ct-mixed", 2),
        ("modelopt-mixed", 2),
    ] {
        let expected = fs::read(data.join(format!("{name}.expected.safetensors"))).unwrap();
        let expected = safetensors::SafeTensors::deserialize(&expected).unwrap();
        assert_eq!(expected.len(), count, "{name}");
        for (weight, tensor) in expected.tensors() {
            let [outputs, inputs] = tensor.shape()[..] else {
                panic!("{name}: {weight}")
            };
            let layer = LinearConfig::new(inputs, outputs).with_bias(false);
            let model = One {
                layer: layer.init::<B>(&device),
            };
            let module = weight.strip_suffix("weight").unwrap();
            let checkpoint = Checkpoint::new(data.join(name));
            let checkpoint = checkpoint.rename(format!("^{}", regex_of(module)), "layer.");
            let loaded = checkpoint.unwrap().load(model).unwrap();
            assert!(loaded.missing.is_empty(), "{name}: {weight}");
            let got = values(loaded.model.layer.weight.val().transpose());
            let values = tensor.data().as_chunks().0.iter();
            let expected: Vec<f32> = values.map(|bytes| f32::from_le_bytes(*bytes)).collect();
            // Packed weights have zeros of either sign.
            assert!(got == expected, "{name}: {weight}");
        }
    }
}

fn regex_of(name: &str) -> String {
    name.replace('.', "\\.")
}

/// A weight that nobody here reads, and a config.json that contradicts the tensors: errors before any weight is loaded.
#[test]
fn weights_of_others_that_are_not_read_are_errors() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("crates/microscaling-cli/tests/data/checkpoints/gptq");
    let folder = folder();
    let device = mx_device(&mxfp8());
    let file = "model.safetensors";
    fs::copy(data.join(file), folder.path().join(file)).unwrap();
    let config = fs::read_to_string(data.join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    let load = |partial: bool| {
        let layer = LinearConfig::new(64, 32)
            .with_bias(false)
            .init::<B>(&device);
        let checkpoint = Checkpoint::new(folder.path())
            .rename("^bits4\\.", "layer.")
            .unwrap();
        let checkpoint = if partial {
            checkpoint.partial()
        } else {
            checkpoint
        };
        let loaded = checkpoint.load(One { layer });
        loaded.map(|_| ()).map_err(|error| error.to_string())
    };
    for (field, value, parts) in [
        (
            "group_size",
            serde_json::json!(64),
            ["group_size 64 in `gptq`", "have 16"],
        ),
        (
            "quant_method",
            serde_json::json!("hqq"),
            ["quant_method is \"hqq\"", "allowed: compressed-tensors"],
        ),
    ] {
        let mut changed = config.clone();
        changed["quantization_config"][field] = value;
        fs::write(folder.path().join("config.json"), changed.to_string()).unwrap();
        for partial in [false, true] {
            let error = load(partial).unwrap_err();
            for part in parts {
                assert!(error.contains(part), "{error}");
            }
        }
    }
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    load(false).unwrap();
    // A layer of bitsandbytes beside them.
    let bytes = fs::read(data.join(file)).unwrap();
    let read = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let (codes, scales) = ([0_u8; 64], [0_u8; 32]);
    let view = |dtype, shape: Vec<usize>, bytes| {
        safetensors::tensor::TensorView::new(dtype, shape, bytes).unwrap()
    };
    let more = [
        (
            "b.weight".to_owned(),
            view(safetensors::Dtype::I8, vec![8, 8], &codes),
        ),
        (
            "b.SCB".to_owned(),
            view(safetensors::Dtype::F32, vec![8], &scales),
        ),
    ];
    let tensors = read.tensors().into_iter().chain(more);
    let bytes = safetensors::serialize(tensors, None).unwrap();
    fs::write(folder.path().join(file), bytes).unwrap();
    let error = load(false).unwrap_err();
    assert!(
        error.contains("`b.weight` is quantized and cannot be read"),
        "{error}"
    );
    // A model without this layer.
    load(true).unwrap();
}

#[test]
fn what_was_loaded_is_saved_as_it_was_and_trains_on() {
    let folder = folder();
    let [one, two] = ["one", "two"].map(|name| folder.path().join(format!("{name}.safetensors")));
    for name in ["nvfp4", "mx4", "mxfp8_rceil"] {
        let specs = MxSpecs::preset(name).unwrap();
        let device = mx_device(&specs);
        let model = Net::<Mx>::new(109, &device);
        let layout = CheckpointLayout::Microscaling;
        save_checkpoint(&model, &one, layout).unwrap();
        let model = load_checkpoint(Net::<Mx>::new(110, &device), &one).unwrap();
        save_checkpoint(&model, &two, layout).unwrap();
        assert_eq!(fs::read(&one).unwrap(), fs::read(&two).unwrap(), "{name}");

        // To another device, and back from autodiff: the same numbers.
        let logits = values(model.valid().forward(&device));
        let moved = model.clone().to_device(&device).valid();
        assert_same_bits(&values(moved.forward(&device)), &logits, name);

        // A step on, the weights are quantized anew: as by a model that never was in a file.
        let step = |model: Net<Mx>| {
            let loss = model.forward(&device).powf_scalar(2.0).mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            SgdConfig::new().init().step(1e-2, model, gradients)
        };
        let trained = step(model);
        let mut masters = weights(&trained).into_iter();
        struct Put<'a>(&'a mut dyn Iterator<Item = Vec<f32>>);
        impl<B: Backend> burn::module::ModuleMapper<B> for Put<'_> {
            fn map_float<const D: usize>(
                &mut self,
                param: burn::module::Param<Tensor<B, D>>,
            ) -> burn::module::Param<Tensor<B, D>> {
                param.map(|tensor| {
                    let data = TensorData::new(self.0.next().unwrap(), tensor.shape());
                    Tensor::from_data(data, &tensor.device()).require_grad()
                })
            }
        }
        let fresh = Net::<Mx>::new(111, &device).map(&mut Put(&mut masters));
        let expected = values(fresh.valid().forward(&device));
        assert_same_bits(
            &values(trained.valid().forward(&device)),
            &expected,
            &format!("{name}, trained on"),
        );
    }
}

fn net() -> (Net<B>, MxDevice<TestDevice>) {
    let device = mx_device(&MxSpecs::mxfp4());
    (Net::new(112, &device), device)
}

#[test]
fn shards_are_one_checkpoint() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let (model, device) = net();
    let logits = values(model.forward(&device));
    let whole = save_checkpoint(&model, &path, CheckpointLayout::Microscaling).unwrap();
    for (version, shard_bytes) in [("", 4096), ("-v2", 4096), ("", 2000)] {
        let checkpoint = Checkpoint::new(&path).shards(shard_bytes);
        let Saved { files, bytes, .. } = checkpoint.save(&model).unwrap();
        assert_eq!(bytes, whole.bytes);
        let shards = files.len() - 1;
        assert!(shards > 2, "{files:?}");
        // The old files are gone, and so is the one file that was here first.
        let mut expected: Vec<String> = (1..=shards)
            .map(|i| format!("model{version}-{i:05}-of-{shards:05}.safetensors"))
            .collect();
        expected.push("model.safetensors.index.json".into());
        expected.sort();
        assert_eq!(files_in(&folder), expected);
        for path in [&path, &files[shards], &folder.path().to_path_buf()] {
            let loaded = load_checkpoint(Net::<B>::new(113, &device), path).unwrap();
            assert_same_bits(&values(loaded.forward(&device)), &logits, "shards");
        }
    }
    // And back to one.
    save_checkpoint(&model, &path, CheckpointLayout::Microscaling).unwrap();
    assert_eq!(files_in(&folder), ["model.safetensors"]);
    let loaded = load_checkpoint(Net::<B>::new(113, &device), folder.path()).unwrap();
    assert_same_bits(&values(loaded.forward(&device)), &logits, "one file");
}

#[test]
fn names_filters_and_layers_that_are_left_out() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let (model, device) = net();
    let checkpoint = Checkpoint::new(&path)
        .rename(r"^hidden\.(\d)\.", "mlp.$1.up.")
        .unwrap();
    let saved = checkpoint.leave_unpacked("head").save(&model).unwrap();
    let names: Vec<&str> = saved
        .packed
        .iter()
        .map(|weight| weight.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "conv.weight",
            "up.weight",
            "mlp.0.up.weight",
            "mlp.1.up.weight"
        ]
    );
    let stored = stored(&path);
    assert_eq!(stored["head.weight"], ("F32".to_owned(), vec![64, 5]));

    let back = Checkpoint::new(&path)
        .rename(r"^mlp\.(\d)\.up\.", "hidden.$1.")
        .unwrap();
    let loaded = back.load(Net::<B>::new(114, &device)).unwrap();
    let logits = values(model.forward(&device));
    assert_same_bits(&values(loaded.model.forward(&device)), &logits, "renamed");

    // By its own names half of the model is missing.
    let error = Checkpoint::new(&path)
        .load(Net::<B>::new(114, &device))
        .unwrap_err();
    let message = error.to_string();
    assert!(
        matches!(error, CheckpointError::Missing { .. }),
        "{message}"
    );
    assert!(message.contains("hidden.0.weight") && message.contains("mlp.0.up.weight.scales"));
    let partial = Checkpoint::new(&path)
        .partial()
        .load(Net::<B>::new(114, &device))
        .unwrap();
    assert_eq!(
        partial.missing,
        ["hidden.0.bias", "hidden.0.weight", "hidden.1.weight"]
    );
    assert_eq!(
        partial.unused,
        ["mlp.0.up.weight", "mlp.1.up.weight", "mlp.0.up.bias"]
    );

    // A filter's rest does not change.
    let filter = burn_store::PathFilter::new().with_regex("^head");
    let other = Net::<B>::new(114, &device);
    let loaded = Checkpoint::new(&path)
        .filter(filter)
        .partial()
        .load(other.clone())
        .unwrap()
        .model;
    assert_eq!(
        values(loaded.head.weight.val()),
        values(model.head.weight.val())
    );
    assert_eq!(
        values(loaded.conv.weight.val()),
        values(other.conv.weight.val())
    );
}

#[test]
fn a_weight_in_columns_is_stored_as_any_other() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let device = mx_device(&MxSpecs::mxfp6_e2m3());
    let layer = |layout, seed, outputs| {
        let layer = LinearConfig::new(32, outputs)
            .with_layout(layout)
            .init::<B>(&device);
        with_noise_weights::<B, _>(layer, seed)
    };
    let x = || noise_tensor::<B, 2>([3, 32], 115, &device);
    for (from, to) in [
        (LinearLayout::Col, LinearLayout::Row),
        (LinearLayout::Row, LinearLayout::Col),
        (LinearLayout::Col, LinearLayout::Col),
    ] {
        // Packed weights, weights of Burn's and of PyTorch's layout, and square ones, whose layout only the values tell.
        let packed = |checkpoint: Checkpoint| checkpoint;
        let unpacked = |checkpoint: Checkpoint| checkpoint.leave_unpacked("weight");
        let as_pytorch = |checkpoint: Checkpoint| {
            let layout = CheckpointLayout::from(WeightLayout::Mxfp4PackQuantized);
            checkpoint.layout(layout).leave_unpacked("weight")
        };
        let ways: [fn(Checkpoint) -> Checkpoint; 3] = [packed, unpacked, as_pytorch];
        for (way, outputs) in ways.into_iter().flat_map(|way| [(way, 24), (way, 32)]) {
            let model = layer(from, 116, outputs);
            way(Checkpoint::new(&path)).save(&model).unwrap();
            let used = layer(to, 117, outputs);
            let fresh = LinearConfig::new(32, outputs).with_layout(to);
            for into in [used, fresh.init::<B>(&device)] {
                let loaded = load_checkpoint(into, &path).unwrap();
                assert_same_bits(
                    &values(loaded.forward(x())),
                    &values(model.forward(x())),
                    "columns",
                );
                // Burn saves the layer as before.
                let saved = loaded.weight.transform_for_save().val().dims();
                let rows = [32, outputs];
                let columns = [outputs, 32];
                assert_eq!(
                    saved,
                    if matches!(to, LinearLayout::Col) {
                        columns
                    } else {
                        rows
                    }
                );
            }
        }
    }
}

#[test]
fn bytes_of_a_dialect_and_how_they_differ() {
    let folder = folder();
    let path = |name: &str| folder.path().join(format!("{name}.safetensors"));
    let device = mx_device(&MxSpecs::nvfp4());
    let model = Block::<B>::new(118, &device);
    let layout = CheckpointLayout::from(WeightLayout::Nvfp4PackQuantized);
    let checkpoint = |name| Checkpoint::new(path(name)).layout(layout);
    // Its divisor says only reciprocals of float32 numbers; the tool's own bytes are made for it.
    checkpoint("tool")
        .dialect(Dialect::CompressedTensors)
        .save(&model)
        .unwrap();
    assert_eq!(
        stored(&path("tool"))["head.weight_global_scale"],
        ("F32".to_owned(), vec![1])
    );
    Checkpoint::new(path("own")).save(&model).unwrap();
    let (differences, only) = difference(path("own"), path("tool")).unwrap();
    assert!(only.is_empty());
    assert_eq!(differences.len(), 2);
    for weight in differences {
        let difference = weight.difference.unwrap();
        assert!(
            difference.elements > 0 && !difference.is_none(),
            "{weight:?}"
        );
        // A few of thousands of elements are rounded to a neighbour.
        assert!(
            difference.elements_differ < difference.elements / 100,
            "{weight:?}"
        );
    }
    let (same, _) = difference(path("own"), path("own")).unwrap();
    assert!(
        same.iter()
            .all(|weight| weight.difference.unwrap().is_none())
    );

    let loaded = load_checkpoint(Block::<B>::new(119, &device), path("tool")).unwrap();
    let bytes = fs::read(path("tool")).unwrap();
    checkpoint("again").save(&loaded).unwrap();
    let again = fs::read(path("again")).unwrap();
    let [one, two] = [&bytes, &again].map(|bytes| PackedFile::read(bytes).unwrap());
    for name in one.names() {
        assert_eq!(one.tensor(name), two.tensor(name), "{name}");
    }
}

#[test]
fn mxfp4_takes_four_and_a_quarter_bits_a_weight() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let device = mx_device(&MxSpecs::mxfp4());
    let config = TransformerEncoderConfig::new(128, 256, 4, 2);
    let model: TransformerEncoder<B> = config.init(&device);
    let layouts = [
        CheckpointLayout::Microscaling,
        WeightLayout::Mxfp4PackQuantized.into(),
        WeightLayout::GptOss.into(),
        WeightLayout::GgufMxfp4.into(),
    ];
    for layout in layouts {
        let saved = save_checkpoint(&model, &path, layout).unwrap();
        let weights: usize = saved
            .packed
            .iter()
            .map(|weight| weight.shape.iter().product::<usize>())
            .sum();
        let bytes: u64 = saved.packed.iter().map(|weight| weight.bytes).sum();
        assert_eq!(weights, 2 * (4 * 128 * 128 + 2 * 128 * 256));
        assert_eq!(bytes as f64 * 8.0 / weights as f64, 4.25, "{layout}");
        // Norms and biases beside, and the header.
        let file = fs::metadata(&path).unwrap().len();
        assert!(
            file > saved.bytes && file < saved.bytes + 24_000,
            "{layout}: {file}"
        );
    }
    let loaded = load_checkpoint(config.init(&device), &path).unwrap();
    let forward = |model: &TransformerEncoder<B>| {
        let x = noise_tensor::<B, 3>([2, 5, 128], 120, &device);
        values(model.forward(TransformerEncoderInput::new(x)))
    };
    assert_same_bits(&forward(&loaded), &forward(&model), "transformer");
}

/// The message of an error before which nothing is written.
#[track_caller]
fn refused<C: MxTensorOps, M: Module<C>>(
    checkpoint: impl Fn(Checkpoint) -> Checkpoint,
    model: &M,
) -> String {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    fs::write(&path, "what was here").unwrap();
    let error = checkpoint(Checkpoint::new(&path)).save(model).unwrap_err();
    assert_eq!(fs::read_to_string(&path).unwrap(), "what was here");
    assert_eq!(files_in(&folder), ["model.safetensors"]);
    error.to_string()
}

#[test]
fn what_a_layout_cannot_say_is_refused() {
    let block = |specs: &MxSpecs| Block::<B>::new(121, &mx_device(specs));
    let says = |message: String, parts: &[&str]| {
        for part in parts {
            assert!(message.contains(part), "{message}: no {part}");
        }
    };
    let mxfp4 = CheckpointLayout::from(WeightLayout::Mxfp4PackQuantized);
    let other = refused::<B, _>(|to| to.layout(mxfp4), &block(&MxSpecs::mxfp6_e2m3()));
    says(
        other,
        &["mxfp4-pack-quantized", "hidden.weight", "mxfp6_e2m3"],
    );
    let (net, _) = net();
    let convolution = refused::<B, _>(|to| to.layout(mxfp4), &net);
    says(convolution, &["conv.weight", "[32, 64, 1, 1]"]);
    let left = |to: Checkpoint| to.layout(mxfp4).leave_unpacked("conv").leave_unpacked("up");
    left(Checkpoint::new(folder().path().join("a.safetensors")))
        .save(&net)
        .unwrap();
    let dialect = refused::<B, _>(|to| to.dialect(Dialect::Quark), &net);
    says(dialect, &["conv.weight", "convolution", "dialect"]);

    let stochastic = MxSpecs {
        round_mx_output: Some("stochastic".parse().unwrap()),
        ..MxSpecs::mxfp4()
    };
    let drawn = refused::<B, _>(|to| to, &block(&stochastic));
    says(drawn, &["hidden.weight", "round_mx_output", "stochastic"]);
    let quartet = refused::<B, _>(|to| to, &block(&MxSpecs::quartet()));
    says(quartet, &["hidden.weight", "hadamard_forward", "32"]);
    let kept = MxSpecs {
        hot_columns: Some("hot_columns(format=mxfp8_e4m3)".parse().unwrap()),
        ..MxSpecs::mxfp4()
    };
    for specs in [kept, MxSpecs::chon()] {
        let hot = refused::<B, _>(|to| to, &block(&specs));
        says(hot, &["hidden.weight", "hot_columns"]);
    }

    let plain = block(&MxSpecs::mxfp4());
    let none = refused::<B, _>(|to| to.leave_unpacked("body.*"), &plain);
    says(none, &["body.*", "hidden.weight"]);
    let shards = refused::<B, _>(|to| to.shards(0), &plain);
    says(shards, &["0", "1 or more"]);
    let same = refused::<B, _>(|to| to.rename("hidden|head", "x").unwrap(), &plain);
    says(same, &["x.weight", "differ"]);
    let nan = |x: Tensor<B, 2>| x.slice_fill([0..1, 0..1], f32::NAN);
    let mut broken = plain.clone();
    broken.hidden.weight = broken.hidden.weight.map(nan);
    let number = refused::<B, _>(|to| to.layout(mxfp4), &broken);
    says(number, &["hidden.weight", "NaN"]);
    assert!(matches!(
        Checkpoint::new("x").rename("(", ""),
        Err(CheckpointError::Rename { .. })
    ));

    let nothing = refused::<B, _>(|to| to.rename("^haed", "x").unwrap(), &plain);
    says(nothing, &["`^haed`", "hidden.weight", "head.weight"]);
    // Each rule applies to the names that the rules before it make.
    let again = |to: Checkpoint| to.rename("^head", "x")?.rename("^head", "y");
    let nothing = refused::<B, _>(|to| again(to).unwrap(), &plain);
    says(nothing, &["`^head`", "x.weight"]);

    let base = folder();
    let error = Checkpoint::new(base.path()).save(&plain).unwrap_err();
    says(error.to_string(), &["is a folder", "model.safetensors"]);
    let file = base.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Checkpoint::new(file.join("below/x.safetensors")).save(&plain);
    let error = error.unwrap_err();
    assert!(!error.to_string().contains(".partial"), "{error}");
    says(error.to_string(), &["file/below", "irectory"]);
    let below = base.path().join("some/folder/x.safetensors");
    Checkpoint::new(&below).save(&plain).unwrap();
    let load = |from: &str| {
        Checkpoint::new(&below)
            .rename(from, "x")
            .unwrap()
            .load(plain.clone())
    };
    let error = load("^haed").unwrap_err().to_string();
    says(error, &["`^haed`", "hidden.weight", "head.weight"]);

    let missing = Checkpoint::new(folder().path().join("no/such.safetensors"));
    assert!(matches!(
        missing.load(plain),
        Err(CheckpointError::Io { .. })
    ));
    let empty = folder();
    let error = Checkpoint::new(empty.path()).load(net).unwrap_err();
    assert!(
        matches!(error, CheckpointError::NoCheckpoint { .. }),
        "{error}"
    );
}

#[test]
fn a_file_that_does_not_fit_is_refused() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let device = mx_device(&MxSpecs::mxfp4());
    let layer = |outputs| {
        let layer = LinearConfig::new(64, outputs).init::<B>(&device);
        with_noise_weights::<B, _>(layer, 122)
    };
    save_checkpoint(&layer(32), &path, CheckpointLayout::Microscaling).unwrap();
    let error = load_checkpoint(layer(33), &path).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, CheckpointError::Shape { .. }), "{message}");
    assert!(
        message.contains("[32, 64]") && message.contains("[33, 64]"),
        "{message}"
    );

    // The file's specs are checked, too.
    let bytes = fs::read(&path).unwrap();
    let broken = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let at = bytes
            .windows(from.len())
            .position(|window| window == from.as_bytes());
        let mut bytes = bytes.clone();
        bytes[at.unwrap()..][..to.len()].copy_from_slice(to.as_bytes());
        let path = folder.path().join("broken.safetensors");
        fs::write(&path, bytes).unwrap();
        load_checkpoint(layer(32), &path).unwrap_err()
    };
    let specs = broken(r#"\"block_size\":32"#, r#"\"block_size\":-1"#);
    assert!(matches!(specs, CheckpointError::Json { .. }), "{specs}");
    let number = broken(r#"\"weight\":0"#, r#"\"weight\":7"#);
    assert!(matches!(number, CheckpointError::Json { .. }), "{number}");
    let format = broken("mxfp4", "mxfp5");
    assert!(matches!(format, CheckpointError::File { .. }), "{format}");

    let index = folder.path().join("x.safetensors.index.json");
    for (text, what) in [
        ("{", "the index"),
        (
            r#"{"metadata": {}, "weight_map": {"a": "../model.safetensors"}}"#,
            "is not a file name",
        ),
        (
            r#"{"metadata": {}, "weight_map": {"a": "none.safetensors"}}"#,
            "none.safetensors",
        ),
    ] {
        fs::write(&index, text).unwrap();
        let error = load_checkpoint(layer(32), &index).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any change of a file is an error, or gives a model.
    #[test]
    fn hostile_files_do_no_harm(
        layout in 0..CheckpointLayout::ALL.len(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
        cut in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        let layout = CheckpointLayout::ALL[layout];
        let preset = match layout {
            CheckpointLayout::Weights(WeightLayout::Mxfp6PackQuantized) => MxSpecs::mxfp6_e2m3(),
            CheckpointLayout::Weights(WeightLayout::Mxfp8Quantized) => MxSpecs::mxfp8_e4m3(),
            CheckpointLayout::Weights(WeightLayout::ModelOptNvfp4 | WeightLayout::Nvfp4PackQuantized) => MxSpecs::nvfp4(),
            _ => MxSpecs::mxfp4(),
        };
        let device = mx_device(&preset);
        let layer = || with_noise_weights::<B, _>(LinearConfig::new(32, 4).init::<B>(&device), 123);
        let folder = folder();
        let path = folder.path().join("model.safetensors");
        let checkpoint = Checkpoint::new(&path).layout(layout);
        let checkpoint = match layout {
            CheckpointLayout::Weights(WeightLayout::Nvfp4PackQuantized) => checkpoint.dialect(Dialect::CompressedTensors),
            _ => checkpoint,
        };
        checkpoint.save(&layer()).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        for (at, byte) in &changes {
            // Most of them in the header.
            let length = bytes.len() / 3;
            bytes[at.index(length)] = *byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(&path, bytes).unwrap();
        if let Ok(loaded) = load_checkpoint(layer(), &path) {
            prop_assert_eq!(loaded.weight.dims(), [32, 4]);
        }
        let _ = inspect(&path);
    }
}

/// A layer's own scales of its input, which the text of its specs leaves out.
#[test]
fn static_scales_are_saved_too() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let device = MxDevice::<TestDevice>::default();
    let model = Block::<B>::new(124, &device);
    let config = QuantConfig {
        activations: Activations::Static,
        ..QuantConfig::named("MXFP6E2M3").unwrap()
    };
    let batch = |seed| noise_tensor::<B, 2>([5, 64], seed, &device);
    let pass = |model: &Block<B>, x: &Tensor<B, 2>| {
        let x = model.hidden.forward(model.norm.forward(x.clone()));
        model.head.forward(Relu.forward(x))
    };
    let quantizer = Quantizer::new(config).unwrap();
    let model = quantizer
        .quantize(model, &[batch(125)], pass)
        .unwrap()
        .model;
    save_checkpoint(&model, &path, CheckpointLayout::Microscaling).unwrap();
    let loaded = load_checkpoint(Block::<B>::new(126, &device), &path).unwrap();
    assert!(
        specs_of(&loaded.head.weight.val())
            .unwrap()
            .has_static_input()
    );
    // Larger inputs than the calibration's are cut off, also after loading.
    let x = batch(127).mul_scalar(3.0);
    let [got, wanted] = [&loaded, &model].map(|model| values(pass(model, &x)));
    assert_same_bits(&got, &wanted, "static");
    let bytes = fs::read(&path).unwrap();
    let from = br#"\"length\":64"#;
    let at = bytes
        .windows(from.len())
        .position(|window| window == from)
        .unwrap();
    let mut broken = bytes.clone();
    broken[at..][..from.len()].copy_from_slice(br#"\"length\":99"#);
    fs::write(&path, broken).unwrap();
    let error = load_checkpoint(Block::<B>::new(126, &device), &path).unwrap_err();
    assert!(error.to_string().contains("input do not fit"), "{error}");
}
