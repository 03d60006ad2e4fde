//! Elementwise loops over memory, for callers that compute something between two roundings.

use crate::quantize::instruction_set::{Kernel, dispatch};
use crate::quantize::threads::{PARALLEL_THRESHOLD, join, threads};

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

/// Calls `function` on every row, a run of `length` numbers; otherwise as [`map_in_place`].
///
/// # Panics
/// If `length` does not divide that of `data`.
pub fn rows_in_place(
    data: &mut [f32],
    length: usize,
    function: impl Fn(&mut [f32]) + Copy + Send + Sync,
) {
    let rows = rows(data.len(), length);
    if data.len() < PARALLEL_THRESHOLD || rows < 2 || threads() == 1 {
        return dispatch(Rows {
            data,
            length,
            function,
        });
    }
    let (low, high) = data.split_at_mut(rows / 2 * length);
    join(
        || rows_in_place(low, length, function),
        || rows_in_place(high, length, function),
    );
}

/// Calls `function` on every pair of rows of two tensors of the same size; otherwise as
/// [`rows_in_place`].
///
/// # Panics
/// If `length` does not divide the length of both, which are the same.
pub fn row_pairs_in_place(
    first: &mut [f32],
    second: &mut [f32],
    length: usize,
    function: impl Fn(&mut [f32], &mut [f32]) + Copy + Send + Sync,
) {
    assert_eq!(
        first.len(),
        second.len(),
        "row_pairs_in_place: lengths differ"
    );
    let rows = rows(first.len(), length);
    if first.len() < PARALLEL_THRESHOLD || rows < 2 || threads() == 1 {
        return dispatch(RowPairs {
            first,
            second,
            length,
            function,
        });
    }
    let (first_low, first_high) = first.split_at_mut(rows / 2 * length);
    let (second_low, second_high) = second.split_at_mut(rows / 2 * length);
    join(
        || row_pairs_in_place(first_low, second_low, length, function),
        || row_pairs_in_place(first_high, second_high, length, function),
    );
}

fn rows(elements: usize, length: usize) -> usize {
    assert!(
        elements == 0 || length > 0 && elements.is_multiple_of(length),
        "rows of {length} do not make up {elements} elements"
    );
    elements.checked_div(length).unwrap_or(0)
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

struct Rows<'a, F> {
    data: &'a mut [f32],
    length: usize,
    function: F,
}

impl<F: Fn(&mut [f32])> Kernel for Rows<'_, F> {
    #[inline(always)]
    fn run(self) {
        for row in self.data.chunks_exact_mut(self.length.max(1)) {
            (self.function)(row);
        }
    }
}

struct RowPairs<'a, F> {
    first: &'a mut [f32],
    second: &'a mut [f32],
    length: usize,
    function: F,
}

impl<F: Fn(&mut [f32], &mut [f32])> Kernel for RowPairs<'_, F> {
    #[inline(always)]
    fn run(self) {
        let length = self.length.max(1);
        let second = self.second.chunks_exact_mut(length);
        for (first, second) in self.first.chunks_exact_mut(length).zip(second) {
            (self.function)(first, second);
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
    fn every_row_once() {
        for (rows, length) in [(0, 3), (1, 5), (3, 1), (PARALLEL_THRESHOLD / 50, 101)] {
            let mut first: Vec<f32> = (0..rows * length).map(|i| i as f32).collect();
            let mut second = first.clone();
            rows_in_place(&mut first, length, |row| {
                assert_eq!(row.len(), length);
                row.reverse();
            });
            row_pairs_in_place(&mut first, &mut second, length, |first, second| {
                second.reverse();
                assert_eq!(first, second);
                first.fill(1.0);
            });
            assert!(first.iter().all(|&x| x == 1.0));
        }
    }

    #[test]
    #[should_panic(expected = "rows of 2 do not make up 3 elements")]
    fn rows_must_be_whole() {
        rows_in_place(&mut [1.0; 3], 2, |_| ());
    }

    #[test]
    #[should_panic(expected = "lengths differ")]
    fn lengths_must_agree() {
        zip_in_place(&mut [1.0], &[], |x, _| x);
    }
}
