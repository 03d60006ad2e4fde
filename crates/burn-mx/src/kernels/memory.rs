//! What the native backends have in common: tensors that are slices of this process's memory.

use rayon::prelude::*;

/// A tensor of `f32` in this process's memory.
pub(super) trait InMemory: Sized {
    /// Lengths of the axes.
    fn dims(&self) -> Vec<usize>;

    /// The tensor with its values in row-major order, without gaps.
    fn row_major(self) -> Self;

    /// The values of a tensor in row-major order.
    fn values(&self) -> &[f32];

    /// Calls `work(start, piece)` on pieces of a tensor in row-major order that together are all of it and begin at
    /// multiples of `unit`: in place if nobody else holds the values, else in a copy.
    fn change(self, unit: usize, work: impl Fn(usize, &mut [f32]) + Sync) -> Self;

    /// The tensor broadcast to these lengths.
    fn expand(self, dims: &[usize]) -> Self;
}

/// Elements of a piece: so few that a second loop over them finds them in the cache near the core.
const PIECE: usize = 1 << 14;

/// Fewer elements are worked on by the calling thread, as in the crate microscaling.
const PARALLEL_THRESHOLD: usize = 1 << 17;

/// The work of [`InMemory::change`], in place.
pub(super) fn change_in_place(
    data: &mut [f32],
    unit: usize,
    work: impl Fn(usize, &mut [f32]) + Sync,
) {
    let piece = PIECE.next_multiple_of(unit.max(1));
    let pieces = |(i, data): (usize, &mut [f32])| work(i * piece, data);
    match data.len() < PARALLEL_THRESHOLD {
        true => data.chunks_mut(piece).enumerate().for_each(pieces),
        false => data.par_chunks_mut(piece).enumerate().for_each(pieces),
    }
}

/// The work of [`InMemory::change`], in a copy, each piece of which is worked on as soon as it is there.
pub(super) fn changed_copy(
    source: &[f32],
    unit: usize,
    work: impl Fn(usize, &mut [f32]) + Sync,
) -> Vec<f32> {
    let piece = PIECE.next_multiple_of(unit.max(1));
    if source.len() < PARALLEL_THRESHOLD {
        let mut copy = Vec::with_capacity(source.len());
        for chunk in source.chunks(piece) {
            let start = copy.len();
            copy.extend_from_slice(chunk);
            work(start, &mut copy[start..]);
        }
        return copy;
    }
    let mut copy = vec![0.0; source.len()];
    copy.par_chunks_mut(piece)
        .zip(source.par_chunks(piece))
        .enumerate()
        .for_each(|(i, (copy, source))| {
            copy.copy_from_slice(source);
            work(i * piece, copy);
        });
    copy
}

/// The second operand of an op where the first one's values lie.
pub(super) enum Other<'a> {
    /// A number for each of the first one's.
    Each(&'a [f32]),
    /// One number for all.
    Number(f32),
}

/// Calls `work(piece, other)` on pieces of the first of two tensors of the same rank that broadcast, in place if nobody
/// else holds its values.
pub(super) fn zip<T: InMemory>(lhs: T, rhs: T, work: impl Fn(&mut [f32], Other<'_>) + Sync) -> T {
    let (left, right) = (lhs.dims(), rhs.dims());
    let output: Vec<usize> = (left.iter().zip(&right))
        .map(|(&left, &right)| if left == 1 { right } else { left })
        .collect();
    let as_output = |tensor: T, dims: &[usize]| match dims == output {
        true => tensor.row_major(),
        false => tensor.expand(&output).row_major(),
    };
    let lhs = as_output(lhs, &left);
    let Some(first) = right.iter().position(|&length| length != 1) else {
        let number = rhs.row_major().values()[0];
        return lhs.change(1, |_, piece| work(piece, Other::Number(number)));
    };
    let last = right.iter().rposition(|&length| length != 1);
    let after = last.map_or(first, |last| last + 1);
    let inner: usize = output[after..].iter().product();
    if first > 0 && right[first..] == output[first..] {
        // A row for all rows.
        let rhs = rhs.row_major();
        let row = rhs.values();
        return lhs.change(row.len(), |_, piece| {
            for values in piece.chunks_exact_mut(row.len().max(1)) {
                work(values, Other::Each(row));
            }
        });
    }
    if inner > 1 && right[..after] == output[..after] {
        // A number for each row.
        let rhs = rhs.row_major();
        let numbers = rhs.values();
        return lhs.change(inner, |start, piece| {
            let numbers = &numbers[start / inner..];
            for (values, &number) in piece.chunks_exact_mut(inner).zip(numbers) {
                work(values, Other::Number(number));
            }
        });
    }
    let rhs = as_output(rhs, &right);
    let others = rhs.values();
    lhs.change(1, |start, piece| {
        let others = &others[start..start + piece.len()];
        work(piece, Other::Each(others));
    })
}

/// Calls `work(rows, length, start)` on whole rows of a tensor; `start` is their place in it.
pub(super) fn rows<T: InMemory>(tensor: T, work: impl Fn(&mut [f32], usize, usize) + Sync) -> T {
    let length = tensor.dims().last().copied().unwrap_or(1);
    let tensor = tensor.row_major();
    tensor.change(length, |start, rows| work(rows, length, start))
}
