//! Which half of a training step the current thread is in.
//!
//! The decorated backend sees a matrix product, not whether it belongs to the forward or the backward pass, yet the two use different
//! formats. [`MxAutodiff`](crate::MxAutodiff) therefore marks the thread while it walks the graph backwards. The walk stays on one
//! thread, and [`alone`](crate::hooks::alone) keeps other work off this thread as long as it has the mark. So a thread-local is exact,
//! also with several threads or tasks of a rayon pool training at once.

use std::cell::Cell;

thread_local! {
    static BACKWARD_DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// True while a backward pass of `MxAutodiff` runs on this thread.
pub(crate) fn is_backward() -> bool {
    BACKWARD_DEPTH.get() > 0
}

/// Marks the thread as being in the backward pass until dropped, also when the pass panics.
pub(crate) struct BackwardGuard(());

impl BackwardGuard {
    pub(crate) fn enter() -> Self {
        BACKWARD_DEPTH.set(BACKWARD_DEPTH.get() + 1);
        Self(())
    }
}

impl Drop for BackwardGuard {
    fn drop(&mut self) {
        BACKWARD_DEPTH.set(BACKWARD_DEPTH.get() - 1);
    }
}
