//! What would be published: the packages hold what they should, and burn-mx's README says what its manifest does.

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
        if path.is_dir() {
            files(of_crate, path, found);
        } else {
            let path = path.strip_prefix(of_crate).expect("it is below the crate");
            found.insert(path.to_str().expect("names are UTF-8").replace('\\', "/"));
        }
    }
}

#[test]
fn packages_hold_their_sources_licenses_readme_and_changelog() {
    for (package, with_tests) in [("burn-mx", false), ("microscaling", true)] {
        let of_crate = root().join("crates").join(package);
        let mut expected = BTreeSet::from(
            [
                "CHANGELOG.md",
                "Cargo.toml",
                "LICENSE-APACHE",
                "LICENSE-MIT",
                "README.md",
            ]
            .map(str::to_owned),
        );
        files(&of_crate, of_crate.join("src"), &mut expected);
        if with_tests {
            files(&of_crate, of_crate.join("tests"), &mut expected);
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
