//! Every folder of the data through every layout, and back.

#![allow(clippy::too_many_lines, reason = "tests list their cases")]

mod support;

use serde_json::Value;
use std::fs;
use std::path::Path;
use support::{Tensor, data, read, run, succeed};

/// The targets of `convert`.
const TARGETS: [&str; 14] = [
    "microscaling",
    "mxfp4-pack-quantized",
    "mxfp6-pack-quantized",
    "mxfp8-quantized",
    "nvfp4-pack-quantized",
    "modelopt-nvfp4",
    "gpt-oss",
    "gguf-mxfp4",
    "compressed-tensors",
    "modelopt",
    "fp8",
    "gptq",
    "gptq_v2",
    "awq",
];

/// The values of the weights that the tools have values of; `from` names the layout where the tensors do not tell it.
fn values(folder: &Path, name: &str, path: &str, from: &str) -> Vec<Tensor> {
    succeed(folder, &format!("unpack {path} --out values --force{from}"));
    let expected = read(&data().join(format!("{name}.expected.safetensors")));
    let mut found = read(&folder.join("values"));
    found.retain(|tensor| expected.iter().any(|x| x.name == tensor.name));
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(found.len(), expected.len(), "{path}");
    found
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    let words = tensor.bytes.as_chunks().0.iter();
    words.map(|x| f32::from_le_bytes(*x)).collect()
}

/// Whether values are equal, zeros of either sign alike, but for a number of units in the last place.
fn are_equal(one: &[Tensor], other: &[Tensor], units: f32) -> bool {
    let near = |x: &f32, y: &f32| (x - y).abs() <= units * f32::EPSILON * x.abs();
    let same = |(one, other): (&Tensor, &Tensor)| {
        let (x, y) = (floats(one), floats(other));
        (&one.name, &one.shape) == (&other.name, &other.shape)
            && x.iter().zip(&y).all(|(x, y)| near(x, y))
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

/// Gives a converted folder the model's config without quantization, if the program wrote none.
fn describe(folder: &Path, input: &Path) {
    if folder.join("config.json").exists() {
        return;
    }
    let text = fs::read_to_string(input.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config
        .as_object_mut()
        .unwrap()
        .remove("quantization_config");
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

/// Each folder with each target gives an error with the reason, and no file, or a folder with the same values. The first layout gets the values back.
#[test]
fn there_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // A star: without the activations' part. Two units: Model Optimizer has the rounded reciprocal of compressed-tensors' divisor.
    for (name, own, expected, units) in [
        (
            "ct-mixed",
            "compressed-tensors",
            "microscaling compressed-tensors modelopt",
            2.0,
        ),
        (
            "ct-int4",
            "compressed-tensors",
            "compressed-tensors gptq gptq_v2 awq",
            0.0,
        ),
        (
            "ct-fp8-block",
            "compressed-tensors",
            "compressed-tensors modelopt fp8",
            0.0,
        ),
        (
            "ct-nvfp4",
            "compressed-tensors",
            "microscaling nvfp4-pack-quantized modelopt-nvfp4 compressed-tensors modelopt",
            2.0,
        ),
        (
            "ct-mxfp4",
            "compressed-tensors",
            "microscaling mxfp4-pack-quantized gpt-oss* gguf-mxfp4* compressed-tensors",
            0.0,
        ),
        (
            "fp8-scale-inv",
            "fp8",
            "compressed-tensors modelopt fp8",
            0.0,
        ),
        ("gpt-oss", "gpt-oss", "microscaling gpt-oss gguf-mxfp4", 0.0),
        (
            "modelopt-mixed",
            "modelopt",
            "microscaling compressed-tensors modelopt",
            2.0,
        ),
        ("gptq", "gptq", "gptq", 0.0),
        ("awq", "awq", "compressed-tensors gptq_v2 awq", 0.0),
    ] {
        let input = data().join(name).display().to_string();
        let before = values(folder, name, &input, "");
        succeed(folder, &format!("inspect {input}"));
        succeed(folder, &format!("diff {input} {input}"));
        let mut held = Vec::new();
        for target in TARGETS {
            let line = format!("convert {input} out --to {target}");
            let (mut status, mut said) = run(folder, &line);
            let leaves_activations = status == 2 && said.contains("`--weights-only`");
            if leaves_activations {
                (status, said) = run(folder, &format!("{line} --weights-only"));
            }
            if status == 2 {
                assert!(!folder.join("out").exists(), "{line}");
                let reasons = ["cannot hold", "allowed", "expected", "no packed weight"];
                assert!(reasons.iter().any(|x| said.contains(x)), "{line}: {said}");
                continue;
            }
            assert_eq!(status, 0, "{line}: {said}");
            held.push(format!(
                "{target}{}",
                if leaves_activations { "*" } else { "" }
            ));
            let from = match target {
                "gguf-mxfp4" => " --from gguf-mxfp4",
                _ => "",
            };
            describe(&folder.join("out"), Path::new(&input));
            let there = values(folder, name, "out", from);
            assert!(are_equal(&there, &before, units), "{line}");
            succeed(folder, &format!("convert out back --to {own}{from}"));
            describe(&folder.join("back"), Path::new(&input));
            assert!(
                are_equal(&values(folder, name, "back", ""), &before, units),
                "{line}"
            );
            // The same tensors, unless a reciprocal was rounded.
            let (status, said) = run(folder, &format!("diff {input} back"));
            assert!(status == 0 || units > 0.0, "{line}: {said}");
            for made in ["out", "back"] {
                fs::remove_dir_all(folder.join(made)).unwrap();
            }
        }
        assert_eq!(held.join(" "), expected, "{name}");
    }
}
