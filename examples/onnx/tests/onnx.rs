//! The network from the ONNX file, as a user runs it.

use std::{error::Error, fs, path::Path, process::Command};

use burn_mx_onnx::{QuantizeOptions, initializers, quantize};
use serde_json::Value;

fn number(row: &Value, field: &str) -> f64 {
    row[field]
        .as_f64()
        .unwrap_or_else(|| panic!("{field}: {row}"))
}

#[test]
fn it_is_quantized_and_tuned() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let run = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_burn-mx-onnx-example"));
        command.args(options).args(["--json", "rows.json"]);
        let output = command.current_dir(&folder).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        // The script fails if its float outputs differ from ONNX Runtime's.
        assert!(output.status.success(), "{options:?}: {stderr}");
        let rows: Value = serde_json::from_slice(&fs::read(folder.path().join("rows.json"))?)?;
        Ok::<_, Box<dyn Error>>(rows["rows"].as_array().cloned().unwrap_or_default())
    };
    let configs = ["MXINT8", "MXFP4E2M1", "MXFP4E2M1_ADAQUANT"];
    let configs = configs.map(|config| ["--config", config]).concat();
    let quick = ["--iterations", "100", "--learning-rate", "1e-4"];
    let rows = run(&[&configs[..], &quick].concat())?;
    let names: Vec<_> = rows.iter().map(|row| row["config"].as_str()).collect();
    let expected = ["Float", "MXINT8", "MXFP4E2M1", "MXFP4E2M1_ADAQUANT"];
    assert_eq!(names, expected.map(Some));
    // The accuracy of PyTorch's training, and the least accuracy of the formats.
    assert!(number(&rows[0], "top1") > 0.99);
    assert!(number(&rows[1], "top1") > number(&rows[0], "top1") - 0.005);
    let [int8, fp4, tuned] = [1, 2, 3].map(|row| number(&rows[row], "sqnr"));
    assert!(int8 > 35.0 && int8 > tuned && tuned > fp4 + 1.0, "{rows:?}");
    let bytes = |row: &Value| number(row, "bytes");
    assert!(3.5 * bytes(&rows[2]) < bytes(&rows[0]), "{rows:?}");

    // The tuned parameters go back into its file.
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("digits_cnn.onnx");
    let name = "out/digits_cnn-MXFP4E2M1_ADAQUANT-tuned.safetensors";
    let options = QuantizeOptions {
        tuned: Some(folder.path().join(name)),
        ..QuantizeOptions::new("mxfp4".parse()?)
    };
    let quantized = folder.path().join("tuned.onnx");
    assert_eq!(quantize(&model, &quantized, &options)?.layers.len(), 5);
    let bias = |file: &Path| {
        let mut found = initializers(file)?.into_iter();
        let bias = found.find(|found| found.name == "head.bias");
        Ok::<_, Box<dyn Error>>(bias.expect("it is not quantized").values)
    };
    let (before, after) = (bias(&model)?, bias(&quantized)?);
    assert_ne!(before, after);
    assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() < 0.1));

    // Its norms are nodes of their own, and found.
    let rows = run(&["--config", "MXINT8", "--fold", "--static"])?;
    assert_eq!(rows[1]["config"], "MXINT8, folded, static");
    assert!(number(&rows[1], "sqnr") > 30.0, "{rows:?}");
    Ok(())
}

/// Training in a format improves the loss, and its parameters go back into the file of the network.
#[test]
fn it_is_trained_for_an_engine() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let run = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_burn-mx-onnx-example"));
        command.args(["train", "--epochs", "1", "--out", "cnn"]);
        let output = command.args(options).current_dir(&folder).output()?;
        let [stdout, stderr] = [output.stdout, output.stderr].map(String::from_utf8);
        Ok::<_, Box<dyn Error>>((output.status.success(), stdout?, stderr?))
    };
    let (is_well, stdout, stderr) = run(&["--config", "MXFP4E2M1"])?;
    assert!(is_well, "{stderr}");
    let loss = |name: &str| {
        let row = stdout.lines().find(|line| line.contains(name));
        let cell = row.and_then(|row| row.split('|').nth(2)).unwrap_or("");
        let loss: Result<f64, _> = cell.trim().parse();
        loss.unwrap_or_else(|error| panic!("{name}: {error} in {stdout}"))
    };
    assert!(loss("float32") < loss("to nearest"), "{stdout}");
    assert!(loss("trained") < loss("to nearest"), "{stdout}");

    let tuned = folder.path().join("cnn/tuned.safetensors");
    let options = QuantizeOptions {
        tuned: Some(tuned.clone()),
        ..QuantizeOptions::new("mxfp4".parse()?)
    };
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("digits_cnn.onnx");
    let quantized = folder.path().join("quantized.onnx");
    assert_eq!(quantize(&model, &quantized, &options)?.layers.len(), 5);
    // Statistics of batch norms are among the parameters.
    let of = |file: &Path, name: &str| {
        let mut found = initializers(file)?.into_iter();
        let found = found.find(|found| found.name == name);
        Ok::<_, Box<dyn Error>>(found.ok_or_else(|| name.to_owned())?.values)
    };
    for name in ["head.bias", "stem.1.running_var", "wide.1.bias"] {
        assert_ne!(of(&model, name)?, of(&quantized, name)?, "{name}");
    }

    for (options, message) in [
        (
            ["--config", "MXFP4E2M1_ADAQUANT"],
            "allowed: the name without `_ADAQUANT`",
        ),
        (["--config", "mxfp5"], "--config 'mxfp5'"),
        (["--learning-rate", "0"], "allowed: a number above 0"),
    ] {
        let (is_well, _, stderr) = run(&options)?;
        assert!(!is_well && stderr.contains(message), "{stderr}");
    }
    fs::write(&tuned, "of somebody else")?;
    let (is_well, _, stderr) = run(&[])?;
    assert!(!is_well && stderr.contains("no run wrote it"), "{stderr}");
    assert_eq!(fs::read(&tuned)?, b"of somebody else");
    Ok(())
}
