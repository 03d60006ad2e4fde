//! The program `microscaling`; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(microscaling_cli::run(std::env::args_os()))
}
