#![doc = include_str!("../README.md")]

mod c_reference;
mod check;
mod checkpoint;
mod convert;
mod diff;
mod done;
mod error;
mod export;
mod files;
mod formats;
mod fused;
mod groups;
mod inspect;
mod npy;
mod numbers;
mod output;
mod p3109;
mod quantize;
mod scheme;
mod target;
mod unpack;
mod vectors;

use clap::{CommandFactory, Parser, Subcommand};
use done::{Done, Form};
use error::Error;
pub use formats::{datasheet, describe};
pub use p3109::p3109_datasheet;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};

/// Number formats with shared scales (MX, NVFP4 and their kin): files of packed tensors
#[derive(Debug, Parser)]
#[command(name = "microscaling", version)]
#[command(
    after_help = "Exit status: 0; 1 if `diff` or `check` found a difference; 2 after an error, with a message on the standard error."
)]
struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Subcommand)]
enum Command {
    Quantize(quantize::QuantizeArgs),
    Inspect(inspect::InspectArgs),
    Diff(diff::DiffArgs),
    Convert(convert::ConvertArgs),
    Unpack(unpack::UnpackArgs),
    Formats(formats::FormatsArgs),
    #[command(name = "p3109")]
    P3109(p3109::P3109Args),
    #[command(name = "c-reference")]
    CReference(c_reference::CReferenceArgs),
    Vectors(vectors::VectorsArgs),
    Check(check::CheckArgs),
    /// Print a script that completes the words of this command line: `source <(microscaling completions bash)`
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// The completions for a shell.
fn completions(shell: clap_complete::Shell) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "microscaling", &mut script);
    let mut done = Done::default();
    done.text(String::from_utf8_lossy(&script));
    done
}

/// The set of `microscaling vectors` with these arguments, as the bytes of an array of NumPy.
///
/// # Errors
/// The text of the program's error.
pub fn vectors(args: &[String]) -> Result<Vec<u8>, String> {
    match parse("vectors", args)? {
        Command::Vectors(args) => vectors::array_of(&args).map_err(|error| error.to_string()),
        _ => Err("allowed: the arguments of `vectors`".to_owned()),
    }
}

/// The report of `microscaling check` with these arguments on a dump, the bytes of a file in any form of vectors, as JSON.
///
/// # Errors
/// The text of the program's error.
pub fn check(args: &[String], dump: Vec<u8>) -> Result<String, String> {
    let done = match parse("check", args)? {
        Command::Check(args) => check::report_on(&args, dump),
        _ => return Err("allowed: the arguments of `check`".to_owned()),
    };
    let printed = done.and_then(|done| done.print(&Form::JSON));
    printed.map_err(|error| error.to_string())
}

/// A command with its arguments.
fn parse(command: &str, args: &[String]) -> Result<Command, String> {
    let words = ["microscaling", command].into_iter().map(str::to_owned);
    let args = Args::try_parse_from(words.chain(args.iter().cloned()));
    args.map(|args| args.command)
        .map_err(|error| error.to_string())
}

/// Runs the program with these arguments; the first argument is the program's name. Results go to the standard output,
/// errors to the standard error. Returns the exit status: 0 for success, 1 if `diff` or `check` found a difference, 2 after an error.
pub fn run(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> u8 {
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => {
            // Nobody is left to be told that the standard error is closed.
            let _ = error.print();
            return error.exit_code().try_into().unwrap_or(2);
        }
    };
    let form = args.form;
    let done = match args.command {
        Command::Quantize(args) => quantize::run(&args.with_scheme()),
        Command::Inspect(args) => inspect::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Unpack(args) => unpack::run(&args),
        Command::Formats(args) => formats::run(&args),
        Command::P3109(args) => p3109::run(&args),
        Command::CReference(args) => c_reference::run(&args),
        Command::Vectors(args) => vectors::run(&args, &form),
        Command::Check(args) => check::run(&args),
        Command::Completions { shell } => Ok(completions(shell)),
    };
    let printed = done.and_then(|done| {
        let status = done.status;
        let text = done.print(&form)?;
        // Vectors may have gone to the standard output already.
        if text.is_empty() {
            return Ok(status);
        }
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
