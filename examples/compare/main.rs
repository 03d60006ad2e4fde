//! Trains a model in FP32 and then in MX formats, from the same weights on the same batches, and compares the results.
//! Options choose the model, presets, specs for single layers, seeds and the backend. Runs can be resumed.
//!
//! ```text
//! cargo run --release --example compare -- --model cnn --preset mxfp8_e4m3 --preset mxfp4
//! cargo run --release --example compare -- --model transformer --preset all --seed 0 --seed 1 --json runs.json
//! cargo run --release --example compare -- --model lstm --preset mxfp4 --layer 'lstm.*.hidden_transform=fp32'
//! cargo run --release --example compare -- --preset mxfp4 --first-last fp32 --save run --epochs 10
//! ```
//!
//! | file | what it holds |
//! | --- | --- |
//! | `cli.rs`, `plan.rs` | the command line, checked into a `Plan` before any work starts |
//! | `presets.rs`, `layers.rs` | names of presets; specs for single layers |
//! | `models.rs`, `models/` | the models |
//! | `tasks.rs`, `tasks/` | what they learn: 8×8 digits, sums as text |
//! | `sweep.rs` | FP32 first, then each MX format: the place where `Autodiff<Flex>` becomes `MxAutodiff<Flex>` |
//! | `train.rs`, `trainee.rs` | one training run on one backend, by burn-train's learner |
//! | `found.rs` | recipes of a search, of which short runs show the best one |
//! | `stages.rs` | specs that change between two steps |
//! | `epochs.rs` | batches, in an order that depends on the seed and the epoch alone |
//! | `history.rs` | loss and time of every step |
//! | `saved.rs` | a folder that a run can be resumed from |
//! | `recording.rs` | the options of the recorder |
//! | `progress.rs`, `dashboard.rs`, `plain.rs` | what is seen of a run: burn-train's dashboard, a bar, or lines |
//! | `cost.rs` | the products of a step, for models of their cost in hardware |
//! | `report.rs`, `plot.rs`, `pareto.rs` | the table and the JSON; loss curves and scores over bits as SVG, losses for TensorBoard |
//! | `output.rs` | files that are tried before the work and written after it |

#[path = "../support/backends.rs"]
mod backends;
mod cli;
mod cost;
#[path = "../support/costing.rs"]
mod costing;
#[cfg(feature = "tui")]
mod dashboard;
#[path = "../support/drawing.rs"]
mod drawing;
mod epochs;
mod found;
mod history;
mod layers;
#[path = "../support/logarithmic.rs"]
mod logarithmic;
mod models;
mod output;
mod pareto;
mod plain;
mod plan;
mod plot;
mod presets;
mod progress;
mod recording;
mod report;
mod saved;
mod stages;
#[path = "../support/step_cost.rs"]
mod step_cost;
mod sweep;
#[path = "../support/tables.rs"]
mod tables;
mod tasks;
mod train;
mod trainee;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, error::ErrorKind};

use cli::Cli;

fn main() -> ExitCode {
    let plan = Cli::parse().plan().unwrap_or_else(|message| {
        let error = Cli::command().error(ErrorKind::ValueValidation, message);
        error.exit()
    });
    match sweep::run(plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
