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
    record::{FoundPlace, Report, Search},
};
use clap::Parser;
use serde_json::json;

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

    /// Write the choices as JSON: each operand's format, and the noise over the signal of every candidate
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the choices as CSV, a line for each operand and candidate
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
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
    let place = |place: &FoundPlace| {
        json!({ "layer": place.layer, "product": place.product.to_string(), "slot": place.slot.field(),
            "elements": place.elements, "format": place.format, "noise": place.noise })
    };
    if let Some(path) = &cli.json {
        let places: Vec<_> = found.places.iter().map(place).collect();
        let all = json!({ "bits": found.bits, "noise": found.score, "places": places });
        fs::write(path, serde_json::to_string_pretty(&all)?)?;
    }
    if let Some(path) = &cli.csv {
        let mut csv = csv::Writer::from_path(path)?;
        csv.write_record([
            "layer", "product", "slot", "elements", "chosen", "format", "noise",
        ])?;
        for place in &found.places {
            for (format, noise) in &place.noise {
                let product = place.product.to_string();
                let (slot, elements) = (place.slot.field(), place.elements);
                csv.serialize((
                    &place.layer,
                    product,
                    slot,
                    elements,
                    &place.format,
                    format,
                    noise,
                ))?;
            }
        }
        csv.flush()?;
    }
    println!("recipe: {}", cli.out.display());
    Ok(())
}
