//! Checkpoints that other tools quantized: the program reads, copies or refuses each kind of tensor.

#![allow(clippy::too_many_lines, reason = "tests list their cases")]

mod support;

use std::fs;
use std::path::Path;
use support::{Tensor, data, numbers, read, refuse, run, succeed, write};

/// The folder of checkpoints that the tools wrote.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn json(folder: &Path, line: &str) -> serde_json::Value {
    serde_json::from_str(&succeed(folder, line)).unwrap()
}

/// The lines of `diff` for the tensors that both checkpoints have, by name.
fn differences(folder: &Path, one: &str, other: &str) -> Vec<serde_json::Value> {
    let (_, said) = run(folder, &format!("diff {one} {other} --json"));
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let rows = said["differences"].as_array().unwrap().iter();
    let in_both = rows.filter(|row| row["one"] != "missing" && row["other"] != "missing");
    in_both.cloned().collect()
}

/// The values of FP8 weights with scales for rows, blocks and the tensor, and of NVFP4, equal the tools' values to the bit.
#[test]
fn values_are_those_of_the_tools() {
    for name in ["ct-mixed", "ct-fp8-block", "ct-nvfp4"] {
        let differ = differences(&data(), &format!("{name}.expected.safetensors"), name);
        assert_eq!(differ, [] as [serde_json::Value; 0], "{name}");
    }
    // Model Optimizer takes FP4's −0 for 0, and nothing else differs.
    let differ = differences(
        &data(),
        "modelopt-mixed.expected.safetensors",
        "modelopt-mixed",
    );
    assert_eq!(differ.len(), 1);
    assert_eq!(differ[0]["tensor"], "model.layers.0.mlp.down_proj.weight");
    assert_eq!(differ[0]["largest_difference"], 0);
}

/// A weight that is not understood has a row with the name that config.json has for it, and hides no other weight.
#[test]
fn inspect_names_what_is_not_read() {
    let unknown = folder();
    write(
        &unknown.path().join("m.safetensors"),
        &[
            Tensor::new("a.weight", "U8", &[4, 16], vec![1; 64]),
            Tensor::f32("a.weight.absmax", &[4], &[1.0; 4]),
        ],
    );
    let config = r#"{"quantization_config": {"quant_method": "bitsandbytes"}}"#;
    fs::write(unknown.path().join("config.json"), config).unwrap();
    let (status, said) = run(unknown.path(), "inspect m.safetensors --json");
    assert_eq!(status, 2, "{said}");
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let row = &said["unread"][0];
    assert_eq!(row["weight_that_is_not_read"], "a.weight");
    assert_eq!(row["type"], "U8");
    let reason = row["reason"].as_str().unwrap();
    assert!(reason.contains("bitsandbytes"), "{reason}");
    let mixed = json(&data(), "inspect ct-mixed --json");
    let layouts: Vec<_> = mixed["weights"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["layout"])
        .collect();
    assert_eq!(layouts, ["nvfp4-pack-quantized", "float-quantized"]);

    // A damaged weight beside a whole one.
    let folder = folder();
    let folder = folder.path();
    let packed = |name: &str, blocks: usize| {
        [
            Tensor::new(&format!("{name}_blocks"), "U8", &[2, 1, 16], vec![0; 32]),
            Tensor::new(
                &format!("{name}_scales"),
                "U8",
                &[2, blocks],
                vec![127; 2 * blocks],
            ),
        ]
    };
    write(
        &folder.join("m"),
        &[packed("a", 3), packed("b", 1)].concat(),
    );
    let (status, said) = run(folder, "inspect m");
    assert_eq!(status, 2, "{said}");
    for part in [
        "layout: `a_scales` has shape [2, 3], expected [2, 1]",
        "| b ",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let (status, said) = run(folder, "diff m m");
    assert_eq!(status, 0, "{said}");
}

/// The program refuses quantized checkpoints, by the names of their tensors or by config.json, and writes nothing.
#[test]
fn quantized_checkpoints_are_refused() {
    let line = |input: &Path, output: &Path| {
        format!(
            "quantize {} {} --format mxfp4",
            input.display(),
            output.display()
        )
    };
    let folder = folder();
    let (folder, out) = (folder.path(), folder.path().join("out"));
    for (name, part) in [
        ("ct-mixed", "is packed already"),
        (
            "ct-int4",
            "config.json: compressed-tensors pack-quantized: pack-quantized, int of 4 bits",
        ),
        ("ct-fp8-block", "is quantized already"),
        ("ct-nvfp4", "is packed already"),
        ("modelopt-mixed", "is packed already"),
    ] {
        refuse(
            folder,
            &line(&data().join(name), &out),
            &[part, "_proj.weight"],
        );
        assert!(!out.exists(), "{name}");
    }
    let codes = |name: &str, dtype: &str, width: usize| {
        Tensor::new(
            name,
            dtype,
            &[64, width],
            vec![0; 64 * width * if dtype == "I32" { 4 } else { 1 }],
        )
    };
    let ones =
        |name: &str, shape: &[usize]| Tensor::bf16(name, shape, &vec![1.0; shape.iter().product()]);
    let head = Tensor::f32("head.weight", &[4, 32], &numbers(128, 1));
    let cases: [(&str, Vec<Tensor>); 6] = [
        // Block FP8, GPTQ, AWQ, int8, bitsandbytes, ComfyUI.
        (
            "a.weight",
            vec![
                codes("a.weight", "F8_E4M3", 128),
                ones("a.weight_scale_inv", &[7, 3]),
            ],
        ),
        (
            "a.weight",
            vec![
                codes("a.qweight", "I32", 8),
                codes("a.qzeros", "I32", 1),
                ones("a.scales", &[2, 64]),
            ],
        ),
        (
            "a.weight",
            vec![codes("a.weight", "I8", 8), ones("a.weight_scale", &[64, 1])],
        ),
        (
            "a.weight",
            vec![codes("a.weight", "U8", 1), ones("a.weight.absmax", &[2])],
        ),
        (
            "a.weight",
            vec![
                codes("a.weight", "F8_E4M3", 8),
                ones("a.scale_weight", &[1]),
            ],
        ),
        (
            "a.experts.down_proj",
            vec![
                codes("a.experts.down_proj", "I8", 8),
                ones("a.experts.down_proj_scale", &[64, 1]),
            ],
        ),
    ];
    for (weight, mut tensors) in cases {
        tensors.push(head.clone());
        write(&folder.join("m.safetensors"), &tensors);
        refuse(
            folder,
            "quantize m.safetensors out --format mxfp4",
            &[
                &format!("`{weight}` is quantized already"),
                &tensors[0].dtype,
            ],
        );
    }
    // Names that nobody knows: config.json alone tells.
    write(
        &folder.join("m.safetensors"),
        &[codes("a.w", "I8", 8), head.clone()],
    );
    succeed(folder, "quantize m.safetensors out --format mxfp4");
    fs::remove_file(&out).unwrap();
    fs::write(
        folder.join("config.json"),
        r#"{"quantization_config": {"quant_method": "new"}}"#,
    )
    .unwrap();
    refuse(
        folder,
        "quantize m.safetensors out --format mxfp4",
        &["`a.w` is quantized already", "new"],
    );
    // Floats are floats, with any config.json.
    write(&folder.join("m.safetensors"), &[head]);
    succeed(folder, "quantize m.safetensors out --format mxfp4");
}

/// Scales without their codes, biases and norms stay as they are; a pattern that names one is an error.
#[test]
fn companions_and_biases_stay() {
    let folder = folder();
    let folder = folder.path();
    let two = |name: &str| Tensor::bf16(name, &[32, 32], &numbers(1024, 2));
    let stay = [
        "a.weight_scale_inv",
        "a.weight_scale",
        "b.k_scale",
        "c.qzeros",
        "d_scales",
        "e.bias",
        "experts.down_proj_bias",
        "relative_position_bias_table",
    ];
    let mut tensors: Vec<Tensor> = stay.map(two).into();
    tensors.extend(["d", "w.weight"].map(two));
    write(&folder.join("m"), &tensors);
    succeed(folder, "quantize m out --format mxfp4");
    let out = read(&folder.join("out"));
    for tensor in &tensors[..stay.len()] {
        assert!(out.contains(tensor), "{}", tensor.name);
    }
    assert_eq!(out.len(), stay.len() + 4);
    refuse(
        folder,
        "quantize m never --format mxfp4 --only e*",
        &["`e.bias` is a bias, BF16 of shape [32, 32]"],
    );
    refuse(
        folder,
        "quantize m never --format mxfp4 --only d_scales",
        &["`d_scales` is part of a quantized weight"],
    );
    assert!(!folder.join("never").exists());
}

/// Experts [expert, in, out] are packed along their input axis: the codes equal the codes of the transposed matrices.
#[test]
fn experts_are_packed_along_their_inputs() {
    let folder = folder();
    let folder = folder.path();
    let (experts, inputs, outputs) = (2, 64, 32);
    let name = "model.layers.0.mlp.experts.gate_up_proj";
    let data = numbers(experts * inputs * outputs, 3);
    let at = |e: usize, i: usize, o: usize| data[(e * inputs + i) * outputs + o];
    let turned =
        (0..data.len()).map(|n| at(n / (inputs * outputs), n % inputs, n / inputs % outputs));
    let turned: Vec<f32> = turned.collect();
    let bias = Tensor::f32(
        &format!("{name}_bias"),
        &[experts, outputs],
        &numbers(64, 4),
    );
    fs::create_dir(folder.join("model")).unwrap();
    write(
        &folder.join("model/model.safetensors"),
        &[
            Tensor::f32(name, &[experts, inputs, outputs], &data),
            bias.clone(),
        ],
    );
    write(
        &folder.join("turned"),
        &[
            Tensor::f32(name, &[experts, outputs, inputs], &turned),
            bias.clone(),
        ],
    );
    // Nobody knows the axis.
    refuse(
        folder,
        "quantize model/model.safetensors out --layout gpt-oss",
        &[&format!("`{name}` has shape [2, 64, 32]"), "`--axis`"],
    );
    assert!(!folder.join("out").exists());
    succeed(
        folder,
        "quantize turned expected --layout gpt-oss --axis -1",
    );
    let expected = read(&folder.join("expected"));
    assert!(expected.contains(&bias));
    succeed(
        folder,
        "quantize model/model.safetensors by_axis --layout gpt-oss --axis 1",
    );
    assert_eq!(read(&folder.join("by_axis")), expected);
    fs::write(
        folder.join("model/config.json"),
        r#"{"model_type": "gpt_oss"}"#,
    )
    .unwrap();
    succeed(
        folder,
        "quantize model/model.safetensors by_model --layout gpt-oss",
    );
    assert_eq!(read(&folder.join("by_model")), expected);
    succeed(
        folder,
        "quantize model/model.safetensors tool --layout gpt-oss --dialect ocp",
    );
    assert_eq!(read(&folder.join("tool")), expected);
    // This project's layout keeps the shape.
    succeed(
        folder,
        "quantize model/model.safetensors own --format mxfp4",
    );
    let own = json(folder, "inspect own --json");
    assert_eq!(
        (&own["weights"][0]["shape"], &own["weights"][0]["axis"]),
        (&"[2, 64, 32]".into(), &1.into())
    );
    refuse(
        folder,
        "quantize model/model.safetensors never --format mxfp4 --dialect ocp",
        &["its products sum over axis 1", "gpt-oss"],
    );
    // PyTorch's `Conv1D` of GPT-2 is [in, out], too.
    fs::write(folder.join("config.json"), r#"{"model_type": "gpt2"}"#).unwrap();
    write(
        &folder.join("gpt2"),
        &[Tensor::f32(
            "h.0.attn.c_attn.weight",
            &[64, 32],
            &data[..2048],
        )],
    );
    succeed(folder, "quantize gpt2 packed --format mxfp4");
    assert_eq!(
        json(folder, "inspect packed --json")["weights"][0]["axis"],
        0
    );
    refuse(
        folder,
        "quantize gpt2 never --layout mxfp4-pack-quantized",
        &["h.0.attn.c_attn.weight", "blocks along axis 0"],
    );
}

/// FNUZ files open, are compared and are converted. Code 0x80 is NaN; all others are half of what E4M3 says.
#[test]
fn fnuz() {
    let folder = folder();
    let folder = folder.path();
    let codes = Tensor::new(
        "a.weight",
        "F8_E4M3FNUZ",
        &[2, 3],
        vec![0x38, 0xb8, 0x80, 0x7f, 0x01, 0x00],
    );
    let scale = Tensor::f32("a.weight_scale", &[], &[2.0]);
    let packed = [
        Tensor::new("b_blocks", "U8", &[2, 1, 16], vec![0x21; 32]),
        Tensor::new("b_scales", "U8", &[2, 1], vec![127; 2]),
    ];
    let [blocks, scales] = packed;
    write(&folder.join("m"), &[codes.clone(), scale, blocks, scales]);
    let values = [1.0, -1.0, f32::NAN, 480.0, 2.0_f32.powi(-9), 0.0];
    write(
        &folder.join("values"),
        &[Tensor::f32("a.weight", &[2, 3], &values)],
    );
    assert_eq!(
        differences(folder, "values", "m"),
        [] as [serde_json::Value; 0]
    );
    succeed(folder, "convert m own --to microscaling");
    assert!(read(&folder.join("own")).contains(&codes));
    assert_eq!(run(folder, "diff m own").0, 0);
    refuse(
        folder,
        "quantize m never --format mxfp4",
        &["is packed already"],
    );
}
