//! The thread on which a graph is walked backwards.
//!
//! burn-autodiff walks on the thread that calls it, and a [`BackwardGuard`] marks that thread. A thread of a rayon pool
//! must not be marked so: while it waits for the other parts of a kernel it takes whatever task its pool has next, and
//! that may be the forward pass of another model. Nor may it walk at all: burn-autodiff holds a lock on the graph, and at
//! the end of every walk it takes the locks of all graphs for a moment; a thread that takes up a second walk inside of a
//! first would wait for itself.
//!
//! So a walk that is begun on a thread of a rayon pool moves to a pool of ours, which has no other walk and no other work
//! than the kernels of this one:
//!
//! * Its threads run nothing but parts of this walk, so the mark on one of them is on nothing else, and no thread waits
//!   for a lock that it holds itself.
//! * The thread that began the walk waits as rayon's threads do (`install` across pools): it may take up the forward pass
//!   of another model, unmarked, or begin another walk, which moves to yet another pool. It holds no lock of burn-autodiff.
//! * A panic of the walk drops the guard on the thread that has it, then unwinds through `install` on the thread that
//!   began the walk; the pool goes back in between.
//!
//! A thread that is none of rayon's walks in place: kernels make it wait without taking up work.

use std::sync::{Mutex, MutexGuard};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::phase::BackwardGuard;
use crate::record;

/// Runs a walk with the thread that walks marked as being in the backward pass.
pub(super) fn backward<R: Send>(walk: impl FnOnce() -> R + Send) -> R {
    let thread = record::Context::of_this_thread();
    let walk = || {
        let _backward = BackwardGuard::enter();
        thread.enter(|| {
            let gradients = walk();
            record::end_step();
            gradients
        })
    };
    match rayon::current_thread_index() {
        None => walk(),
        Some(_) => Lent::new(rayon::current_num_threads()).install(walk),
    }
}

/// Pools that no walk has, and how many walks have one.
struct Pools {
    idle: Vec<ThreadPool>,
    lent: u32,
}

static POOLS: Mutex<Pools> = Mutex::new(Pools {
    idle: Vec::new(),
    lent: 0,
});

fn pools() -> MutexGuard<'static, Pools> {
    POOLS.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// A pool for one walk.
struct Lent {
    /// There until it goes back.
    pool: Option<ThreadPool>,
}

impl Lent {
    /// A pool of as many threads as the caller's, halved for each walk that is on its way: many small pools where many
    /// models train at once, and less than three times the caller's threads in all.
    fn new(threads: usize) -> Self {
        let mut pools = pools();
        let share = threads.checked_shr(pools.lent).unwrap_or(0).max(1);
        let fitting = pools.idle.iter().enumerate();
        let fitting = fitting.map(|(at, pool)| (pool.current_num_threads(), at));
        let largest = fitting
            .filter(|(size, _)| (share..=threads).contains(size))
            .max();
        let pool = match largest {
            Some((_, at)) => pools.idle.swap_remove(at),
            None => ThreadPoolBuilder::new()
                .num_threads(share)
                .thread_name(|thread| format!("burn-mx-backward-{thread}"))
                .build()
                .unwrap_or_else(|error| {
                    panic!("burn-mx: no threads for a backward pass in a rayon task: {error}")
                }),
        };
        pools.lent += 1;
        Self { pool: Some(pool) }
    }

    fn install<R: Send>(&self, walk: impl FnOnce() -> R + Send) -> R {
        let pool = self
            .pool
            .as_ref()
            .expect("it goes back when this is dropped");
        pool.install(walk)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut pools = pools();
        pools.lent -= 1;
        pools.idle.extend(self.pool.take());
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::phase;

    fn sizes(lent: &[Lent]) -> Vec<usize> {
        let threads = |lent: &Lent| lent.install(rayon::current_num_threads);
        lent.iter().map(threads).collect()
    }

    /// Pools are state of the process: one test.
    #[test]
    fn walks_of_rayon_tasks_have_pools_of_their_own() {
        assert_eq!(backward(rayon::current_thread_index), None, "in place");
        assert!(backward(phase::is_backward));

        let lend = |count: usize| -> Vec<Lent> { (0..count).map(|_| Lent::new(8)).collect() };
        assert_eq!(sizes(&lend(6)), [8, 4, 2, 1, 1, 1]);
        assert_eq!(sizes(&lend(6)), [8, 4, 2, 1, 1, 1], "the same ones");
        assert_eq!(pools().idle.len(), 6);
        assert_eq!(pools().lent, 0);

        let users = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        users.install(|| {
            let begun = thread::current().id();
            let walked = backward(|| {
                assert!(phase::is_backward());
                assert_eq!(rayon::current_num_threads(), 2);
                thread::current().id()
            });
            assert_ne!(begun, walked);
            assert!(!phase::is_backward());
            let panicked = std::panic::catch_unwind(|| backward(|| panic!("in the walk")));
            assert!(panicked.is_err());
            assert!(!phase::is_backward());
        });
        assert_eq!(pools().lent, 0);
        let all = lend(7);
        for pool in &all {
            // Each thread of each pool.
            let marked = |_: rayon::BroadcastContext| phase::is_backward();
            let marked = pool.pool.as_ref().unwrap().broadcast(marked);
            assert!(marked.iter().all(|marked| !marked));
        }
    }
}
