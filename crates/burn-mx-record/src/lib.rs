//! A recorder of every operand of every emulated product: how much quantization loses.
//!
//! ```no_run
//! # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; pub use burn_mx_record::{self as record, diagnose}; }
//! use burn_mx::record::{Recorder, RecorderConfig};
//!
//! let config = RecorderConfig { every: 20, ..Default::default() }.what_if(["mxfp8_rceil", "nvfp4"]);
//! let recording = Recorder::new(config).start("out")?;
//! // train(..), unchanged
//! let report = recording.finish()?;
//! println!("{}", report.table());
//! report.save("out")?; // report.html and report.json beside records.jsonl
//! # Ok::<(), burn_mx::record::RecordError>(())
//! ```
//!
//! A recorder sees the emulated products of this process, or of one thread ([`Recorder::on_this_thread`]). The recorder
//! sees operands before and after quantization, and the result next to the result of the same product of unquantized
//! operands. A recorder changes no bit of the computation and none of its random numbers. Models need no change;
//! [`module::label_parameters`](burn_mx_module::label_parameters) tells products the paths of their parameters.
//!
//! # Steps
//!
//! In training, a step ends with each backward pass of [`MxAutodiff`](burn_mx_core::MxAutodiff). Each thread has its own
//! steps, so two models that train on two threads do not mix. A backward pass may run on another thread than its forward pass:
//! it belongs to the step of the one thread that has begun a step.
//!
//! A recorder leaves out products outside of autodiff, as in an evaluation. With [`Pass::Inference`] it records only these,
//! and the program ends each step ([`Recording::next_step`]).
//!
//! # Names of layers
//!
//! A product has the name of its parameter. A product without a named parameter, as in attention, has the name of its scope
//! ([`scope`]), otherwise of the last named layer before it, with kind and number: `blocks.0.attention.matmul 0`,
//! `blocks.0.mha.value.weight > matmul 0`.
//!
//! # Figures
//!
//! Let `x` be an operand's elements before block quantization: rounded to the elementwise format, and transformed if the specs
//! have a random Hadamard transform. Let `q` be the values that the product multiplies. Each recorded step is a line of
//! `records.jsonl` ([`StepRecord`]) with the [`Statistics`](microscaling::Statistics) of `x` and `q`. The result of a product
//! is compared with the product of operands that are neither quantized in blocks nor transformed. Figures are float64 sums
//! over all elements and do not depend on the number of threads. The figures of a layer cover all of its uses in a step.
//!
//! With [`RecorderConfig::elementwise`] a step also has the roundings to the elementwise format, op by op
//! ([`ElementwiseRecord`]).

mod config;
pub mod diagnose;
#[cfg(feature = "train")]
mod distillation;
mod error;
mod file;
mod limit;
mod observer;
mod products;
mod recorder;
mod report;
mod search;
#[cfg(feature = "train")]
mod staged;
mod tensorboard;
#[cfg(feature = "train")]
mod train;

pub use burn_mx_core::hooks::{ProductKind, ProductOp};
pub use config::{Pass, RecorderConfig, Statistic};
#[cfg(feature = "train")]
pub use distillation::{Distillation, Teacher};
pub use error::RecordError;
pub use file::RECORDS;
pub use file::dialect_figures::DialectFigures;
pub use file::figures::{
    ElementwiseRecord, Figures, Header, Histogram, OperandRecord, ProductRecord, ResultRecord,
    RoundingRecord, StepHalf, StepRecord, SumFigures, SumsRecord,
};
pub use file::part_figures::PartFigures;
pub use observer::running::scope;
pub use products::products;
pub use recorder::{Recorder, Recording};
pub use report::{REPORT_HTML, REPORT_JSON, Report};
pub use search::{
    Budget, Found, FoundPlace, Score, Search, SearchError, Sensitivity, Total, output_sensitivities,
};
#[cfg(feature = "train")]
pub use staged::{StagedBatcher, StagedOptimizer};
pub use tensorboard::TensorBoard;
#[cfg(feature = "train")]
pub use train::{MxSaturation, MxSqnr, MxUnderflow, TensorBoardLogger};
