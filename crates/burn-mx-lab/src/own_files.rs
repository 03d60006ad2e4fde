//! The programs' output files. A program never replaces an input. In a folder, it replaces only files of earlier runs.
//!
//! `.burn-mx-files` in a folder lists the files that these programs wrote there, each with a hash. A file that somebody else
//! wrote, or changed, is not replaced.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use burn_mx_files::{folder_of, input_at};

const LIST: &str = ".burn-mx-files";

/// FNV-1a with 64 bits, and the file's name: a line of the list.
fn line(path: &Path, contents: &[u8]) -> String {
    let hash = contents.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!("{hash:016x} {name}")
}

fn is_listed(path: &Path, line: &str) -> bool {
    let list = fs::read_to_string(folder_of(path).join(LIST));
    list.is_ok_and(|list| list.lines().any(|known| known == line))
}

fn add(path: &Path, line: &str) -> io::Result<()> {
    if is_listed(path, line) {
        return Ok(());
    }
    let list = folder_of(path).join(LIST);
    let mut list = OpenOptions::new().create(true).append(true).open(list)?;
    list.write_all(format!("{line}\n").as_bytes())
}

/// Checks that a program may write a file: the path is free, or has a file of these programs that nobody changed. A pipe or a
/// terminal passes, because a write replaces nothing there.
pub fn check(path: &Path) -> Result<(), String> {
    let Ok(metadata) = path.symlink_metadata() else {
        return Ok(());
    };
    if !metadata.is_file() && !metadata.is_symlink() {
        return Ok(());
    }
    let is_own = fs::read(path).is_ok_and(|contents| is_listed(path, &line(path, &contents)));
    match is_own {
        true => Ok(()),
        false => Err(format!(
            "'{}' is there, and no run wrote it as it is; allowed: another path, or this one when you have moved the file away",
            path.display()
        )),
    }
}

/// Writes a file that [`check`] allows, at once: a reader sees the old file or the new one.
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), String> {
    check(path)?;
    let contents = contents.as_ref();
    let written = || {
        if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            return fs::write(path, contents);
        }
        // First, so that a run that is killed between the two leaves no file that is taken for somebody else's.
        add(path, &line(path, contents))?;
        burn_mx_files::write(path, contents)
    };
    written().map_err(|error: io::Error| format!("'{}': {error}", path.display()))
}

/// Lists a file that a library wrote for a program.
pub fn note(path: &Path) -> io::Result<()> {
    add(path, &line(path, &fs::read(path)?))
}

/// Checks that an option's file is none that the program reads.
pub fn not_an_input<P: AsRef<Path>>(
    option: &str,
    path: &Path,
    inputs: impl IntoIterator<Item = P>,
) -> Result<(), String> {
    match input_at(path, inputs) {
        None => Ok(()),
        Some(input) => Err(format!(
            "{option} '{}': it is '{}', which is read; allowed: another file",
            path.display(),
            input.as_ref().display()
        )),
    }
}

/// Checks that a report of the recorder may be written: nothing is there, or a report. Each has this word.
pub fn check_report(path: &Path) -> Result<(), String> {
    match fs::read(path) {
        // Nothing is there; the writer gives the error.
        Err(_) => Ok(()),
        Ok(text) if String::from_utf8_lossy(&text).contains("burn_mx_report") => Ok(()),
        Ok(_) => Err(format!(
            "'{}' is there, and is no report of a recorder; allowed: another folder",
            path.display()
        )),
    }
}

/// The files of records that folders or paths of the command line name.
pub fn records(paths: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    paths.iter().map(|path| match path.is_dir() {
        true => path.join("records.jsonl"),
        false => path.clone(),
    })
}
