//! Layers that engines fuse: `quantize` and `convert` give them one scale of the tensor, and an emulated engine that stacks their
//! weights reads the values that this program reads.

#![allow(clippy::too_many_lines, reason = "tests list their cases")]

mod support;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use support::{Tensor, numbers, read, refuse, succeed, write};

const WIDTH: usize = 64;
/// The rows of each layer, and its largest magnitude.
const LAYERS: [(&str, usize, f32); 9] = [
    ("model.layers.0.self_attn.q_proj", 64, 1.5),
    ("model.layers.0.self_attn.k_proj", 32, 0.02),
    ("model.layers.0.self_attn.v_proj", 32, 0.3),
    ("model.layers.0.self_attn.o_proj", 64, 0.7),
    ("model.layers.0.mlp.gate_proj", 96, 0.1),
    ("model.layers.0.mlp.up_proj", 96, 2.5),
    ("model.layers.0.mlp.experts.3.w1", 32, 0.4),
    ("model.layers.0.mlp.experts.3.w3", 32, 0.04),
    ("model.layers.1.self_attn.q_proj", 64, 0.9),
];
/// The groups of these layers. The last layer is alone: its model has no k and v in this layer.
const GROUPS: [&[usize]; 3] = [&[0, 1, 2], &[4, 5], &[6, 7]];

fn model() -> Vec<Tensor> {
    let layers = LAYERS.iter().zip(0..);
    let weights = layers.map(|((name, rows, largest), seed)| {
        let numbers = numbers(rows * WIDTH, seed);
        let scaled: Vec<f32> = numbers.iter().map(|x| x * largest).collect();
        Tensor::f32(&format!("{name}.weight"), &[*rows, WIDTH], &scaled)
    });
    let others = [
        Tensor::f32("model.layers.0.self_attn.q_proj.bias", &[64], &[0.5; 64]),
        Tensor::f32("model.layers.0.input_layernorm.weight", &[64], &[1.0; 64]),
    ];
    weights.chain(others).collect()
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    assert_eq!(tensor.dtype, "F32", "{}", tensor.name);
    let bytes = tensor.bytes.as_chunks::<4>().0;
    bytes.iter().map(|x| f32::from_le_bytes(*x)).collect()
}

/// E4M3, by its definition.
fn e4m3(code: u8) -> f32 {
    let (exponent, fraction) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let magnitude = match exponent {
        0 => fraction * 2.0_f32.powi(-9),
        _ => (8.0 + fraction) * 2.0_f32.powi(exponent - 10),
    };
    if code > 127 { -magnitude } else { magnitude }
}

/// E2M1, by its table.
fn e2m1(code: u8) -> f32 {
    let magnitude = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
    if code > 7 { -magnitude } else { magnitude }
}

/// The tools that engines read, with the ends of the names of codes and of the scale of the tensor.
const TOOLS: [(&str, &str, &str, &str); 2] = [
    (
        "nvfp4-pack-quantized",
        "compressed-tensors",
        "_packed",
        "_global_scale",
    ),
    ("modelopt-nvfp4", "modelopt", "", "_scale_2"),
];

/// A weight as an engine sees it: its rows of codes and scales, with the number that is stored for the tensor.
struct Stored {
    codes: Vec<u8>,
    scales: Vec<u8>,
    number: f32,
}

fn stored(file: &Path, codes: &str, number: &str) -> BTreeMap<String, Stored> {
    let tensors = read(file);
    let tensors: BTreeMap<&str, &Tensor> = tensors.iter().map(|x| (x.name.as_str(), x)).collect();
    let weights = LAYERS.iter().map(|(name, ..)| {
        let part = |end: &str| tensors[format!("{name}.weight{end}").as_str()];
        let stored = Stored {
            codes: part(codes).bytes.clone(),
            scales: part("_scale").bytes.clone(),
            number: floats(part(number))[0],
        };
        ((*name).to_owned(), stored)
    });
    weights.collect()
}

/// The values of a layer's rows by an engine that has this number for the tensor. A divisor divides the scales of compressed-tensors.
fn dequantized(weight: &Stored, number: f32, is_divisor: bool) -> Vec<f32> {
    let codes = weight.codes.iter().flat_map(|byte| [byte & 15, byte >> 4]);
    let values = codes.enumerate().map(|(i, code)| {
        let scale = e4m3(weight.scales[i / 16]);
        let scale = if is_divisor {
            scale / number
        } else {
            scale * number
        };
        e2m1(code) * scale
    });
    values.collect()
}

/// vLLM: one product for the stacked rows of a group, with the largest stored number of the group.
fn engine(weights: &BTreeMap<String, Stored>, is_divisor: bool) -> BTreeMap<String, Vec<f32>> {
    let mut values: BTreeMap<String, Vec<f32>> = BTreeMap::new();
    let mut groups: Vec<Vec<usize>> = GROUPS.iter().map(|group| group.to_vec()).collect();
    groups.extend([vec![3], vec![8]]);
    for group in groups {
        let members = group.iter().map(|i| LAYERS[*i].0);
        let numbers = members.clone().map(|name| weights[name].number);
        let number = numbers.fold(0.0, f32::max);
        for name in members {
            values.insert(
                name.to_owned(),
                dequantized(&weights[name], number, is_divisor),
            );
        }
    }
    values
}

/// The values that this program reads.
fn unpacked(folder: &Path, file: &str) -> BTreeMap<String, Vec<f32>> {
    succeed(
        folder,
        &format!("unpack {file} --out values.safetensors --force"),
    );
    let tensors = read(&folder.join("values.safetensors"));
    let weights = LAYERS.iter().map(|(name, ..)| {
        let weight = tensors.iter().find(|x| x.name == format!("{name}.weight"));
        ((*name).to_owned(), floats(weight.unwrap()))
    });
    weights.collect()
}

fn inspect(folder: &Path, line: &str) -> Value {
    serde_json::from_str(&succeed(folder, &format!("inspect --json {line}"))).unwrap()
}

/// The norm of the difference, as a part of the norm of the model's weights.
fn error(of_model: &[f32], values: &[f32]) -> f32 {
    let sum = |numbers: &mut dyn Iterator<Item = f32>| numbers.map(|x| x * x).sum::<f32>();
    let difference = sum(&mut of_model.iter().zip(values).map(|(x, y)| x - y));
    (difference / sum(&mut of_model.iter().copied())).sqrt()
}

/// By the dialects of both tools and by the plain rule: what the engine computes with is what the program reads, and each layer keeps its
/// accuracy. With scales of their own, the engine's k is a small part of the model's.
#[test]
fn an_engine_that_fuses_reads_the_values() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(&folder.join("model.safetensors"), &model());
    let original: BTreeMap<String, Vec<f32>> = model()
        .iter()
        .map(|x| (x.name.replace(".weight", ""), floats(x)))
        .collect();
    for (layout, dialect, codes, number) in TOOLS {
        let is_divisor = dialect == "compressed-tensors";
        // The plain rule has tensor scales that are the reciprocal of no divisor.
        let plain = (!is_divisor).then(String::new);
        for rule in [format!("--dialect {dialect}")].into_iter().chain(plain) {
            let line = format!(
                "quantize model.safetensors e.safetensors --force --layout {layout} {rule}"
            );
            let said = succeed(folder, &line);
            assert!(said.contains("3 groups share a tensor scale"), "{said}");
            let weights = stored(&folder.join("e.safetensors"), codes, number);
            for group in GROUPS {
                let numbers: Vec<f32> =
                    group.iter().map(|i| weights[LAYERS[*i].0].number).collect();
                assert!(
                    numbers.iter().all(|x| *x == numbers[0]),
                    "{rule} {numbers:?}"
                );
                // By the largest magnitude of the group, as the tools' exporters have it.
                let members = group.iter().flat_map(|i| &original[LAYERS[*i].0]);
                let largest = members.fold(0.0_f32, |largest, x| largest.max(x.abs()));
                let expected = if is_divisor {
                    2688.0 / largest
                } else {
                    largest / 2688.0
                };
                assert!(
                    (numbers[0] / expected - 1.0).abs() < 1e-6,
                    "{numbers:?} {expected}"
                );
            }
            let ours = unpacked(folder, "e.safetensors");
            let engines = engine(&weights, is_divisor);
            for (name, ..) in LAYERS {
                // The engine of compressed-tensors divides the scale first, and so does this program.
                assert_eq!(ours[name], engines[name], "{layout} {rule} {name}");
                assert!(error(&original[name], &engines[name]) < 0.13, "{name}");
            }
            let inspected = inspect(folder, "e.safetensors");
            assert_eq!(inspected["fused_groups"], 3);
            assert_eq!(inspected["fused_scales_that_differ"], json!([]));

            succeed(folder, &format!("{line} --own-scales"));
            let weights = stored(&folder.join("e.safetensors"), codes, number);
            let engines = engine(&weights, is_divisor);
            let small = match is_divisor {
                // The smallest layer has the largest divisor: all others shrink.
                true => "model.layers.0.self_attn.q_proj",
                false => "model.layers.0.self_attn.k_proj",
            };
            let ours = unpacked(folder, "e.safetensors");
            let error = error(&original[small], &engines[small]);
            assert!(
                ours[small] != engines[small] && error > 0.9,
                "{layout} {error}"
            );
            let inspected = inspect(folder, "e.safetensors");
            assert_eq!(
                inspected["fused_scales_that_differ"]
                    .as_array()
                    .unwrap()
                    .len(),
                3
            );
        }
    }
}

/// Groups of other names; the layout of this project, where weights have scales of their own unless the user names groups.
#[test]
fn groups_that_the_user_names() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let weight = |name: &str, x: f32| Tensor::f32(&format!("{name}.weight"), &[2, 16], &[x; 32]);
    let tensors = [
        weight("a.left", 2688.0),
        weight("a.right", 26.88),
        weight("b.q_proj", 1.0),
        weight("b.k_proj", 5.0),
    ];
    write(&folder.join("m.safetensors"), &tensors);
    let scales = |options: &str| -> Vec<f32> {
        succeed(
            folder,
            &format!("quantize m.safetensors p.safetensors --force {options}"),
        );
        let packed = read(&folder.join("p.safetensors"));
        let scales = packed
            .iter()
            .filter(|x| x.name.ends_with("tensor_scale") || x.name.ends_with("scale_2"));
        scales.map(|x| floats(x)[0]).collect()
    };
    let own = [1.0, 26.88 / 2688.0, 5.0 / 2688.0, 1.0 / 2688.0];
    assert_eq!(scales("--format nvfp4(tensor_scale=true)"), own);
    let named = scales("--format nvfp4(tensor_scale=true) --fused left,right");
    assert_eq!(named, [1.0, 1.0, own[2], own[3]]);
    let named = scales("--layout modelopt-nvfp4 --fused a.left,a.right --fused q_proj,k_proj");
    assert_eq!(named, [1.0, 1.0, own[2], own[2]]);
    let groups = |options: &str| {
        inspect(folder, &format!("p.safetensors {options}"))["fused_groups"].clone()
    };
    assert_eq!(groups(""), 1);
    assert_eq!(groups("--fused left,right --fused q_proj,k_proj"), 2);
    // The error of a NaN or Inf is the layer's.
    for number in [f32::NAN, f32::INFINITY] {
        let tensor = Tensor::f32("b.q_proj.weight", &[2, 16], &[number; 32]);
        write(&folder.join("m.safetensors"), &[tensor, tensors[3].clone()]);
        for rule in [
            "--layout modelopt-nvfp4 --dialect modelopt",
            "--layout modelopt-nvfp4",
            "--layout modelopt-nvfp4 --fused q_proj,k_proj",
            "--format nvfp4(tensor_scale=true) --fused q_proj,k_proj",
        ] {
            let line = format!("quantize m.safetensors p.safetensors --force {rule}");
            refuse(folder, &line, &["`b.q_proj.weight`", "NaN or Inf"]);
        }
    }
    // A layer of zeros, which a tool makes NaN of, has the scale of its group.
    let zeros = Tensor::f32("b.q_proj.weight", &[2, 16], &[0.0; 32]);
    write(&folder.join("m.safetensors"), &[zeros, tensors[3].clone()]);
    assert_eq!(
        scales("--layout modelopt-nvfp4 --dialect modelopt"),
        [own[2], own[2]]
    );
    let said = succeed(folder, "unpack p.safetensors --out values.safetensors");
    assert!(said.contains("2 weights"), "{said}");
    let values = read(&folder.join("values.safetensors"));
    assert!(floats(&values[1]).iter().all(|x| *x == 0.0));
    // Groups whose scale would be zero stay unchanged, and are not counted.
    let tensors = [
        weight("a.q_proj", 1e-44),
        weight("a.k_proj", 1e-44),
        weight("b.q_proj", 1.0),
        weight("b.k_proj", 5.0),
    ];
    write(&folder.join("m.safetensors"), &tensors);
    let line = "quantize m.safetensors p.safetensors --force --layout modelopt-nvfp4";
    let said = succeed(folder, &format!("{line} --dialect modelopt"));
    let group = "1 group shares a tensor scale, b.{q_proj,k_proj}";
    assert!(
        said.contains(group) && said.contains("makes NaN of zeros: a.k_proj.weight"),
        "{said}"
    );
}

/// In cross-attention, keys and values have other inputs than queries: by default, these two alone are fused.
#[test]
fn layers_with_other_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let weight = |name: &str, inputs: usize, largest: f32| {
        let numbers: Vec<f32> = numbers(4 * inputs, 1).iter().map(|x| x * largest).collect();
        Tensor::f32(&format!("cross.{name}.weight"), &[4, inputs], &numbers)
    };
    let tensors = [
        weight("query", 16, 1.0),
        weight("key", 32, 2.0),
        weight("value", 32, 3.0),
    ];
    write(&folder.join("m.safetensors"), &tensors);
    let line = "quantize m.safetensors p.safetensors --force --layout modelopt-nvfp4";
    let said = succeed(folder, line);
    let group = "1 group shares a tensor scale, cross.{key,value}";
    assert!(said.contains(group), "{said}");
    let scales = |file: &str, end: &str| {
        let tensors = read(&folder.join(file));
        ["key", "query", "value"].map(|name| {
            let name = format!("cross.{name}.{end}");
            floats(tensors.iter().find(|x| x.name == name).unwrap())[0]
        })
    };
    let [key, query, value] = scales("p.safetensors", "weight_scale_2");
    assert!(key == value && query < key, "{key} {query} {value}");
    assert_eq!(
        inspect(folder, "p.safetensors")["fused_scales_that_differ"],
        json!([])
    );
    refuse(
        folder,
        &format!("{line} --fused query,key,value"),
        &["`cross.query` sums over 16 inputs, and `cross.key` over 32"],
    );
    // Scales of inputs follow the same rule.
    let mut tensors = read(&folder.join("p.safetensors"));
    for (name, scale) in [("query", 8.0), ("key", 2.0), ("value", 4.0)] {
        let name = format!("cross.{name}.input_scale");
        tensors.push(Tensor::f32(&name, &[], &[scale]));
    }
    write(&folder.join("p.safetensors"), &tensors);
    fs::remove_file(folder.join("p.config.json")).unwrap();
    let said = succeed(folder, "convert p.safetensors c.safetensors --to modelopt");
    assert!(
        said.contains("1 scale of an input became") && !said.contains("reads other values"),
        "{said}"
    );
    assert_eq!(scales("c.safetensors", "input_scale"), [4.0, 8.0, 4.0]);
    refuse(
        folder,
        "convert p.safetensors c.safetensors --force --to modelopt --fused query,key,value",
        &["`cross.query` has 16 inputs, and `cross.key` has 32 inputs"],
    );
}

/// Groups of which one layer or all stay in float.
#[test]
fn groups_in_float() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let weight = |name: &str| Tensor::f32(&format!("{name}.weight"), &[4, 32], &numbers(128, 1));
    let names = [
        "l.attn.q_proj",
        "l.attn.k_proj",
        "v.attn.q_proj",
        "v.attn.k_proj",
    ];
    write(&folder.join("m.safetensors"), &names.map(weight));
    succeed(
        folder,
        "quantize m.safetensors p.safetensors --layout nvfp4-pack-quantized --skip v.*",
    );
    for options in ["", "--fused q_proj,k_proj"] {
        let line = format!("convert p.safetensors c.safetensors --force --to modelopt {options}");
        let said: Value =
            serde_json::from_str(&succeed(folder, &format!("{line} --json"))).unwrap();
        assert_eq!(said["fused_layers_that_differ"], json!([]), "{said}");
    }
    // No engine fuses packed layers with one in float: the scales of their inputs stay.
    let mut tensors = read(&folder.join("p.safetensors"));
    for (name, divisor) in [("q", 8.0), ("k", 2.0)] {
        let name = format!("l.attn.{name}_proj.input_global_scale");
        tensors.push(Tensor::f32(&name, &[1], &[divisor]));
    }
    tensors.push(weight("l.attn.v_proj"));
    write(&folder.join("p.safetensors"), &tensors);
    fs::remove_file(folder.join("p.config.json")).unwrap();
    let line = "convert p.safetensors c.safetensors --force --to compressed-tensors";
    let said = succeed(folder, line);
    assert!(
        said.contains("`l.attn.v_proj` is in float") && !said.contains("`quantize` gives"),
        "{said}"
    );
    let converted = read(&folder.join("c.safetensors"));
    for tensor in &tensors {
        let same = converted.iter().find(|x| x.name == tensor.name).unwrap();
        assert_eq!(same.bytes, tensor.bytes, "{}", tensor.name);
    }
}

/// Nothing is written for layers that cannot share a scale.
#[test]
fn layers_that_cannot_share_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let weight = |name: &str, shape: [usize; 2]| {
        Tensor::f32(
            &format!("a.{name}.weight"),
            &shape,
            &numbers(shape[0] * shape[1], 1),
        )
    };
    let tensors = [
        weight("q_proj", [4, 32]),
        weight("k_proj", [4, 16]),
        weight("v_proj", [4, 32]),
    ];
    write(&folder.join("m.safetensors"), &tensors);
    let line = "quantize m.safetensors p.safetensors --layout nvfp4-pack-quantized";
    refuse(
        folder,
        &format!("{line} --fused q_proj,k_proj,v_proj"),
        &[
            "a.{q_proj,k_proj,v_proj}",
            "`a.q_proj` sums over 32 inputs, and `a.k_proj` over 16",
            "--fused",
            "--own-scales",
        ],
    );
    refuse(
        folder,
        &format!("{line} --skip *v_proj*"),
        &[
            "`a.q_proj` is packed, and `a.v_proj` stays in float; allowed: all of them packed, or none",
        ],
    );
    refuse(
        folder,
        &format!("{line} --fused q_proj"),
        &["`q_proj` has one name", "allowed: two names or more"],
    );
    refuse(
        folder,
        &format!("{line} --fused q_proj,v_proj --fused q_proj,k_proj"),
        &["`q_proj` occurs twice"],
    );
    refuse(
        folder,
        &format!("{line} --fused q_proj,k_proj --fused a.k_proj,a.v_proj"),
        &["`a.k_proj` and `k_proj` are names of one layer"],
    );
    refuse(
        folder,
        &format!("{line} --fused q_proj,v_proj --own-scales"),
        &["cannot be used with"],
    );
    for option in ["--own-scales", "--fused q_proj,v_proj"] {
        let mxfp4 = "quantize m.safetensors p.safetensors --format mxfp4";
        refuse(
            folder,
            &format!("{mxfp4} {option}"),
            &["has no effect: mxfp4 has no tensor scale"],
        );
    }
    assert!(!folder.join("p.safetensors").exists());
    succeed(folder, &format!("{line} --fused q_proj,v_proj"));
    succeed(folder, &format!("{line} --force --own-scales"));
}

/// `convert` keeps codes and scales of weights. So `convert` names layers whose weights have different scales, and refuses those that the
/// user names. `convert` gives the inputs of fused layers one scale: the scale of the largest input.
#[test]
fn convert_shares_scales_of_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(&folder.join("model.safetensors"), &model());
    succeed(
        folder,
        "quantize model.safetensors own.safetensors --format nvfp4(tensor_scale=true)",
    );
    for to in ["modelopt", "modelopt-nvfp4"] {
        let line = format!("convert own.safetensors out.safetensors --force --to {to}");
        let named = format!("{line} --fused w1,w3 --fused gate_proj,up_proj");
        refuse(
            folder,
            &named,
            &[
                "own.safetensors: fused layers `model.layers.0.mlp.{gate_proj,up_proj}`",
                "has the tensor scale",
                "allowed: one tensor scale, as `quantize` gives",
                "--own-scales",
            ],
        );
        assert!(!folder.join("out.safetensors").exists());
        let said: Value =
            serde_json::from_str(&succeed(folder, &format!("{line} --json"))).unwrap();
        assert_eq!(
            said["fused_layers_that_differ"].as_array().unwrap().len(),
            3
        );
        assert!(succeed(folder, &line).contains("reads other values"));
        let said: Value =
            serde_json::from_str(&succeed(folder, &format!("{line} --json --own-scales"))).unwrap();
        assert_eq!(said["fused_layers_that_differ"], json!([]));
        fs::remove_file(folder.join("out.safetensors")).unwrap();
    }
    for option in ["--own-scales", "--fused w1,w3"] {
        let line = format!("convert own.safetensors out.safetensors --to microscaling {option}");
        refuse(
            folder,
            &line,
            &["has no effect: layout microscaling shares no scales"],
        );
    }
    // With activations, as compressed-tensors stores them: divisors.
    succeed(
        folder,
        "quantize model.safetensors ct.safetensors --layout nvfp4-pack-quantized --dialect compressed-tensors",
    );
    fs::remove_file(folder.join("ct.config.json")).unwrap();
    let mut tensors = read(&folder.join("ct.safetensors"));
    let inputs = [4.0, 2.0, 8.0, 3.0, 16.0, 32.0, 7.0, 7.0, 5.0];
    for ((name, ..), input) in LAYERS.iter().zip(inputs) {
        tensors.push(Tensor::f32(
            &format!("{name}.input_global_scale"),
            &[1],
            &[input],
        ));
    }
    write(&folder.join("ct.safetensors"), &tensors);
    let before = unpacked(folder, "ct.safetensors");
    for (to, end, expected) in [
        (
            "compressed-tensors",
            "input_global_scale",
            [2.0, 2.0, 2.0, 3.0, 16.0, 16.0, 7.0, 7.0, 5.0],
        ),
        (
            "modelopt",
            "input_scale",
            [
                0.5,
                0.5,
                0.5,
                1.0 / 3.0,
                0.0625,
                0.0625,
                1.0 / 7.0,
                1.0 / 7.0,
                0.2,
            ],
        ),
    ] {
        let said = succeed(
            folder,
            &format!("convert ct.safetensors out.safetensors --force --to {to}"),
        );
        assert!(said.contains("3 scales of inputs became"), "{said}");
        let converted = read(&folder.join("out.safetensors"));
        let inputs = LAYERS.map(|(name, ..)| {
            let input = converted.iter().find(|x| x.name == format!("{name}.{end}"));
            floats(input.unwrap())[0]
        });
        assert_eq!(inputs, expected, "{to}");
        let inspected = inspect(folder, "out.safetensors");
        assert_eq!(inspected["fused_scales_that_differ"], json!([]));
        if to == "compressed-tensors" {
            assert_eq!(unpacked(folder, "out.safetensors"), before);
        }
        succeed(
            folder,
            &format!("convert ct.safetensors out.safetensors --force --own-scales --to {to}"),
        );
        let inspected = inspect(folder, "out.safetensors");
        assert_eq!(
            inspected["fused_scales_that_differ"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
    }
    // Some layers with a scale of their input and some without.
    tensors.retain(|x| x.name != "model.layers.0.self_attn.k_proj.input_global_scale");
    write(&folder.join("ct.safetensors"), &tensors);
    let line = "convert ct.safetensors out2.safetensors --to modelopt --fused v_proj,q_proj,k_proj";
    refuse(
        folder,
        line,
        &[
            "`model.layers.0.self_attn.v_proj` has a scale of its input, and `model.layers.0.self_attn.k_proj` has no scale",
        ],
    );
    // A layer in float beside packed ones.
    let is_k = |x: &Tensor| x.name.contains("0.self_attn.k_proj");
    tensors.retain(|x| !is_k(x));
    tensors.extend(model().into_iter().filter(is_k));
    write(&folder.join("ct.safetensors"), &tensors);
    refuse(
        folder,
        line,
        &[
            "{v_proj,q_proj,k_proj}",
            "`model.layers.0.self_attn.k_proj` is in float",
            "one format",
        ],
    );
    assert!(!folder.join("out2.safetensors").exists());
}
