//! Checkpoints as people have them: a tied head, tensors without elements, a file without tensors.

mod support;

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use support::{Tensor, config, numbers, read, refuse, succeed, tensors, write};

fn floats(name: &str, shape: &[usize]) -> Tensor {
    Tensor::f32(name, shape, &numbers(shape.iter().product(), 3))
}

/// A folder with embeddings, a layer, and other tensors.
fn model(folder: &Path, others: Vec<Tensor>) {
    fs::create_dir(folder.join("in")).unwrap();
    let mut tensors = vec![
        floats("model.embed_tokens.weight", &[64, 32]),
        floats("model.layers.0.mlp.up_proj.weight", &[64, 32]),
        floats("model.norm.weight", &[32]),
    ];
    tensors.extend(others);
    write(&folder.join("in/model.safetensors"), &tensors);
    fs::write(folder.join("in/config.json"), r#"{"model_type": "llama"}"#).unwrap();
}

/// A head that shares the embeddings' tensor is a linear layer of the model that is not quantized. The config names the head.
#[test]
fn a_tied_head_is_ignored() {
    for (layout, key) in [
        ("mxfp4-pack-quantized", "ignore"),
        (
            "nvfp4-pack-quantized --dialect compressed-tensors",
            "ignore",
        ),
        ("modelopt-nvfp4", "ignore"),
        ("gpt-oss", "modules_to_not_convert"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        model(folder, vec![]);
        let line = format!("quantize in out --layout {layout} --skip *embed*");
        succeed(folder, &line);
        let expected = json!(["model.embed_tokens", "lm_head"]);
        assert_eq!(config(&folder.join("out"))[key], expected, "{layout}");
    }
    // The same with `convert`.
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    model(folder, vec![]);
    succeed(folder, "quantize in out --format mxfp4 --skip *embed*");
    succeed(folder, "convert out again --to compressed-tensors");
    let expected = json!(["model.embed_tokens", "lm_head"]);
    assert_eq!(config(&folder.join("again"))["ignore"], expected);
}

/// A head that has its own tensor is named if the tensor stays, and not named if the tensor is packed.
#[test]
fn a_head_of_its_own() {
    for (skip, expected) in [
        (
            "--skip *embed* --skip lm_head*",
            json!(["lm_head", "model.embed_tokens"]),
        ),
        ("--skip *embed*", json!(["model.embed_tokens"])),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        model(folder, vec![floats("lm_head.weight", &[64, 32])]);
        let line = format!("quantize in out --layout mxfp4-pack-quantized {skip}");
        succeed(folder, &line);
        let mut ignored: Vec<Value> = config(&folder.join("out"))["ignore"]
            .as_array()
            .unwrap()
            .clone();
        ignored.sort_by_key(Value::to_string);
        assert_eq!(json!(ignored), expected, "{skip}");
    }
}

/// A tensor without elements is not a weight: the tensor stays, and stops no other weight.
#[test]
fn tensors_without_elements() {
    for layout in [
        "mxfp4-pack-quantized",
        "nvfp4-pack-quantized --dialect compressed-tensors",
        "modelopt-nvfp4",
        "microscaling --format mxfp4",
        "gptq --format int4(group_size=32)",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let empty = [floats("a.weight", &[0, 32]), floats("b.weight", &[32, 0])];
        model(folder, empty.to_vec());
        let line = format!("quantize in out --layout {layout} --skip *embed* --json");
        let said: Value = serde_json::from_str(&succeed(folder, &line)).unwrap();
        assert_eq!(said["weights"].as_array().unwrap().len(), 1, "{layout}");
        let written = tensors(&folder.join("out"));
        for tensor in &empty {
            assert_eq!(written.get(&tensor.name), Some(tensor), "{layout}");
        }
        succeed(folder, "inspect out");
        succeed(folder, "unpack out --out float.safetensors");
        let unpacked = read(&folder.join("float.safetensors"));
        assert!(unpacked.iter().any(|tensor| tensor.shape == [0, 32]));
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    model(folder, vec![floats("a.weight", &[0, 32])]);
    refuse(
        folder,
        "quantize in out --format mxfp4 --only a.weight",
        &[
            "`a.weight` is without elements, F32 of shape [0, 32]",
            "allowed",
        ],
    );
    assert!(!folder.join("out").exists());
}

#[test]
fn a_file_without_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(&folder.join("none.safetensors"), &[]);
    assert_eq!(succeed(folder, "inspect none.safetensors"), "no tensors\n");
    refuse(
        folder,
        "quantize none.safetensors out --format mxfp4",
        &["there is no tensor to pack"],
    );
}
