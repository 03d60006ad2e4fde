//! Loops over slices: on several threads where there is enough to do, compiled for each instruction set.
//!
//! The inlined part of a `function` is compiled for the widest vectors of the processor: mark closures in inner loops
//! `#[inline(always)]`. IEEE arithmetic gives the same bits everywhere; NaN, Inf and zero are up to `function`.

use microscaling_processor::instruction_set::dispatch;
use microscaling_processor::threads::{Divide, share_all};

/// Replaces every number by a function of the number.
pub(super) fn map_in_place(data: &mut [f32], function: impl Fn(f32) -> f32 + Copy + Send + Sync) {
    in_parts(data, 1, &|data: &mut [f32]| {
        dispatch(
            #[inline(always)]
            move || {
                // A local copy stays in registers; what the closure holds could be what the loop writes.
                let function = function;
                for x in data.iter_mut() {
                    *x = function(*x);
                }
            },
        );
    });
}

/// Replaces every number by a function of the number and of its counterpart in `other`.
///
/// # Panics
/// If the slices differ in length.
pub(super) fn zip_in_place(
    data: &mut [f32],
    other: &[f32],
    function: impl Fn(f32, f32) -> f32 + Copy + Send + Sync,
) {
    assert_eq!(data.len(), other.len(), "zip_in_place: lengths differ");
    in_parts((data, other), 1, &|(data, other): (&mut [f32], &[f32])| {
        dispatch(
            #[inline(always)]
            move || {
                let function = function;
                for (x, y) in data.iter_mut().zip(other) {
                    *x = function(*x, *y);
                }
            },
        );
    });
}

/// Calls `function` on every row, a run of `length` numbers.
///
/// # Panics
/// If `length` does not divide the length of `data`.
pub(super) fn rows_in_place(
    data: &mut [f32],
    length: usize,
    function: impl Fn(&mut [f32]) + Copy + Send + Sync,
) {
    assert_whole_rows(data.len(), length);
    let length = length.max(1);
    in_parts(data, length, &|data: &mut [f32]| {
        dispatch(
            #[inline(always)]
            move || {
                let function = function;
                for row in data.chunks_exact_mut(length) {
                    function(row);
                }
            },
        );
    });
}

/// Calls `function(first, second, spare)` on every pair of rows of two tensors of the same size. `spare` is as long as
/// they are and holds what the call before left there.
///
/// # Panics
/// If `length` does not divide the length of both, which are the same.
pub(super) fn row_pairs_in_place(
    first: &mut [f32],
    second: &mut [f32],
    length: usize,
    function: impl Fn(&mut [f32], &mut [f32], &mut [f32]) + Copy + Send + Sync,
) {
    let lengths = (first.len(), second.len());
    assert_eq!(lengths.0, lengths.1, "row_pairs_in_place: lengths differ");
    assert_whole_rows(first.len(), length);
    let length = length.max(1);
    in_parts((first, second), length, &|(first, second): (
        &mut [f32],
        &mut [f32],
    )| {
        let mut spare = vec![0.0; length];
        let spare = &mut spare[..];
        dispatch(
            #[inline(always)]
            move || {
                let function = function;
                let second = second.chunks_exact_mut(length);
                for (first, second) in first.chunks_exact_mut(length).zip(second) {
                    function(first, second, spare);
                }
            },
        );
    });
}

fn assert_whole_rows(elements: usize, length: usize) {
    assert!(
        elements == 0 || length > 0 && elements.is_multiple_of(length),
        "rows of {length} do not make up {elements} elements"
    );
}

/// One or two slices of the same length, which are cut at the same places.
pub(super) trait Slices: Sized + Send {
    fn elements(&self) -> usize;
    fn cut_at(self, middle: usize) -> (Self, Self);
}

impl Slices for &[f32] {
    fn elements(&self) -> usize {
        self.len()
    }

    fn cut_at(self, middle: usize) -> (Self, Self) {
        self.split_at(middle)
    }
}

impl Slices for &mut [f32] {
    fn elements(&self) -> usize {
        self.len()
    }

    fn cut_at(self, middle: usize) -> (Self, Self) {
        self.split_at_mut(middle)
    }
}

impl<A: Slices, B: Slices> Slices for (A, B) {
    fn elements(&self) -> usize {
        self.0.elements()
    }

    fn cut_at(self, middle: usize) -> (Self, Self) {
        let (first, second) = (self.0.cut_at(middle), self.1.cut_at(middle));
        ((first.0, second.0), (first.1, second.1))
    }
}

/// Slices of whole rows.
struct RowSlices<S> {
    slices: S,
    length: usize,
}

impl<S: Slices> Divide for RowSlices<S> {
    fn elements(&self) -> usize {
        self.slices.elements()
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let rows = self.slices.elements() / self.length;
        if rows < 2 {
            return Err(self);
        }
        let length = self.length;
        let (low, high) = self.slices.cut_at(rows / 2 * length);
        Ok([low, high].map(|slices| Self { slices, length }))
    }
}

/// Calls `work` on parts of whole rows that together are all of `slices`. Not generic in the work: dividing is compiled once for slices of
/// one kind, and not for each kernel.
pub(super) fn in_parts<S: Slices>(slices: S, length: usize, work: &(dyn Fn(S) + Sync)) {
    share_all(RowSlices { slices, length }, &|rows: RowSlices<S>| {
        work(rows.slices)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads share this number of elements.
    const LARGE: usize = 1 << 17;

    #[test]
    fn every_element_once_on_any_length() {
        for length in [0, 1, 7, 4097, 2 * LARGE + 5] {
            let other: Vec<f32> = (0..length).map(|i| i as f32).collect();
            let mut data = other.clone();
            map_in_place(&mut data, |x| x + 1.0);
            zip_in_place(&mut data, &other, |x, y| x - 2.0 * y);
            assert!((0..length).all(|i| data[i] == 1.0 - i as f32), "{length}");
        }
    }

    #[test]
    fn every_row_once() {
        for (rows, length) in [(0, 3), (1, 5), (3, 1), (LARGE / 50, 101)] {
            let mut first: Vec<f32> = (0..rows * length).map(|i| i as f32).collect();
            let mut second = first.clone();
            rows_in_place(&mut first, length, |row| {
                assert_eq!(row.len(), length);
                row.reverse();
            });
            row_pairs_in_place(&mut first, &mut second, length, |first, second, spare| {
                assert_eq!(spare.len(), length);
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
