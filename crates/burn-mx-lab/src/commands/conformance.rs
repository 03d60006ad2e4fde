//! Checks the library against golden files, outputs of the reference implementations, through its public API.
//!
//! ```text
//! cargo run --release --bin burn-mx-lab -- conformance                      # the files of tests/data/golden and tests/data/accumulators
//! cargo run --release --bin burn-mx-lab -- conformance DIR…              # those of other folders
//! cargo run --release --bin burn-mx-lab -- conformance --backend flex --file vector --case 3
//! cargo run --release --bin burn-mx-lab --features vulkan -- conformance  # also on a GPU
//! ```
//!
//! Prints one line for each golden file and backend, `NAME[backend]: P passed, F failed, S skipped`. Below it are the
//! first failing cases, and the rule by which each result of an op (`∂x`: the gradient of x) is compared. Files about
//! number formats involve no backend: their lines have `slice`, for the slice API, in its place, and `--backend` does
//! not matter to them. Kinds of cases that are not implemented count as skipped.
//!
//! A golden file that is not known is named and counts as a failure, or its cases would pass unchecked.
//!
//! Exit code: 0 if everything that is built agrees, 1 if something does not or a file is not known, 2 if nothing could be
//! checked.

mod checks;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use burn_mx_lab::{backends::BackendName, output, own_files};
use clap::{ValueEnum, builder::PossibleValuesParser};

use checks::FILES;

/// Check the library against golden files
#[derive(Debug, clap::Args)]
pub(crate) struct ConformanceArgs {
    /// Folders with golden files (`*.safetensors` and `specs.json`) [default: the folders of the checkout of burn-mx that this program
    /// was built in]
    #[arg(value_name = "DIR")]
    dirs: Vec<PathBuf>,

    /// Backend to check; may be repeated [default: all]
    #[arg(long)]
    backend: Vec<BackendName>,

    /// Check this golden file only
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(FILES.concat()))]
    file: Option<String>,

    /// Check the case with this id only
    #[arg(long, value_name = "ID")]
    case: Option<String>,

    /// Failing cases to print for each file and backend
    #[arg(long, value_name = "N", default_value_t = 5)]
    max_failures: usize,

    /// Write the counts and the failing cases as JSON: {"reports":[{"name","passed","failed","skipped"}],"unknown":[]}
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Status 2 if nothing could be checked.
pub(crate) fn run(args: &ConformanceArgs) -> ExitCode {
    match check(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether everything agrees, or why nothing could be said.
fn check(args: &ConformanceArgs) -> Result<bool, String> {
    let dirs = match args.dirs.is_empty() {
        true => of_the_checkout()?,
        false => args.dirs.clone(),
    };
    if let Some(path) = &args.json {
        let entries = dirs.iter().flat_map(fs::read_dir).flatten().flatten();
        own_files::not_an_input("--json", path, entries.map(|entry| entry.path()))?;
    }
    let known = FILES.concat();
    let mut backends = BackendName::value_variants().to_vec();
    backends.retain(|backend| args.backend.is_empty() || args.backend.contains(backend));

    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let (mut unknown, mut found) = (Vec::new(), Vec::new());
    for dir in dirs_with(&dirs, args.file.as_deref()) {
        for name in golden_files(dir, args.file.as_deref())? {
            let reports = checks::check(dir, name, &backends, args.case.as_deref());
            for report in reports.map_err(|error| error.to_string())? {
                println!("{}", report.text(args.max_failures));
                found.push(report.json());
                passed += report.passed();
                failed += report.failed();
                skipped += report.skipped();
            }
        }
        if args.file.is_none() {
            unknown.extend(listed(dir, checks::unknown_files(dir))?);
        }
    }
    for name in &unknown {
        println!(
            "{name}: FAILED, not a known golden file, nothing of it was checked; known are {}",
            known.join(", ")
        );
    }
    if let Some(path) = &args.json {
        let all = serde_json::json!({ "reports": found, "unknown": unknown });
        output::write(path, format!("{all:#}\n")).map_err(|error| format!("--json: {error}"))?;
    }
    if let (Some(id), 0) = (&args.case, passed + failed + skipped) {
        return Err(format!("no golden file here has a case `{id}`"));
    }
    if passed + failed == 0 {
        return Err(
            "nothing was checked: no case here is of a kind that is implemented".to_owned(),
        );
    }
    Ok(failed == 0 && unknown.is_empty())
}

/// The folders of golden files of the checkout that this program was built in.
fn of_the_checkout() -> Result<Vec<PathBuf>, String> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    let data = data.canonicalize().map_err(|_| {
        "no DIR is named, and this program was not built in a checkout of burn-mx, which has the golden files in \
         tests/data/golden and tests/data/accumulators"
    })?;
    Ok(["golden", "accumulators"]
        .map(|name| data.join(name))
        .into())
}

/// The result of listing `dir`.
fn listed<T>(dir: &Path, listing: io::Result<T>) -> Result<T, String> {
    listing.map_err(|error| format!("{}: {error}", dir.display()))
}

/// The folders that hold a file, or the first one if none does.
fn dirs_with<'a>(dirs: &'a [PathBuf], file: Option<&str>) -> Vec<&'a PathBuf> {
    let Some(file) = file else {
        return dirs.iter().collect();
    };
    let holds = |dir: &&PathBuf| dir.join(file).with_extension("safetensors").exists();
    let holding: Vec<&PathBuf> = dirs.iter().filter(holds).collect();
    match holding.is_empty() {
        true => dirs.iter().take(1).collect(),
        false => holding,
    }
}

/// The known golden files in `dir`, in a fixed order, or the one that is asked for.
fn golden_files(dir: &Path, only: Option<&str>) -> Result<Vec<&'static str>, String> {
    // The listing itself is not needed, its error is: it tells a missing folder from one without files.
    listed(dir, fs::read_dir(dir))?;
    let mut names = FILES.concat();
    names.retain(|name| match only {
        Some(only) => *name == only,
        None => dir.join(name).with_extension("safetensors").exists(),
    });
    if names.is_empty() {
        let known = FILES.concat().join(", ");
        let dir = dir.display();
        return Err(format!(
            "{dir}: holds no golden file; known are {known} (.safetensors)"
        ));
    }
    Ok(names)
}
