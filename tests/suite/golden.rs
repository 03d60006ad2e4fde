//! The golden files of `tests/data/golden`, checked by the code of the `conformance` example.
//!
//! Every test states how many checks pass and how many are skipped, so that nothing is lost in silence.

#[path = "../../examples/conformance/checks/mod.rs"]
pub(super) mod checks;

use std::path::Path;

use checks::Backend;

/// Checks one golden file, on `backend` if it involves one.
fn check(name: &str, backend: Backend, passed: usize, skipped: usize) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden");
    let reports = checks::check(&dir, name, &[backend], None).unwrap();
    assert_eq!(reports.len(), 1, "reports on {name}");
    let report = &reports[0];
    let counts = (report.passed(), report.failed(), report.skipped());
    assert_eq!(counts, (passed, 0, skipped), "{}", report.text(10));
}

#[test]
fn mx_quantize() {
    check("mx_quantize", Backend::Flex, 628, 0);
}

#[test]
fn elementwise() {
    check("elementwise", Backend::Flex, 72, 0);
}

/// Values, codes of scales and codes of elements.
#[test]
fn scale_modes() {
    check("scale_modes", Backend::Flex, 240, 0);
}

#[test]
fn layers_flex() {
    check("layers", Backend::Flex, 84, 0);
}

#[test]
fn layers_ndarray() {
    check("layers", Backend::NdArray, 84, 0);
}

/// Three functions are checked twice: by recipe and as Burn composes them.
#[test]
fn vector_flex() {
    check("vector", Backend::Flex, 189, 0);
}

#[test]
fn vector_ndarray() {
    check("vector", Backend::NdArray, 189, 0);
}

/// A recurrence, and a weight that is tied.
#[test]
fn reuse_flex() {
    check("reuse", Backend::Flex, 16, 0);
}

#[test]
fn reuse_ndarray() {
    check("reuse", Backend::NdArray, 16, 0);
}

#[test]
fn ffn_flex() {
    check("ffn", Backend::Flex, 6, 0);
}

#[test]
fn ffn_ndarray() {
    check("ffn", Backend::NdArray, 6, 0);
}

/// No golden file lies about unnoticed.
#[test]
fn every_golden_file_is_known() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden");
    assert_eq!(checks::unknown_files(&dir).unwrap(), [""; 0]);
    for name in checks::FILES {
        let file = dir.join(name).with_extension("safetensors");
        assert!(file.exists(), "{}", file.display());
    }
}

#[test]
fn a_golden_file_that_is_not_known_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["novel.safetensors", "ffn.safetensors", "specs.json"] {
        std::fs::write(dir.path().join(name), b"").unwrap();
    }
    assert_eq!(checks::unknown_files(dir.path()).unwrap(), ["novel"]);
}

#[test]
fn microexponents() {
    check("microexponents", Backend::Flex, 36, 0);
}

/// Values, codes of scales and codes of elements.
#[test]
fn nvfp4() {
    check("nvfp4", Backend::Flex, 24, 0);
}

#[test]
fn bad_input_is_an_error_that_names_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let error = |name: &str| {
        let error = checks::check(dir.path(), name, &Backend::ALL, None).unwrap_err();
        error.to_string()
    };
    let has = |message: String, parts: &[&str]| {
        for part in parts {
            assert!(message.contains(part), "{message}");
        }
    };
    has(error("ffn"), &["ffn.safetensors", "cannot be read"]);

    let path = dir.path().join("elementwise.safetensors");
    std::fs::write(&path, b"no tensors").unwrap();
    has(
        error("elementwise"),
        &["elementwise.safetensors", "not a safetensors file"],
    );

    let write = |header: &str| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.bytes());
        std::fs::write(&path, bytes).unwrap();
    };
    write(r#"{"__metadata__":{}}"#);
    has(error("elementwise"), &["`cases`", "is missing"]);
    write(r#"{"__metadata__":{"cases":"[{}]"}}"#);
    has(error("elementwise"), &["`cases`", "entry 0 has no `id`"]);
    write(r#"{"__metadata__":{"cases":"[]"}}"#);
    has(
        error("elementwise"),
        &["`in/x`", "there is no float32 tensor"],
    );
}
