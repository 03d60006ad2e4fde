//! The packages for crates.io hold the right files, and burn-mx's README agrees with its manifest.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of a package, as `cargo package` lists them; it asks nothing of the network.
fn packaged(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "package",
            "--list",
            "--offline",
            "--allow-dirty",
            "-p",
            package,
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs, it runs this test");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo package: {errors}");
    let list = String::from_utf8(output.stdout).expect("paths are UTF-8");
    list.lines().map(|line| line.replace('\\', "/")).collect()
}

/// All files under a folder of a crate, relative to the crate.
fn files(of_crate: &Path, folder: PathBuf, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(&folder).expect("the folder can be read") {
        let path = entry.expect("the entry can be read").path();
        if path.ends_with("__pycache__") {
            continue;
        }
        if path.is_dir() {
            files(of_crate, path, found);
        } else {
            let path = path.strip_prefix(of_crate).expect("it is below the crate");
            found.insert(path.to_str().expect("names are UTF-8").replace('\\', "/"));
        }
    }
}

const PACKAGES: [&str; 19] = [
    "burn-mx",
    "burn-mx-checkpoint",
    "burn-mx-core",
    "burn-mx-cost",
    "burn-mx-files",
    "burn-mx-kernels",
    "burn-mx-lab",
    "burn-mx-module",
    "burn-mx-onnx",
    "burn-mx-optim",
    "burn-mx-ptq",
    "burn-mx-record",
    "microscaling",
    "microscaling-c",
    "microscaling-checkpoint",
    "microscaling-cli",
    "microscaling-processor",
    "microscaling-product",
    "microscaling-vectors",
];

#[test]
fn libraries_that_are_not_tested_alone_have_no_unit_tests() {
    for package in PACKAGES {
        let manifest = read(format!("crates/{package}/Cargo.toml"));
        if !manifest.contains("[lib]\ntest = false") {
            continue;
        }
        let folder = root().join("crates").join(package);
        let mut sources = BTreeSet::new();
        files(&folder, folder.join("src"), &mut sources);
        for source in sources {
            let text = read(format!("crates/{package}/{source}"));
            assert!(
                !text.contains("#[test]") && !text.contains("cfg(test)"),
                "{package}: cargo would not run the tests in {source}, see [lib] in Cargo.toml"
            );
        }
    }
}

#[test]
fn packages_hold_their_sources_licenses_readme_and_changelog() {
    for package in PACKAGES {
        // The tests of the others stand beside the workspace, or are none.
        let without_tests = [
            "burn-mx",
            "burn-mx-core",
            "burn-mx-kernels",
            "burn-mx-lab",
            "burn-mx-ptq",
            "microscaling-checkpoint",
            "microscaling-processor",
            "microscaling-vectors",
        ];
        let with_tests = !without_tests.contains(&package);
        let of_crate = root().join("crates").join(package);
        let mut expected = BTreeSet::from(
            ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"].map(str::to_owned),
        );
        if ["burn-mx", "microscaling"].contains(&package) {
            expected.insert("CHANGELOG.md".into());
        }
        files(&of_crate, of_crate.join("src"), &mut expected);
        if with_tests {
            files(&of_crate, of_crate.join("tests"), &mut expected);
        }
        for folder in ["data", "python"].map(|folder| of_crate.join(folder)) {
            if folder.exists() {
                files(&of_crate, folder, &mut expected);
            }
        }
        let made_by_cargo = [".cargo_vcs_info.json", "Cargo.lock", "Cargo.toml.orig"];
        let mut list = packaged(package);
        list.retain(|file| !made_by_cargo.contains(&file.as_str()));
        assert_eq!(list, expected, "{package}");
        for license in ["LICENSE-APACHE", "LICENSE-MIT"] {
            assert_eq!(
                read(of_crate.join(license)),
                read(license),
                "{package}: {license}"
            );
        }
    }
}

/// The lines of a manifest's section.
fn section<'a>(manifest: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let start = manifest.find(name).expect("the section is there") + name.len();
    manifest[start..]
        .lines()
        .take_while(|line| !line.starts_with('['))
}

#[test]
fn burn_mxs_readme_lists_the_manifests_features_and_versions() {
    let (workspace, manifest) = (read("Cargo.toml"), read("crates/burn-mx/Cargo.toml"));
    let readme = read("crates/burn-mx/README.md");
    let mut features: Vec<(String, bool)> = Vec::new();
    let mut default = "";
    for line in section(&manifest, "[features]\n") {
        match line.split_once(" = ") {
            Some(("default", list)) => default = list,
            Some((name, _)) if !line.starts_with('#') => features.push((name.to_owned(), false)),
            _ => {}
        }
    }
    for (name, is_default) in &mut features {
        *is_default = default.contains(&format!("\"{name}\""));
    }
    assert!(features.iter().any(|(_, is_default)| *is_default));
    let rows = readme.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
        let name = cells.next()?.trim_end_matches('`').to_owned();
        Some((name, cells.next()? == "yes"))
    });
    let mut rows: Vec<(String, bool)> = rows.collect();
    rows.sort();
    features.sort();
    assert_eq!(rows, features, "feature and whether it is on by default");

    let version_of = |name: &str| {
        let line = workspace.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("`{name}` in Cargo.toml"));
        line.split('"')
            .nth(1)
            .expect("a version in quotes")
            .to_owned()
    };
    let burn = version_of("burn = ");
    assert!(burn.starts_with('='), "{burn}");
    assert!(readme.contains(&format!("burn = {{ version = \"{burn}\"")));
    assert!(readme.contains(&format!("## Why Burn is pinned to `{burn}`")));
    let own = version_of("version = ");
    let own = own.rsplit_once('.').expect("three numbers").0;
    assert!(readme.contains(&format!("burn-mx = \"{own}\"")), "{own}");
}

/// The README of `microscaling` names the enums that are `#[non_exhaustive]`, and says that all errors are.
#[test]
fn errors_and_enums_that_will_grow_are_non_exhaustive() {
    let readme = read("crates/microscaling/README.md");
    let (_, claim) = readme
        .split_once("Enums that will gain variants")
        .expect("the README says so");
    let (claim, _) = claim
        .split_once("and all errors")
        .expect("errors are the last of them");
    let mut claimed: BTreeSet<&str> = claim
        .split('`')
        .filter(|word| word.starts_with(char::is_uppercase))
        .collect();
    assert!(claimed.len() > 3, "{claim}");
    for package in PACKAGES {
        let of_crate = root().join("crates").join(package);
        let mut sources = BTreeSet::new();
        files(&of_crate, of_crate.join("src"), &mut sources);
        for source in sources.iter().filter(|source| source.ends_with(".rs")) {
            let text = read(of_crate.join(source));
            let lines: Vec<&str> = text.lines().collect();
            for (at, line) in lines.iter().enumerate() {
                let Some(rest) = line
                    .strip_prefix("pub enum ")
                    .or_else(|| line.strip_prefix("pub struct "))
                else {
                    continue;
                };
                let name = rest
                    .split(|c: char| !c.is_alphanumeric())
                    .next()
                    .unwrap_or_default();
                let is_claimed = claimed.remove(name);
                let fields = lines[at + 1..].iter().take_while(|line| **line != "}");
                let has_public = line.starts_with("pub enum")
                    || fields.clone().any(|line| line.starts_with("    pub "));
                if is_claimed || (name.ends_with("Error") && has_public) {
                    let attributes = lines[..at]
                        .iter()
                        .rev()
                        .take_while(|line| !line.is_empty() && **line != "}");
                    let is_open = attributes.clone().any(|line| *line == "#[non_exhaustive]");
                    assert!(is_open, "{package}: {source}: {name}");
                }
            }
        }
    }
    assert!(claimed.is_empty(), "the README names {claimed:?}");
}
