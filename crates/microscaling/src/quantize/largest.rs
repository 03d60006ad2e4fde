//! The largest magnitude of a block and of a tensor.

use super::block_rule::BlockRule;
use super::instruction_set::{Kernel, dispatch};
use super::threads::share;
use crate::round::bits::ABS;

/// The largest of the counted magnitudes of some elements.
#[inline(always)]
pub(crate) fn counted_max<G: BlockRule>(data: &[f32]) -> u32 {
    data.iter()
        .fold(0, |amax, x| amax.max(G::counted(x.to_bits() & ABS)))
}

/// The largest magnitude of some elements as a pattern: of a NaN or Inf if there is one.
#[inline(always)]
pub(crate) fn magnitude_max(data: &[f32]) -> u32 {
    data.iter().fold(0, |amax, x| amax.max(x.to_bits() & ABS))
}

/// [`magnitude_max`] of a whole tensor, by all threads.
pub(crate) fn largest(data: &[f32]) -> u32 {
    let largest = |data| {
        let mut amax = 0;
        dispatch(Largest {
            data,
            amax: &mut amax,
        });
        amax
    };
    share(data, &largest, &u32::max)
}

/// [`largest`] on one thread.
struct Largest<'a> {
    data: &'a [f32],
    amax: &'a mut u32,
}

impl Kernel for Largest<'_> {
    #[inline(always)]
    fn run(self) {
        *self.amax = magnitude_max(self.data);
    }
}
