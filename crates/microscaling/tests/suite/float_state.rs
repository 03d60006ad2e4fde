//! The float state of threads, which other libraries set.
//!
//! With `MICROSCALING_FLUSH_TO_ZERO=1` in the environment every thread of the process flushes subnormals to zero, as results
//! and as operands. The main thread sets the state before `main`, and its threads inherit the state. [`ieee`] computes the
//! expected values. (x86-64 on Linux.)

/// Calls with subnormals kept.
pub(crate) fn ieee<T>(work: impl FnOnce() -> T) -> T {
    in_state(false, work)
}

/// Calls with subnormals flushed to zero.
pub(crate) fn flushing<T>(work: impl FnOnce() -> T) -> T {
    in_state(true, work)
}

#[cfg(not(target_arch = "x86_64"))]
fn in_state<T>(_: bool, work: impl FnOnce() -> T) -> T {
    work()
}

/// The state of a flushing thread: flush to zero, and denormals are zeros.
#[cfg(target_arch = "x86_64")]
const FLUSH: u32 = 1 << 15 | 1 << 6;

#[cfg(target_arch = "x86_64")]
fn control() -> u32 {
    let mut word = 0;
    // SAFETY: the pointer is to 4 bytes, which are written.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut word) };
    word
}

#[cfg(target_arch = "x86_64")]
fn set_control(word: u32) {
    // SAFETY: the pointer is to 4 bytes; only the two flush bits are other ones than before.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const word) };
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn in_state<T>(flush: bool, work: impl FnOnce() -> T) -> T {
    struct Restore(u32);
    impl Drop for Restore {
        fn drop(&mut self) {
            set_control(self.0);
        }
    }
    let restore = Restore(control());
    set_control(if flush {
        restore.0 | FLUSH
    } else {
        restore.0 & !FLUSH
    });
    // Lest arithmetic be moved out of here.
    std::hint::black_box(std::hint::black_box(work)())
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod every_thread {
    use super::{FLUSH, control, set_control};

    const VARIABLE: &str = "MICROSCALING_FLUSH_TO_ZERO";

    extern "C" fn set() {
        if std::env::var_os(VARIABLE).is_some_and(|value| value == "1") {
            set_control(control() | FLUSH);
        }
    }

    #[used]
    // SAFETY: functions of this type stand there, which the loader calls before `main`.
    #[unsafe(link_section = ".init_array")]
    static SET: extern "C" fn() = set;

    /// The variable takes effect, also in threads of a pool.
    #[test]
    fn is_as_the_environment_says() {
        let expected = std::env::var_os(VARIABLE).is_some_and(|value| value == "1");
        let halved = || std::hint::black_box(f32::MIN_POSITIVE) * std::hint::black_box(0.5);
        let flushes = || halved().to_bits() == 0;
        assert_eq!(flushes(), expected);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2);
        let of_threads = pool.build().unwrap().broadcast(|_| flushes());
        assert_eq!(of_threads, [expected; 2]);
    }
}
