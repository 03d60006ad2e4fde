//! Shows the records of several runs side by side, as a table and as a page.
//!
//! ```text
//! cargo run --release --example compare -- --model cnn --preset mxfp4 --record out/cnn --what-if mxfp8_rceil
//! cargo run --release --example report -- out/cnn
//! cargo run --release --example report -- out/cnn out/other --out out/both
//! ```

use std::{path::PathBuf, process::ExitCode};

use burn_mx::record::{REPORT_HTML, REPORT_JSON, RecordError, Report};
use clap::Parser;

/// Show the records of one run or of several runs, side by side
#[derive(Debug, Parser)]
#[command(name = "report")]
struct Cli {
    /// Folders with a records.jsonl, or records.jsonl files
    #[arg(required = true, value_name = "DIR")]
    records: Vec<PathBuf>,

    /// Folder for report.html and report.json, created if missing [default: the folder of the first records]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Write every recorded operand as CSV, a line each
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

fn main() -> ExitCode {
    match report(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn report(cli: &Cli) -> Result<(), RecordError> {
    let report = Report::read(&cli.records)?;
    let out = cli.out.clone().unwrap_or_else(|| {
        let first = &cli.records[0];
        match first.is_dir() {
            true => first.clone(),
            false => first.parent().unwrap_or("".as_ref()).to_owned(),
        }
    });
    report.save(&out)?;
    println!("{}", report.table());
    if let Some(path) = &cli.csv {
        std::fs::write(path, report.csv()).map_err(|error| RecordError::Io {
            path: path.clone(),
            error,
        })?;
        println!("{}", path.display());
    }
    for file in [REPORT_HTML, REPORT_JSON] {
        println!("{}", out.join(file).display());
    }
    Ok(())
}
