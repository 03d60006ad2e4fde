//! The threads that large tensors are shared among.

use rayon::{ThreadPool, ThreadPoolBuilder};
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

/// The pool, and the process that it belongs to.
static POOL: Mutex<Option<(u32, Arc<ThreadPool>)>> = Mutex::new(None);

/// Below this number of elements microscaling uses no other threads.
const LARGE: usize = 1 << 17;

/// Does work on this number of elements, in this process's pool of threads if the number is large.
pub(crate) fn share<T: Send>(elements: usize, work: impl FnOnce() -> T + Send) -> T {
    match elements >= LARGE {
        true => run(work),
        false => work(),
    }
}

/// Does work in this process's pool.
///
/// Why not rayon's global pool: a process that Python forks has the pool, but not the pool's threads, and would wait for them forever.
/// Here a forked process starts a new pool. `RAYON_NUM_THREADS` says how many threads there are; without it there is one for each
/// processor.
pub(crate) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match pool() {
        Some(pool) => pool.install(work),
        // The system has no more threads for us. One is there.
        None => work(),
    }
}

fn pool() -> Option<Arc<ThreadPool>> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let process = process::id();
    if let Some((owner, pool)) = &*pool
        && *owner == process
    {
        return Some(pool.clone());
    }
    let new = Arc::new(ThreadPoolBuilder::new().build().ok()?);
    // The parent's pool is not dropped: its threads, which there are not, would be waited for.
    std::mem::forget(pool.replace((process, new.clone())));
    Some(new)
}
