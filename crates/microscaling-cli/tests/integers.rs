//! Layouts of integers, GPTQ's and AWQ's, from floats and from other layouts, with the bytes of the tools.

mod support;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use support::{Tensor, files, numbers, read, refuse, run, succeed, write};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/checkpoints")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// The tensors of a folder's files, by name.
fn tensors(folder: &Path) -> BTreeMap<String, Tensor> {
    let names = files(folder).into_iter();
    let names = names.filter(|name| name.ends_with(".safetensors"));
    let tensors = names.flat_map(|name| read(&folder.join(name)));
    tensors
        .map(|tensor| (tensor.name.clone(), tensor))
        .collect()
}

fn config(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("model.config.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    config["quantization_config"].clone()
}

/// A folder with these tensors, and a config.json of this quantization.
fn checkpoint(folder: &Path, tensors: &[Tensor], config: &Value) {
    fs::create_dir(folder).unwrap();
    write(&folder.join("model.safetensors"), tensors);
    if !config.is_null() {
        let text = json!({"quantization_config": config}).to_string();
        fs::write(folder.join("config.json"), text).unwrap();
    }
}

/// What each tool's packing functions wrote, by the tool and the format: data/checkpoints/written.py. The tensors have the module's
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
    let text = fs::read_to_string(folder.join("gptq-gptq/model.config.json")).unwrap();
    let text = text.replace("\"bits\": 3", "\"bits\": 4");
    fs::write(folder.join("gptq-gptq/model.config.json"), text).unwrap();
    let part = "config.json has num_bits 4 in `+:^bits3$`; the tensors have 3";
    refuse(
        folder,
        "unpack gptq-gptq --out never",
        &[part, "`bits3.weight`"],
    );
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
        "modules_to_not_convert": ["lm_head", "model.embed-tokens"],
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

/// What a layout cannot hold is an error that names the weight, the field, its value and what is allowed. Nothing is written.
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
            "the shape is [0, 64]; allowed: lengths from 1 on",
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

/// A permuted order of groups, a last group that is shorter, and a second version stay what they are.
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
