//! Configs of GPTQ and AWQ, weights that the layouts of integers cannot hold, and MXFP6.

#![allow(clippy::too_many_lines, reason = "tests list their cases")]

mod support;

use serde_json::{Value, json};
use support::{Tensor, checkpoint, config, data, numbers, refuse, succeed, tensors};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Layers in float, a head of integers, and groups of a whole row are in the config.
#[test]
fn configs_have_what_loaders_need() {
    let folder = folder();
    let folder = folder.path();
    let weight = |name: &str, inputs: usize, seed| {
        Tensor::f32(
            &format!("{name}.weight"),
            &[32, inputs],
            &numbers(32 * inputs, seed),
        )
    };
    let floats = [
        weight("model.embed-tokens", 64, 1),
        weight("a", 64, 2),
        weight("b", 128, 3),
        weight("lm_head", 64, 4),
        Tensor::f32("a.bias", &[32], &[1.0; 32]),
    ];
    checkpoint(&folder.join("floats"), &floats, &Value::Null);
    let quantize = |out: &str, more: &str| {
        succeed(folder, &format!("quantize floats {out} {more}"));
        config(&folder.join(out))
    };
    let embedding = "-:^model\\.embed\\-tokens$";
    let said = quantize(
        "one",
        "--layout gptq --format int8(group_size=64) --skip *embed* --skip lm_head*",
    );
    let expected = json!({
        "quant_method": "gptq", "checkpoint_format": "gptq", "bits": 8, "group_size": 64, "sym": true, "desc_act": false,
        "lm_head": false, "dynamic": {embedding: {}},
    });
    assert_eq!(said, expected);
    // A float layer is not quantized, by the config of the output.
    let ignored = succeed(folder, "inspect one --json");
    let ignored: Value = serde_json::from_str(&ignored).unwrap();
    let ignored = ignored["in_float"].as_array().unwrap().iter();
    let ignored: Vec<_> = ignored
        .map(|x| (x["layer_in_float"].clone(), x["ignored_by"].clone()))
        .collect();
    assert!(
        ignored.contains(&(json!("model.embed-tokens"), json!(embedding))),
        "{ignored:?}"
    );
    assert!(tensors(&folder.join("one")).contains_key("a.bias"));

    let whole = "int4(group_size=0,zero_points=true)";
    let said = quantize(
        "two",
        &format!("--layout gptq_v2 --format {whole} --skip *embed*"),
    );
    assert_eq!(
        (&said["group_size"], &said["lm_head"]),
        (&json!(-1), &json!(true))
    );
    assert_eq!(
        (&said["sym"], &said["checkpoint_format"]),
        (&json!(false), &json!("gptq_v2"))
    );
    succeed(folder, "unpack two --out two.safetensors");
    let said = quantize(
        "three",
        "--layout awq --format int4(group_size=32,zero_points=true) --only ?.weight",
    );
    let expected = json!({
        "quant_method": "awq", "version": "gemm", "bits": 4, "group_size": 32, "zero_point": true,
        "modules_to_not_convert": ["lm_head", "model.embed-tokens"], "dynamic": {embedding: {}},
    });
    assert_eq!(said, expected);

    // Groups of two lengths: GPTQ's config has both, and AWQ's one.
    let int4 = |name: &str, group: usize| {
        let groups = 64 / group;
        [
            Tensor::new(
                &format!("{name}.weight_packed"),
                "I32",
                &[32, 8],
                vec![0x93; 1024],
            ),
            Tensor::bf16(
                &format!("{name}.weight_scale"),
                &[32, groups],
                &numbers(32 * groups, 7),
            ),
            Tensor::new(
                &format!("{name}.weight_shape"),
                "I64",
                &[2],
                [32_u64, 64].map(u64::to_le_bytes).concat(),
            ),
        ]
    };
    let mixed = [int4("a", 32), int4("b", 16), int4("c", 64)].concat();
    checkpoint(&folder.join("mixed"), &mixed, &Value::Null);
    succeed(folder, "convert mixed four --to gptq");
    let expected = json!({
        "+:^b$": {"bits": 4, "group_size": 16}, "+:^c$": {"bits": 4, "group_size": -1},
    });
    assert_eq!(config(&folder.join("four"))["dynamic"], expected);
    succeed(folder, "diff mixed four");
    refuse(
        folder,
        "convert mixed never --to awq",
        &[
            "layout awq cannot hold `b.weight`, which is in groups of 16 inputs; allowed: 32, the groups of `a`",
        ],
    );
    assert!(!folder.join("never").exists());
}

/// The error of a weight that a layout cannot hold names the weight, the field, its value and the allowed values. Nothing is written.
#[test]
fn what_a_layout_cannot_hold() {
    let folder = folder();
    let folder = folder.path();
    let weight = |name: &str, shape: &[usize]| {
        let tensor = Tensor::f32("x.weight", shape, &numbers(shape.iter().product(), 5));
        checkpoint(&folder.join(name), &[tensor], &Value::Null);
    };
    weight("odd", &[20, 64]);
    weight("narrow", &[32, 48]);
    weight("experts", &[2, 32, 64]);
    weight("empty", &[0, 64]);
    weight("good", &[32, 64]);
    let unnamed = Tensor::f32("x", &[32, 64], &numbers(2048, 5));
    checkpoint(&folder.join("unnamed"), &[unnamed], &Value::Null);
    let large = Tensor::f32("x.weight", &[32, 64], &[1e9; 2048]);
    checkpoint(&folder.join("large"), &[large], &Value::Null);
    for (line, part) in [
        (
            "odd --layout gptq --format int4(group_size=32)",
            "it has 20 outputs; allowed: a multiple of 32",
        ),
        (
            "odd --layout awq --format int4(group_size=32)",
            "it has 20 outputs; allowed: a multiple of 8",
        ),
        (
            "narrow --layout gptq",
            "it has 48 inputs; allowed: a multiple of 32",
        ),
        (
            "narrow --layout awq --format int4(group_size=32)",
            "its groups have 32 inputs; allowed: a divisor of its 48 inputs",
        ),
        (
            "good --layout gptq",
            "its groups have 128 inputs; allowed: a divisor of its 64 inputs",
        ),
        (
            "good --layout awq --format int8(group_size=32)",
            "its integers have 8 bits; allowed: 4",
        ),
        (
            "experts --layout gptq --axis 1",
            "`--axis` has no effect in layout gptq; allowed: no `--axis`",
        ),
        (
            "experts --layout gptq",
            "which axis its products sum over is not known",
        ),
        (
            "empty --layout gptq --format int4(group_size=32)",
            "there is no tensor to pack: no tensor of floats has elements, has two axes",
        ),
        (
            "unnamed --layout gptq --format int4(group_size=32)",
            "the name is `x`; allowed: `LAYER.weight`",
        ),
        (
            "large --layout gptq --format int4(group_size=32)",
            "a number is 1e9; allowed: numbers whose scale is a float16",
        ),
        (
            "good --layout gptq --format mxfp4",
            "`--format` is mxfp4, and the layout is gptq; allowed: int2, int3, int4, int8",
        ),
        (
            "good --format int4",
            "`--format` is int4(group_size=128,zero_points=false), and the layout is microscaling; allowed: a block format",
        ),
        (
            "good --layout gptq --rounding floor",
            "`--rounding` has no effect in layout gptq",
        ),
        (
            "good --layout gptq --dialect ggml",
            "`--dialect` has no effect in layout gptq",
        ),
        (
            "good --layout gptq --seed 1",
            "`--seed` has no effect in layout gptq",
        ),
        (
            "good --layout gptq --fused a,b",
            "`--fused` has no effect: int4(group_size=128,zero_points=false) has no tensor scale",
        ),
        ("good --layout autogptq", "gguf-mxfp4, gptq, gptq_v2, awq"),
    ] {
        let (input, rest) = line.split_once(' ').unwrap();
        refuse(folder, &format!("quantize {input} never {rest}"), &[part]);
        assert!(!folder.join("never").exists(), "{line}");
    }
    let (gptq, awq) = (data().join("gptq"), data().join("awq"));
    let (gptq, awq) = (gptq.display(), awq.display());
    for (line, part) in [
        (
            format!("{awq} never --to gptq"),
            "layout gptq cannot hold `a.weight`, which is int4, a scale in F16 for each 1 × 16, zero points (awq); a zero point is 0; allowed: 1 to 15",
        ),
        (
            format!("{gptq} never --to awq"),
            "its integers have 2 bits; allowed: 4",
        ),
        (
            format!("{gptq} never --to gptq_v2"),
            "a zero point is 4; allowed: 0 to 3",
        ),
        (
            format!("{} never --to gptq", data().join("ct-mxfp4").display()),
            "which is mxfp4 (mxfp4-pack-quantized)",
        ),
        (
            format!("{} never --to awq", data().join("ct-fp8-block").display()),
            "which is fp8_e4m3",
        ),
        ("good never --to gptq".into(), "`quantize` packs floats"),
        (
            format!("{awq} never --to gptq_v3"),
            "gptq, gptq_v2, awq, compressed-tensors",
        ),
    ] {
        refuse(folder, &format!("convert {line}"), &[part]);
        assert!(!folder.join("never").exists(), "{line}");
    }
}

/// MXFP6 of compressed-tensors, from floats and from this project's layout, and back.
#[test]
fn mxfp6() {
    let folder = folder();
    let folder = folder.path();
    let floats = [
        Tensor::bf16("a.weight", &[5, 64], &numbers(320, 1)),
        Tensor::bf16("lm_head.weight", &[5, 64], &numbers(320, 2)),
    ];
    checkpoint(&folder.join("floats"), &floats, &Value::Null);
    succeed(
        folder,
        "quantize floats ct --layout mxfp6-pack-quantized --skip lm_head*",
    );
    succeed(
        folder,
        "quantize floats own --format mxfp6_e2m3 --skip lm_head*",
    );
    succeed(folder, "diff ct own");
    let stored = tensors(&folder.join("ct"));
    let shape = |name: &str| (stored[name].dtype.as_str(), stored[name].shape.clone());
    assert_eq!(shape("a.weight_packed"), ("U8", vec![5, 48]));
    assert_eq!(shape("a.weight_scale"), ("U8", vec![5, 2]));
    for to in ["compressed-tensors", "mxfp6-pack-quantized"] {
        succeed(folder, &format!("convert own {to} --to {to}"));
        assert!(tensors(&folder.join(to)) == stored, "{to}");
        let said = config(&folder.join(to));
        assert_eq!(said["format"], "mxfp6-pack-quantized");
        assert_eq!(said["config_groups"]["group_0"]["weights"]["num_bits"], 6);
        assert_eq!(said["ignore"], json!(["lm_head"]));
    }
    succeed(folder, "convert ct back --to microscaling");
    assert!(tensors(&folder.join("back")) == tensors(&folder.join("own")));
    succeed(folder, "quantize floats e3m2 --format mxfp6_e3m2");
    refuse(
        folder,
        "convert e3m2 never --to mxfp6-pack-quantized",
        &["`a.weight`, which is mxfp6_e3m2"],
    );
    let row = Tensor::f32("a.weight", &[5, 48], &numbers(240, 1));
    checkpoint(&folder.join("row"), &[row], &Value::Null);
    refuse(
        folder,
        "quantize row never --layout mxfp6-pack-quantized",
        &["`a.weight` has shape [5, 48]", "a multiple of 32"],
    );
}
