//! The program records a trained model, and quantizes it by the recipes of searches.

use std::{fs, path::Path, process::Command};

use burn_mx::record::{Budget, Report, Score, Search};
use burn_mx::{MxSpecs, Recipe, Slot};
use serde_json::{Value, json};

fn run(folder: &Path, arguments: &str) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_language_model"))
        .current_dir(folder)
        .args(arguments.split(' '))
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn a_recorded_model_is_quantized_by_found_recipes() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let succeeds = |arguments: &str| {
        let (success, text) = run(folder, arguments);
        assert!(success, "{arguments}: {text}");
    };
    // A part of the text, so that validations are short.
    let text = language_model::text::read(None).unwrap();
    fs::write(folder.join("text.txt"), &text[..60_000]).unwrap();
    let model = "--layers 1 --width 32 --heads 2 --context 16 --text text.txt";
    succeeds(&format!(
        "train --formats fp32 --steps 20 --interval 20 {model} --out trained"
    ));
    succeeds(
        "record trained/fp32 --text text.txt --what-if mxfp4 mxfp8_e4m3 --batches 2 --outputs --out seen",
    );

    let mut search = Search {
        formats: vec!["mxfp4".into(), "mxfp8_e4m3".into()],
        budget: Budget::Bits(6.0),
        specs: MxSpecs::mxfp8_e4m3(),
        score: Score::Fisher,
        slots: vec![Slot::W],
        keep: vec!["model.embed_tokens".into()],
        pairs: Vec::new(),
        shared: false,
    };
    let report = Report::read([folder.join("seen")]).unwrap();
    let found = search.find(&report).unwrap();
    // The layer's seven matrices.
    assert_eq!(found.places.len(), 7);
    let scores = fs::read(folder.join("seen/scores.json")).unwrap();
    let by_modelopt = search
        .find_by(serde_json::from_slice(&scores).unwrap())
        .unwrap();
    assert_eq!(by_modelopt.places.len(), 7);
    search.keep.clear();
    let with_table = search.find(&report).unwrap();
    assert_eq!(with_table.places.len(), 8);
    for (name, found) in [
        ("found", &found),
        ("modelopt", &by_modelopt),
        ("table", &with_table),
    ] {
        let recipe = serde_json::to_string(&found.recipe).unwrap();
        fs::write(folder.join(format!("{name}.json")), recipe).unwrap();
    }

    let quantize = "quantize trained/fp32 --text text.txt --calibration 4 --recipe";
    succeeds(&format!(
        "{quantize} found.json found.json_GPTQ modelopt.json --json rows.json"
    ));
    let rows: Value = serde_json::from_slice(&fs::read(folder.join("rows.json")).unwrap()).unwrap();
    let row = |at: usize| {
        let row = &rows["rows"][at];
        (
            row["config"].as_str().unwrap(),
            row["bits"].as_f64().unwrap(),
        )
    };
    let bits = |found: f64, row: f64| assert!((found - row).abs() < 1e-9, "{found} {row}");
    for (at, name, expected) in [
        (1, "found", found.total.bits),
        (2, "found_GPTQ", found.total.bits),
        (3, "modelopt", by_modelopt.total.bits),
    ] {
        assert_eq!(row(at).0, name);
        bits(expected, row(at).1);
    }

    // A recipe trains, too, and its layers count: the losses equal neither FP32's nor the losses of the model's specs.
    let train = format!("train --steps 2 --interval 2 {model} --out by_recipe --formats");
    let plain = serde_json::to_string(&Recipe::preset("mxfp8_e4m3").unwrap()).unwrap();
    fs::write(folder.join("plain.json"), &plain).unwrap();
    succeeds(&format!("{train} fp32 mxfp8_e4m3 plain.json found.json"));
    let curves = fs::read(folder.join("by_recipe/loss.json")).unwrap();
    let curves: Value = serde_json::from_slice(&curves).unwrap();
    let loss = |name: &str| curves[name]["training"].clone();
    assert_eq!(loss("plain"), loss("mxfp8_e4m3"));
    assert_ne!(loss("found"), loss("plain"));
    assert_ne!(loss("found"), loss("fp32"));
    let evaluate = |format: &str| {
        let arguments = format!("evaluate trained/fp32 --text text.txt --format {format}");
        let (success, text) = run(folder, &arguments);
        assert!(success, "{text}");
        text
    };
    assert_ne!(evaluate("found.json"), evaluate("plain.json"));
    let generate = |format: &str| {
        let arguments = format!("generate trained/fp32 --tokens 15 --prompt A --format {format}");
        run(folder, &arguments)
    };
    let written = |format: &str| {
        let (success, text) = generate(format);
        assert!(success, "{text}");
        // The last line has the speed.
        let (written, _) = text.rsplit_once("\n15 tokens").expect("it was written");
        written.to_owned()
    };
    assert_eq!(written("plain.json"), written("mxfp8_e4m3"));
    let (success, text) = generate("missing.json");
    assert!(!success && text.contains("missing.json"), "{text}");
    let mut other: Value = serde_json::from_str(&plain).unwrap();
    other["layers"] = json!({"blocks.0": other["specs"]});
    let other = other.to_string();
    for (file, text, part) in [
        ("other.json", other.as_str(), "blocks.0"),
        ("broken.json", "{", "broken.json"),
    ] {
        fs::write(folder.join(file), text).unwrap();
        for arguments in [
            format!("{train} {file}"),
            format!("evaluate trained/fp32 --text text.txt --format {file}"),
            format!("generate trained/fp32 --prompt A --format {file}"),
        ] {
            let (success, text) = run(folder, &arguments);
            assert!(!success && text.contains(part), "{text}");
        }
    }

    // Post-training quantization leaves a table of embeddings out.
    for (arguments, part) in [
        ("table.json", "`model.embed_tokens.weight` matches no layer"),
        ("found", "expected a file's name that ends in .json"),
        ("found.json_QUAROT", "`_QUAROT`"),
        ("missing.json", "--recipe 'missing.json'"),
    ] {
        let (success, text) = run(folder, &format!("{quantize} {arguments}"));
        assert!(!success && text.contains(part), "{text}");
    }
    let (success, text) = run(folder, "record trained/fp32 --what-if mxfp5 --out other");
    assert!(
        !success && text.contains("--what-if") && text.contains("mxfp5"),
        "{text}"
    );
}
