//! Published figures about block formats, computed again: what papers and other tools say of random numbers, and what the formats
//! of this library give.
//!
//! `cargo run --release --bin burn-mx-lab -- published [--json FILE] [--csv FILE] [--plot FILE]`
//!
//! A row is a published figure, its tolerance, and ours. The picture shows the error of every named format over the bits that an
//! element takes. The program fails if a figure is outside its tolerance.

mod cases;
mod plot;
mod random;

use std::{error::Error, path::PathBuf, process::ExitCode};

use burn_mx_lab::{output, tables};
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use indicatif::{ProgressBar, ProgressStyle};

use cases::PublishedFigure;

/// Compute published figures about block formats again
#[derive(Debug, clap::Args)]
pub(crate) struct PublishedArgs {
    /// Write the rows to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the table as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Draw the error of every named format over its bits to this SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Status 1 if a figure is outside its tolerance.
pub(crate) fn run(args: &PublishedArgs) -> Result<ExitCode, Box<dyn Error>> {
    let bar = ProgressBar::new(cases::ALL.len() as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}")?);
    let mut figures = Vec::new();
    for (source, compute) in cases::ALL {
        bar.set_message(source);
        figures.extend(compute()?);
        bar.inc(1);
    }
    bar.finish_and_clear();

    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN);
    table.set_header(["source", "case", "published", "tolerance", "here", ""]);
    for figure in &figures {
        table.add_row(figure.row());
    }
    println!("{table}");
    let failed = figures.iter().filter(|figure| !figure.passes()).count();
    println!("{} within tolerance, {failed} not", figures.len() - failed);

    if let Some(path) = &args.json {
        let rows: Vec<_> = figures.iter().map(PublishedFigure::json).collect();
        output::write(path, serde_json::to_string_pretty(&rows)? + "\n")?;
    }
    if let Some(path) = &args.csv {
        output::write(path, tables::csv(&table)?)?;
    }
    if let Some(path) = &args.plot {
        output::write(path, plot::error_over_bits()?)?;
    }
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}
