//! Training with the optimizer's states in formats, by the program.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

/// Trains a small model. Returns what the program prints.
fn train(folder: &Path, arguments: &str) -> Result<String, String> {
    let model = "--layers 1 --width 64 --heads 2 --context 16 --text text.txt --formats fp32";
    let output = Command::new(env!("CARGO_BIN_EXE_language_model"))
        .current_dir(folder)
        .args(["train"].into_iter().chain(model.split(' ')))
        .args(arguments.split(' '))
        .output()
        .unwrap();
    let [printed, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    match output.status.success() {
        true => Ok(printed),
        false => Err(errors),
    }
}

/// A folder with the beginning of the program's text.
pub(super) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = language_model::text::read(None).unwrap();
    fs::write(folder.path().join("text.txt"), &text[..60_000]).unwrap();
    folder
}

/// The bytes of states of a run, as the program prints them.
fn bytes(printed: &str, run: &str) -> [u64; 2] {
    let row = printed
        .lines()
        .rev()
        .find(|line| line.starts_with(&format!("| {run} ")));
    let cells: Vec<&str> = row.unwrap().split('|').map(str::trim).collect();
    [2, 3].map(|cell| cells[cell].parse().unwrap())
}

#[test]
fn states_in_formats_take_less_memory_and_are_settings_of_the_run() {
    let folder = folder();
    let folder = folder.path();
    let own = json!({"first_moment": "bfloat16", "second_moment": "bfloat16", "first_moment_rounding": "stochastic", "smallest": 0});
    fs::write(folder.join("own.json"), own.to_string()).unwrap();
    let states = "--optimizer-states float32 bitsandbytes own.json";
    let whole = train(
        folder,
        &format!("{states} --steps 6 --interval 3 --out whole"),
    )
    .unwrap();
    let [float, of_float] = bytes(&whole, "fp32");
    assert_eq!(float, of_float);
    let [eight, of_eight] = bytes(&whole, "fp32-bitsandbytes");
    assert!(of_eight == float && eight < float * 3 / 10, "{whole}");
    assert_eq!(bytes(&whole, "fp32-own"), [float / 2, float]);
    let part = folder.join("part/fp32-own");
    fs::create_dir_all(&part).unwrap();
    let run = folder.join("whole/fp32-own");
    let read = |path: &Path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    assert_eq!(
        read(&run.join("run.json"))["optimizer_states"]["second_moment"],
        "bfloat16"
    );
    assert!(
        read(&folder.join("whole/fp32/run.json"))
            .get("optimizer_states")
            .is_none()
    );
    let again = train(
        folder,
        "--optimizer-states own.json --steps 6 --interval 3 --out whole",
    );
    assert_eq!(
        bytes(&again.unwrap(), "fp32-own"),
        [float / 2, float],
        "nothing is left to do"
    );
    // Other states are other settings.
    fs::copy(run.join("run.json"), part.join("run.json")).unwrap();
    fs::write(
        folder.join("own.json"),
        json!({"first_moment": "coat"}).to_string(),
    )
    .unwrap();
    let refused = train(
        folder,
        "--optimizer-states own.json --steps 6 --interval 3 --out part",
    );
    assert!(refused.unwrap_err().contains("the same settings"));
}

/// Muon's states are of the matrices of the layers. AdamW keeps two float32 numbers for each other parameter.
#[test]
fn muon_trains_the_layers_matrices() {
    let folder = folder();
    let folder = folder.path();
    let printed = train(
        folder,
        "--optimizer muon --optimizer-states float32 muon8 muon4 muonq --steps 6 --interval 3 --out muon",
    )
    .unwrap();
    // Queries and outputs 64×64, keys and values as many, gate, up and down of SwiGLU.
    let config: Value =
        serde_json::from_slice(&fs::read(folder.join("muon/fp32-muon/config.json")).unwrap())
            .unwrap();
    let [width, hidden] =
        ["hidden_size", "intermediate_size"].map(|key| config[key].as_u64().unwrap());
    let matrices = 4 * width * width + 3 * width * hidden;
    let others = 256 * width + 3 * width;
    let [float, of_float] = bytes(&printed, "fp32-muon");
    assert_eq!(
        [float, of_float],
        [4 * matrices + 8 * others; 2],
        "{printed}"
    );
    for (states, most) in [("muon8", 1.01), ("muon4", 0.51), ("muonq", 0.6)] {
        let [kept, of_float] = bytes(&printed, &format!("fp32-muon-{states}"));
        let of_matrices = kept - 8 * others;
        assert_eq!(of_float, float, "{printed}");
        let is_small = of_matrices as f64 <= most * matrices as f64;
        assert!(is_small && of_matrices > 0, "{printed}");
    }
    let run = folder.join("muon/fp32-muon-muonq/run.json");
    let run: Value = serde_json::from_slice(&fs::read(run).unwrap()).unwrap();
    assert_eq!(run["optimizer"], "muon");
    let weights = |run: &str| fs::read(folder.join(run).join("model.safetensors")).unwrap();
    assert!(weights("muon/fp32-muon") != weights("muon/fp32-muon-muonq"));
    // AdamW's second moment, and a state that is AdamW's alone.
    for states in ["bitsandbytes", "adam4"] {
        let error = train(
            folder,
            &format!("--optimizer muon --optimizer-states {states} --steps 2 --out out"),
        );
        let error = error.unwrap_err();
        assert!(
            error.contains("`second_moment` is ") && error.contains("Muon"),
            "{error}"
        );
        assert!(!folder.join("out").exists());
    }
    let error = train(folder, "--optimizer-states muonq --steps 2 --out out").unwrap_err();
    assert!(error.contains("AdamW"), "{error}");
    let error = train(folder, "--optimizer sgd --steps 2 --out out").unwrap_err();
    assert!(error.contains("adamw, muon"), "{error}");
}

#[test]
fn states_that_cannot_be_used_are_refused_before_training() {
    let folder = folder();
    let folder = folder.path();
    fs::write(folder.join("wrong.json"), r#"{"master": "dynamic8"}"#).unwrap();
    fs::write(folder.join("unknown.json"), r#"{"momentum": "coat"}"#).unwrap();
    fs::write(folder.join("muon.json"), r#"{"newton_schulz": "bfloat16"}"#).unwrap();
    for (states, parts) in [
        (
            "adam3",
            [
                "--optimizer-states 'adam3'; allowed: float32, bitsandbytes",
                ".json",
            ],
        ),
        (
            "wrong.json",
            [
                "--optimizer-states 'wrong.json'",
                "`master` is dynamic8; allowed: ",
            ],
        ),
        (
            "unknown.json",
            ["--optimizer-states 'unknown.json'", "momentum"],
        ),
        ("muon.json", ["`newton_schulz` is bfloat16", "AdamW"]),
        ("missing.json", ["missing.json", "No such file"]),
    ] {
        let error = train(
            folder,
            &format!("--optimizer-states {states} --steps 2 --out out"),
        );
        let error = error.unwrap_err();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        assert!(!folder.join("out").exists());
    }
}
