//! The command line.

mod evaluate;
mod export;
mod generate;
mod model;
mod plot;
mod quantize;
mod record;
mod time;
mod train;

use std::error::Error;

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

/// A language model in MX, end to end
#[derive(Debug, Parser)]
#[command(name = "language_model")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Train(train::Train),
    Evaluate(evaluate::Evaluate),
    Generate(generate::Generate),
    Record(record::Record),
    Quantize(quantize::Quantize),
    Export(export::Export),
    Time(time::Time),
}

impl Cli {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        match self.command {
            Command::Train(train) => train.run(),
            Command::Evaluate(evaluate) => evaluate.run(),
            Command::Generate(generate) => generate.run(),
            Command::Record(record) => record.run(),
            Command::Quantize(quantize) => quantize.run(),
            Command::Export(export) => export.run(),
            Command::Time(time) => time.run(),
        }
    }
}

/// A progress bar of `steps` steps. The bar is invisible if standard error is not a terminal.
fn bar(name: &str, steps: usize) -> Result<ProgressBar, Box<dyn Error>> {
    let bar = ProgressBar::new(steps as u64).with_style(ProgressStyle::with_template(
        "{prefix} {bar:30} {pos}/{len}, {eta} {msg}",
    )?);
    bar.set_prefix(name.to_owned());
    Ok(bar)
}
