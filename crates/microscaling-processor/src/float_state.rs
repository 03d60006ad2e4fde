//! The float state of a thread: libraries set flush-to-zero in threads that they do not own.
//!
//! Rust's float arithmetic is defined in IEEE 754's default state alone. The same holds for integer comparisons of float
//! patterns, which the compiler may turn into float comparisons.

/// Calls `work` in IEEE 754's default state: subnormals are kept, as operands and as results, and rounding is to nearest,
/// half to even. The thread's own state is back afterwards. `work` must not wait for other threads: foreign work would run
/// here meanwhile.
#[inline]
pub fn ieee<T>(work: impl FnOnce() -> T) -> T {
    let state = control::read();
    if state & control::NOT_IEEE == 0 {
        return work();
    }
    in_default_state(state, work)
}

#[cold]
#[inline(never)]
fn in_default_state<T>(state: control::Word, work: impl FnOnce() -> T) -> T {
    struct Restore(control::Word);
    impl Drop for Restore {
        fn drop(&mut self) {
            control::write(self.0);
        }
    }
    let _restore = Restore(state);
    control::write(state & !control::NOT_IEEE);
    called(work)
}

/// A call that no arithmetic is moved out of.
#[inline(never)]
fn called<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[cfg(target_arch = "x86_64")]
mod control {
    use core::arch::asm;

    /// `MXCSR`.
    pub(super) type Word = u32;

    /// Flush to zero, rounding control, denormals are zeros.
    pub(super) const NOT_IEEE: Word = 0x8000 | 0x6000 | 0x0040;

    #[inline(always)]
    pub(super) fn read() -> Word {
        let mut word = 0;
        // SAFETY: four bytes are written, which are there.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags)) };
        word
    }

    #[inline(always)]
    pub(super) fn write(word: Word) {
        // SAFETY: four bytes are read, which are there; the word is one that was read, but for bits that may be 0.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod control {
    use core::arch::asm;

    /// `FPCR`.
    pub(super) type Word = u64;

    /// Flush to zero (also of operands alone), alternate handling, rounding mode.
    pub(super) const NOT_IEEE: Word = 1 << 24 | 3 << 22 | 1 << 19 | 3;

    #[inline(always)]
    pub(super) fn read() -> Word {
        let word;
        // SAFETY: the register is read.
        unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nomem, nostack, preserves_flags)) };
        word
    }

    #[inline(always)]
    pub(super) fn write(word: Word) {
        // SAFETY: the word is one that was read, but for bits that may be 0. Memory is clobbered, so that no load moves.
        unsafe { asm!("msr fpcr, {}", in(reg) word, options(nostack, preserves_flags)) };
    }
}

/// Processors whose state this crate does not know.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod control {
    pub(super) type Word = u32;

    pub(super) const NOT_IEEE: Word = 0;

    pub(super) fn read() -> Word {
        0
    }

    pub(super) fn write(_: Word) {}
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use core::hint::black_box;

    #[test]
    fn the_state_is_the_default_inside_and_the_threads_own_outside() {
        let before = control::read();
        let halved = || black_box(f32::MIN_POSITIVE) * black_box(0.5);
        for bit in [15, 6] {
            control::write(before & !control::NOT_IEEE | 1 << bit);
            let inside = ieee(|| (halved(), black_box(f32::from_bits(1)) > black_box(0.0)));
            assert_eq!((inside.0.to_bits(), inside.1), (1 << 22, true));
            assert_eq!(control::read() & control::NOT_IEEE, 1 << bit);
        }
        control::write(before & !control::NOT_IEEE | 2 << 13);
        assert_eq!(ieee(|| black_box(1.0_f32) + black_box(1e-9)), 1.0);
        assert_eq!(control::read() & control::NOT_IEEE, 2 << 13);
        let panics = std::panic::catch_unwind(|| ieee(|| panic!("in the default state")));
        assert!(panics.is_err() && control::read() & control::NOT_IEEE == 2 << 13);
        control::write(before);
    }
}
