//! Work that is done beside what a program computes, one piece after the other.
//!
//! Waking a thread for each piece would cost the caller more time than most pieces take. So one thread works off the pieces
//! that have gathered. The thread belongs to a rayon pool of this crate, whose threads share large pieces. A thread of the
//! program's pool would take up the program's tasks in the middle of a piece, and such a task may wait for the same piece.

use std::collections::VecDeque;
use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// The result of the work, or its panic.
#[derive(Debug)]
pub(crate) struct Awaited<T>(Receiver<thread::Result<T>>);

impl<T> Awaited<T> {
    /// Waits for the result, and takes up no other work meanwhile. A piece of work may wait for earlier pieces.
    pub(crate) fn wait(self) -> thread::Result<T> {
        self.0.recv().expect("a piece of work that panics says so")
    }
}

/// Runs `work` after all earlier pieces.
#[cfg_attr(
    not(feature = "host"),
    expect(dead_code, reason = "nothing is computed for a recorder")
)]
pub(crate) fn in_turn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Awaited<T> {
    let (sender, receiver) = sync_channel(1);
    let piece = move || {
        let result = catch_unwind(AssertUnwindSafe(work));
        // Nobody need be there any more who wants to know.
        drop(sender.send(result));
    };
    let is_worked_on = {
        let mut queue = queue();
        queue.waiting.push_back(Box::new(piece));
        replace(&mut queue.is_worked_on, true)
    };
    if !is_worked_on {
        POOL.spawn(work_off);
    }
    Awaited(receiver)
}

/// As many threads as the program's pool has; they sleep where there is no work.
static POOL: LazyLock<ThreadPool> = LazyLock::new(|| {
    let pool = ThreadPoolBuilder::new().thread_name(|thread| format!("burn-mx-beside-{thread}"));
    pool.build().unwrap_or_else(|error| {
        panic!("burn-mx: the recorder's thread pool did not start: {error}")
    })
});

struct Queue {
    waiting: VecDeque<Box<dyn FnOnce() + Send>>,
    /// Whether a thread takes one piece after the other.
    is_worked_on: bool,
}

fn queue() -> MutexGuard<'static, Queue> {
    static QUEUE: Mutex<Queue> = Mutex::new(Queue {
        waiting: VecDeque::new(),
        is_worked_on: false,
    });
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work_off() {
    loop {
        let next = {
            let mut queue = queue();
            queue.is_worked_on = !queue.waiting.is_empty();
            queue.waiting.pop_front()
        };
        match next {
            Some(work) => work(),
            None => return,
        }
    }
}
