//! The thread whose work this thread does, and the part of the work.

use std::cell::Cell;
use std::thread::{self, ThreadId};

use super::Events;
use super::alone::alone;
use super::wanted::is_any;
use crate::phase;

thread_local! {
    /// The thread that the work of this one belongs to, where that is another.
    static OWNER: Cell<Option<ThreadId>> = const { Cell::new(None) };
    /// How many ops of `MxAutodiff` this thread is in.
    static TRACKED: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread repeats a computation.
    static AGAIN: Cell<bool> = const { Cell::new(false) };
}

/// The thread whose work the current thread does: itself, or another thread.
pub fn thread_of_work() -> ThreadId {
    OWNER.get().unwrap_or_else(|| thread::current().id())
}

/// Counts the computations of this thread as another thread's work, from here to the end of the current backward pass.
pub fn work_for(thread: ThreadId) {
    OWNER.set(Some(thread));
}

/// Whether this thread is in a backward pass of `MxAutodiff`.
pub fn in_backward_pass() -> bool {
    phase::is_backward()
}

/// Whether this thread is in a training step: in an op of `MxAutodiff`, or in a backward pass.
pub fn in_training() -> bool {
    in_backward_pass() || TRACKED.get() > 0
}

pub(super) fn is_again() -> bool {
    AGAIN.get()
}

/// Sets a mark of this thread for as long as this lives.
struct Marked<T: Copy + 'static> {
    mark: &'static thread::LocalKey<Cell<T>>,
    before: T,
}

impl<T: Copy> Marked<T> {
    fn new(mark: &'static thread::LocalKey<Cell<T>>, value: T) -> Self {
        let before = mark.replace(value);
        Self { mark, before }
    }
}

impl<T: Copy> Drop for Marked<T> {
    fn drop(&mut self) {
        self.mark.set(self.before);
    }
}

/// Repeats a computation that observers have seen before.
pub(crate) fn again<R>(work: impl FnOnce() -> R) -> R {
    let _marked = Marked::new(&AGAIN, true);
    work()
}

/// Calls an op of `MxAutodiff`, whose products belong to a training step.
pub(crate) fn tracked<R: Send>(op: impl FnOnce() -> R + Send) -> R {
    if !is_any(Events::all()) {
        return op();
    }
    alone(|| {
        let _marked = Marked::new(&TRACKED, TRACKED.get() + 1);
        op()
    })
}

/// State that a thread hands to another thread that works for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread {
    owner: ThreadId,
}

impl Thread {
    pub(crate) fn current() -> Self {
        Self {
            owner: thread_of_work(),
        }
    }

    /// Calls `work`, which belongs to the thread that this is of.
    pub(crate) fn enter<R>(self, work: impl FnOnce() -> R) -> R {
        let _marked = Marked::new(&OWNER, Some(self.owner));
        work()
    }
}
