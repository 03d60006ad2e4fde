//! What the training examples share: everything but the model.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `cli.rs` | the command line, checked into a `Plan` before any work starts |
//! | `digits.rs` | the data: 8×8 digits, the fixed split, batches |
//! | `train.rs` | one training run on one backend: an ordinary Burn training loop |
//! | `sweep.rs` | FP32 first, then each MX preset, from the same weights on the same batches |
//! | `report.rs` | the table and the JSON |
//! | `plot.rs` | the loss curves as SVG |
//! | `output.rs` | files that are opened before the work and written after it |

mod cli;
mod digits;
mod output;
mod plot;
mod report;
mod sweep;
mod train;

pub(crate) use cli::{SweepArgs, whole_number};
pub(crate) use digits::{CLASSES, PIXELS};
pub(crate) use sweep::run;
pub(crate) use train::{Architecture, Classifier};
