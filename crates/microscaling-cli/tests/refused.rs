//! Fields of config.json with which the tensors are not the model's weights, and words nobody knows.

mod support;

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use support::{data, files, refuse, run, succeed};

/// Copies a folder of the data to `m`, and gives its config.
fn copy(name: &str, folder: &Path) -> Value {
    let to = folder.join("m");
    let _ = fs::remove_dir_all(&to);
    fs::create_dir_all(&to).unwrap();
    for file in files(&data().join(name)) {
        fs::copy(data().join(name).join(&file), to.join(&file)).unwrap();
    }
    let config = fs::read_to_string(to.join("config.json")).unwrap();
    serde_json::from_str(&config).unwrap()
}

fn put(folder: &Path, config: &Value) {
    fs::write(folder.join("m/config.json"), config.to_string()).unwrap();
}

/// `unpack`, `convert` to every kind of target, and `inspect` name the field.
#[test]
fn fields_of_another_model() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let hadamard = json!({"config_groups": {"R1": {"type": "hadamard"}}});
    let sparse = json!({"format": "sparse-24-bitmask", "targets": ["Linear"]});
    for (name, field, value, allowed) in [
        (
            "ct-mxfp4",
            "transform_config",
            hadamard,
            "allowed: null or {}",
        ),
        (
            "ct-mxfp4",
            "sparsity_config",
            sparse,
            "allowed: null, {} or the format `dense`",
        ),
        (
            "fp8-scale-inv",
            "activation_scheme",
            json!("wild"),
            "allowed: dynamic, static",
        ),
        (
            "ct-mxfp4",
            "quant_method",
            json!("bitsandbytes"),
            "allowed: compressed-tensors, modelopt",
        ),
        (
            "ct-mxfp4",
            "format",
            json!("marlin-24"),
            "allowed: dense, mixed-precision",
        ),
    ] {
        let mut config = copy(name, folder);
        config["quantization_config"][field] = value.clone();
        put(folder, &config);
        let parts = ["config.json", &format!("{field} is {value}"), allowed];
        refuse(folder, "unpack m --out never", &parts);
        for target in ["compressed-tensors", "microscaling", "modelopt"] {
            if name == "ct-mxfp4" {
                refuse(folder, &format!("convert m never --to {target}"), &parts);
            }
        }
        let (status, said) = run(folder, "inspect m --json");
        assert_eq!(status, 2, "{said}");
        let said: Value = serde_json::from_str(&said).unwrap();
        let row = &said["refused"][0];
        assert_eq!(row["field_of_config.json_that_is_refused"], field, "{said}");
        // The user's word counts before the config's, but for the layout alone.
        let (status, said) = run(
            folder,
            "unpack m --out out --from mxfp4-pack-quantized --force",
        );
        let is_layout = ["quant_method", "format"].contains(&field);
        assert_eq!(status == 0, is_layout, "{field}: {said}");
    }
    // Fields that say nothing.
    for value in [json!(null), json!({}), json!({"config_groups": {}})] {
        let mut config = copy("ct-mxfp4", folder);
        config["quantization_config"]["transform_config"] = value;
        config["quantization_config"]["sparsity_config"] = json!({"format": "dense"});
        put(folder, &config);
        succeed(folder, "unpack m --out out --force");
    }
    assert!(!folder.join("never").exists());
}

/// Scales of activations that the config does not quantize: `convert` does not guess.
#[test]
fn activations_that_contradict_the_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut config = copy("ct-nvfp4", folder);
    config["quantization_config"]["config_groups"]["group_0"]["input_activations"] = Value::Null;
    put(folder, &config);
    for target in ["modelopt", "compressed-tensors"] {
        let parts = [
            "input_activations null in `group_0`",
            "input_global_scale`",
            "`--weights-only`",
        ];
        refuse(folder, &format!("convert m never --to {target}"), &parts);
        succeed(
            folder,
            &format!("convert m out-{target} --to {target} --weights-only"),
        );
    }
    succeed(folder, "unpack m --out out");
    assert!(!folder.join("never").exists());
}

/// The config of a model within a model, the older name, a list, and parts of names.
#[test]
fn places_and_forms_of_configs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (outer, inner) in [
        (None, "compression_config"),
        (Some("text_config"), "quantization_config"),
        (Some("text_config"), "compression_config"),
    ] {
        let mut said = copy("ct-int4", folder)["quantization_config"].clone();
        said["config_groups"]["group_0"]["weights"]["num_bits"] = 8.into();
        let config = json!({inner: said});
        let config = match outer {
            Some(outer) => json!({outer: config, "quantization_config": null}),
            None => config,
        };
        put(folder, &config);
        refuse(folder, "unpack m --out never", &["num_bits 8 in `group_0`"]);
    }
    put(folder, &json!([1, 2]));
    refuse(
        folder,
        "unpack m --out never",
        &["config.json", "is [1,2]; allowed: an object"],
    );
    let mut config = copy("fp8-scale-inv", folder);
    config["quantization_config"]["modules_to_not_convert"] = json!(["lm_head", "k_proj"]);
    put(folder, &config);
    refuse(
        folder,
        "unpack m --out never",
        &["by `k_proj` that the layer is not quantized"],
    );
    assert!(!folder.join("never").exists());
}

/// Model Optimizer describes the weights in two files.
#[test]
fn two_configs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let config = copy("modelopt-mixed", folder);
    let said = &config["quantization_config"];
    let other =
        json!({"quant_algo": said["quant_algo"], "quantized_layers": said["quantized_layers"]});
    let put = |other: &Value| {
        let other = json!({"quantization": other});
        fs::write(folder.join("m/hf_quant_config.json"), other.to_string()).unwrap();
    };
    put(&other);
    succeed(folder, "unpack m --out same");
    let mut changed = other.clone();
    changed["quant_algo"] = json!("W4A8_AWQ");
    put(&changed);
    let parts = ["quant_algo is \"MIXED_PRECISION\"; hf_quant_config.json has \"W4A8_AWQ\""];
    refuse(folder, "unpack m --out never", &parts);
    refuse(folder, "convert m never --to modelopt", &parts);
    let layer = "model.layers.0.self_attn.q_proj";
    assert_eq!(other["quantized_layers"][layer]["quant_algo"], "FP8");
    let mut changed = other;
    changed["quantized_layers"][layer]["quant_algo"] = json!("NVFP4");
    put(&changed);
    let parts = [layer, "is", "\"FP8\"; hf_quant_config.json has \"NVFP4\""];
    refuse(folder, "unpack m --out never", &parts);
    assert!(!folder.join("never").exists());
}
