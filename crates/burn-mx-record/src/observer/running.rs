//! The running recorders, and which of them records a product.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;

use super::Eye;
use super::stream::{Step, Stream};
use crate::config::{Pass, Selection};
use crate::error::RecordError;
use crate::file::Writer;
use crate::file::figures::StepRecord;
use crate::file::own_thread::OwnThread;
use crate::tensorboard::TensorBoard;
use burn_mx_core::hooks::{self, Installed};

/// A running recorder.
pub(crate) struct Running {
    run: String,
    first_step: u64,
    pub(crate) selection: Selection,
    streams: Mutex<HashMap<ThreadId, Stream>>,
    /// Weights that were used on a thread before its first emulated product. Without one a thread has no stream.
    early: Mutex<HashMap<ThreadId, Vec<&'static str>>>,
    files: Mutex<Files>,
    /// The error after which no more records are written.
    failed: Mutex<Option<RecordError>>,
    latest: Mutex<Option<Arc<StepRecord>>>,
    /// Writes the last recorded step, if its figures were not ready at the end of the step.
    writer: Mutex<OwnThread>,
}

/// The files of a recorder.
pub(crate) struct Files {
    pub(crate) records: Writer,
    pub(crate) tensorboard: Option<TensorBoard>,
}

impl Files {
    fn write(&mut self, record: &StepRecord) -> Result<(), RecordError> {
        self.records.write(record)?;
        let board = self.tensorboard.as_mut();
        board.map_or(Ok(()), |board| board.step(record))
    }
}

/// The places of the running recorders.
static PLACES: Mutex<Vec<ThreadScope>> = Mutex::new(Vec::new());

thread_local! {
    /// The names of the scopes around the current code of this thread.
    static SCOPES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// The threads of a recorder: one thread, or all threads without their own recorder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ThreadScope(Option<ThreadId>);

impl ThreadScope {
    /// The place, if no recorder has it.
    pub(crate) fn free(here: bool) -> Result<Self, RecordError> {
        let place = Self(here.then(hooks::thread_of_work));
        match lock(&PLACES).contains(&place) {
            true => Err(RecordError::Running {
                whose: if here {
                    "this thread has a"
                } else {
                    "this process has a"
                },
            }),
            false => Ok(place),
        }
    }

    pub(crate) fn take(self, running: Arc<Running>) -> Taken {
        lock(&PLACES).push(self);
        let installed = match self.0 {
            Some(_) => hooks::install_on_this_thread(Arc::new(Eye(running))),
            None => hooks::install(Arc::new(Eye(running))),
        };
        Taken {
            place: self,
            _installed: installed,
        }
    }
}

/// The place of a running recorder. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Taken {
    place: ThreadScope,
    _installed: Installed,
}

impl Drop for Taken {
    fn drop(&mut self) {
        lock(&PLACES).retain(|place| *place != self.place);
    }
}

impl Running {
    pub(crate) fn new(
        run: String,
        first_step: u64,
        selection: Selection,
        files: Files,
    ) -> Arc<Self> {
        Arc::new(Self {
            run,
            first_step,
            selection,
            streams: Mutex::default(),
            early: Mutex::default(),
            files: Mutex::new(files),
            failed: Mutex::default(),
            latest: Mutex::default(),
            writer: Mutex::default(),
        })
    }

    pub(crate) fn pass(&self) -> Pass {
        self.selection.pass
    }

    pub(crate) fn latest(&self) -> Option<Arc<StepRecord>> {
        self.wait();
        lock(&self.latest).clone()
    }

    /// Whether the next product of this thread belongs to the recorded pass.
    pub(super) fn is_in_pass(&self) -> bool {
        hooks::in_training() == (self.pass() == Pass::Training)
    }

    /// The stream of this thread.
    pub(super) fn with_stream<R>(&self, work: impl FnOnce(&mut Stream) -> R) -> R {
        let mut streams = lock(&self.streams);
        if let Some(forward) = self.thread_of_forward(&streams) {
            hooks::work_for(forward);
        }
        let thread = streams.len();
        let new = || {
            let mut stream = Stream::new(thread, self.first_step, &self.selection);
            let early = lock(&self.early).remove(&hooks::thread_of_work());
            let early = early.into_iter().flatten();
            early.for_each(|label| stream.uses_weight(label));
            stream
        };
        work(streams.entry(hooks::thread_of_work()).or_insert_with(new))
    }

    /// Notes a forward product with this weight, emulated or not.
    pub(super) fn uses_weight(&self, label: &'static str) {
        let thread = hooks::thread_of_work();
        if let Some(stream) = lock(&self.streams).get_mut(&thread) {
            return stream.uses_weight(label);
        }
        let mut early = lock(&self.early);
        let early = early.entry(thread).or_default();
        if !early.contains(&label) {
            early.push(label);
        }
    }

    /// The thread of the forward pass, if the backward pass on this thread belongs to another thread. Then this thread has
    /// computed nothing in its step, and exactly one other thread has.
    fn thread_of_forward(&self, streams: &HashMap<ThreadId, Stream>) -> Option<ThreadId> {
        let has_begun = |thread: &ThreadId| streams.get(thread).is_some_and(|stream| stream.begun);
        if !hooks::in_backward_pass()
            || self.pass() != Pass::Training
            || has_begun(&hooks::thread_of_work())
        {
            return None;
        }
        let mut others = streams.keys().filter(|thread| has_begun(thread));
        others.next().filter(|_| others.next().is_none()).copied()
    }

    /// Ends a step of this thread, if the step has any product.
    pub(crate) fn end_step(self: &Arc<Self>) {
        let step = {
            let mut streams = lock(&self.streams);
            let stream = streams
                .get_mut(&hooks::thread_of_work())
                .filter(|stream| stream.begun);
            stream.and_then(|stream| stream.end_step(&self.selection))
        };
        if let Some(step) = step {
            self.write_late(step);
        }
    }

    /// Writes a step, on the recorder's thread if its figures are not ready. Only one step waits at a time, so memory is
    /// bounded and steps keep their order.
    fn write_late(self: &Arc<Self>, step: Step) {
        let mut writer = lock(&self.writer);
        writer.wait();
        match step.is_pending() {
            true => {
                let running = Arc::clone(self);
                writer.begin(move || running.write(step));
            }
            false => self.write(step),
        }
    }

    /// Waits until all finished steps are written.
    pub(crate) fn wait(&self) {
        lock(&self.writer).wait();
    }

    fn write(&self, step: Step) {
        let record = step.record(&self.run, &self.selection);
        let mut failed = lock(&self.failed);
        if failed.is_some() {
            return;
        }
        if let Err(error) = lock(&self.files).write(&record) {
            log::error!("burn-mx: recording stops, because a step could not be written: {error}");
            *failed = Some(error);
        }
        *lock(&self.latest) = Some(Arc::new(record));
    }

    /// Records the unfinished last step of an inference.
    ///
    /// # Errors
    ///
    /// If a record could not be written.
    pub(crate) fn finish(&self) -> Result<(), RecordError> {
        self.wait();
        if self.pass() == Pass::Inference {
            let mut streams = lock(&self.streams);
            let begun = streams.values_mut().filter(|stream| stream.begun);
            for stream in begun {
                if let Some(step) = stream.end_step(&self.selection) {
                    self.write(step);
                }
            }
        }
        lock(&self.failed).take().map_or(Ok(()), Err)
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("run", &self.run).finish()
    }
}

/// Calls `work` with the names of the thread's scopes, joined by dots.
pub(super) fn with_scope<R>(work: impl FnOnce(Option<&str>) -> R) -> R {
    SCOPES.with_borrow(|scopes| match scopes.is_empty() {
        true => work(None),
        false => work(Some(&scopes.join("."))),
    })
}

/// Calls `work` in a scope of this name. A recorder names products without a named parameter by their scope. Nested scopes are
/// joined: `outer.inner`.
///
/// While a recorder is running, `work` in a rayon task runs on a separate thread, so that no other task runs under this name.
/// `work` must not wait for other tasks of that pool, because the pool's thread sleeps.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; pub use burn_mx_record::{self as record, diagnose}; }
/// use burn_mx::record::scope;
/// let attention = scope("blocks.0.attention", || { /* two matrix products */ });
/// ```
pub fn scope<R: Send>(name: &str, work: impl FnOnce() -> R + Send) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            SCOPES.with_borrow_mut(|scopes| scopes.pop());
        }
    }
    if lock(&PLACES).is_empty() {
        return work();
    }
    hooks::alone(|| {
        SCOPES.with_borrow_mut(|scopes| scopes.push(name.to_owned()));
        let _leave = Leave;
        work()
    })
}
