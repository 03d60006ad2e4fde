//! Says on stderr which work of a device a program waits for, if that takes long.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// No wait of less time is worth a line.
const LONG: Duration = Duration::from_secs(2);

/// Whether [`show_waits`] turned the lines off.
static HIDDEN: AtomicBool = AtomicBool::new(false);

pub(crate) fn show_waits(on: bool) {
    HIDDEN.store(!on, Ordering::Relaxed);
}

/// Does the work. After two seconds, and again after each doubling of the time, a line on stderr names the work.
pub(super) fn waiting<T>(text: &str, work: impl FnOnce() -> T) -> T {
    waiting_on(
        text,
        LONG,
        &|line| {
            // Nobody may be there to read.
            let _ = writeln!(std::io::stderr(), "{line}");
        },
        work,
    )
}

fn waiting_on<T>(
    text: &str,
    long: Duration,
    say: &(dyn Fn(String) + Sync),
    work: impl FnOnce() -> T,
) -> T {
    // A browser has no threads to wait beside.
    if cfg!(target_family = "wasm") || HIDDEN.load(Ordering::Relaxed) {
        return work();
    }
    let began = Instant::now();
    thread::scope(|scope| {
        let (end, ended) = mpsc::channel::<()>();
        // If the system has no thread left, the work is done without lines.
        let _ = thread::Builder::new().spawn_scoped(scope, move || {
            let mut pause = long;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let seconds = began.elapsed().as_secs_f64();
                say(format!("burn-mx waits since {seconds:.0} s: {text}"));
                pause = began.elapsed();
            }
            if pause > long {
                let seconds = began.elapsed().as_secs_f64();
                say(format!("burn-mx waited {seconds:.1} s: {text}"));
            }
        });
        // The thread ends with the sender, also if the work panics.
        let _end = end;
        work()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn lines_of(long: u64, work: u64) -> Vec<String> {
        let lines = Mutex::new(Vec::new());
        let [long, work] = [long, work].map(Duration::from_millis);
        let say = |line| lines.lock().unwrap().push(line);
        let result = waiting_on("a product", long, &say, || {
            thread::sleep(work);
            7
        });
        assert_eq!(result, 7);
        lines.into_inner().unwrap()
    }

    #[test]
    fn only_long_waits_are_said() {
        assert_eq!(lines_of(10_000, 1), [""; 0]);
        // At 50, 100, 200 and 400 ms, and at the end; a busy machine may miss some.
        let lines = lines_of(50, 600);
        assert!((2..=5).contains(&lines.len()), "{lines:?}");
        let (last, others) = lines.split_last().unwrap();
        assert!(
            last.starts_with("burn-mx waited 0.") || last.starts_with("burn-mx waited 1."),
            "{last}"
        );
        assert!(
            others
                .iter()
                .all(|line| line == "burn-mx waits since 0 s: a product"
                    || line == "burn-mx waits since 1 s: a product"),
            "{others:?}"
        );
    }

    #[test]
    fn a_panic_goes_on() {
        let panicked = std::panic::catch_unwind(|| waiting_on("", LONG, &|_| {}, || panic!("yes")));
        assert!(panicked.is_err());
    }
}
