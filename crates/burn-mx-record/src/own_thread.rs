//! A thread of a recorder's own, which does one piece of work after the other.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

type Work = Box<dyn FnOnce() + Send>;

/// What to do, and what came of it.
type Channels = (Sender<Work>, Receiver<thread::Result<()>>);

/// The thread, which is started by the first piece of work and ends when this is dropped.
#[derive(Debug, Default)]
pub(super) struct OwnThread {
    thread: Option<Channels>,
    /// Whether a piece of work was begun and not waited for.
    is_working: bool,
}

impl OwnThread {
    /// Has `work` done while this thread goes on, after the piece before it.
    pub(super) fn begin(&mut self, work: impl FnOnce() + Send + 'static) {
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
    /// If the work did, unless this thread panics already.
    pub(super) fn wait(&mut self) {
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
        .unwrap_or_else(|error| panic!("burn-mx: no thread for the recorder: {error}"));
    (pieces, results)
}
