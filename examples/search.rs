//! Finds a recipe under a budget: a format for every operand of every layer, from the records of a run.
//!
//! ```text
//! cargo run --release --example compare -- --model transformer --preset mxfp8_e4m3 --record out/seen \
//!     --what-if mxfp4 --what-if mxfp6_e2m3 --what-if mxfp8_e4m3
//! cargo run --release --example search -- out/seen --bits 5 \
//!     --format mxfp4 --format mxfp6_e2m3 --format mxfp8_e4m3 --out found.json
//! cargo run --release --example compare -- --model transformer --preset mxfp4 --recipe found.json
//! ```

use std::{error::Error, fs, path::PathBuf, process::ExitCode};

use burn_mx::{
    MxSpecs,
    record::{Report, Search},
};
use clap::Parser;

/// Find a format for every operand of every layer under a budget of mean bits
#[derive(Debug, Parser)]
#[command(name = "search")]
struct Cli {
    /// Folders with a records.jsonl of runs of one model, or such files
    #[arg(required = true, value_name = "DIR")]
    records: Vec<PathBuf>,

    /// Candidate, a block format that was recorded by --what-if; repeat it
    #[arg(long = "format", value_name = "FORMAT", required = true)]
    formats: Vec<String>,

    /// Budget: mean bits of an element of an operand, scales included
    #[arg(long, value_name = "BITS")]
    bits: f64,

    /// Preset with the specs for all but the formats, such as roundings
    #[arg(long, value_name = "NAME", default_value = "mxfp8_e4m3")]
    preset: String,

    /// File for the recipe
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

fn main() -> ExitCode {
    match search(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn search(cli: &Cli) -> Result<(), Box<dyn Error>> {
    let search = Search {
        formats: cli.formats.clone(),
        bits: cli.bits,
        specs: MxSpecs::preset(&cli.preset)?,
    };
    let found = search.find(&Report::read(&cli.records)?)?;
    fs::write(&cli.out, serde_json::to_string_pretty(&found.recipe)?)?;
    println!("{}", found.table());
    println!("recipe: {}", cli.out.display());
    Ok(())
}
