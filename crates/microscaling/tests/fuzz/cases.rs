//! The run of random cases: pools of threads, the time, and the message of a case that fails.

use crate::float_state::{flushing, ieee};
use crate::random::Random;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pools of which one has threads with subnormals, the other threads without.
static POOLS: LazyLock<Vec<[ThreadPool; 2]>> = LazyLock::new(|| {
    let pool = |threads| {
        let build = || ThreadPoolBuilder::new().num_threads(threads).build();
        [ieee(build), flushing(build)].map(|pool| pool.expect("threads can be had"))
    };
    [1, 2, 3, 7].map(pool).into()
});

/// Where the calls of a case run.
pub(crate) struct Place {
    pool: &'static ThreadPool,
    /// Whether the calling thread is one of the pool's, and if not, whether it flushes.
    inside: bool,
    flushes: bool,
}

impl Place {
    pub(crate) fn of(random: &mut Random) -> Self {
        let pools = &POOLS[random.below(POOLS.len())];
        Self {
            pool: &pools[random.below(2)],
            inside: random.one_in(2),
            flushes: random.one_in(2),
        }
    }

    pub(crate) fn call<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match (self.inside, self.flushes) {
            (true, _) => self.pool.install(work),
            (false, true) => flushing(work),
            (false, false) => ieee(work),
        }
    }
}

/// Asserts that all bits are the same; the message names the first difference.
pub(crate) fn assert_same(got: &[f32], expected: &[f32], what: &dyn Fn(usize) -> String) {
    assert_eq!(got.len(), expected.len());
    for (at, (got, expected)) in got.iter().zip(expected).enumerate() {
        let [a, b] = [got, expected].map(|x| x.to_bits());
        assert!(
            a == b,
            "{}: {got:e} ({a:#x}), not {expected:e} ({b:#x})",
            what(at)
        );
    }
}

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is `{value}`, expected a whole number")))
}

/// Random cases, from seeds that no run had before. `package` has the test.
pub(crate) fn run(package: &str, case: fn(u64)) {
    if let Some(seed) = variable("MICROSCALING_FUZZ_SEED") {
        return case(seed);
    }
    let seconds = variable("MICROSCALING_FUZZ_SECONDS").unwrap_or(10);
    let end = Instant::now() + Duration::from_secs(seconds);
    let since_1970 = std::time::UNIX_EPOCH.elapsed();
    let next = AtomicU64::new(since_1970.map_or(0, |time| time.as_nanos() as u64));
    let (first, failed) = (next.load(Ordering::Relaxed), AtomicBool::new(false));
    let work = || {
        while Instant::now() < end && !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if catch_unwind(AssertUnwindSafe(|| case(seed))).is_err() {
                failed.store(true, Ordering::Relaxed);
                eprintln!(
                    "this case again: MICROSCALING_FUZZ_SEED={seed} cargo test --release -p {package} --all-features \
                     --test fuzz"
                );
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let cases = next.load(Ordering::Relaxed) - first;
    println!("{cases} cases from seed {first} on");
    assert!(!failed.load(Ordering::Relaxed), "a case failed, see above");
}
