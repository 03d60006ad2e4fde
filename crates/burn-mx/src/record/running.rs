//! The recorders at work, and which of them a product goes to.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use super::config::{Pass, Selection};
use super::file::Writer;
use super::stream::{Step, Stream};
use super::{ProductOp, RecordError, StepRecord};
use crate::alone::alone;
use crate::diagnose::Substitution;
use crate::kernels::in_turn::{Awaited, in_turn};
use crate::phase;

/// A recorder at work.
pub(crate) struct Running {
    run: String,
    first_step: u64,
    pub(super) selection: Selection,
    streams: Mutex<HashMap<ThreadId, Stream>>,
    file: Mutex<Writer>,
    /// Why no more records are written.
    failed: Mutex<Option<RecordError>>,
    latest: Mutex<Option<Arc<StepRecord>>>,
    /// The last recorded step on its way to the file, where its figures were not there when it was over.
    writing: Mutex<Option<Awaited<()>>>,
}

/// How many recorders are at work: without any this is all that a product looks at.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// How many of them record elementwise ops.
static ELEMENTWISE: AtomicUsize = AtomicUsize::new(0);
static PLACES: Mutex<Option<Places>> = Mutex::new(None);

/// Which recorder a thread has.
#[derive(Default)]
struct Places {
    process: Option<Arc<Running>>,
    threads: HashMap<ThreadId, Arc<Running>>,
}

thread_local! {
    /// The thread that a backward pass on this one belongs to, where that is another.
    static OWNER: Cell<Option<ThreadId>> = const { Cell::new(None) };
    /// How many ops of `MxAutodiff` this thread is in.
    static TRACKED: Cell<usize> = const { Cell::new(0) };
    /// The names of the scopes that this thread is in.
    static SCOPES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Waits for what is written, if anything is.
fn join(writing: Option<Awaited<()>>) {
    if let Some(Err(panic)) = writing.map(Awaited::wait)
        && !thread::panicking()
    {
        resume_unwind(panic);
    }
}

/// The thread whose products those of this thread are.
fn owner() -> ThreadId {
    OWNER.get().unwrap_or_else(|| thread::current().id())
}

/// Whether any recorder records elementwise ops: without one this is all that such an op looks at.
pub(super) fn any_elementwise() -> bool {
    ELEMENTWISE.load(Ordering::Relaxed) > 0
}

fn is_anything_recorded() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// The recorder of this thread.
pub(super) fn current() -> Option<Arc<Running>> {
    if !is_anything_recorded() {
        return None;
    }
    if Substitution::current().is_some() {
        // A diagnosis is no training.
        return None;
    }
    let places = lock(&PLACES);
    let places = places.as_ref()?;
    let own = places.threads.get(&owner());
    own.or(places.process.as_ref()).cloned()
}

/// Where a recorder is to be at work: on this thread, or on all that have none.
pub(super) struct Place(Option<ThreadId>);

impl Place {
    /// The place, if nobody has it.
    pub(super) fn free(here: bool) -> Result<Self, RecordError> {
        let place = Self(here.then(owner));
        let places = lock(&PLACES);
        let taken = places.as_ref().is_some_and(|places| match place.0 {
            Some(thread) => places.threads.contains_key(&thread),
            None => places.process.is_some(),
        });
        match taken {
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

    pub(super) fn take(self, running: Arc<Running>) -> Taken {
        let elementwise = usize::from(running.selection.elementwise);
        let mut places = lock(&PLACES);
        let places = places.get_or_insert_default();
        match self.0 {
            Some(thread) => drop(places.threads.insert(thread, running)),
            None => places.process = Some(running),
        }
        COUNT.fetch_add(1, Ordering::Relaxed);
        ELEMENTWISE.fetch_add(elementwise, Ordering::Relaxed);
        Taken {
            thread: self.0,
            elementwise,
        }
    }
}

/// The place of a recorder at work, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    thread: Option<ThreadId>,
    elementwise: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        ELEMENTWISE.fetch_sub(self.elementwise, Ordering::Relaxed);
        let mut places = lock(&PLACES);
        let Some(places) = places.as_mut() else {
            return;
        };
        match self.thread {
            Some(thread) => drop(places.threads.remove(&thread)),
            None => places.process = None,
        }
    }
}

impl Running {
    pub(super) fn new(
        run: String,
        first_step: u64,
        selection: Selection,
        file: Writer,
    ) -> Arc<Self> {
        Arc::new(Self {
            run,
            first_step,
            selection,
            streams: Mutex::default(),
            file: Mutex::new(file),
            failed: Mutex::default(),
            latest: Mutex::default(),
            writing: Mutex::default(),
        })
    }

    pub(super) fn pass(&self) -> Pass {
        self.selection.pass
    }

    pub(super) fn latest(&self) -> Option<Arc<StepRecord>> {
        self.wait();
        lock(&self.latest).clone()
    }

    /// Whether a product that this thread is about to compute is of the pass that is recorded.
    pub(super) fn is_in_pass(&self) -> bool {
        let training = phase::is_backward() || TRACKED.get() > 0;
        training == (self.pass() == Pass::Training)
    }

    /// The stream of this thread.
    pub(super) fn with_stream<R>(&self, work: impl FnOnce(&mut Stream) -> R) -> R {
        let mut streams = lock(&self.streams);
        if let Some(forward) = self.thread_of_forward(&streams) {
            OWNER.set(Some(forward));
        }
        let thread = streams.len();
        let new = || Stream::new(thread, self.first_step, &self.selection);
        work(streams.entry(owner()).or_insert_with(new))
    }

    /// The thread whose forward pass the backward pass on this one belongs to, if that is another: this one has computed
    /// nothing in its step, and one single other one has.
    fn thread_of_forward(&self, streams: &HashMap<ThreadId, Stream>) -> Option<ThreadId> {
        let has_begun = |thread: &ThreadId| streams.get(thread).is_some_and(|stream| stream.begun);
        if !phase::is_backward() || self.pass() != Pass::Training || has_begun(&owner()) {
            return None;
        }
        let mut others = streams.keys().filter(|thread| has_begun(thread));
        others.next().filter(|_| others.next().is_none()).copied()
    }

    /// Ends a step of this thread, if there was any product in it.
    pub(super) fn end_step(self: &Arc<Self>) {
        let step = {
            let mut streams = lock(&self.streams);
            let stream = streams.get_mut(&owner()).filter(|stream| stream.begun);
            stream.and_then(|stream| stream.end_step(&self.selection))
        };
        if let Some(step) = step {
            self.write_late(step);
        }
    }

    /// Writes a step, on the thread that computes its figures if they are not there yet. There is one such step at a time: so memory is
    /// bounded, and steps come in their order.
    fn write_late(self: &Arc<Self>, step: Step) {
        let mut writing = lock(&self.writing);
        join(writing.take());
        match step.is_pending() {
            true => {
                let running = Arc::clone(self);
                *writing = Some(in_turn(move || running.write(step)));
            }
            false => self.write(step),
        }
    }

    /// Waits until all steps that are over are written.
    pub(super) fn wait(&self) {
        join(lock(&self.writing).take());
    }

    fn write(&self, step: Step) {
        let record = step.record(&self.run, &self.selection);
        let mut failed = lock(&self.failed);
        if failed.is_some() {
            return;
        }
        if let Err(error) = lock(&self.file).write(&record) {
            log::error!("burn-mx: a step was not recorded, and none after it will be: {error}");
            *failed = Some(error);
        }
        *lock(&self.latest) = Some(Arc::new(record));
    }

    /// Records what is left of an inference, whose last step nobody ended.
    ///
    /// # Errors
    ///
    /// If a record could not be written.
    pub(super) fn finish(&self) -> Result<(), RecordError> {
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

/// The name of a layer that is about to be used by autodiff, `label` or one that is made up for this step: its gradients'
/// products are to have the same.
pub(crate) fn name_layer(op: ProductOp, label: Option<&'static str>) -> Option<&'static str> {
    if label.is_some() {
        return label;
    }
    let running = current().filter(|running| running.pass() == Pass::Training)?;
    running.with_stream(|stream| {
        let recorded = stream.recorded;
        recorded.then(|| with_scope(|scope| stream.name(op, scope)))
    })
}

/// Calls an op of `MxAutodiff`, whose products are those of a training step.
pub(crate) fn tracked<R: Send>(op: impl FnOnce() -> R + Send) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            TRACKED.set(TRACKED.get() - 1);
        }
    }
    if !is_anything_recorded() {
        return op();
    }
    alone(|| {
        TRACKED.set(TRACKED.get() + 1);
        let _leave = Leave;
        op()
    })
}

/// Ends a training step of this thread: its backward pass is over.
pub(crate) fn end_step() {
    if let Some(running) = current().filter(|running| running.pass() == Pass::Training) {
        running.end_step();
    }
}

/// Calls `work` with the names of the scopes that this thread is in, joined by dots.
pub(super) fn with_scope<R>(work: impl FnOnce(Option<&str>) -> R) -> R {
    SCOPES.with_borrow(|scopes| match scopes.is_empty() {
        true => work(None),
        false => work(Some(&scopes.join("."))),
    })
}

/// Calls `work` in a scope of this name, where anybody records names.
pub(crate) fn scope<R: Send>(name: &str, work: impl FnOnce() -> R + Send) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            SCOPES.with_borrow_mut(|scopes| scopes.pop());
        }
    }
    if !is_anything_recorded() {
        return work();
    }
    alone(|| {
        SCOPES.with_borrow_mut(|scopes| scopes.push(name.to_owned()));
        let _leave = Leave;
        work()
    })
}

/// What a thread hands on to another one that works for it.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    owner: ThreadId,
}

impl Context {
    pub(crate) fn of_this_thread() -> Self {
        Self { owner: owner() }
    }

    /// Calls `work`, which belongs to the thread that this is of.
    pub(crate) fn enter<R>(self, work: impl FnOnce() -> R) -> R {
        struct Restore(Option<ThreadId>);
        impl Drop for Restore {
            fn drop(&mut self) {
                OWNER.set(self.0);
            }
        }
        let _restore = Restore(OWNER.replace(Some(self.owner)));
        work()
    }
}
