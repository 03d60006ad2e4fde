//! `quantize_onnx` replaces an output that exists only with `--force`, and never replaces an input.

use std::fs;
use std::path::Path;
use std::process::Command;

const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/onnx/digits_cnn.onnx"
);

/// The exit status, and what the program said.
fn run(folder: &Path, line: &str) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_quantize_onnx"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code().unwrap(), said)
}

/// Not even with `--force`, and by no other name of the file.
#[test]
fn no_input_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::copy(MODEL, folder.join("m.onnx")).unwrap();
    let attributes = r#"{"MXAttributes": {}}"#;
    fs::write(folder.join("config.json"), attributes).unwrap();
    fs::create_dir(folder.join("sub")).unwrap();
    let mut names = vec!["m.onnx", "sub/../m.onnx"];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("m.onnx", folder.join("link.onnx")).unwrap();
        fs::hard_link(folder.join("m.onnx"), folder.join("hard.onnx")).unwrap();
        names.extend(["link.onnx", "hard.onnx"]);
    }
    let model = fs::read(MODEL).unwrap();
    for name in names {
        for force in ["", "--force"] {
            let line = format!("m.onnx --config MX6 --output {name} {force}");
            let (status, said) = run(folder, &line);
            assert!(
                status == 2 && said.contains("which is read"),
                "{line}: {said}"
            );
            assert_eq!(fs::read(folder.join("m.onnx")).unwrap(), model);
        }
    }
    let (status, said) = run(
        folder,
        "m.onnx --config config.json --output config.json --force",
    );
    assert!(status == 2 && said.contains("which is read"), "{said}");
    assert_eq!(
        fs::read_to_string(folder.join("config.json")).unwrap(),
        attributes
    );
    // Files of options with any contents.
    for option in ["--tuned", "--calibration"] {
        fs::write(folder.join("x"), "mine").unwrap();
        let line = format!("m.onnx --config MX6 {option} x --output x --force");
        let (status, said) = run(folder, &line);
        assert!(
            status == 2 && said.contains("which is read"),
            "{line}: {said}"
        );
        assert_eq!(fs::read(folder.join("x")).unwrap(), b"mine");
    }
}

#[test]
fn an_output_that_exists_needs_force() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::copy(MODEL, folder.join("m.onnx")).unwrap();
    let output = folder.join("m_MX6.onnx");
    fs::write(&output, "mine").unwrap();
    let (status, said) = run(folder, "m.onnx --config MX6");
    assert!(status == 2 && said.contains("m_MX6.onnx exists"), "{said}");
    assert_eq!(fs::read(&output).unwrap(), b"mine");
    let (status, said) = run(folder, "m.onnx --config MX6 --force");
    assert_eq!(status, 0, "{said}");
    assert_ne!(fs::read(&output).unwrap(), b"mine");
}
