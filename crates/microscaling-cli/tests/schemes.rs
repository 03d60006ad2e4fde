//! `quantize --scheme`: the schemes of compressed-tensors, with the library's bytes.

#![allow(clippy::too_many_lines, reason = "tests list their cases")]

mod support;

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use support::{Tensor, checkpoint, config, data, files, numbers, read, refuse, succeed, tensors};

/// A folder of two layers, fused by engines.
fn model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let weight = |name: &str, seed| {
        let name = format!("model.layers.0.{name}.weight");
        Tensor::f32(&name, &[32, 128], &numbers(32 * 128, seed))
    };
    let layers = [
        weight("mlp.gate_proj", 1),
        weight("mlp.up_proj", 2),
        Tensor::f32("lm_head.weight", &[8, 128], &numbers(8 * 128, 3)),
    ];
    checkpoint(&folder.path().join("in"), &layers, &Value::Null);
    folder
}

/// Codes, scales and zero points of every scheme have the bytes of the library's functions, in the types of the weight.
#[test]
fn bytes_are_those_of_the_tool() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut expected: BTreeMap<(String, String), BTreeMap<String, Tensor>> = BTreeMap::new();
    let mut floats = BTreeMap::new();
    for tensor in read(&data().join("schemes.safetensors")) {
        match tensor.name.split('/').collect::<Vec<_>>()[..] {
            [dtype, "weight"] => {
                let name = "a.weight".to_owned();
                floats.insert(dtype.to_owned(), Tensor { name, ..tensor });
            }
            [dtype, scheme, part] => {
                let name = format!("a.{part}");
                let key = (dtype.to_owned(), scheme.to_owned());
                let tensors = expected.entry(key).or_default();
                tensors.insert(name.clone(), Tensor { name, ..tensor });
            }
            _ => panic!("{}", tensor.name),
        }
    }
    let schemes: BTreeSet<&String> = expected.keys().map(|(_, scheme)| scheme).collect();
    assert_eq!((schemes.len(), expected.len()), (32, 89));
    for ((dtype, scheme), expected) in &expected {
        let input = folder.join("in");
        checkpoint(&input, std::slice::from_ref(&floats[dtype]), &Value::Null);
        let fixed = match scheme.as_str() {
            "FP8" => Some("a.input_scale"),
            "NVFP4" => Some("a.input_global_scale"),
            _ => None,
        };
        let option = fixed.map_or("", |_| "--input-max 3");
        succeed(
            folder,
            &format!("quantize in out --scheme {scheme} {option}"),
        );
        let mut found = tensors(&folder.join("out"));
        if let Some(fixed) = fixed {
            assert_eq!(found.remove(fixed).unwrap().shape, [1], "{scheme}");
        }
        assert!(found == *expected, "{dtype} {scheme}: {:?}", found.keys());
        // The config agrees with the tensors.
        fs::copy(
            folder.join("out/model.config.json"),
            folder.join("out/config.json"),
        )
        .unwrap();
        succeed(folder, "unpack out --out values --force");
        succeed(folder, "inspect out");
        for made in ["in", "out"] {
            fs::remove_dir_all(folder.join(made)).unwrap();
        }
    }
}

/// The activations' part of the config, and the tensors of fixed scales.
#[test]
fn inputs() {
    let folder = model();
    let folder = folder.path();
    let group = |scheme: &str, options: &str| {
        let line = format!("quantize in out --scheme {scheme} --skip lm_head* --force {options}");
        succeed(folder, &line);
        let config = config(&folder.join("out"));
        assert_eq!(config["ignore"], json!(["lm_head"]));
        config["config_groups"]["group_0"].clone()
    };
    let number = |name: &str| {
        let found = tensors(&folder.join("out"));
        let bytes = found[&format!("model.layers.0.mlp.{name}")].bytes.clone();
        f32::from_le_bytes(bytes.try_into().unwrap())
    };
    assert_eq!(group("w4a16", "")["input_activations"], Value::Null);
    let inputs = group("W4A8", "")["input_activations"].clone();
    assert_eq!(
        inputs,
        json!({"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token", "dynamic": true})
    );
    let inputs = group("FP8", "--input-max 448")["input_activations"].clone();
    assert_eq!(
        (&inputs["strategy"], &inputs["dynamic"]),
        (&json!("tensor"), &json!(false))
    );
    assert_eq!(number("up_proj.input_scale"), 1.0);
    // A number for each layer, as a calibration measures it.
    let measured = json!({"model.layers.0.mlp.gate_proj": 2688, "model.layers.0.mlp.up_proj": 1344.0, "other": 0});
    fs::write(folder.join("max.json"), measured.to_string()).unwrap();
    let inputs = group("NVFP4", "--input-max max.json")["input_activations"].clone();
    assert_eq!(inputs["dynamic"], "local");
    assert_eq!(number("gate_proj.input_global_scale"), 1.0);
    assert_eq!(number("up_proj.input_global_scale"), 2.0);
    // Fused layers share the scale of the weights.
    assert_eq!(
        number("gate_proj.weight_global_scale"),
        number("up_proj.weight_global_scale")
    );
}

/// The folder has the model's config with the new quantization in place of another.
#[test]
fn the_config_of_the_model() {
    let folder = model();
    let folder = folder.path();
    let text = json!({
        "model_type": "llama", "compression_config": {},
        "text_config": {"hidden_size": 128, "quantization_config": null},
    });
    fs::write(folder.join("in/config.json"), text.to_string()).unwrap();
    let read = |path: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(folder.join(path)).unwrap()).unwrap()
    };
    succeed(folder, "quantize in out --scheme W4A16 --skip lm_head*");
    assert_eq!(
        files(&folder.join("out")),
        ["config.json", "model.config.json", "model.safetensors"]
    );
    let expected = json!({
        "model_type": "llama", "text_config": {"hidden_size": 128},
        "quantization_config": read("out/model.config.json")["quantization_config"],
    });
    assert_eq!(read("out/config.json"), expected);
    succeed(folder, "convert out gptq --to gptq");
    let found = read("gptq/config.json");
    assert_eq!(
        (&found["quantization_config"]["bits"], &found["model_type"]),
        (&json!(4), &json!("llama"))
    );
    // A file alone has no config of a model.
    succeed(
        folder,
        "quantize in/model.safetensors a.safetensors --scheme W4A16",
    );
    assert_eq!(
        files(folder),
        ["a.config.json", "a.safetensors", "gptq", "in", "out"]
    );
    refuse(
        folder,
        "quantize in out --scheme W4A16",
        &["out/", "exists"],
    );
}

/// Model Optimizer's words for the same weights and inputs, and the way back.
#[test]
fn in_model_optimizer() {
    let folder = model();
    let folder = folder.path();
    for (scheme, options, algorithm, shape) in [
        ("FP8", "--input-max 3", "FP8", &[][..]),
        ("FP8_DYNAMIC", "", "FP8_PER_CHANNEL_PER_TOKEN", &[32]),
        ("FP8_BLOCK", "", "FP8_PB_WO", &[1, 1, 1, 1]),
        ("MXFP8", "", "MXFP8", &[32, 4]),
        ("NVFP4A16", "", "W4A16_NVFP4", &[32, 8]),
        ("NVFP4", "--input-max 3", "NVFP4", &[32, 8]),
    ] {
        let line = format!("quantize in out --scheme {scheme} {options} --skip lm_head*");
        succeed(folder, &line);
        succeed(folder, "convert out there --to modelopt");
        let written = config(&folder.join("there"));
        assert_eq!(written["quant_algo"], algorithm);
        let found = tensors(&folder.join("there"));
        let scale = &found["model.layers.0.mlp.up_proj.weight_scale"];
        assert_eq!(scale.shape, shape, "{scheme}");
        succeed(folder, "convert there back --to compressed-tensors");
        assert_eq!(config(&folder.join("back")), config(&folder.join("out")));
        let [before, after] = ["out", "back"].map(|name| tensors(&folder.join(name)));
        // A divisor is the reciprocal of a rounded reciprocal.
        let is_exact = |name: &&String| !name.ends_with("global_scale");
        for name in before.keys().filter(is_exact) {
            assert!(before[name] == after[name], "{scheme} {name}");
        }
        for made in ["out", "there", "back"] {
            fs::remove_dir_all(folder.join(made)).unwrap();
        }
    }
}

#[test]
fn refused() {
    let folder = model();
    let folder = folder.path();
    fs::write(
        folder.join("max.json"),
        r#"{"model.layers.0.mlp.gate_proj": -1}"#,
    )
    .unwrap();
    fs::write(folder.join("text.json"), "3 layers").unwrap();
    for (options, parts) in [
        (
            "--scheme W4A17",
            ["scheme is `W4A17`; allowed: FP8, FP8_DYNAMIC", "MXFP4A16"],
        ),
        ("--scheme FP8", ["`--input-max`", "FP8_DYNAMIC"]),
        ("--scheme NVFP4", ["`--input-max`", "NVFP4A16"]),
        (
            "--scheme NVFP4 --input-max 0",
            ["the largest magnitude is 0", "above 0"],
        ),
        (
            "--scheme NVFP4 --input-max inf",
            ["the largest magnitude is inf", "above 0"],
        ),
        (
            "--scheme W4A16 --input-max 3",
            ["`--input-max` has no effect", "FP8 or NVFP4"],
        ),
        (
            "--scheme FP8 --input-max none.json",
            ["none.json", "No such file"],
        ),
        (
            "--scheme FP8 --input-max text.json",
            ["text.json", "model.layers.0.mlp.up_proj"],
        ),
        (
            "--scheme FP8 --input-max max.json --skip lm_head* --skip *up_proj*",
            [
                "`model.layers.0.mlp.gate_proj`",
                "the largest magnitude is -1",
            ],
        ),
        (
            "--scheme FP8 --input-max max.json --only lm_head*",
            ["`lm_head`: there is none", "a number"],
        ),
        ("--scheme W4A16 --format mxfp4", ["--scheme", "--format"]),
        ("--scheme W4A16 --layout gptq", ["--scheme", "--layout"]),
        (
            "--input-max 3 --format mxfp4",
            ["`--input-max` has no effect", "`--scheme`"],
        ),
    ] {
        refuse(folder, &format!("quantize in out {options}"), &parts);
        assert_eq!(files(folder), ["in", "max.json", "text.json"], "{options}");
    }
    let refused = |shape: &[usize], numbers: &[f32], options: &str, part: &str| {
        fs::remove_dir_all(folder.join("in")).unwrap();
        checkpoint(
            &folder.join("in"),
            &[Tensor::f32("a.weight", shape, numbers)],
            &Value::Null,
        );
        refuse(
            folder,
            &format!("quantize in out {options}"),
            &["`a.weight`", part],
        );
        assert!(!folder.join("out").exists(), "{options}");
    };
    refused(
        &[8, 96],
        &[1.0; 768],
        "--scheme W4A16",
        "its groups have 128 inputs; allowed: a divisor of its 96 inputs",
    );
    refused(
        &[2, 4, 128],
        &[1.0; 1024],
        "--scheme W8A8 --only a.weight",
        "allowed",
    );
    refused(
        &[1, 128],
        &[f32::NAN; 128],
        "--scheme W8A8",
        "a number is NaN; allowed: finite numbers",
    );
}
