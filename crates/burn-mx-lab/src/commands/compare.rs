//! Trains a model in FP32 and then in MX formats, from the same weights on the same batches, and compares the results.
//! Options choose the model, presets, specs for single layers, seeds and the backend. Runs can be resumed.
//!
//! ```text
//! cargo run --release --bin burn-mx-lab -- compare --model cnn --preset mxfp8_e4m3 --preset mxfp4
//! cargo run --release --bin burn-mx-lab -- compare --model transformer --preset all --seed 0 --seed 1 --json runs.json
//! cargo run --release --bin burn-mx-lab -- compare --model lstm --preset mxfp4 --layer 'lstm.*.hidden_transform=fp32'
//! cargo run --release --bin burn-mx-lab -- compare --preset mxfp4 --first-last fp32 --save run --epochs 10
//! ```
//!
//! The folder `training` has the models, their tasks, and what a run needs beside the learner.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `cli.rs`, `plan.rs`, `training_format.rs` | the command line, checked into a `SweepPlan` before any work starts |
//! | `sweep.rs` | FP32 first, then each MX format: the place where `Autodiff<Flex>` becomes `MxAutodiff<Flex>` |
//! | `train.rs` | one training run on one backend, by burn-train's learner |
//! | `found.rs` | recipes of a search, of which short runs show the best one |
//! | `recording.rs` | the options of the recorder |
//! | `progress.rs`, `progress_kind.rs`, `dashboard.rs`, `plain.rs` | what is seen of a run: burn-train's dashboard, a bar, or lines |
//! | `cost.rs` | the products of a step, for models of their cost in hardware |
//! | `report.rs`, `plot.rs`, `pareto.rs` | the table and the JSON; loss curves and scores over bits as SVG, losses for TensorBoard |

mod cli;
mod cost;
#[cfg(feature = "tui")]
mod dashboard;
mod found;
mod pareto;
mod plain;
mod plan;
mod plot;
mod progress;
mod progress_kind;
mod recording;
mod report;
mod sweep;
mod train;
mod training_format;

use std::error::Error;

use super::Refusal;
pub(crate) use cli::CompareArgs;

pub(crate) fn run(args: &CompareArgs) -> Result<(), Box<dyn Error>> {
    sweep::run(args.plan().map_err(Refusal)?)
}
