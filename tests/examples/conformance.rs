//! The `conformance` program, and its messages. How many checks of each file pass is for the suite's `golden` to say.

use std::path::Path;

use super::Place;

#[test]
fn every_golden_file_agrees_on_every_backend() {
    let place = Place::new();
    let output = place.command("conformance", &[]);
    let stdout = String::from_utf8(output.stdout).expect("it prints text");
    assert!(output.status.success(), "{stdout}");
    let lines = stdout.lines().filter(|line| !line.starts_with(' '));
    let lines: Vec<_> = lines.collect();
    for line in &lines {
        let counts = line.split_once("]: ").expect("a line has counts").1;
        assert!(!counts.starts_with("0 passed"), "{stdout}");
        assert!(counts.ends_with("passed, 0 failed, 0 skipped"), "{stdout}");
    }

    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden");
    for file in std::fs::read_dir(dir).expect("the folder is there") {
        let name = file.expect("it can be listed").file_name();
        let name = name.into_string().expect("its name is text");
        if let Some(name) = name.strip_suffix(".safetensors") {
            let is_its = |line: &&&str| line.starts_with(&format!("{name}["));
            let reports = lines.iter().filter(is_its).count();
            assert!(reports == 1 || reports == 2, "{name}: {stdout}");
        }
    }
    assert!(lines.contains(&"ffn[flex]: 6 passed, 0 failed, 0 skipped"));
    assert!(lines.contains(&"ffn[ndarray]: 6 passed, 0 failed, 0 skipped"));
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
