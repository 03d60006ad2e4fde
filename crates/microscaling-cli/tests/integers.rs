//! Layouts of integers, GPTQ's and AWQ's, from floats and from other layouts, with the bytes of the tools.

#![allow(clippy::too_many_lines, reason = "tests list their cases")]

mod support;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use support::{
    Tensor, checkpoint, config, data, numbers, read, refuse, run, succeed, tensors, write,
};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// The tensors that each tool's packing functions wrote, by the tool and the format: data/checkpoints/written.py. The tensors have the module's
/// name `w`.
fn written() -> BTreeMap<(String, String), BTreeMap<String, Tensor>> {
    let mut found: BTreeMap<_, BTreeMap<String, Tensor>> = BTreeMap::new();
    for tensor in read(&data().join("written.safetensors")) {
        if let [tool, format, part] = tensor.name.split('/').collect::<Vec<_>>()[..] {
            let name = format!("w.{part}");
            let key = (tool.to_owned(), format.to_owned());
            let tensor = Tensor {
                name: name.clone(),
                ..tensor
            };
            found.entry(key).or_default().insert(name, tensor);
        }
    }
    assert_eq!(found.len(), 24);
    found
}

/// From floats: the bytes of AutoGPTQ, GPTQModel and AutoAWQ. From one tool's layout to the others: the bytes of the other tools.
#[test]
fn bytes_are_those_of_the_tools() {
    let folder = folder();
    let folder = folder.path();
    let floats = read(&data().join("written.safetensors"));
    let floats: Vec<Tensor> = floats
        .into_iter()
        .filter(|x| x.name == "w.weight")
        .collect();
    checkpoint(&folder.join("floats"), &floats, &Value::Null);
    let written = written();
    let out = folder.join("out");
    let mut compared = 0;
    for ((tool, format), expected) in &written {
        if tool != "compressed-tensors" {
            let line = format!("quantize floats out --layout {tool} --format {format} --force");
            succeed(folder, &line);
            assert!(tensors(&out) == *expected, "{line}");
            fs::remove_dir_all(&out).unwrap();
        }
        let said = match tool.as_str() {
            "gptq_v2" => json!({"quant_method": "gptq", "checkpoint_format": "gptq_v2"}),
            _ => Value::Null,
        };
        let from: Vec<Tensor> = expected.values().cloned().collect();
        checkpoint(&folder.join("in"), &from, &said);
        for ((target, _), expected) in written.iter().filter(|((_, other), _)| other == format) {
            succeed(folder, &format!("convert in out --to {target}"));
            assert!(tensors(&out) == *expected, "{format}: {tool} to {target}");
            succeed(folder, "diff in out");
            fs::remove_dir_all(&out).unwrap();
            compared += 1;
        }
        fs::remove_dir_all(folder.join("in")).unwrap();
    }
    // int4 in four layouts, int8 and two symmetric formats in three, two others in two.
    assert_eq!(compared, 2 * 16 + 4 * 9 + 2 * 4);
}

/// To other layouts and back: every tensor has its name, type, shape and bytes again, and the config says what loaders need.
#[test]
fn there_and_back() {
    let folder = folder();
    let folder = folder.path();
    for (name, back, there) in [
        (
            "ct-int4",
            "compressed-tensors",
            &["gptq", "gptq_v2", "awq"][..],
        ),
        ("awq", "awq", &["gptq_v2", "compressed-tensors"]),
        ("gptq", "gptq", &["gptq"]),
    ] {
        let input = data().join(name);
        for there in there {
            let (out, again) = (format!("{name}-{there}"), format!("{name}-{there}-back"));
            succeed(
                folder,
                &format!("convert {} {out} --to {there}", input.display()),
            );
            succeed(folder, &format!("convert {out} {again} --to {back}"));
            assert!(tensors(&input) == tensors(&folder.join(again)), "{out}");
            succeed(folder, &format!("diff {} {out}", input.display()));
            let (said, layout) = (config(&folder.join(&out)), json!(there));
            let method = match *there {
                "gptq_v2" => "gptq",
                there => there,
            };
            assert_eq!(said["quant_method"], method, "{out}");
            if method == "gptq" {
                assert_eq!(said["checkpoint_format"], layout);
                assert_eq!(said["lm_head"], false);
                assert_eq!(said["sym"], name == "ct-int4");
                assert_eq!(said["desc_act"], name == "gptq");
            }
        }
    }
    let said = config(&folder.join("ct-int4-awq"));
    let expected = json!({
        "quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": true,
        "modules_to_not_convert": [],
    });
    assert_eq!(said, expected);
    // Layers of other bits have fields of their own, which are read again.
    let said = config(&folder.join("gptq-gptq"));
    assert_eq!(
        (&said["bits"], &said["group_size"]),
        (&json!(2), &json!(16))
    );
    let expected = json!({
        "+:^bits3$": {"bits": 3, "group_size": 16},
        "+:^bits4$": {"bits": 4, "group_size": 16},
        "+:^bits8$": {"bits": 8, "group_size": 16},
    });
    assert_eq!(said["dynamic"], expected);
    let text = fs::read_to_string(folder.join("gptq-gptq/config.json")).unwrap();
    let text = text.replace("\"bits\": 3", "\"bits\": 4");
    fs::write(folder.join("gptq-gptq/config.json"), text).unwrap();
    let part = "config.json has num_bits 4 in `+:^bits3$`; the tensors have 3";
    refuse(
        folder,
        "unpack gptq-gptq --out never",
        &[part, "`bits3.weight`"],
    );
}

/// Shards, a source in bfloat16, and an output that exists.
#[test]
fn shards_and_folders() {
    let folder = folder();
    let folder = folder.path();
    let input = folder.join("in");
    fs::create_dir(&input).unwrap();
    let weight = |name: &str, seed| Tensor::bf16(name, &[32, 64], &numbers(2048, seed));
    write(
        &input.join("1.safetensors"),
        &[weight("a.weight", 1), weight("embed.weight", 2)],
    );
    write(
        &input.join("2.safetensors"),
        &[
            weight("b.weight", 3),
            Tensor::bf16("norm.weight", &[64], &[1.0; 64]),
        ],
    );
    let map = json!({"a.weight": "1.safetensors", "embed.weight": "1.safetensors", "b.weight": "2.safetensors", "norm.weight": "2.safetensors"});
    let index = json!({"metadata": {}, "weight_map": map}).to_string();
    fs::write(input.join("model.safetensors.index.json"), index).unwrap();
    let line = "quantize in gptq --layout gptq --format int4(group_size=64,zero_points=true) --skip embed*";
    succeed(folder, line);
    let index = fs::read_to_string(folder.join("gptq/model.safetensors.index.json")).unwrap();
    let index: Value = serde_json::from_str(&index).unwrap();
    assert_eq!(index["weight_map"]["b.g_idx"], "2.safetensors");
    assert_eq!(index["weight_map"]["a.qweight"], "1.safetensors");
    refuse(
        folder,
        line,
        &["1.safetensors exists; `--force` replaces it"],
    );
    // A weight of other tools' has parts in two files.
    let moved = |name: &str, number: usize| {
        let path = folder.join(format!("gptq/{number}.safetensors"));
        let (stay, move_): (Vec<_>, Vec<_>) = read(&path).into_iter().partition(|x| x.name != name);
        write(&path, &stay);
        move_
    };
    let scales = moved("a.scales", 1);
    let path = folder.join("gptq/2.safetensors");
    write(&path, &[read(&path), scales].concat());
    let mut index = index;
    index["weight_map"]["a.scales"] = "2.safetensors".into();
    fs::write(
        folder.join("gptq/model.safetensors.index.json"),
        index.to_string(),
    )
    .unwrap();
    succeed(folder, "convert gptq awq --to awq");
    succeed(folder, "diff gptq awq");
    refuse(
        folder,
        "convert awq gptq --to gptq",
        &["exists; `--force` replaces it"],
    );
    refuse(
        folder,
        "convert gptq gptq --to awq --force",
        &["which is read; allowed: another file"],
    );
    succeed(folder, "convert awq gptq --to gptq --force");
    succeed(folder, "diff gptq awq");

    // The values are near the floats: 15 steps in each group.
    succeed(folder, "unpack awq --out values --dtype bfloat16");
    let (status, said) = run(folder, "diff in values --json");
    assert_eq!(status, 1, "{said}");
    let said: Value = serde_json::from_str(&said).unwrap();
    let rows = said["differences"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{said}");
    for row in rows {
        assert!(
            row["largest_difference"].as_f64().unwrap() < 2.0 / 15.0,
            "{row}"
        );
    }
}

/// Both versions of GPTQ have a permuted order of groups. A last group may be shorter.
#[test]
fn orders_and_versions_of_gptq() {
    let folder = folder();
    let folder = folder.path();
    let int32 = |name: &str, shape: &[usize], number: &dyn Fn(usize) -> u32| {
        let count = shape.iter().product();
        let bytes = (0..count).flat_map(|i| number(i).to_le_bytes());
        Tensor::new(name, "I32", shape, bytes.collect())
    };
    let layer = |name: &str, groups: usize, group: &dyn Fn(usize) -> u32| {
        [
            int32(&format!("{name}.qweight"), &[12, 32], &|i| {
                0x9e37_79b9_u32.wrapping_mul(i as u32 + 3)
            }),
            int32(&format!("{name}.qzeros"), &[groups, 4], &|_| 0x7654_3210),
            int32(&format!("{name}.g_idx"), &[96], group),
            Tensor::bf16(
                &format!("{name}.scales"),
                &[groups, 32],
                &numbers(32 * groups, 2),
            ),
        ]
    };
    let first = json!({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true, "checkpoint_format": "gptq"});
    checkpoint(
        &folder.join("permuted"),
        &layer("a", 3, &|i| (i % 3) as u32),
        &first,
    );
    succeed(folder, "convert permuted second --to gptq_v2");
    assert_eq!(config(&folder.join("second"))["desc_act"], true);
    let zeros = |name: &str| tensors(&folder.join(name))["a.qzeros"].bytes[..4].to_vec();
    assert_eq!(
        [zeros("permuted"), zeros("second")],
        [0x7654_3210_u32, 0x8765_4321].map(|x| x.to_le_bytes().to_vec())
    );
    succeed(folder, "diff permuted second");
    succeed(folder, "convert second first --to gptq");
    assert!(tensors(&folder.join("permuted")) == tensors(&folder.join("first")));
    let said = succeed(folder, "inspect second");
    assert!(
        said.contains("gptq_v2") && said.contains("(code − zero point) · scale"),
        "{said}"
    );
    // Without the config the zero points are the first version's, which are larger.
    fs::copy(
        folder.join("second/model.safetensors"),
        folder.join("alone"),
    )
    .unwrap();
    let (status, said) = run(folder, "diff second alone");
    assert_eq!(status, 1, "{said}");
    for target in ["awq", "compressed-tensors"] {
        let part = "its groups of inputs are permuted; allowed: groups that follow one another";
        refuse(
            folder,
            &format!("convert permuted never --to {target}"),
            &["`a.weight`", part],
        );
    }

    let shorter = json!({"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": false, "checkpoint_format": "gptq"});
    checkpoint(
        &folder.join("shorter"),
        &layer("a", 2, &|i| (i / 64) as u32),
        &shorter,
    );
    succeed(folder, "unpack shorter --out shorter.safetensors");
    let part = "its groups have 64 inputs; allowed: a divisor of its 96 inputs";
    refuse(
        folder,
        "convert shorter never --to gptq_v2",
        &["`a.weight`", part],
    );
    let third = json!({"quant_method": "gptq", "bits": 4, "group_size": 32, "checkpoint_format": "gptq_v3"});
    checkpoint(
        &folder.join("third"),
        &layer("a", 3, &|i| (i / 32) as u32),
        &third,
    );
    refuse(
        folder,
        "convert third never --to awq",
        &["checkpoint_format `gptq_v3`; allowed: `gptq`, `gptq_v2`"],
    );
}
