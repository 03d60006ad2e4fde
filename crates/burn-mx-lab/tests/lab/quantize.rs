//! Post-training quantization: `quantize`, of a model that it trains, and of one that `compare` left.

use std::fs;

use serde_json::Value;

use super::Place;

/// Few steps.
const QUICK: &[&str] = &[
    "--calibration",
    "64",
    "--iterations",
    "40",
    "--learning-rate",
    "1e-4",
];

fn rows(place: &Place, options: &[&str]) -> (Vec<Value>, String) {
    let options = [options, QUICK, &["--json", "rows.json"]].concat();
    let output = place.command("quantize", &options);
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("it is text"));
    assert!(output.status.success(), "{options:?}: {stdout}{stderr}");
    let json = fs::read(place.path("rows.json")).expect("it writes the file");
    let json: Value = serde_json::from_slice(&json).expect("it is JSON");
    (
        json["rows"].as_array().expect("there are rows").clone(),
        stdout,
    )
}

fn number(row: &Value, field: &str) -> f64 {
    row[field]
        .as_f64()
        .unwrap_or_else(|| panic!("{field}: {row}"))
}

#[test]
fn a_cnn_is_trained_quantized_and_tuned() {
    let place = Place::new();
    let config = r#"{ "specs": { "w_elem_format": "mx9" }, "exclude": ["head"] }"#;
    fs::write(place.path("weights.json"), config).expect("it can be written");
    let configs = ["MXINT8", "MXFP4E2M1", "MXFP4E2M1_ADAQUANT", "weights.json"];
    let configs = configs.map(|config| ["--config", config]).concat();
    let (rows, stdout) = rows(&place, &[&["--epochs", "2"], &configs[..]].concat());
    let names: Vec<_> = rows
        .iter()
        .map(|row| row["config"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "Float",
            "MXINT8",
            "MXFP4E2M1",
            "MXFP4E2M1_ADAQUANT",
            "weights.json"
        ]
    );
    for row in &rows {
        assert!(
            number(row, "top1") > 0.5 && number(row, "top5") >= number(row, "top1"),
            "{row}"
        );
        let line = stdout
            .lines()
            .find(|line| line.starts_with(&format!("| {} ", row["config"].as_str().unwrap())));
        // The size equals the size of the model's file.
        let name = row["config"].as_str().unwrap().trim_end_matches(".json");
        let file = place.path(&format!("out/cnn-{name}.safetensors"));
        let bytes = fs::metadata(file).expect("it was saved").len();
        assert_eq!(row["bytes"], bytes, "{row}");
        assert!(
            name == "Float" || 3 * bytes < 2 * rows[0]["bytes"].as_u64().unwrap(),
            "{row}"
        );
        let percent = format!("{:.2} %", 100.0 * number(row, "top1"));
        assert!(line.is_some_and(|line| line.contains(&percent)), "{stdout}");
    }
    let sqnr = |row: usize| number(&rows[row], "sqnr");
    assert!(
        sqnr(4) > sqnr(1) && sqnr(1) > sqnr(3) && sqnr(3) > sqnr(2),
        "{rows:?}"
    );
    let layers = rows[3]["tuned"].as_array().expect("layers were tuned");
    let names: Vec<_> = layers
        .iter()
        .map(|layer| layer["layer"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["stages.0.conv", "stages.1.conv", "head"]);
    let svg = fs::read_to_string(place.path("out/cnn_quantized.svg")).expect("there is a chart");
    assert!(svg.starts_with("<svg") && svg.contains(">\nMXFP4E2M1\n<"));
    // Four configurations, one dot each; two more in the legend.
    assert_eq!(svg.matches("<circle").count(), 4 + 2);
}

#[test]
fn a_record_of_compare_is_quantized() {
    let place = Place::new();
    let (runs, _) = place.compare(&[
        "--model", "cnn", "--epochs", "2", "--preset", "mxint8", "--save", "run",
    ]);
    let options = ["--model", "run/fp32/seed-0/model.mpk", "--config", "MX9"];
    let (rows, _) = rows(&place, &options);
    assert_eq!(
        number(&rows[0], "top1"),
        number(&runs[0], "accuracy"),
        "the model is that one"
    );
}

#[test]
fn a_run_goes_on_where_it_was_broken_off() {
    let place = Place::new();
    let options = [
        &["--epochs", "2", "--resume", "kept", "--fold"][..],
        &["--algorithm", "adaround", "--config", "MXFP4E2M1_ADAQUANT"],
    ]
    .concat();
    let (first, _) = rows(&place, &options);
    let name = "MXFP4E2M1_ADAQUANT, folded, AdaRound";
    assert_eq!(first[1]["config"], name);
    let folder = place.path("kept/MXFP4E2M1_ADAQUANT-folded-AdaRound");
    let kept = || {
        let files = fs::read_dir(&folder).expect("it keeps layers");
        let times = files.map(|file| {
            let file = file.expect("it can be read");
            let changed = file.metadata().and_then(|metadata| metadata.modified());
            (file.file_name(), changed.expect("there are times"))
        });
        let mut times: Vec<_> = times.collect();
        times.sort();
        times
    };
    let before = kept();
    assert_eq!(before.len(), 3);
    let (again, _) = rows(&place, &options);
    assert_eq!(again, first);
    assert_eq!(kept(), before, "nothing was tuned again");
}

#[test]
fn pretrained_networks_need_their_files() {
    let place = Place::new();
    let message = place.refusal("pretrained", &["--data", "missing"]);
    for part in ["--data 'missing'", "fetch.py"] {
        assert!(message.contains(part), "{message}");
    }
    fs::create_dir(place.path("empty")).expect("it can be created");
    let output = place.command("pretrained", &["--data", "empty"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("photos.safetensors"), "{message}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_cannot_be_quantized_is_refused() {
    let place = Place::new();
    fs::write(place.path("none.json"), "{}").expect("it can be written");
    fs::write(place.path("wrong.json"), r#"{ "formats": 3 }"#).expect("it can be written");
    for (options, parts) in [
        (
            &["--config", "MXFP3"][..],
            &["MXFP3", "MXFP4E2M1_ADAQUANT"][..],
        ),
        (
            &["--config", "none.json"],
            &["none.json", "`specs` is without a format"],
        ),
        (&["--config", "wrong.json"], &["wrong.json", "formats"]),
        (&["--config", "missing.json"], &["missing.json"]),
        (&["--algorithm", "adam"], &["adam", "adaquant", "adaround"]),
        (
            &["--learning-rate", "0"],
            &["`LearningRate` is 0", "a positive number"],
        ),
        (&["--model", "missing.mpk"], &["--model 'missing.mpk'"]),
        (
            &["--json", "missing/rows.json"],
            &["--json 'missing/rows.json'"],
        ),
    ] {
        let message = place.refusal("quantize", options);
        assert!(
            parts.iter().all(|part| message.contains(part)),
            "{options:?}: {message}"
        );
    }
    // A record of another model.
    fs::write(place.path("other.mpk"), "no record").expect("it can be written");
    let output = place.command("quantize", &["--model", "other.mpk", "--config", "MX9"]);
    assert_eq!(output.status.code(), Some(1));
}
