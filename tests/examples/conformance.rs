//! The `conformance` program on the golden files of `tests/data/golden`, and its messages.

use std::path::Path;

use super::Place;

/// Files, backends, and how many checks pass: so that nothing is lost in silence.
const REPORTS: [(&str, &str, usize); 11] = [
    ("mx_quantize", "slice", 628),
    ("elementwise", "slice", 72),
    ("scale_modes", "slice", 240),
    ("microexponents", "slice", 36),
    ("nvfp4", "slice", 24),
    ("layers", "flex", 84),
    ("layers", "ndarray", 84),
    // Three functions are checked twice: by their rounded ops and as Burn composes them.
    ("vector", "flex", 189),
    ("vector", "ndarray", 189),
    ("ffn", "flex", 6),
    ("ffn", "ndarray", 6),
];

#[test]
fn everything_agrees_on_every_backend() {
    let place = Place::new();
    let output = place.command("conformance", &[]);
    let stdout = String::from_utf8(output.stdout).expect("it prints text");
    assert!(output.status.success(), "{stdout}");
    let lines = stdout.lines().filter(|line| !line.starts_with(' '));
    let expected = REPORTS.map(|(file, backend, passed)| {
        format!("{file}[{backend}]: {passed} passed, 0 failed, 0 skipped")
    });
    assert_eq!(lines.collect::<Vec<_>>(), expected, "{stdout}");
}

/// No golden file lies about unnoticed.
#[test]
fn every_golden_file_is_checked() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden");
    let files = std::fs::read_dir(dir).expect("the folder is there");
    for file in files {
        let name = file.expect("it can be listed").file_name();
        let name = name.into_string().expect("its name is text");
        if let Some(name) = name.strip_suffix(".safetensors") {
            assert!(REPORTS.iter().any(|(file, ..)| *file == name), "{name}");
        }
    }
}

#[test]
fn bad_input_is_an_error_that_names_the_place() {
    let place = Place::new();
    let fails = |file: &str, expected: &[&str]| {
        let error = place.refusal("conformance", &[".", "--file", file]);
        for fragment in expected {
            assert!(error.contains(fragment), "{file}: {error}");
        }
    };
    fails("ffn", &["ffn.safetensors", "cannot be read"]);
    let error = place.refusal("conformance", &["."]);
    assert!(error.contains("holds no golden file"), "{error}");

    let path = place.path("elementwise.safetensors");
    std::fs::write(&path, b"no tensors").expect("it can be written");
    fails(
        "elementwise",
        &["elementwise.safetensors", "not a safetensors file"],
    );
    for (header, expected) in [
        (r#"{"__metadata__":{}}"#, ["`cases`", "is missing"]),
        (
            r#"{"__metadata__":{"cases":"[{}]"}}"#,
            ["`cases`", "entry 0 has no `id`"],
        ),
        (
            r#"{"__metadata__":{"cases":"[]"}}"#,
            ["`in/x`", "there is no float32 tensor"],
        ),
    ] {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.bytes());
        std::fs::write(&path, bytes).expect("it can be written");
        fails("elementwise", &expected);
    }
}
