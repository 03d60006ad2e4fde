//! One source, several instruction sets: a kernel is compiled for each, and the processor's best version is called.

use super::float_state::ieee;

/// A loop over memory. `run` must be `#[inline(always)]`, and so must every function in its inner loop: only inlined
/// code is compiled for the instruction set of the caller.
///
/// All results are made of integer operations and IEEE float operations, so that every instruction set
/// gives the same bits. [`dispatch`] runs it in [IEEE's default state](super::float_state).
pub trait Kernel {
    /// Does the work.
    fn run(self);

    /// [`run`](Self::run), compiled once for what every processor has. The three are methods of the kernel's, not functions here:
    /// the compiler puts a kernel's code into the unit of its module, and compiles units at the same time.
    #[inline(never)]
    fn run_baseline(self)
    where
        Self: Sized,
    {
        self.run();
    }

    /// [`run`](Self::run) with AVX2.
    ///
    /// # Safety
    /// The processor must have the named feature.
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    #[target_feature(enable = "avx2")]
    #[inline(never)]
    unsafe fn run_avx2(self)
    where
        Self: Sized,
    {
        self.run();
    }

    /// [`run`](Self::run) with AVX-512.
    ///
    /// # Safety
    /// The processor must have the named features.
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline(never)]
    unsafe fn run_avx512(self)
    where
        Self: Sized,
    {
        self.run();
    }
}

/// A closure as a kernel. Mark the closure `#[inline(always)]`.
///
/// Not `FnOnce`: the compiler calls most closures by a function in between then, which is not inlined, and so is compiled for the
/// baseline.
impl<F: FnMut()> Kernel for F {
    #[inline(always)]
    fn run(mut self) {
        self();
    }
}

/// The instruction sets that kernels are compiled for, from the least to the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The features that every processor of the target has: SSE2 on x86-64, NEON on AArch64.
    Baseline,
    /// AVX2.
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    Avx512,
}

/// Names the instruction set that all kernels use.
#[cfg(feature = "std")]
const VARIABLE: &str = "MICROSCALING_LEVEL";

impl Level {
    /// The best one of this processor.
    fn best() -> Self {
        #[cfg(all(target_arch = "x86_64", feature = "std"))]
        {
            use std::arch::is_x86_feature_detected as detected;
            if detected!("avx512f")
                && detected!("avx512bw")
                && detected!("avx512dq")
                && detected!("avx512vl")
            {
                return Self::Avx512;
            }
            if detected!("avx2") {
                return Self::Avx2;
            }
        }
        Self::Baseline
    }

    /// The one to use: the best one, unless the environment names another, which is looked at once.
    ///
    /// # Panics
    /// If the environment names an instruction set that this processor does not have.
    #[cfg(feature = "std")]
    #[inline]
    fn current() -> Self {
        static LEVEL: std::sync::OnceLock<Level> = std::sync::OnceLock::new();
        *LEVEL.get_or_init(|| match std::env::var_os(VARIABLE) {
            None => Self::best(),
            Some(name) => {
                let name = name.to_string_lossy();
                Self::named(&name, Self::best()).unwrap_or_else(|error| panic!("{error}"))
            }
        })
    }

    #[cfg(not(feature = "std"))]
    #[inline]
    fn current() -> Self {
        Self::best()
    }

    /// The instruction sets of this processor, from the least to the best.
    #[cfg(feature = "std")]
    pub fn available() -> impl Iterator<Item = Self> {
        Self::up_to(Self::best()).map(|(_, level)| level)
    }

    /// Every instruction set up to `best`, with its name.
    #[cfg(feature = "std")]
    fn up_to(best: Self) -> impl Iterator<Item = (&'static str, Self)> {
        let all = [
            ("baseline", Self::Baseline),
            #[cfg(target_arch = "x86_64")]
            ("avx2", Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            ("avx512", Self::Avx512),
        ];
        all.into_iter().filter(move |(_, level)| *level <= best)
    }

    /// The instruction set of this name, or an error if a processor whose best one is `best` lacks it.
    #[cfg(feature = "std")]
    fn named(name: &str, best: Self) -> Result<Self, String> {
        let mut levels = Self::up_to(best);
        let named = levels.find(|(of_level, _)| *of_level == name);
        named.map(|(_, level)| level).ok_or_else(|| {
            let allowed: Vec<&str> = Self::up_to(best).map(|(name, _)| name).collect();
            let allowed = allowed.join(", ");
            format!("{VARIABLE} is `{name}`; allowed on this processor: {allowed}")
        })
    }
}

/// Runs a kernel with the widest vectors of this processor, or with the instruction set that the environment names.
#[inline]
pub fn dispatch<K: Kernel>(kernel: K) {
    at_level(move |level| level.run(kernel));
}

/// Does work that [runs](Level::run) kernels, in [IEEE's default state](super::float_state).
#[inline]
pub fn at_level<T>(work: impl FnOnce(Level) -> T) -> T {
    #[cfg(feature = "std")]
    let level = CHOSEN.get().unwrap_or_else(Level::current);
    #[cfg(not(feature = "std"))]
    let level = Level::current();
    ieee(move || work(level))
}

impl Level {
    /// Runs a kernel. A kernel may run others, each of which is compiled once for this instruction set.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) {
        match self {
            Self::Baseline => kernel.run_baseline(),
            // SAFETY: the processor has all features that the function is compiled for.
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            Self::Avx2 => unsafe { kernel.run_avx2() },
            // SAFETY: the processor has all features that the function is compiled for.
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            Self::Avx512 => unsafe { kernel.run_avx512() },
        }
    }
}

#[cfg(feature = "std")]
std::thread_local! {
    /// The choice of [`with_level`].
    static CHOSEN: core::cell::Cell<Option<Level>> = const { core::cell::Cell::new(None) };
}

/// Calls `work` with all kernels of this thread at `level`. Tests compare levels so. Work that is large enough for other
/// threads is at their own level.
///
/// # Panics
/// If the processor lacks the level.
#[cfg(feature = "std")]
pub fn with_level<T>(level: Level, work: impl FnOnce() -> T) -> T {
    struct Restore(Option<Level>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CHOSEN.set(self.0);
        }
    }
    assert!(level <= Level::best(), "{level:?} is not available");
    let _restore = Restore(CHOSEN.replace(Some(level)));
    work()
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for best in Level::available() {
            for (name, level) in Level::up_to(best) {
                assert_eq!(Level::named(name, best), Ok(level));
            }
            assert_eq!(Level::named("baseline", best), Ok(Level::Baseline));
        }
        for name in ["avx2", "AVX512", ""] {
            assert_eq!(
                Level::named(name, Level::Baseline).unwrap_err(),
                format!("MICROSCALING_LEVEL is `{name}`; allowed on this processor: baseline")
            );
        }
    }

    #[test]
    fn a_choice_ends_with_its_work() {
        let level = || at_level(|level| level);
        let usual = level();
        with_level(Level::Baseline, || {
            assert_eq!(level(), Level::Baseline);
            let panics = std::panic::catch_unwind(|| {
                with_level(Level::best(), || panic!("at another level"))
            });
            assert!(panics.is_err());
            assert_eq!(level(), Level::Baseline);
        });
        assert_eq!(level(), usual);
    }

    #[test]
    fn a_closure_is_a_kernel() {
        for level in Level::available() {
            let mut sum = 0;
            with_level(level, || dispatch(|| sum += 1));
            assert_eq!(sum, 1);
        }
    }
}
