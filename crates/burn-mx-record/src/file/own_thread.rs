//! A separate thread of a recorder, which runs one piece of work after another.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

type Work = Box<dyn FnOnce() + Send>;

/// Channels for work and for its results.
type Channels = (Sender<Work>, Receiver<thread::Result<()>>);

/// A thread that the first piece of work starts, and that ends when this value is dropped.
#[derive(Debug, Default)]
pub(crate) struct OwnThread {
    thread: Option<Channels>,
    /// Whether a piece of work has begun and nobody has waited for it.
    is_working: bool,
}

impl OwnThread {
    /// Runs `work` on the thread while the caller continues. Waits for the previous piece of work first.
    pub(crate) fn begin(&mut self, work: impl FnOnce() + Send + 'static) {
        self.wait();
        let (pieces, _) = self.thread.get_or_insert_with(start);
        let sent = pieces.send(Box::new(work));
        sent.expect("the thread ends when nobody has work for it any more");
        self.is_working = true;
    }

    /// Waits until the work is done.
    ///
    /// # Panics
    ///
    /// If the work panicked, unless this thread is panicking already.
    pub(crate) fn wait(&mut self) {
        let (true, Some((_, done))) = (self.is_working, &self.thread) else {
            return;
        };
        self.is_working = false;
        let result = done.recv().expect("the thread tells of each piece of work");
        if let Err(panic) = result
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

fn start() -> Channels {
    let (pieces, work) = channel::<Work>();
    let (done, results) = channel();
    let run = move || {
        for piece in work {
            let result = catch_unwind(AssertUnwindSafe(piece));
            if done.send(result).is_err() {
                return;
            }
        }
    };
    let thread = thread::Builder::new().name("burn-mx-recorder".into());
    thread
        .spawn(run)
        .unwrap_or_else(|error| panic!("burn-mx: the recorder's thread did not start: {error}"));
    (pieces, results)
}
