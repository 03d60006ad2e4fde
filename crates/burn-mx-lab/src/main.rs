//! The program `burn-mx-lab`: experiments with burn-mx as subcommands.

#![allow(clippy::too_many_lines, reason = "an experiment is one function")]

mod commands;
mod training;

use std::process::ExitCode;

use clap::{FromArgMatches, error::ErrorKind};

use commands::{Lab, Refusal};

fn main() -> ExitCode {
    let matches = commands::command().get_matches();
    let name = matches.subcommand_name().unwrap_or_default().to_owned();
    let lab = Lab::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    lab.command.run().unwrap_or_else(|error| {
        if let Some(Refusal(message)) = error.downcast_ref() {
            refuse(&name, message);
        }
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

/// Ends the program as clap does for an unusable value, with the usage of this subcommand.
fn refuse(subcommand: &str, message: &str) -> ! {
    let mut command = commands::command();
    command.build();
    let command = match command.find_subcommand_mut(subcommand) {
        Some(subcommand) => subcommand,
        None => &mut command,
    };
    command.error(ErrorKind::ValueValidation, message).exit()
}
