//! The methods of Burn's backend traits, read from the sources that this build uses.

use std::path::PathBuf;
use std::process::Command;

/// The traits, each with the file under `src/backend/ops` of burn-backend that declares it.
const TRAITS: [(&str, &str); 7] = [
    ("FloatTensorOps", "tensor.rs"),
    ("IntTensorOps", "int_tensor.rs"),
    ("BoolTensorOps", "bool_tensor.rs"),
    ("ModuleOps", "modules/base.rs"),
    ("ActivationOps", "activation.rs"),
    ("QTensorOps", "qtensor.rs"),
    ("TransactionOps", "transaction.rs"),
];

/// The names of all methods, provided ones included.
pub(crate) fn methods() -> Vec<String> {
    let folder = burn_backend().join("src/backend/ops");
    let mut names = Vec::new();
    for (name, file) in TRAITS {
        let path = folder.join(file);
        let source = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let before = names.len();
        let declared = source
            .lines()
            .skip_while(|line| !line.starts_with(&format!("pub trait {name}<")))
            .take_while(|line| *line != "}");
        for line in declared {
            let method = line.strip_prefix("    fn ");
            let method = method.or_else(|| line.strip_prefix("    async fn "));
            if let Some(method) = method {
                let end = method.find(|c: char| !c.is_alphanumeric() && c != '_');
                names.push(method[..end.unwrap_or(method.len())].to_owned());
            }
        }
        assert_ne!(names.len(), before, "{} declares {name}", path.display());
    }
    names
}

/// The folder of burn-backend, by cargo.
fn burn_backend() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts");
    let failure = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {failure}");
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("the metadata is JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    let package = packages
        .iter()
        .find(|package| package["name"] == "burn-backend");
    let manifest = package.expect("burn-backend is a dependency")["manifest_path"].as_str();
    PathBuf::from(manifest.expect("a path"))
        .parent()
        .expect("a manifest lies in a folder")
        .to_owned()
}
