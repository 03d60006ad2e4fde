//! The subcommand `conformance`: the golden files of `tests/data`, and its messages.

use std::path::Path;

use super::Place;

/// Every report: its file and backend, and how many checks pass, so that no check is lost unseen.
///
/// In `vector` three functions are checked twice: by recipe and as Burn composes them.
const REPORTS: [(&str, usize); 18] = [
    ("mx_quantize[slice]", 628),
    ("elementwise[slice]", 72),
    ("scale_modes[slice]", 240),
    ("microexponents[slice]", 36),
    ("nvfp4[slice]", 24),
    ("layers[flex]", 84),
    ("layers[ndarray]", 84),
    ("vector[flex]", 189),
    ("vector[ndarray]", 189),
    ("reuse[flex]", 16),
    ("reuse[ndarray]", 16),
    ("ffn[flex]", 6),
    ("ffn[ndarray]", 6),
    ("dots[slice]", 294),
    ("products[slice]", 40),
    ("products[flex]", 5),
    ("products[ndarray]", 5),
    ("silicon[slice]", 64),
];

#[test]
fn every_golden_file_agrees_on_every_backend() {
    let place = Place::new();
    let output = place.command("conformance", &["--json", "reports.json"]);
    let stdout = String::from_utf8(output.stdout).expect("it prints text");
    assert!(output.status.success(), "{stdout}");
    let mut lines: Vec<&str> = stdout
        .lines()
        .filter(|line| !line.starts_with(' '))
        .collect();
    let report = |(name, passed)| format!("{name}: {passed} passed, 0 failed, 0 skipped");
    let mut expected = REPORTS.map(report);
    lines.sort_unstable();
    expected.sort_unstable();
    assert_eq!(lines, expected, "{stdout}");

    let json = std::fs::read(place.path("reports.json")).expect("there is JSON");
    let json: serde_json::Value = serde_json::from_slice(&json).expect("it is JSON");
    for report in json["reports"].as_array().expect("a list") {
        let name = report["name"].as_str().expect("a name");
        let passed = REPORTS
            .iter()
            .find(|report| report.0 == name)
            .map(|report| report.1);
        assert_eq!(
            report["passed"].as_u64(),
            passed.map(|passed| passed as u64),
            "{name}"
        );
    }
    assert_eq!(
        json["reports"].as_array().map(Vec::len),
        Some(REPORTS.len())
    );

    // Every file of the folders has a report.
    let dirs = ["golden", "accumulators"].map(|dir| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/data")
            .join(dir)
    });
    for file in dirs
        .iter()
        .flat_map(|dir| std::fs::read_dir(dir).expect("the folder is there"))
    {
        let name = file.expect("it can be listed").file_name();
        let name = name.into_string().expect("its name is text");
        if let Some(name) = name.strip_suffix(".safetensors") {
            let is_its = |report: &&(&str, usize)| report.0.starts_with(&format!("{name}["));
            assert!(REPORTS.iter().any(|report| is_its(&report)), "{name}");
        }
    }
}

#[test]
fn a_golden_file_that_is_not_known_is_named_and_fails() {
    let place = Place::new();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/golden");
    for name in ["nvfp4.safetensors", "specs.json"] {
        std::fs::copy(golden.join(name), place.path(name)).expect("it can be copied");
    }
    std::fs::write(place.path("novel.safetensors"), b"").expect("it can be written");
    let output = place.command("conformance", &["."]);
    let stdout = String::from_utf8(output.stdout).expect("it prints text");
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    let named = |line: &str| line.starts_with("novel: FAILED, not a known golden file");
    assert!(stdout.lines().any(named), "{stdout}");
    assert!(stdout.contains("nvfp4[slice]: 24 passed"), "{stdout}");
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
