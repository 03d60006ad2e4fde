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
mod file;
mod observer;
mod products;
mod report;
mod search;
mod tensorboard;
#[cfg(feature = "train")]
mod train;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use burn_mx_core::hooks::{ProductKind, ProductOp};
pub use config::{Pass, RecorderConfig, Statistic};
pub use file::RECORDS;
pub use file::figures::{
    ElementwiseRecord, Figures, Header, Histogram, OperandRecord, ProductRecord, ResultRecord,
    RoundingRecord, StepRecord, SumFigures, SumsRecord,
};
pub use observer::elementwise::Phase;
pub use observer::running::scope;
use observer::running::{Files, Running};
pub use products::products;
pub use report::{REPORT_HTML, REPORT_JSON, Report};
pub use search::{Found, FoundPlace, Score, Search, SearchError, Sensitivity};
pub use tensorboard::TensorBoard;
#[cfg(feature = "train")]
pub use train::{MxSaturation, MxSqnr, MxUnderflow, TensorBoardLogger};

/// Why recording failed, fully or in part.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A field of the configuration that cannot be used.
    #[error("`{field}` is {value}; {allowed}")]
    Config {
        /// The field of [`RecorderConfig`].
        field: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// Another recorder is running.
    #[error("{whose} recorder already; finish it before another one is started")]
    Running {
        /// The owner of the other recorder.
        whose: &'static str,
    },
    /// The folder has records of another run.
    #[error(
        "`{}` has records of another run; name another folder, or add to them with `Recorder::append`",
        path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A file or folder cannot be read or written.
    #[error("`{}`: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// A line is not a valid record.
    #[error("`{}` line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// The reason why the line is not valid.
        reason: String,
    },
}

microscaling::debug_is_display!(RecordError);

/// A recorder before its start.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    config: RecorderConfig,
    run: String,
    first_step: u64,
    on_this_thread: bool,
    tensorboard: bool,
}

impl Recorder {
    /// A recorder with this configuration.
    pub fn new(config: RecorderConfig) -> Self {
        Self {
            config,
            run: "run".into(),
            first_step: 0,
            on_this_thread: false,
            tensorboard: false,
        }
    }

    /// Sets the name of the run, which every record has. One folder may hold several runs. Default: `run`.
    pub fn run(mut self, name: impl Into<String>) -> Self {
        self.run = name.into();
        self
    }

    /// Sets the number of the first step, for a run that continues. Default: 0.
    pub fn first_step(mut self, step: u64) -> Self {
        self.first_step = step;
        self
    }

    /// Restricts the recorder to the thread that starts it. Otherwise the recorder sees all threads of this process without
    /// their own recorder.
    pub fn on_this_thread(mut self) -> Self {
        self.on_this_thread = true;
        self
    }

    /// Writes the figures of every recorded step to an event file of TensorBoard, too: in a folder with the run's name beside
    /// the records. See [`TensorBoard::step`] for the names of the curves.
    pub fn tensorboard(mut self) -> Self {
        self.tensorboard = true;
        self
    }

    /// Records products until the recording is finished or dropped. Creates `folder` if it is missing. The records are in the
    /// file [`RECORDS`] of this folder.
    ///
    /// # Errors
    ///
    /// Before any computation: if a field of the configuration is not valid, if another recorder of this kind is running, or
    /// if the folder has records or is not writable.
    pub fn start(self, folder: impl AsRef<Path>) -> Result<Recording, RecordError> {
        self.open(folder.as_ref(), false)
    }

    /// Like [`start`](Self::start), but adds to the records in the folder: of other runs, or of this run before an
    /// interruption. If a step occurs twice, the later record counts.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start), except that the folder may have records.
    pub fn append(self, folder: impl AsRef<Path>) -> Result<Recording, RecordError> {
        self.open(folder.as_ref(), true)
    }

    fn open(self, folder: &Path, append: bool) -> Result<Recording, RecordError> {
        let selection = self.config.check()?;
        let place = observer::running::Place::free(self.on_this_thread)?;
        let header = Header::new(self.run.clone(), self.config);
        let file = file::Writer::open(folder, append, &header)?;
        // One folder inside of the records' folder, whatever the run is called.
        let board = folder.join(self.run.replace(['/', '\\', ':'], "_").replace("..", "_"));
        let board = self.tensorboard.then(|| TensorBoard::create(board));
        let files = Files {
            records: file,
            tensorboard: board.transpose()?,
        };
        let running = Running::new(self.run, self.first_step, selection, files);
        Ok(Recording {
            place: Some(place.take(Arc::clone(&running))),
            running,
            folder: folder.to_owned(),
        })
    }
}

/// A running recorder. Dropping it stops the recording; all records are on disk then.
#[derive(Debug)]
pub struct Recording {
    running: Arc<Running>,
    /// `None` after the stop.
    place: Option<observer::running::Taken>,
    folder: PathBuf,
}

impl Recording {
    /// Ends a step of this thread, with [`Pass::Inference`]. Training steps end without this call.
    ///
    /// # Panics
    ///
    /// If the recorder records training.
    pub fn next_step(&self) {
        assert_eq!(
            self.running.pass(),
            Pass::Inference,
            "burn-mx: `Recording::next_step`: `pass` is `training`, whose steps end with each backward pass; allowed: \
             `inference`"
        );
        self.running.end_step();
    }

    /// The last recorded step. Waits for its figures.
    pub fn latest(&self) -> Option<Arc<StepRecord>> {
        self.running.latest()
    }

    /// The folder of the records.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stops the recording.
    ///
    /// # Errors
    ///
    /// If a record could not be written. Earlier records are on disk.
    pub fn stop(mut self) -> Result<(), RecordError> {
        self.end()
    }

    /// Stops the recording and reads the records.
    ///
    /// # Errors
    ///
    /// If a record could not be written, or cannot be read.
    pub fn finish(mut self) -> Result<Report, RecordError> {
        self.end()?;
        Report::read([&self.folder])
    }

    fn end(&mut self) -> Result<(), RecordError> {
        drop(self.place.take());
        self.running.finish()
    }

    #[cfg(feature = "train")]
    pub(crate) fn running(&self) -> &Arc<Running> {
        &self.running
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        drop(self.place.take());
        self.running.wait();
    }
}
