//! The main example.

use serde_json::Value;

use super::{Place, losses};

#[test]
fn fp32_and_mx_are_trained_and_reported() {
    let place = Place::new();
    let presets = ["--preset", "mxfp8_e4m3", "--preset", "none"];
    let options = ["--epochs", "3", "--csv", "table.csv"];
    let (runs, stdout) = place.run("ffn", &[&options, &presets[..]].concat());
    let names: Vec<_> = runs.iter().map(|run| &run["name"]).collect();
    assert_eq!(names, ["fp32", "mxfp8_e4m3", "none"]);
    for run in &runs {
        let losses: Vec<f64> = losses(run)
            .iter()
            .map(|loss| loss.as_f64().expect("losses are finite"))
            .collect();
        assert_eq!(losses.len(), 3 * 23);
        assert!(
            losses[3 * 23 - 1] < losses[0] / 2.0,
            "it learns: {losses:?}"
        );
        assert!(run["step_ms"].as_f64().expect("a time") > 0.0);
        assert!((0.5..=1.0).contains(&run["accuracy"].as_f64().expect("a share")));
        assert_eq!(run["seed"], 0);
        assert_eq!(run["layers"].as_array().map(Vec::len), Some(0));
    }
    assert!(runs[0]["specs"].is_null());
    assert_eq!(runs[1]["specs"]["w_elem_format"], "fp8_e4m3");
    assert_ne!(losses(&runs[0]), losses(&runs[1]), "MX counts");
    assert_eq!(losses(&runs[0]), losses(&runs[2]), "and nothing else does");

    for column in [
        "format",
        "loss",
        "accuracy",
        "time a step",
        "overhead",
        "block 32",
    ] {
        assert!(stdout.contains(column), "{column}: {stdout}");
    }
    let csv = std::fs::read_to_string(place.path("table.csv")).expect("there is a table");
    let cell = |line: &str, column| line.split(',').nth(column).map(str::to_owned);
    let names: Vec<_> = csv.lines().map(|line| cell(line, 0)).collect();
    assert_eq!(
        names,
        ["format", "fp32", "mxfp8_e4m3", "none"].map(|name| Some(name.to_owned()))
    );
    for (line, run) in csv.lines().skip(1).zip(&runs) {
        let accuracy: f64 = cell(line, 3).expect("a cell").parse().expect("a number");
        assert!((accuracy - run["accuracy"].as_f64().expect("a share")).abs() < 1e-9);
    }
    let plot = std::fs::read_to_string(place.path("out/ffn_loss.svg")).expect("there is a plot");
    assert!(plot.starts_with("<svg") && plot.contains("mxfp8_e4m3"));
}

/// The losses, with any digits.
fn bits(run: &Value) -> Vec<u32> {
    let losses = losses(run).iter().map(|loss| loss.as_f64());
    losses
        .map(|loss| (loss.expect("losses are finite") as f32).to_bits())
        .collect()
}

/// The two programs are written apart, one to be read and one for sweeps, and do the same.
#[test]
fn compare_has_the_same_bits() {
    let place = Place::new();
    for options in [
        &["--epochs", "2", "--seed", "3", "--seed", "4"][..],
        &[
            "--epochs",
            "1",
            "--preset",
            "mxfp4",
            "--no-quantize-backprop",
        ],
    ] {
        let (own, _) = place.run("ffn", options);
        let (other, _) = place.compare(options);
        assert_eq!(own.len(), other.len());
        for (own, other) in own.iter().zip(&other) {
            assert_eq!(bits(own), bits(other));
            for field in ["name", "seed", "specs", "accuracy"] {
                assert_eq!(own[field], other[field]);
            }
        }
    }
}

#[test]
fn what_cannot_be_is_refused_before_any_work() {
    let place = Place::new();
    for (options, expected) in [
        (&["--preset", "mxfp5"][..], &["mxfp5", "mxfp8_e4m3"][..]),
        (&["--epochs", "0"], &["0", "--epochs", "1..=10000"]),
        (&["--seed", "x"], &["--seed", "'x'"]),
        (&["--bfloat", "9"], &["9", "--bfloat"]),
        (&["--bfloat", "16", "--fp", "16"], &["bfloat", "fp"]),
        (&["--out", "/dev/null/out"], &["--out", "/dev/null/out"]),
        (&["--json", "none/runs.json"], &["--json", "none/runs.json"]),
        (&["--csv", "none/runs.csv"], &["--csv", "none/runs.csv"]),
    ] {
        let error = place.refusal("ffn", options);
        for fragment in expected {
            assert!(error.contains(fragment), "{options:?}: {error}");
        }
    }
    let left = std::fs::read_dir(place.0.path()).expect("the place is there");
    assert_eq!(left.count(), 0);
}

#[test]
fn a_plot_of_somebody_else_stays() {
    let place = Place::new();
    let options = ["--epochs", "1", "--preset", "none"];
    place.mine("out/ffn_loss.svg");
    let refusal = place.refusal("ffn", &options);
    assert!(refusal.contains("out/ffn_loss.svg' is there"), "{refusal}");
    place.is_mine("out/ffn_loss.svg");
    std::fs::remove_file(place.path("out/ffn_loss.svg")).expect("it is there");
    for _ in 0..2 {
        place.run("ffn", &options);
    }
    // Changed since then.
    place.mine("out/ffn_loss.svg");
    place.refusal("ffn", &options);
    place.is_mine("out/ffn_loss.svg");
}
