//! The recorder: its settings, its start and its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::{Pass, RecorderConfig};
use crate::error::RecordError;
use crate::file::Writer;
use crate::file::figures::{Header, StepRecord};
use crate::observer::running::{Files, Running, Taken, ThreadScope};
use crate::report::Report;
use crate::tensorboard::TensorBoard;

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
    /// file [`RECORDS`](crate::RECORDS) of this folder.
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
        let place = ThreadScope::free(self.on_this_thread)?;
        let header = Header::new(self.run.clone(), self.config);
        let file = Writer::open(folder, append, &header)?;
        // One folder inside of the records' folder, for any name of the run.
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
    place: Option<Taken>,
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

    /// The result of [`latest`](Self::latest), for code that cannot keep the recording.
    pub fn watch(&self) -> impl Fn() -> Option<Arc<StepRecord>> + Send + Sync + 'static {
        let running = Arc::clone(&self.running);
        move || running.latest()
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
