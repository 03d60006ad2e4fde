//! Makes the README and every chapter of the book the documentation of a module, so that their Rust snippets are
//! doctests.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
};

fn main() -> Result<(), Box<dyn Error>> {
    let docs = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let mut files = vec![docs.join("../README.md")];
    for entry in fs::read_dir(docs.join("src"))? {
        files.push(entry?.path());
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "md"));
    files.sort();
    let modules: Vec<String> = files.iter().map(|file| module(file)).collect();

    let target = PathBuf::from(env::var("OUT_DIR")?).join("snippets.rs");
    fs::write(target, modules.concat())?;
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=../README.md");
    Ok(())
}

/// `op-coverage.md` becomes the module `op_coverage`.
fn module(file: &Path) -> String {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let name = name.to_lowercase().replace('-', "_");
    format!("#[doc = include_str!({file:?})]\nmod {name} {{}}\n")
}
