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
