//! What the training examples share: everything but the model.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `cli.rs` | the command line, checked into a `Plan` before any work starts |
//! | `presets.rs` | names of presets |
//! | `layers.rs` | specs for single layers, from the command line |
//! | `task.rs` | what a task, a model for it and an architecture are |
//! | `digits.rs`, `addition.rs` | the tasks: 8×8 digits, sums as text |
//! | `epochs.rs` | batches, in an order that depends on the seed and the epoch alone |
//! | `train.rs` | one training run on one backend, by burn-train's learner |
//! | `history.rs` | loss and time of every step |
//! | `saved.rs` | a folder that a run can be resumed from |
//! | `progress.rs` | what is seen of a run while it trains, and where |
//! | `dashboard.rs`, `plain.rs` | burn-train's dashboard; a bar or lines |
//! | `sweep.rs` | FP32 first, then each MX preset, from the same weights on the same batches |
//! | `report.rs` | the table and the JSON |
//! | `plot.rs` | the loss curves as SVG |
//! | `output.rs` | files that are opened before the work and written after it |

pub(crate) mod addition;
mod cli;
#[cfg(feature = "tui")]
mod dashboard;
pub(crate) mod digits;
mod epochs;
mod history;
mod layers;
mod output;
mod plain;
mod plot;
mod presets;
mod progress;
mod report;
mod saved;
mod sweep;
mod task;
mod train;

pub(crate) use cli::{main, whole_number};
pub(crate) use task::Architecture;
