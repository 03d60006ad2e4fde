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
