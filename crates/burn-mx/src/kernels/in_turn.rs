//! Work that a thread of rayon's pool does while this one goes on, one piece after the other.
//!
//! To wake a thread for each piece would take the one that asks longer than many a piece takes the other. A large piece is
//! shared by the pool's threads all the same.

use std::collections::VecDeque;
use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rayon::Yield;

/// What comes of the work, or the panic that it ended with.
#[derive(Debug)]
pub(crate) struct Awaited<T>(Receiver<thread::Result<T>>);

impl<T> Awaited<T> {
    /// Waits for it. A thread of the pool, which may be the one that is waited for, works meanwhile.
    pub(crate) fn wait(self) -> thread::Result<T> {
        loop {
            match self.0.try_recv() {
                Err(TryRecvError::Empty) => {}
                Ok(result) => return result,
                Err(TryRecvError::Disconnected) => break,
            }
            match rayon::yield_now() {
                Some(Yield::Executed) => {}
                Some(Yield::Idle) => thread::sleep(Duration::from_micros(50)),
                None => break,
            }
        }
        self.0.recv().expect("a piece of work that panics says so")
    }
}

/// Has `work` done after all that was given before it.
#[cfg_attr(
    not(any(
        feature = "flex",
        feature = "ndarray",
        feature = "tch",
        feature = "record"
    )),
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
        rayon::spawn(work_off);
    }
    Awaited(receiver)
}

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
