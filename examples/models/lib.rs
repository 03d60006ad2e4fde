//! The training examples. Their models, their tasks and all that they share is compiled once, here; `examples/*.rs` are
//! the programs.

mod cnn;
mod ffn;
mod lstm;
mod transformer;

#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

/// The program `cnn`.
pub fn cnn() -> ExitCode {
    support::main::<cnn::CnnConfig>()
}

/// The program `ffn`.
pub fn ffn() -> ExitCode {
    support::main::<ffn::FfnConfig>()
}

/// The program `lstm`.
pub fn lstm() -> ExitCode {
    support::main::<lstm::ReaderConfig>()
}

/// The program `transformer`.
pub fn transformer() -> ExitCode {
    support::main::<transformer::AdderConfig>()
}
