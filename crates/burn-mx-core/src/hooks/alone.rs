//! Threads that run one piece of work and nothing else.
//!
//! A diagnosis, a scope, a listener, a backward pass: each marks its thread, and every op of that thread reads the mark. A
//! thread of a rayon pool must not be marked so. While such a thread waits for the other parts of a kernel, it takes the next
//! task of its pool, which may be another model's. So a piece of work that marks its thread is run [`alone`]. A piece that
//! begins on a thread of a rayon pool moves to a pool of this crate, whose only tasks are the kernels of this piece:
//!
//! * Its threads run nothing but parts of this piece, so a mark on one of them is on nothing else.
//! * The thread that began the piece sleeps until the piece is over. If the thread waited as rayon's threads do
//!   (`install` across pools), it would take up the next task. That task begins a piece, too, and waits with yet another task:
//!   one stack would hold a frame of every task. The pool of a piece needs none of the threads that sleep.
//! * A panic drops the marks on the thread that has them, returns the pool, and goes on in the thread that began the
//!   piece.
//!
//! A thread that is none of rayon's runs the piece in place: kernels make it wait without taking up work.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard};
use std::thread;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::hooks::Thread;

thread_local! {
    /// Whether this thread is one of a pool of ours.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Runs a piece of work on a thread that runs nothing else meanwhile, for work that marks its thread. Outside of rayon's pools
/// this is the calling thread. In a task of a rayon pool, a thread of this crate does the work while the calling thread sleeps.
pub fn alone<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    if rayon::current_thread_index().is_none() || IS_OURS.get() {
        return work();
    }
    let thread_of_work = Thread::current();
    Lent::new(rayon::current_num_threads()).install(|| thread_of_work.enter(work))
}

/// Pools that no piece of work has, and how many pieces have one.
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

/// A pool for one piece of work.
struct Lent {
    /// There until it goes back.
    pool: Option<ThreadPool>,
}

impl Lent {
    /// A pool of as many threads as the caller's pool, halved for each piece that is running. Many models that train at
    /// once get many small pools, with less than three times the caller's threads in all.
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
                .thread_name(|thread| format!("burn-mx-alone-{thread}"))
                .start_handler(|_| IS_OURS.set(true))
                .build()
                .unwrap_or_else(|error| {
                    panic!(
                        "burn-mx: the thread pool for work in a rayon task did not start: {error}"
                    )
                }),
        };
        pools.lent += 1;
        Self { pool: Some(pool) }
    }

    /// Runs `work` on a thread of the pool, while this one sleeps.
    fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let pool = self
            .pool
            .as_ref()
            .expect("it goes back when this is dropped");
        // A thread of rayon's would wait otherwise.
        let done = thread::scope(|scope| scope.spawn(|| pool.install(work)).join());
        done.unwrap_or_else(|panic| resume_unwind(panic))
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
    use super::*;

    thread_local! {
        static MARK: Cell<bool> = const { Cell::new(false) };
    }

    fn sizes(lent: &[Lent]) -> Vec<usize> {
        let threads = |lent: &Lent| lent.install(rayon::current_num_threads);
        lent.iter().map(threads).collect()
    }

    /// Pools are state of the process: one test.
    #[test]
    fn pieces_of_rayon_tasks_have_pools_of_their_own() {
        assert_eq!(alone(rayon::current_thread_index), None, "in place");

        let lend = |count: usize| -> Vec<Lent> { (0..count).map(|_| Lent::new(8)).collect() };
        assert_eq!(sizes(&lend(6)), [8, 4, 2, 1, 1, 1]);
        assert_eq!(sizes(&lend(6)), [8, 4, 2, 1, 1, 1], "the same ones");
        assert_eq!(pools().idle.len(), 6);
        assert_eq!(pools().lent, 0);

        let users = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        users.install(|| {
            let begun = thread::current().id();
            let (moved, inside) = alone(|| {
                MARK.set(true);
                let marked = rayon::broadcast(|_| MARK.replace(false));
                assert_eq!(marked.iter().filter(|marked| **marked).count(), 1);
                assert_eq!(marked.len(), 2);
                let here = || thread::current().id();
                (here(), alone(here))
            });
            assert!(!MARK.get());
            assert_ne!(begun, moved);
            assert_eq!(moved, inside, "a piece of a piece");
            let panicked = std::panic::catch_unwind(|| alone(|| panic!("in the piece")));
            assert!(panicked.is_err());
        });
        assert_eq!(pools().lent, 0);
    }
}
