//! Training on several ranks with gradients in formats, by the program.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{optimizer_states::folder, tuning::run};

/// Trains a small model. Returns the program's text.
fn train(folder: &Path, arguments: &str) -> Result<String, String> {
    let model =
        "--layers 1 --width 32 --heads 2 --context 16 --batch 4 --text text.txt --formats fp32";
    run(folder, &format!("train {model} {arguments}"))
}

#[test]
fn gradients_of_ranks_travel_in_formats() {
    let folder = folder();
    let folder = folder.path();
    let own = json!({"format": "mxfp4", "error_feedback": "float32", "rounding": "stochastic"});
    fs::write(folder.join("own.json"), own.to_string()).unwrap();
    train(folder, "--steps 6 --interval 3 --out one").unwrap();
    let names = "float32 mxfp8_e5m2 own.json";
    train(
        folder,
        &format!("--ranks 1 --communication {names} --steps 6 --interval 3 --out same"),
    )
    .unwrap();
    let read = |path: &str| fs::read(folder.join(path)).unwrap();
    // One rank sends nothing.
    for run in ["fp32", "fp32-mxfp8_e5m2", "fp32-own"] {
        let path = format!("same/{run}/model.safetensors");
        assert!(read(&path) == read("one/fp32/model.safetensors"), "{run}");
    }
    train(
        folder,
        &format!("--ranks 4 --communication {names} --steps 6 --interval 3 --out four"),
    )
    .unwrap();
    let loss = |path: &str| serde_json::from_slice::<Value>(&read(path)).unwrap();
    let losses = loss("four/loss.json");
    let of = |run: &str| losses[run]["validation"][1][1].as_f64().unwrap();
    let one = loss("one/loss.json")["fp32"]["validation"][1][1]
        .as_f64()
        .unwrap();
    // Four means of means: float32 orders alone.
    assert!((of("fp32") / one - 1.0).abs() < 1e-4, "{losses}");
    for run in ["fp32-mxfp8_e5m2", "fp32-own"] {
        assert!(
            (of(run) / one - 1.0).abs() < 0.05 && of(run) != one,
            "{losses}"
        );
    }
    let gaps = fs::read_to_string(folder.join("four/gap.svg")).unwrap();
    let gap = losses["fp32-own"]["validation"][1][1].as_f64().unwrap() - of("fp32");
    assert!(gaps.contains(&format!("fp32-own: {gap:.4}")), "{gap}");
    assert!(!folder.join("one/gap.svg").exists(), "one run has no gap");
    // Ranks that also own parts of the weights.
    for ranks in [1, 4] {
        train(
            folder,
            &format!("--ranks {ranks} --communication own.json+qwz --steps 6 --interval 3 --out weights-{ranks}"),
        )
        .unwrap();
    }
    let path = |folder: &str| format!("{folder}/fp32-own+qwz/model.safetensors");
    assert!(read(&path("weights-1")) == read("one/fp32/model.safetensors"));
    assert!(read(&path("weights-4")) != read("four/fp32-own/model.safetensors"));
    let losses = loss("weights-4/loss.json");
    let gathered = losses["fp32-own+qwz"]["validation"][1][1].as_f64().unwrap();
    assert!((gathered / one - 1.0).abs() < 0.05, "{losses}");
    let run: Value = serde_json::from_slice(&read("weights-4/fp32-own+qwz/run.json")).unwrap();
    assert_eq!(run["exchange"]["weights"]["format"], "int8_clipped");
    let run: Value = serde_json::from_slice(&read("four/fp32-own/run.json")).unwrap();
    assert!(run["exchange"].get("weights").is_none());
    assert_eq!(run["exchange"]["ranks"], 4);
    assert_eq!(run["exchange"]["communication"]["mean"], true);
    let files: Vec<_> = fs::read_dir(folder.join("four/fp32-own"))
        .unwrap()
        .collect();
    let names = files.into_iter().map(|file| file.unwrap().file_name());
    let names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    assert!(names.contains(&"exchange-6.json".to_owned()), "{names:?}");
    assert!(!names.contains(&"exchange-3.json".to_owned()), "{names:?}");
}

#[test]
fn ranks_that_cannot_work_are_refused_before_training() {
    let folder = folder();
    let folder = folder.path();
    fs::write(folder.join("typo.json"), r#"{"fromat": "mxfp4"}"#).unwrap();
    let tensors = r#"{"format": "mxfp4", "tensors": ["model.layer.0.*"]}"#;
    fs::write(folder.join("pattern.json"), tensors).unwrap();
    for (options, parts) in [
        ("--ranks 3", ["--ranks '3'", "a divisor of --batch, 4"]),
        ("--ranks 0", ["--ranks '0'", "1 or more"]),
        (
            "--ranks 2 --communication fp8",
            ["`format` is fp8", "a format with a scale"],
        ),
        (
            "--ranks 2 --communication mxfp9",
            ["--communication 'mxfp9'", "qgz"],
        ),
        (
            "--ranks 2 --communication typo.json",
            ["--communication 'typo.json'", "fromat"],
        ),
        (
            "--ranks 2 --communication pattern.json",
            ["`tensors` is model.layer.0.*", "allowed: a pattern"],
        ),
        (
            "--ranks 2 --communication qgz+mxfp9",
            ["--communication 'mxfp9'", "qgz"],
        ),
        (
            "--ranks 2 --communication sdp4bit_weights",
            ["`difference` is true", "allowed: false"],
        ),
        (
            "--ranks 2 --communication missing.json",
            ["missing.json", "No such file"],
        ),
    ] {
        let text = train(folder, &format!("{options} --steps 2 --out out"));
        let text = text.expect_err(options);
        assert!(
            parts.iter().all(|part| text.contains(part)),
            "{options}: {text}"
        );
        assert!(!folder.join("out/fp32/run.json").exists());
    }
}
