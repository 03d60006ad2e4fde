//! Programs as a user runs them. Each test has its own folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use serde_json::Value;
use tempfile::TempDir;

/// A place for the files of one test.
pub(crate) struct Place(pub(crate) TempDir);

const MINE: &str = "mine";

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory can be made"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn command(&self, program: &str, options: &[&str]) -> Output {
        super::start(program)
            .current_dir(self.0.path())
            .args(options)
            .output()
            .expect("the program starts")
    }

    /// The runs of `compare` where it succeeds, and its standard output.
    pub(crate) fn compare(&self, options: &[&str]) -> (Vec<Value>, String) {
        self.run("compare", options)
    }

    /// The runs of a program that succeeds, and its standard output.
    pub(crate) fn run(&self, program: &str, options: &[&str]) -> (Vec<Value>, String) {
        let json = self.path("runs.json");
        let json_option = ["--json", json.to_str().expect("the path is text")];
        let output = self.command(program, &[options, &json_option].concat());
        let text = |bytes| String::from_utf8(bytes).expect("programs print text");
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        assert!(
            output.status.success(),
            "{program} {options:?}: {stdout}{stderr}"
        );
        (runs(&json), stdout)
    }

    /// The message of a program that refuses its options before any work.
    pub(crate) fn refusal(&self, program: &str, options: &[&str]) -> String {
        let output = self.command(program, options);
        assert_eq!(output.status.code(), Some(2), "{program} {options:?}");
        assert_eq!(output.stdout, b"", "nothing is begun");
        String::from_utf8(output.stderr).expect("programs print text")
    }

    /// Writes a file of somebody else.
    pub(crate) fn mine(&self, name: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it can be made");
        fs::write(path, MINE).expect("it can be written");
    }

    /// Asserts that the file of somebody else is unchanged.
    pub(crate) fn is_mine(&self, name: &str) {
        let text = fs::read_to_string(self.path(name)).expect("it is there");
        assert_eq!(text, MINE, "{name}");
    }
}

pub(crate) fn runs(json: &Path) -> Vec<Value> {
    let text = fs::read(json).expect("the program writes the file");
    let report: Value = serde_json::from_slice(&text).expect("it is JSON");
    report["runs"].as_array().expect("there are runs").clone()
}

/// Losses of every step, as the digits that stand in the file: equal if and only if their bits are.
pub(crate) fn losses(run: &Value) -> &Vec<Value> {
    run["loss"].as_array().expect("a run has losses")
}
