//! What quantization did: a recorder of every operand of every emulated product.
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
//! A recorder sees the emulated products of this process, or of one thread ([`Recorder::on_this_thread`]): the operands
//! before and after quantization, and the result beside that of the same product of the operands before. It changes no bit
//! of what is computed, and draws none of its random numbers. Models need no change, either;
//! [`module::label_parameters`](burn_mx_module::label_parameters) tells products the paths of their parameters.
//!
//! # Steps
//!
//! While a model trains, a step ends with each backward pass of [`MxAutodiff`](burn_mx_core::MxAutodiff). Products of a thread
//! are the steps of that thread: two models that train in two threads do not mix. Products outside of autodiff, as those
//! of an evaluation, are left out, or are the only ones recorded ([`Pass::Inference`]); steps end where the program says so
//! then ([`Recording::next_step`]). A backward pass on another thread than its forward pass is the same step, as long as no third
//! thread is in a step of its own: it is taken for that of the one thread that has begun one.
//!
//! # Names of layers
//!
//! A product has the name of its parameter. One that has no named parameter, as the products of an attention, is called
//! by the scope that it runs in ([`scope`]), or else by the last named layer before it, and by
//! kind and order: `blocks.0.attention.matmul 0`, `blocks.0.mha.value.weight > matmul 0`.
//!
//! # Figures
//!
//! `x` are an operand's elements as its block format is given them: rounded to the elementwise format, and transformed where
//! the specs have a random Hadamard transform. `q` are what the product multiplies. What
//! [`Statistics`](microscaling::Statistics) says of them is a line of `records.jsonl` for each recorded step
//! ([`StepRecord`]). The result of the product is compared with that of the operands that are not quantized in blocks, nor
//! transformed. Figures are float64 sums over all elements, the same whatever the number of threads. Several uses of a
//! layer in a step are taken together.
//!
//! [`RecorderConfig::elementwise`] asks for the roundings to the elementwise format as well, op by op
//! ([`ElementwiseRecord`]).

mod config;
pub mod diagnose;
mod elementwise;
mod figures;
mod file;
mod late;
mod observer;
mod own_thread;
mod report;
mod running;
mod stream;
#[cfg(feature = "train")]
mod train;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use burn_mx_core::hooks::{ProductKind, ProductOp};
pub use config::{Pass, RecorderConfig, Statistic};
pub use elementwise::Phase;
pub use figures::{
    ElementwiseRecord, Figures, Header, Histogram, OperandRecord, ProductRecord, ResultRecord,
    RoundingRecord, StepRecord,
};
pub use file::RECORDS;
pub use report::{REPORT_HTML, REPORT_JSON, Report};
use running::Running;
pub use running::scope;
#[cfg(feature = "train")]
pub use train::{MxSaturation, MxSqnr, MxUnderflow};

/// Why nothing was recorded, or not all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A field of the configuration that cannot be used.
    #[error("`{field}` is {value}; {allowed}")]
    Config {
        /// The field of [`RecorderConfig`].
        field: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// Another recorder is at work.
    #[error("{whose} recorder already; finish it before another one is started")]
    Running {
        /// Whose recorder it is.
        whose: &'static str,
    },
    /// There are records already.
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
        /// What is wrong with it.
        error: std::io::Error,
    },
    /// A line that is no record.
    #[error("`{}` line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// A recorder to be.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    config: RecorderConfig,
    run: String,
    first_step: u64,
    on_this_thread: bool,
}

impl Recorder {
    /// A recorder of what `config` says.
    pub fn new(config: RecorderConfig) -> Self {
        Self {
            config,
            run: "run".into(),
            first_step: 0,
            on_this_thread: false,
        }
    }

    /// The name of the run, which stands in every record: a folder may have several. `run` by default.
    pub fn run(mut self, name: impl Into<String>) -> Self {
        self.run = name.into();
        self
    }

    /// The number of the first step, of a run that goes on. 0 by default.
    pub fn first_step(mut self, step: u64) -> Self {
        self.first_step = step;
        self
    }

    /// The products of the thread that starts the recorder, and of no other. Otherwise they are those of all threads of this
    /// process that have no recorder of their own.
    pub fn on_this_thread(mut self) -> Self {
        self.on_this_thread = true;
        self
    }

    /// Records products until the recording is finished or dropped. `folder` is created if it is missing; the records are [`RECORDS`] in it.
    ///
    /// # Errors
    ///
    /// Before anything is computed: if a field of the configuration makes no sense, if another such recorder is at work,
    /// if the folder has records, or if it cannot be written to.
    pub fn start(self, folder: impl AsRef<Path>) -> Result<Recording, RecordError> {
        self.open(folder.as_ref(), false)
    }

    /// As [`start`](Self::start), after the records that the folder has: of other runs, or of this one before it was
    /// interrupted. Where a step is there twice the later record counts.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Self::start), but for records in the folder, which are welcome.
    pub fn append(self, folder: impl AsRef<Path>) -> Result<Recording, RecordError> {
        self.open(folder.as_ref(), true)
    }

    fn open(self, folder: &Path, append: bool) -> Result<Recording, RecordError> {
        let selection = self.config.check()?;
        let place = running::Place::free(self.on_this_thread)?;
        let header = Header::new(self.run.clone(), self.config);
        let file = file::Writer::open(folder, append, &header)?;
        let running = Running::new(self.run, self.first_step, selection, file);
        Ok(Recording {
            place: Some(place.take(Arc::clone(&running))),
            running,
            folder: folder.to_owned(),
        })
    }
}

/// A recorder at work. Dropped, it stops, and what was recorded is on disk.
#[derive(Debug)]
pub struct Recording {
    running: Arc<Running>,
    /// There until it stops.
    place: Option<running::Taken>,
    folder: PathBuf,
}

impl Recording {
    /// Ends a step of this thread, of [`Pass::Inference`]; training steps end by themselves.
    ///
    /// # Panics
    ///
    /// If the recorder is one of training.
    pub fn next_step(&self) {
        assert_eq!(
            self.running.pass(),
            Pass::Inference,
            "burn-mx: `Recording::next_step`: `pass` is `training`, whose steps end with each backward pass; allowed: \
             `inference`"
        );
        self.running.end_step();
    }

    /// The last step that was recorded; waits until its figures are there.
    pub fn latest(&self) -> Option<Arc<StepRecord>> {
        self.running.latest()
    }

    /// Where the records are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stops.
    ///
    /// # Errors
    ///
    /// If a record could not be written; those before it are there.
    pub fn stop(mut self) -> Result<(), RecordError> {
        self.end()
    }

    /// Stops, and reads what was recorded.
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
