//! The checks against golden files, one module for each golden file.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `golden.rs` | reading golden files and `specs.json` |
//! | `compare.rs` | the rules by which a result agrees |
//! | `report.rs` | counting and printing what came out |
//! | `mx_quantize.rs`, `elementwise.rs`, `scale_modes.rs`, `microexponents.rs`, `nvfp4.rs` | number formats, through the slice API (`slices.rs`) |
//! | `layers.rs`, `vector.rs`, `reuse.rs` | Burn ops with gradients (`ops.rs`, `tensors.rs`) |
//! | `composition.rs` | Burn's own compositions of functions that the reference has as one, and how far `roundings.rs` lets them be off |
//! | `ffn.rs` | a training run |
//! | `accumulators.rs` | sums that chips' matrix units make, by microscaling, and by Burn ops where these get the operands |

mod accumulators;
mod compare;
mod composition;
mod elementwise;
mod ffn;
mod golden;
mod layers;
mod microexponents;
mod mx_quantize;
mod nvfp4;
mod ops;
mod report;
mod reuse;
mod roundings;
mod scale_modes;
mod slices;
mod tensors;
mod vector;

use std::{fs, io, path::Path};

use burn_mx_lab::{backends::BackendName, with_backend};

pub(crate) use golden::GoldenError;
use golden::{Golden, Specs};
pub(crate) use report::CheckReport;

/// The golden files that are known, without `.safetensors`: outputs of reference implementations, and sums of matrix units.
pub(crate) const FILES: [&[&str]; 2] = [&OF_IMPLEMENTATIONS, &accumulators::FILES];

const OF_IMPLEMENTATIONS: [&str; 9] = [
    "mx_quantize",
    "elementwise",
    "scale_modes",
    "microexponents",
    "nvfp4",
    "layers",
    "vector",
    "reuse",
    "ffn",
];

/// The names of the unknown golden files in a folder, in order. Nothing checks these files.
///
/// # Errors
/// If the folder cannot be listed.
pub(crate) fn unknown_files(dir: &Path) -> io::Result<Vec<String>> {
    let mut unknown = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is_golden = path
            .extension()
            .is_some_and(|extension| extension == "safetensors");
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if is_golden && !FILES.concat().contains(&&*name) {
            unknown.push(name.into_owned());
        }
    }
    unknown.sort();
    Ok(unknown)
}

/// Checks the golden file `name` of folder `dir`, or only its case with id `case`.
///
/// One report for each of `backends`, or a single one, `slice`, for files that involve no backend, or both. None if
/// there is no such case.
///
/// # Errors
/// If the file, or a needed `specs.json`, cannot be read or makes no sense.
pub(crate) fn check(
    dir: &Path,
    name: &str,
    backends: &[BackendName],
    case: Option<&str>,
) -> Result<Vec<CheckReport>, GoldenError> {
    let path = dir.join(name).with_extension("safetensors");
    if accumulators::FILES.contains(&name) {
        return accumulators::check(&path, name, backends, case);
    }
    let mut file = Golden::read(&path)?;
    if case.is_some_and(|id| !file.select(id)) {
        return Ok(Vec::new());
    }
    match name {
        "mx_quantize" => mx_quantize::check(&file).map(|report| vec![report]),
        "elementwise" => elementwise::check(&file).map(|report| vec![report]),
        "scale_modes" => scale_modes::check(&file).map(|report| vec![report]),
        "microexponents" => microexponents::check(&file).map(|report| vec![report]),
        "nvfp4" => nvfp4::check(&file).map(|report| vec![report]),
        _ => {
            let specs = Specs::read(dir)?;
            backends
                .iter()
                .map(|&backend| check_on(&file, name, &specs, backend))
                .collect()
        }
    }
}

/// Checks a golden file that involves a backend.
fn check_on(
    file: &Golden,
    name: &str,
    specs: &Specs,
    backend: BackendName,
) -> Result<CheckReport, GoldenError> {
    with_backend!(backend, B => {
        let check = match name {
            "layers" => layers::check::<B>,
            "vector" => vector::check::<B>,
            "reuse" => reuse::check::<B>,
            _ => ffn::check::<B>,
        };
        check(file, specs, &backend.name())
    })
}
