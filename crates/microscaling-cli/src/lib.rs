#![doc = include_str!("../README.md")]

mod checkpoint;
mod convert;
mod diff;
mod error;
mod formats;
mod inspect;
mod numbers;
mod output;
mod quantize;

use clap::{Parser, Subcommand};
use error::Error;
pub use formats::describe;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};

/// Number formats with shared scales (MX, NVFP4 and their kin): files of packed tensors
#[derive(Debug, Parser)]
#[command(name = "microscaling", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Quantize(quantize::Args),
    Inspect(inspect::Args),
    Diff(diff::Args),
    Convert(convert::Args),
    Formats(formats::Args),
}

/// The output of a command, and the exit status of the process.
struct Done {
    text: String,
    status: u8,
}

impl From<String> for Done {
    fn from(text: String) -> Self {
        Self { text, status: 0 }
    }
}

/// Runs the program with these arguments; the first argument is the program's name. Results go to the standard output,
/// errors to the standard error. Returns the exit status: 0 for success, 1 if `diff` found a difference, 2 after an error.
pub fn run(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> u8 {
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => {
            // Nobody is left to be told that the standard error is closed.
            let _ = error.print();
            return error.exit_code().try_into().unwrap_or(2);
        }
    };
    let done = match args.command {
        Command::Quantize(args) => quantize::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Formats(args) => formats::run(&args),
    };
    let printed = done.and_then(|Done { text, status }| {
        let printed = writeln!(std::io::stdout(), "{}", text.trim_end());
        match printed {
            // As when `head` has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(status),
            Err(source) => Err(Error::io("the standard output".as_ref(), source)),
            Ok(()) => Ok(status),
        }
    });
    printed.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "microscaling: {error}");
        2
    })
}
