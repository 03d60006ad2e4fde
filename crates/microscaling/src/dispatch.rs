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

/// Runs a kernel with the widest vectors of this processor.
#[inline]
pub(crate) fn dispatch<K: Kernel>(kernel: K) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    {
        use std::arch::is_x86_feature_detected as detected;
        if detected!("avx512f")
            && detected!("avx512bw")
            && detected!("avx512dq")
            && detected!("avx512vl")
        {
            // SAFETY: the processor has all features that the function is compiled for.
            return unsafe { run_avx512(kernel) };
        }
        if detected!("avx2") {
            // SAFETY: the processor has the feature that the function is compiled for.
            return unsafe { run_avx2(kernel) };
        }
    }
    kernel.run()
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
