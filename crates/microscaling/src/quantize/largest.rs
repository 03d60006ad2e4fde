//! The largest magnitude of some elements and of a tensor, as a pattern: of a NaN or Inf if there is one.

use crate::round::bits::ABS;
use microscaling_processor::instruction_set::{Kernel, dispatch};
use microscaling_processor::threads::share;

/// The largest magnitude of some elements.
#[inline(always)]
pub(crate) fn magnitude_max(data: &[f32]) -> u32 {
    data.iter().fold(0, |amax, x| amax.max(x.to_bits() & ABS))
}

/// [`magnitude_max`] as a kernel.
pub(super) struct MagnitudeMax<'a> {
    pub(super) data: &'a [f32],
    pub(super) amax: &'a mut u32,
}

impl Kernel for MagnitudeMax<'_> {
    #[inline(always)]
    fn run(self) {
        *self.amax = magnitude_max(self.data);
    }
}

/// The largest magnitude of a whole tensor. By all threads.
pub fn largest(data: &[f32]) -> u32 {
    largest_of(
        data,
        #[inline(always)]
        |x| x.to_bits(),
    )
}

/// [`largest`] of elements that `pattern` makes float32 patterns of. `pattern` must be `#[inline(always)]`.
pub(crate) fn largest_of<T: Copy + Sync>(
    data: &[T],
    pattern: impl Fn(T) -> u32 + Copy + Sync,
) -> u32 {
    let largest = |data| {
        let mut amax = 0;
        dispatch(Largest {
            data,
            pattern,
            amax: &mut amax,
        });
        amax
    };
    share(data, &largest, &u32::max)
}

/// [`largest_of`] on one thread.
struct Largest<'a, T, P> {
    data: &'a [T],
    pattern: P,
    amax: &'a mut u32,
}

impl<T: Copy, P: Fn(T) -> u32> Kernel for Largest<'_, T, P> {
    #[inline(always)]
    fn run(self) {
        let magnitudes = self.data.iter().map(
            #[inline(always)]
            |x| (self.pattern)(*x) & ABS,
        );
        *self.amax = magnitudes.fold(0, u32::max);
    }
}
