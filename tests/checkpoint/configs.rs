//! Loading beside a `config.json`: of the same model, of another one, or of none.

use std::fs;
use std::path::Path;

use burn::module::{Module, Param, ParamId};
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::DType;
use burn_mx::checkpoint::{Checkpoint, CheckpointLayout};
use burn_mx::module::{load_checkpoint, save_checkpoint};
use burn_mx::{MxBackend, MxSpecs, WeightLayout};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::support::*;

type B = MxBackend<TestBackend>;

#[derive(Module, Debug)]
struct One<B: Backend> {
    layer: Linear<B>,
}

impl<B: Backend> One<B> {
    fn new(size: usize, seed: u64, device: &B::Device) -> Self {
        let layer = LinearConfig::new(size, size).with_bias(false);
        let layer = with_noise_weights(layer.init(device), seed);
        Self { layer }
    }
}

fn weight(model: &One<B>) -> Vec<f32> {
    values(model.layer.weight.val())
}

fn write(path: &Path, tensors: &[(&str, Dtype, &[usize], &[u8])]) {
    let tensors = tensors.iter().map(|(name, dtype, shape, bytes)| {
        let view = TensorView::new(*dtype, shape.to_vec(), bytes);
        (*name, view.unwrap())
    });
    fs::write(path, safetensors::serialize(tensors, None).unwrap()).unwrap();
}

fn floats(count: usize) -> Vec<u8> {
    let values = (0..count).map(|i| i as f32 / 8.0 - 3.0);
    values.flat_map(f32::to_le_bytes).collect()
}

/// burn-mx's files describe themselves. The config beside them may be of another model, or no JSON at all.
#[test]
fn own_files_need_no_config() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trained.safetensors");
    let layouts = [
        CheckpointLayout::Microscaling,
        WeightLayout::Mxfp8Quantized.into(),
    ];
    for specs in [MxSpecs::default(), MxSpecs::mxfp8_e4m3()] {
        let device = mx_device(&specs);
        for layout in layouts {
            let model = One::<B>::new(64, 1, &device);
            save_checkpoint(&model, &path, layout).unwrap();
            let expected = load_checkpoint(One::new(64, 2, &device), &path).unwrap();
            for config in [
                r#"{"quantization_config": {"quant_method": "bitsandbytes"}}"#,
                r#"{"quantization_config": {"quant_method": "gptq", "bits": 3, "group_size": 128}}"#,
                "// not JSON",
            ] {
                fs::write(folder.path().join("config.json"), config).unwrap();
                let loaded = load_checkpoint(One::new(64, 3, &device), &path);
                let loaded = loaded.unwrap_or_else(|error| panic!("{layout}, {config}: {error}"));
                assert_eq!(weight(&loaded), weight(&expected), "{layout}, {config}");
            }
            fs::remove_file(folder.path().join("config.json")).unwrap();
        }
    }
}

/// A layer that a user quantized by hand, with the names that compressed-tensors has for integers of 4 bits.
#[derive(Module, Debug)]
struct ByHand<B: Backend> {
    weight_packed: Param<Tensor<B, 2, Int>>,
    weight_scale: Param<Tensor<B, 2>>,
    weight_shape: Param<Tensor<B, 1, Int>>,
}

impl<B: Backend> ByHand<B> {
    fn new(first: i32, device: &B::Device) -> Self {
        let options = (device, DType::I32);
        let words: Vec<i32> = (first..first + 8).collect();
        let words = Tensor::from_data(TensorData::new(words, [2, 4]), options);
        let shape = Tensor::from_data(TensorData::new(vec![2, 32], [2]), options);
        Self {
            weight_packed: Param::initialized(ParamId::new(), words),
            weight_scale: Param::from_tensor(Tensor::ones([2, 1], device)),
            weight_shape: Param::initialized(ParamId::new(), shape),
        }
    }
}

#[test]
fn a_models_integers_stay_integers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let layout = CheckpointLayout::Microscaling;
    save_checkpoint(&ByHand::<B>::new(7, &device), &path, layout).unwrap();
    let loaded = load_checkpoint(ByHand::<B>::new(1, &device), &path).unwrap();
    let words = loaded.weight_packed.val().into_data();
    let words: Vec<i64> = words.iter::<i64>().collect();
    assert_eq!(words, (7..15).collect::<Vec<_>>());
}

/// `null` says as much as a missing field. Nothing says that bytes are codes.
#[test]
fn a_config_of_null_says_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    write(
        &path,
        &[
            ("layer.weight", Dtype::F32, &[8, 8], &floats(64)),
            ("mask", Dtype::U8, &[8, 8], &[1; 64]),
            ("norm.weight_scale", Dtype::F32, &[8], &floats(8)),
        ],
    );
    let config = r#"{"model_type": "gpt2", "quantization_config": null}"#;
    fs::write(folder.path().join("config.json"), config).unwrap();
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let loaded = Checkpoint::new(&path).load(One::<B>::new(8, 4, &device));
    let loaded = loaded.unwrap();
    let expected: Vec<f32> = (0..64).map(|i| i as f32 / 8.0 - 3.0).collect();
    assert_eq!(weight(&loaded.model), expected);
    assert_eq!(loaded.unused, ["mask", "norm.weight_scale"]);
}

/// The codes of a weight that nobody here reads are integers, which a model would take for its weights.
#[test]
fn codes_do_not_become_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let codes: Vec<u8> = (0..64).collect();
    write(
        &path,
        &[
            ("layer.weight", Dtype::I8, &[8, 8], &codes),
            ("layer.SCB", Dtype::F32, &[8], &floats(8)),
        ],
    );
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let model = || One::<B>::new(8, 5, &device);
    for config in [None, Some(r#"{"model_type": "llama"}"#)] {
        if let Some(config) = config {
            fs::write(folder.path().join("config.json"), config).unwrap();
        }
        let error = Checkpoint::new(&path).load(model()).map(|_| ());
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("`layer.weight`: the weight is quantized and cannot be read"),
            "{error}"
        );
        let loaded = Checkpoint::new(&path).partial().load(model()).unwrap();
        assert_eq!(loaded.missing, ["layer.weight"]);
        assert_eq!(weight(&loaded.model), weight(&model()));
    }
}

/// The file has a float weight beside the parts of a quantized one.
#[test]
fn two_weights_of_one_name_are_an_error() {
    let gptq = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("crates/microscaling-cli/tests/data/checkpoints/gptq");
    let folder = tempfile::tempdir().unwrap();
    let (config, file) = ("config.json", "model.safetensors");
    fs::copy(gptq.join(config), folder.path().join(config)).unwrap();
    let bytes = fs::read(gptq.join(file)).unwrap();
    let read = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let more = floats(64 * 32);
    let more = TensorView::new(Dtype::F32, vec![32, 64], &more).unwrap();
    let tensors = read.tensors().into_iter();
    let tensors = tensors.chain([("bits4.weight".to_owned(), more)]);
    let bytes = safetensors::serialize(tensors, None).unwrap();
    fs::write(folder.path().join(file), bytes).unwrap();
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let layer = LinearConfig::new(64, 32).with_bias(false).init(&device);
    let checkpoint = Checkpoint::new(folder.path()).rename("^bits4\\.", "layer.");
    let error = checkpoint.unwrap().load(One::<B> { layer }).map(|_| ());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the name `bits4.weight`"), "{error}");
}
