//! Quantization-aware training of a trained model, and distillation.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

pub(super) fn run(folder: &Path, arguments: &str) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_language_model"))
        .current_dir(folder)
        .args(arguments.split(' '))
        .output()
        .unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    match output.status.success() {
        true => Ok(text),
        false => Err(text),
    }
}

/// The last training loss of a run, and the validation loss.
fn losses(folder: &Path, out: &str, run: &str) -> [f64; 2] {
    let text = fs::read(folder.join(out).join("loss.json")).unwrap();
    let curves: Value = serde_json::from_slice(&text).unwrap();
    ["training", "validation"].map(|kind| {
        let points = curves[run][kind].as_array().unwrap();
        points.last().unwrap()[1].as_f64().unwrap()
    })
}

#[test]
fn a_trained_model_is_trained_for_its_format() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    // A part of the text, so that validations are short.
    let text = language_model::text::read(None).unwrap();
    fs::write(folder.join("text.txt"), &text[..60_000]).unwrap();
    let model = "--layers 1 --width 32 --heads 2 --context 32";
    let common = "--text text.txt --steps 40 --interval 40";
    run(
        folder,
        &format!("train --formats fp32 {model} {common} --lr 0.01 --out float"),
    )
    .unwrap();

    // The float model predicts what its teacher predicts: the loss is 0, and its gradient too.
    let tuned = "train --from float/fp32 --text text.txt --context 16 --interval 1";
    let teacher = "--teacher float/fp32";
    let same = format!("{tuned} {teacher} --steps 1 --formats fp32 --out same");
    let text = run(folder, &same).unwrap();
    assert!(!text.contains("is not emulated"), "{text}");
    assert!(losses(folder, "same", "fp32")[0].abs() < 1e-7);
    let softer =
        format!("{tuned} {teacher} --steps 1 --formats mxfp4 --temperature 2 --out softer");
    run(folder, &softer).unwrap();
    assert!(losses(folder, "softer", "mxfp4")[0] > 0.0);
    // Hidden states are a term of their own: in proportion to the weight, and 0 for the model itself.
    let states = |formats: &str, weight: &str, out: &str| {
        let run_ = format!(
            "{tuned} {teacher} --steps 1 --formats {formats} --hidden-states {weight} --out {out}"
        );
        run(folder, &run_).unwrap();
        losses(folder, out, formats)[0]
    };
    assert!(states("fp32", "3", "same_states").abs() < 1e-7);
    let [none, one, four] = [("0", "no_states"), ("1", "states"), ("4", "more_states")]
        .map(|(weight, out)| states("mxfp4", weight, out));
    assert!(one > none, "{none} {one}");
    assert!(
        (four - none - 4.0 * (one - none)).abs() < 1e-5 * four,
        "{none} {one} {four}"
    );

    // Training by the predictions of a better model, in a narrow format, lowers the distance to them.
    let better = format!("train --formats fp32 {model} --text text.txt --steps 150 --interval 150");
    run(folder, &format!("{better} --lr 0.01 --out better")).unwrap();
    let teacher = "--teacher better/fp32";
    let qat = format!("{tuned} {teacher} --steps 30 --formats mxfp4 --lr 0.01 --qat --out qat");
    run(folder, &qat).unwrap();
    let curves = fs::read(folder.join("qat/loss.json")).unwrap();
    let curves: Value = serde_json::from_slice(&curves).unwrap();
    let training = curves["mxfp4-qat"]["training"].as_array().unwrap();
    let mean = |points: &[Value]| {
        let losses = points.iter().map(|point| point[1].as_f64().unwrap());
        losses.sum::<f64>() / points.len() as f64
    };
    let (first, last) = (mean(&training[..5]), mean(&training[25..]));
    assert!(last < 0.9 * first, "{first} {last}");
    let settings = fs::read_to_string(folder.join("qat/mxfp4-qat/run.json")).unwrap();
    let settings: Value = serde_json::from_str(&settings).unwrap();
    assert_eq!(settings["from"], "float/fp32");
    assert_eq!(settings["format"]["specs"]["quantize_backprop"], false);
    // The model keeps its own context.
    let config = fs::read_to_string(folder.join("qat/mxfp4-qat/config.json")).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["max_position_embeddings"], 32);
    // The same command again changes nothing; another teacher is another run.
    assert_eq!(
        run(folder, &qat).unwrap().lines().last(),
        run(folder, &qat).unwrap().lines().last()
    );
    let other = qat.replace(teacher, "--teacher float/fp32");
    assert!(
        run(folder, &other)
            .unwrap_err()
            .contains("a run with the same settings")
    );

    let refused = [
        (
            "--teacher float/fp32 --temperature 0",
            vec!["--temperature '0'", "a positive number"],
        ),
        (
            "--teacher float/fp32 --hidden-states nan",
            vec!["--hidden-states 'NaN'", "0 or a positive number"],
        ),
        (
            "--teacher deeper/fp32 --hidden-states 1",
            vec![
                "--teacher 'deeper/fp32'",
                "1 layers of width 32, as 'float/fp32'",
            ],
        ),
        ("--hidden-states 1", vec!["--hidden-states", "--teacher"]),
        ("--layers 2", vec!["--layers", "--from"]),
        ("--context 33", vec!["--context '33'", "1 to 32"]),
        (
            "--teacher other/fp32",
            vec!["--teacher 'other/fp32'", "the tokens of 'float/fp32'"],
        ),
    ];
    let other = format!(
        "train --formats fp32 {model} --vocabulary 300 --text text.txt --steps 1 --out other"
    );
    run(folder, &other).unwrap();
    let deeper = "train --formats fp32 --layers 2 --width 32 --heads 2 --text text.txt --steps 1 --out deeper";
    run(folder, deeper).unwrap();
    for (arguments, parts) in refused {
        let error = run(
            folder,
            &format!("train --from float/fp32 --text text.txt {arguments} --out no"),
        );
        let error = error.unwrap_err();
        for part in parts {
            assert!(error.contains(part), "{arguments}: {error}");
        }
        assert!(!folder.join("no").exists(), "{arguments}");
    }
}

#[test]
fn resets_without_a_weight_to_reset_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let reset = "train --reset-oscillation --out no";
    for (arguments, parts) in [
        (format!("{reset} --formats fp32"), ["fp32", "w_elem_format"]),
        (
            format!("{reset} --formats mxfp4 --reset-window 0"),
            ["mxfp4", "window"],
        ),
        (
            format!("{reset} --formats mxfp4 --from x --lora 2"),
            ["--reset-oscillation", "--lora"],
        ),
        (
            "train --formats mxfp4 --out no --reset-window 3".to_owned(),
            ["--reset-oscillation", "required"],
        ),
    ] {
        let error = run(folder, &arguments).unwrap_err();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    assert!(!folder.join("no").exists());
}
