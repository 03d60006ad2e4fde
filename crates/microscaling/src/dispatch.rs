//! One source, several instruction sets: a kernel is compiled for each and the best one that the
//! processor has is called.

/// A loop over memory. `run` must be `#[inline(always)]`, and so must all that matters in it: only
/// what is inlined is compiled for the instruction set of the caller.
///
/// All results are made of integer operations and exact conversions, so that every instruction set
/// gives the same bits.
pub(crate) trait Kernel {
    /// Does the work.
    fn run(self);
}

/// What a kernel is compiled for, from the least to the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// The features that every processor of the target has: SSE2 on x86-64, NEON on AArch64.
    Baseline,
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    Avx2,
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    Avx512,
}

impl Level {
    /// The best one of this processor.
    #[inline]
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
}

/// Runs a kernel with the widest vectors of this processor.
#[inline]
pub(crate) fn dispatch<K: Kernel>(kernel: K) {
    let level = Level::best();
    #[cfg(all(test, feature = "std"))]
    let level = forced::level().unwrap_or(level);
    match level {
        Level::Baseline => kernel.run(),
        // SAFETY: the processor has all features that the function is compiled for.
        #[cfg(all(target_arch = "x86_64", feature = "std"))]
        Level::Avx2 => unsafe { run_avx2(kernel) },
        // SAFETY: the processor has all features that the function is compiled for.
        #[cfg(all(target_arch = "x86_64", feature = "std"))]
        Level::Avx512 => unsafe { run_avx512(kernel) },
    }
}

/// # Safety
/// The processor must have the named features.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn run_avx512<K: Kernel>(kernel: K) {
    kernel.run()
}

/// # Safety
/// The processor must have the named feature.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
#[target_feature(enable = "avx2")]
unsafe fn run_avx2<K: Kernel>(kernel: K) {
    kernel.run()
}

/// Tests choose what kernels are compiled for, in their own thread.
#[cfg(all(test, feature = "std"))]
mod forced {
    use super::Level;
    use std::cell::Cell;

    std::thread_local! {
        static LEVEL: Cell<Option<Level>> = const { Cell::new(None) };
    }

    pub(super) fn level() -> Option<Level> {
        LEVEL.get()
    }

    impl Level {
        /// All that this processor has.
        pub(crate) fn available() -> Vec<Self> {
            let all = [
                Self::Baseline,
                #[cfg(target_arch = "x86_64")]
                Self::Avx2,
                #[cfg(target_arch = "x86_64")]
                Self::Avx512,
            ];
            all.into_iter()
                .filter(|level| *level <= Self::best())
                .collect()
        }
    }

    /// Runs `work` with all kernels of this thread at `level`, which must be available. Work that is
    /// large enough for other threads is at their own level.
    pub(crate) fn with_level<T>(level: Level, work: impl FnOnce() -> T) -> T {
        assert!(level <= Level::best(), "{level:?} is not available");
        LEVEL.set(Some(level));
        let result = work();
        LEVEL.set(None);
        result
    }
}
#[cfg(all(test, feature = "std"))]
pub(crate) use forced::with_level;

#[cfg(all(test, target_arch = "x86_64", feature = "std"))]
mod tests {
    use super::*;
    use crate::block::BlockRule;
    use crate::kernels::{Blocks, Job, Layout};
    use crate::round::with_rule;
    use crate::{ElementFormat, MxFormat, RandomStream, Rounding};

    /// The same bits from every instruction set that this processor has.
    #[test]
    fn instruction_sets_agree() {
        let stream = RandomStream::new(1, 0);
        let source: Vec<f32> = (0..6 * 70 * 33)
            .map(|i| f32::from_bits(stream.draw(i) & 0xbfff_ffff))
            .collect();
        let run = |layout: Layout, element, rounding, instructions: &str| -> Vec<u32> {
            let mut data = source.clone();
            let format = MxFormat::new(element, 32);
            with_rule!(rounding, rule => {
                let job = Job { rule, block: BlockRule::of(&format), stream };
                let kernel = Blocks { job, layout, data: &mut data, at: 0, start: 0 };
                match instructions {
                    "baseline" => kernel.run(),
                    // SAFETY: the caller has asked the processor for the feature.
                    "avx2" => unsafe { run_avx2(kernel) },
                    _ => dispatch(kernel),
                }
            });
            data.into_iter().map(f32::to_bits).collect()
        };
        let layouts = [
            Layout {
                axis: 70 * 33,
                inner: 1,
                block: 32,
            },
            Layout {
                axis: 70,
                inner: 33,
                block: 32,
            },
            Layout {
                axis: 70 * 11,
                inner: 3,
                block: 32,
            },
        ];
        let mut others = vec!["best"];
        if std::arch::is_x86_feature_detected!("avx2") {
            others.push("avx2");
        }
        for element in ElementFormat::ALL {
            for rounding in Rounding::ALL {
                for layout in layouts {
                    let baseline = run(layout, element, rounding, "baseline");
                    for other in &others {
                        assert!(
                            run(layout, element, rounding, other) == baseline,
                            "{other} {element} {rounding}"
                        );
                    }
                }
            }
        }
    }
}
