//! `inspect` of checkpoints with several formats: groups of layers, scales of activations and caches, layers that engines fuse.

#![allow(clippy::too_many_lines, reason = "tests list their cases")]

mod support;

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use support::{Tensor, data, run, succeed, write};

fn inspect(folder: &Path, name: &str) -> Value {
    serde_json::from_str(&succeed(folder, &format!("inspect {name} --json"))).unwrap()
}

/// A row for each format: the group of config.json, the layout, the bits, the activations' part.
#[test]
fn a_row_for_each_format() {
    for (name, expected) in [
        (
            "ct-mixed",
            vec![
                ["group_0", "float-quantized", "8", "float8 token dynamic"],
                ["group_1", "nvfp4-pack-quantized", "4", ""],
            ],
        ),
        ("ct-int4", vec![["group_0", "pack-quantized", "4", ""]]),
        (
            "ct-fp8-block",
            vec![[
                "group_0",
                "float-quantized",
                "8",
                "float8 group 128 dynamic",
            ]],
        ),
        (
            "ct-nvfp4",
            vec![[
                "group_0",
                "nvfp4-pack-quantized",
                "4",
                "float4 tensor_group 16 dynamic local, input_global_scale",
            ]],
        ),
        (
            "ct-mxfp4",
            vec![[
                "group_0",
                "mxfp4-pack-quantized",
                "4",
                "float4 group 32 dynamic",
            ]],
        ),
        (
            "fp8-scale-inv",
            vec![["fp8", "fp8-scale-inv", "8", "dynamic"]],
        ),
        ("gpt-oss", vec![["mxfp4", "gpt-oss", "4", ""]]),
        (
            "modelopt-mixed",
            vec![
                [
                    "group_0",
                    "float-quantized (FP8)",
                    "8",
                    "float8 static, input_scale",
                ],
                [
                    "group_1",
                    "modelopt-nvfp4 (NVFP4)",
                    "4",
                    "float4 16 static, input_scale",
                ],
            ],
        ),
        ("awq", vec![["awq", "awq", "4", ""]]),
    ] {
        let said = inspect(&data(), name);
        let rows = said["groups"].as_array().unwrap().iter();
        let rows: Vec<_> = rows
            .map(|row| {
                let text = |key: &str| match &row[key] {
                    Value::Null => String::new(),
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                ["group", "layout", "bits", "activations"].map(text)
            })
            .collect();
        assert_eq!(rows, expected, "{name}");
        assert_eq!(said["unread"], json!([]), "{name}");
        assert_eq!(said["contradictions"], json!([]), "{name}");
    }
    let blocks = inspect(&data(), "fp8-scale-inv");
    let format = blocks["groups"][0]["format"].as_str().unwrap();
    assert!(format.ends_with("F32 for each 128 × 128"), "{format}");
    let scales = blocks["groups"][0]["scales"].as_str().unwrap();
    assert!(scales.contains("a factor"), "{scales}");
    let floats = inspect(&data(), "gpt-oss");
    let router = &floats["in_float"][0];
    assert_eq!(router["layer_in_float"], "model.layers.1.mlp.router");
    assert_eq!(router["ignored_by"], "model.layers.*.mlp.router");
}

/// q, k and v with different tensor scales are named; the scales of inputs and of the cache are, too.
#[test]
fn scales_of_fused_layers() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let layer = |name: &str, scale: f32, input: f32| {
        [
            Tensor::new(
                &format!("{name}.weight_packed"),
                "U8",
                &[2, 8],
                vec![0x21; 16],
            ),
            Tensor::new(
                &format!("{name}.weight_scale"),
                "F8_E4M3",
                &[2, 1],
                vec![0x38; 2],
            ),
            Tensor::f32(&format!("{name}.weight_global_scale"), &[1], &[scale]),
            Tensor::f32(&format!("{name}.input_global_scale"), &[1], &[input]),
        ]
    };
    let scales = |k: f32, up: f32, input: f32| {
        let tensors = [
            layer("l.0.attn.q_proj", 2.0, 5.0),
            layer("l.0.attn.k_proj", k, 5.0),
            layer("l.0.attn.v_proj", 2.0, 5.0),
            layer("l.0.mlp.gate_proj", 3.0, 5.0),
            layer("l.0.mlp.up_proj", up, input),
            layer("l.0.mlp.down_proj", 7.0, 6.0),
        ];
        let mut tensors = tensors.concat();
        tensors.push(Tensor::f32("l.0.attn.k_scale", &[], &[0.5]));
        write(&folder.join("m"), &tensors);
        inspect(folder, "m")
    };
    let same = scales(2.0, 3.0, 5.0);
    assert_eq!(same["fused_groups"], 2);
    assert_eq!(same["fused_scales_that_differ"], json!([]));
    assert_eq!(same["kv_cache_scales"], 1);
    let differ = scales(2.5, 3.0, 4.0);
    assert_eq!(
        differ["fused_scales_that_differ"],
        json!([
            {
                "fused_layers_with_different_scales": "l.0.attn.{q_proj,k_proj,v_proj}",
                "scale_of": "weight",
                "numbers": "2, 2.5, 2",
            },
            {
                "fused_layers_with_different_scales": "l.0.mlp.{gate_proj,up_proj}",
                "scale_of": "input",
                "numbers": "5, 4",
            },
        ])
    );
    let said = succeed(folder, "inspect m");
    assert!(
        said.contains("0 of 2 groups share the scales of tensors"),
        "{said}"
    );
    assert!(
        said.contains("Scales of the cache of keys and values: 1"),
        "{said}"
    );
}

/// A config that contradicts the tensors has a row.
#[test]
fn contradictions() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for file in ["model.safetensors", "config.json"] {
        fs::copy(data().join("ct-int4").join(file), folder.join(file)).unwrap();
    }
    let config = fs::read_to_string(folder.join("config.json")).unwrap();
    let config = config.replace("\"num_bits\": 4", "\"num_bits\": 8");
    fs::write(folder.join("config.json"), config).unwrap();
    let (status, said) = run(folder, "inspect . --json");
    assert_eq!(status, 2, "{said}");
    let said: Value = serde_json::from_str(&said).unwrap();
    let reason = said["contradictions"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("num_bits 8"), "{reason}");
}

/// A part of int4 that is missing, or has another type, shape or number, is named.
#[test]
fn parts_at_fault() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let codes = Tensor::new("a.weight_packed", "I32", &[2, 8], vec![0x99; 64]);
    let shape = |rows: i64| {
        let bytes = [rows, 64].map(i64::to_le_bytes).concat();
        Tensor::new("a.weight_shape", "I64", &[2], bytes)
    };
    let scales = |shape: &[usize], scale: f32| Tensor::f32("a.weight_scale", shape, &[scale; 4]);
    let wide = Tensor::new("a.weight_scale", "F64", &[2, 2], vec![0; 32]);
    for (parts, table, reason) in [
        (
            vec![shape(2)],
            "unread",
            "`a.weight_scale` is missing; expected the scales of `a.weight_packed`",
        ),
        (
            vec![scales(&[2, 2], 1.0)],
            "unread",
            "`a.weight_shape` is missing",
        ),
        (
            vec![shape(3), scales(&[2, 2], 1.0)],
            "unread",
            "`a.weight_shape` is [3, 64]; expected [2, in]",
        ),
        (
            vec![shape(-2), scales(&[2, 2], 1.0)],
            "unread",
            "`a.weight_shape` is [-2, 64]; expected [2, in]",
        ),
        (
            vec![shape(2), wide],
            "unread",
            "`a.weight_scale` is F64; expected F32",
        ),
        (
            vec![shape(2), scales(&[4, 1], 1.0)],
            "unread",
            "`a.weight_scale` has shape [4, 1]; expected",
        ),
        (
            vec![shape(2), scales(&[2, 2], f32::NAN)],
            "damaged",
            "number 0 of `a.weight_scale` is NaN",
        ),
        (
            vec![shape(2), scales(&[2, 2], f32::INFINITY)],
            "damaged",
            "number 0 of `a.weight_scale` is inf",
        ),
    ] {
        write(&folder.join("m"), &[vec![codes.clone()], parts].concat());
        let (status, said) = run(folder, "inspect m --json");
        assert_eq!(status, 2, "{said}");
        let said: Value = serde_json::from_str(&said).unwrap();
        let found = said[table][0]["reason"].as_str().unwrap_or_default();
        assert!(found.contains(reason), "{reason}: {said}");
    }
    write(&folder.join("m"), &[codes, shape(2), scales(&[2, 2], 1.0)]);
    inspect(folder, "m");
}
