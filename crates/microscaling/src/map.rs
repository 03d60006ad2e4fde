//! Elementwise loops over memory, for callers that compute something between two roundings.

use crate::dispatch::{Kernel, dispatch};
use crate::parallel::{PARALLEL_THRESHOLD, join, threads};

/// Replaces every number by a function of it.
///
/// Large slices are shared among the threads of the current rayon pool (feature `std`), and what can be
/// inlined of `function` (mark closures that matter `#[inline(always)]`) is compiled for the widest vectors
/// of the processor. IEEE arithmetic gives the same bits everywhere; NaN, Inf and zero are up to `function`.
pub fn map_in_place(data: &mut [f32], function: impl Fn(f32) -> f32 + Copy + Send + Sync) {
    if data.len() < PARALLEL_THRESHOLD || threads() == 1 {
        return dispatch(Map { data, function });
    }
    let (low, high) = data.split_at_mut(data.len() / 2);
    join(
        || map_in_place(low, function),
        || map_in_place(high, function),
    );
}

/// Replaces every number by a function of it and of the number at its place in `other`; otherwise as
/// [`map_in_place`].
///
/// # Panics
/// If the slices differ in length.
pub fn zip_in_place(
    data: &mut [f32],
    other: &[f32],
    function: impl Fn(f32, f32) -> f32 + Copy + Send + Sync,
) {
    assert_eq!(data.len(), other.len(), "zip_in_place: lengths differ");
    if data.len() < PARALLEL_THRESHOLD || threads() == 1 {
        return dispatch(Zip {
            data,
            other,
            function,
        });
    }
    let middle = data.len() / 2;
    let (low, high) = data.split_at_mut(middle);
    let (other_low, other_high) = other.split_at(middle);
    join(
        || zip_in_place(low, other_low, function),
        || zip_in_place(high, other_high, function),
    );
}

struct Map<'a, F> {
    data: &'a mut [f32],
    function: F,
}

impl<F: Fn(f32) -> f32> Kernel for Map<'_, F> {
    #[inline(always)]
    fn run(self) {
        for x in self.data {
            *x = (self.function)(*x);
        }
    }
}

struct Zip<'a, F> {
    data: &'a mut [f32],
    other: &'a [f32],
    function: F,
}

impl<F: Fn(f32, f32) -> f32> Kernel for Zip<'_, F> {
    #[inline(always)]
    fn run(self) {
        for (x, y) in self.data.iter_mut().zip(self.other) {
            *x = (self.function)(*x, *y);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn every_element_once_on_any_length() {
        for length in [0, 1, 7, 4097, 2 * PARALLEL_THRESHOLD + 5] {
            let other: Vec<f32> = (0..length).map(|i| i as f32).collect();
            let mut data = other.clone();
            map_in_place(&mut data, |x| x + 1.0);
            zip_in_place(&mut data, &other, |x, y| x - 2.0 * y);
            assert!((0..length).all(|i| data[i] == 1.0 - i as f32), "{length}");
        }
    }

    #[test]
    #[should_panic(expected = "lengths differ")]
    fn lengths_must_agree() {
        zip_in_place(&mut [1.0], &[], |x, _| x);
    }
}
