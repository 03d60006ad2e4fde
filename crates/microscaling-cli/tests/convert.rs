//! `convert` of checkpoints with several formats: to every layout that holds them and back, with the activations' part.

#![allow(clippy::too_many_lines, reason = "tests list their cases")]

mod support;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use support::{Tensor, config, data, files, read, refuse, run, succeed, tensors, write};

/// The input's `quantization_config`.
fn original(name: &str) -> Value {
    let text = fs::read_to_string(data().join(name).join("config.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    config["quantization_config"].clone()
}

/// To another layout and back: every tensor has its name, type, shape and bytes again, and the config says the same of activations.
#[test]
fn there_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, there, back) in [
        ("ct-mixed", "compressed-tensors", "compressed-tensors"),
        ("ct-mixed", "microscaling", "compressed-tensors"),
        ("ct-int4", "compressed-tensors", "compressed-tensors"),
        ("ct-fp8-block", "fp8", "compressed-tensors"),
        ("ct-nvfp4", "microscaling", "nvfp4-pack-quantized"),
        ("ct-nvfp4", "modelopt", "compressed-tensors"),
        ("ct-nvfp4", "modelopt-nvfp4", "nvfp4-pack-quantized"),
        ("ct-mxfp4", "microscaling", "mxfp4-pack-quantized"),
        ("fp8-scale-inv", "compressed-tensors", "fp8"),
        ("gpt-oss", "microscaling", "gpt-oss"),
        ("gpt-oss", "gpt-oss", "gpt-oss"),
        ("modelopt-mixed", "microscaling", "modelopt"),
        ("modelopt-mixed", "modelopt", "modelopt"),
    ] {
        let input = data().join(name);
        let (out, again) = (format!("{name}-{there}"), format!("{name}-{there}-back"));
        succeed(
            folder,
            &format!("convert {} {out} --to {there}", input.display()),
        );
        succeed(folder, &format!("convert {out} {again} --to {back}"));
        let (before, after) = (tensors(&input), tensors(&folder.join(&again)));
        assert!(before == after, "{name}: {there}");
        // The converted weights have the values of the tool, but for those that division rounds otherwise.
        if name != "ct-nvfp4" || there == "microscaling" {
            succeed(folder, &format!("unpack {out} --out values --force"));
            let values = read(&folder.join("values"));
            let expected = read(&data().join(format!("{name}.expected.safetensors")));
            for expected in expected {
                let got = values
                    .iter()
                    .find(|tensor| tensor.name == expected.name)
                    .unwrap();
                let floats = |tensor: &Tensor| -> Vec<f32> {
                    let words = tensor.bytes.chunks(4);
                    words
                        .map(|x| f32::from_le_bytes(x.try_into().unwrap()))
                        .collect()
                };
                // Experts are turned only by a config.json that names the model.
                let is_same = floats(got) == floats(&expected) || got.shape != expected.shape;
                assert!(is_same, "{name}: {there}: {}", expected.name);
            }
        }
        let (was, is) = (original(name), config(&folder.join(&again)));
        assert_eq!(was["quant_method"], is["quant_method"], "{name}: {there}");
        let groups = |config: &Value| -> Vec<Value> {
            let groups = config["config_groups"].as_object();
            let groups = groups.into_iter().flat_map(|groups| groups.values());
            let mut found: Vec<Value> = groups
                .map(|group| {
                    json!([
                        group["input_activations"]["num_bits"],
                        group["weights"]["num_bits"]
                    ])
                })
                .collect();
            found.sort_by_key(Value::to_string);
            found
        };
        assert_eq!(groups(&was), groups(&is), "{name}: {there}");
        if there == back {
            for key in ["format", "quant_algo", "quantized_layers"] {
                let was: Option<&Value> = was.get(key);
                // Cut away with the other layers.
                let len = |value: &Value| value.as_object().map_or(0, serde_json::Map::len);
                assert!(
                    was == is.get(key) || was.is_some_and(|x| len(x) > 2),
                    "{name}: {key}"
                );
            }
        }
    }
}

/// The activations' part leaves with the weights, in the words of the other tool.
#[test]
fn activations_leave_with_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let to = |name: &str, options: &str| {
        let _ = fs::remove_dir_all(folder.join("out"));
        let line = format!("convert {} out --to {options}", data().join(name).display());
        succeed(folder, &line);
        (config(&folder.join("out")), tensors(&folder.join("out")))
    };
    let layer = "model.layers.0.self_attn.k_proj";
    let (config, tensors) = to("ct-nvfp4", "modelopt");
    assert_eq!(config["quant_algo"], "NVFP4");
    assert_eq!(
        config["config_groups"]["group_0"]["input_activations"]["num_bits"],
        4
    );
    let number = |tensors: &BTreeMap<String, Tensor>, name: &str| {
        let bytes = &tensors[&format!("{layer}.{name}")].bytes;
        f32::from_le_bytes(bytes[..].try_into().unwrap())
    };
    let divisor = {
        let before = read(&data().join("ct-nvfp4/model.safetensors"));
        let map = before.into_iter().map(|x| (x.name.clone(), x)).collect();
        number(&map, "input_global_scale")
    };
    assert_eq!(number(&tensors, "input_scale"), 1.0 / divisor);
    assert!(tensors[&format!("{layer}.input_scale")].shape.is_empty());

    let (config, tensors) = to("ct-nvfp4", "modelopt --weights-only");
    assert_eq!(config["quant_algo"], "W4A16_NVFP4");
    let ends = ["input_scale", "input_global_scale"];
    let has_input = |name: &String| ends.iter().any(|end| name.ends_with(end));
    assert!(!tensors.keys().any(has_input));

    let (config, tensors) = to("ct-fp8-block", "fp8");
    let expected = json!({
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
        "modules_to_not_convert": [],
    });
    assert_eq!(config, expected);
    assert_eq!(tensors[&format!("{layer}.weight_scale_inv")].dtype, "BF16");

    let (config, _) = to("fp8-scale-inv", "compressed-tensors");
    let group = &config["config_groups"]["group_0"];
    assert_eq!(group["weights"]["block_structure"], json!([128, 128]));
    let activations = &group["input_activations"];
    assert_eq!(
        (&activations["group_size"], &activations["dynamic"]),
        (&json!(128), &json!(true))
    );

    // Two groups, each with its own part.
    let (config, _) = to("ct-mixed", "compressed-tensors");
    assert_eq!(config["format"], "mixed-precision");
    let (was, is) = (original("ct-mixed"), config);
    let group = |config: &Value, format: &str| {
        let groups = config["config_groups"].as_object().unwrap().values();
        let found = groups.into_iter().find(|group| group["format"] == format);
        found.unwrap().clone()
    };
    for format in ["float-quantized", "nvfp4-pack-quantized"] {
        let (was, is) = (group(&was, format), group(&is, format));
        assert_eq!(was["weights"], is["weights"]);
        assert_eq!(was["input_activations"], is["input_activations"]);
    }
}

/// W8A8 of int8 and FP8 with static scales. The reciprocal of no float32 equals one of the tensor scales.
#[test]
fn static_scales() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let fp8 = |shape: &[usize]| {
        [
            Tensor::new("a.weight", "F8_E4M3", &[2, 4], vec![0x38; 8]),
            Tensor::f32("a.weight_scale", shape, &[0.5]),
            Tensor::f32("a.input_scale", shape, &[0.25]),
        ]
    };
    write(&folder.join("ct"), &fp8(&[1]));
    succeed(folder, "convert ct modelopt --to modelopt");
    let sorted = |path: &str| {
        let mut tensors = read(&folder.join(path));
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        tensors
    };
    let mut expected = fp8(&[]).to_vec();
    expected.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(sorted("modelopt"), expected);
    let text = fs::read_to_string(folder.join("modelopt.config.json")).unwrap();
    assert!(text.contains("\"quant_algo\": \"FP8\""), "{text}");
    succeed(folder, "convert modelopt back --to compressed-tensors");
    assert_eq!(sorted("back"), sorted("ct"));
    let text = fs::read_to_string(folder.join("back.config.json")).unwrap();
    for part in [
        "\"strategy\": \"tensor\"",
        "\"dynamic\": false",
        "float-quantized",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// A format that a layout cannot hold is an error, which names layer, format and layout. Nothing is written.
#[test]
fn what_a_layout_cannot_hold() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, to, parts) in [
        (
            "ct-mixed",
            "nvfp4-pack-quantized",
            [
                "self_attn.k_proj.weight",
                "fp8_e4m3, a scale in BF16 for each row",
            ],
        ),
        (
            "ct-int4",
            "modelopt",
            ["self_attn.k_proj.weight", "layout modelopt cannot hold"],
        ),
        (
            "ct-int4",
            "microscaling",
            [
                "self_attn.k_proj.weight",
                "int4, a scale in BF16 for each 1 × 32",
            ],
        ),
        (
            "ct-int4",
            "fp8",
            ["layout fp8 cannot hold", "pack-quantized"],
        ),
        (
            "ct-mxfp4",
            "gpt-oss",
            ["with activations", "`--weights-only`"],
        ),
        (
            "gpt-oss",
            "compressed-tensors",
            ["experts.down_proj", "[4, 64, 96]"],
        ),
        (
            "gptq",
            "compressed-tensors",
            ["`bits2.weight`", "a zero point is 4; allowed: 0 to 3"],
        ),
        (
            "ct-fp8-block",
            "fp8 --weights-only",
            ["self_attn.k_proj.weight", "without quantized activations"],
        ),
        ("awq", "vllm", ["vllm", "compressed-tensors, modelopt, fp8"]),
    ] {
        let line = format!("convert {} out --to {to}", data().join(name).display());
        refuse(folder, &line, &parts);
        assert_eq!(files(folder), [""; 0], "{line}");
    }
    let line = format!(
        "convert {} out --to gpt-oss --weights-only",
        data().join("ct-mxfp4").display()
    );
    let (status, said) = run(folder, &line);
    assert_eq!(status, 0, "{said}");
}

/// AWQ and GPTQ become `pack-quantized`, with the same values; permuted groups are refused.
#[test]
fn words_of_gptq_and_awq() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let values = |path: &str| {
        succeed(folder, &format!("unpack {path} --out values --force"));
        read(&folder.join("values"))
    };
    let awq = data().join("awq");
    succeed(
        folder,
        &format!("convert {} awq --to compressed-tensors", awq.display()),
    );
    let expected = read(&data().join("awq.expected.safetensors"));
    let unpacked = values("awq");
    let weight = unpacked.iter().find(|tensor| tensor.name == "a.weight");
    assert!(weight.unwrap().bytes == expected[0].bytes);
    let written = config(&folder.join("awq"));
    let weights = &written["config_groups"]["group_0"]["weights"];
    let fields = ["num_bits", "type", "symmetric", "strategy", "group_size"];
    assert_eq!(
        fields.map(|field| weights[field].clone()),
        [
            json!(4),
            json!("int"),
            json!(false),
            json!("group"),
            json!(16)
        ]
    );
    let names: Vec<String> = tensors(&folder.join("awq")).into_keys().collect();
    let parts = ["packed", "scale", "shape", "zero_point"].map(|end| format!("a.weight_{end}"));
    assert_eq!(names[..4], parts);

    // 48 outputs of 3 bits: zero points of a column end within a word. Stored zero points are less by 1.
    let gptq = |zeros: Vec<u8>, groups: [u32; 2]| {
        let words = |count: usize, seed: u32| {
            let word = move |i: usize| (i as u32 + seed).wrapping_mul(2_654_435_761);
            (0..count)
                .flat_map(move |i| word(i).to_le_bytes())
                .collect()
        };
        let order = (0..64).map(|i| groups[i / 32]).flat_map(u32::to_le_bytes);
        write(
            &folder.join("m"),
            &[
                Tensor::new("b.qweight", "I32", &[6, 48], words(6 * 48, 1)),
                Tensor::new("b.qzeros", "I32", &[2, 5], zeros),
                Tensor::new(
                    "b.scales",
                    "F16",
                    &[2, 48],
                    [0x00, 0x34, 0x33, 0x2e].repeat(48),
                ),
                Tensor::new("b.g_idx", "I32", &[64], order.collect()),
            ],
        );
    };
    // 3 bits each of 0b011, which is 4 less 1: the middle.
    let stream = 0b011_011_011_011_011_011_011_011_u32.to_le_bytes();
    let middle = stream[..3]
        .repeat(6)
        .into_iter()
        .chain([0; 2])
        .collect::<Vec<u8>>();
    for (zeros, parts) in [
        (middle.repeat(2), 3),
        ([vec![0b1101_1010; 20], vec![0b0110_1101; 20]].concat(), 4),
    ] {
        gptq(zeros, [0, 1]);
        let before = values("m");
        succeed(folder, "convert m out --to compressed-tensors --force");
        assert_eq!(read(&folder.join("out")).len(), parts);
        assert!(values("out") == before);
    }
    gptq(vec![0; 40], [1, 0]);
    refuse(
        folder,
        "convert m never --to compressed-tensors",
        &["`b.weight`", "gptq", "groups of inputs are permuted"],
    );
}

/// Two divisors can share a reciprocal in float32. A conversion there and back then gives the neighbour, each time the same, and the
/// program counts such scales.
#[test]
fn a_divisor_without_a_factor() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let layer = "model.layers.0.self_attn.k_proj.input_global_scale";
    let number = |name: &str| {
        let bytes = &tensors(&folder.join(name))[layer].bytes;
        f32::from_le_bytes(bytes[..].try_into().unwrap())
    };
    // Above the square root of 2 some numbers are the rounded reciprocal of none.
    let has_reciprocal = |x: f32| {
        let near = 1.0 / x;
        let mut neighbours = [near.next_down(), near, near.next_up()].into_iter();
        neighbours.any(|y| 1.0 / y == x)
    };
    let above = std::iter::successors(Some(1.5_f32), |x| Some(x.next_up()));
    let lossy = above.into_iter().find(|x| !has_reciprocal(*x)).unwrap();
    for (divisor, rounded, ulps) in [(lossy, 1, 1), (1.25_f32.next_up(), 0, 0)] {
        for name in ["in", "there", "back", "there2", "back2"] {
            let _ = fs::remove_dir_all(folder.join(name));
        }
        fs::create_dir(folder.join("in")).unwrap();
        for file in files(&data().join("ct-nvfp4")) {
            let from = data().join("ct-nvfp4").join(&file);
            fs::copy(from, folder.join("in").join(&file)).unwrap();
        }
        let mut changed = read(&folder.join("in/model.safetensors"));
        let scale = changed.iter_mut().find(|x| x.name == layer).unwrap();
        scale.bytes = divisor.to_le_bytes().to_vec();
        write(&folder.join("in/model.safetensors"), &changed);
        let said = succeed(folder, "convert in there --to modelopt --json");
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said["rounded_input_scales"], rounded);
        succeed(folder, "convert there back --to compressed-tensors");
        let back = number("back");
        assert_eq!(back.to_bits().abs_diff(divisor.to_bits()), ulps);
        succeed(folder, "convert back there2 --to modelopt");
        succeed(folder, "convert there2 back2 --to compressed-tensors");
        assert_eq!(number("back2"), back);
    }
}
