//! The thread on which a graph is walked backwards.
//!
//! burn-autodiff walks on the thread that calls it, and a [`BackwardGuard`] marks that thread, so a walk runs [`alone`]. Locks
//! are another reason: burn-autodiff holds a lock on the graph during a walk, and takes the locks of all graphs for a moment
//! at the end of every walk. A thread that started a second walk inside a first would wait for itself.

use crate::hooks;
use crate::hooks::alone::alone;
use crate::phase::BackwardGuard;

/// Runs a walk with the thread that walks marked as being in the backward pass.
pub(super) fn backward<R: Send>(walk: impl FnOnce() -> R + Send) -> R {
    let thread = hooks::Thread::current();
    alone(|| {
        let _backward = BackwardGuard::enter();
        thread.enter(|| {
            let gradients = walk();
            hooks::end_of_backward_pass();
            gradients
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phase;

    #[test]
    fn a_walk_marks_its_thread_until_it_is_over_or_panics() {
        assert!(backward(phase::is_backward));
        let panicked = std::panic::catch_unwind(|| backward(|| panic!("in the walk")));
        assert!(panicked.is_err());
        assert!(!phase::is_backward());
    }
}
