//! The examples as a user runs them, and the commands of the book.

#![allow(
    clippy::too_many_lines,
    reason = "a test follows a run from its data to its report"
)]

mod book;
mod ffn;
mod llama;
#[path = "../shared/place.rs"]
mod place;
mod program;

use std::process::Command;

use place::{Place, losses};
use program::program;

/// The command that runs an example, or a subcommand of burn-mx-lab.
fn start(name: &str) -> Command {
    match name {
        "compare" => {
            let mut command = Command::new(program(program::LAB));
            command.arg(name);
            command
        }
        example => Command::new(program(example)),
    }
}
