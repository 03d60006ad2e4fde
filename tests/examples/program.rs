//! The programs, as they are now.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::Value;

/// The examples that are tested.
const EXAMPLES: [&str; 2] = ["ffn", "llama"];

/// The program with subcommands.
pub(crate) const LAB: &str = "burn-mx-lab";

/// The features that cargo builds these tests and the programs with. `default` is one: a build without it is another build.
const FEATURES: [(&str, bool); 3] = [
    ("default", cfg!(feature = "default")),
    ("ndarray", cfg!(feature = "ndarray")),
    ("tui", cfg!(feature = "tui")),
];

/// The program of an example, or [`LAB`].
///
/// Cargo builds it, if it is not built yet from the sources that lie there now: `cargo test` does so before any test
/// runs, but not `cargo test --test examples`, after which a program of older sources may lie about.
pub(crate) fn program(name: &str) -> &'static Path {
    static PROGRAMS: LazyLock<HashMap<String, PathBuf>> = LazyLock::new(build);
    &PROGRAMS[name]
}

/// Builds the programs as this test was built: with its profile and features, in its target folder.
fn build() -> HashMap<String, PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--message-format", "json-render-diagnostics"])
        .args(EXAMPLES.iter().flat_map(|example| ["--example", example]))
        .args(["--bin", LAB])
        .args(place())
        .arg("--no-default-features");
    for (feature, _) in FEATURES.iter().filter(|(_, enabled)| *enabled) {
        command.args(["--features", feature]);
    }
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{command:?}: {}", output.status);

    let messages = String::from_utf8(output.stdout).expect("cargo writes text");
    let programs = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).expect("cargo writes JSON");
        let program = message["executable"].as_str()?;
        let name = message["target"]["name"].as_str()?;
        Some((name.to_owned(), PathBuf::from(program)))
    });
    programs.collect()
}

/// Cargo's options for the profile and the folder that this test was built with.
///
/// Tests lie in `TARGET/PROFILE/deps`, or in `TARGET/TRIPLE/PROFILE/deps` after `--target TRIPLE`. Where they lie
/// otherwise, cargo's own settings have to do.
fn place() -> Vec<String> {
    let test = std::env::current_exe().expect("a test knows its own path");
    let mut folders = test.ancestors().skip(2);
    let text = |path: Option<&Path>| path.map(|path| path.display().to_string());
    let name = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
    let is_target = |path: &&Path| path.join(".rustc_info.json").exists();

    let mut options = Vec::new();
    let Some(profile) = folders.next().and_then(name) else {
        return options;
    };
    let profile = match profile.as_str() {
        "debug" => "dev",
        other => other,
    };
    options.extend(["--profile".to_owned(), profile.to_owned()]);
    let (above, two_above) = (folders.next(), folders.next());
    if let Some(target) = text(above.filter(is_target)) {
        options.extend(["--target-dir".to_owned(), target]);
    } else if let (Some(target), Some(triple)) =
        (text(two_above.filter(is_target)), above.and_then(name))
    {
        options.extend(["--target-dir".to_owned(), target]);
        options.extend(["--target".to_owned(), triple]);
    }
    options
}
