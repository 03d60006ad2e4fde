//! Common code of the native backends, whose tensors are slices of this process's memory.

use core::slice;

use rayon::prelude::*;

use microscaling_processor::threads::is_divided;

/// A tensor of `f32` in this process's memory.
pub(crate) trait InMemory: Clone {
    /// The tensor of these values in row-major order.
    fn from_values(values: Vec<f32>, dims: Vec<usize>) -> Self;

    /// Lengths of the axes.
    fn dims(&self) -> Vec<usize>;

    /// Whether the values lie in row-major order, without gaps.
    fn is_row_major(&self) -> bool;

    /// The tensor with its values in row-major order, without gaps.
    fn row_major(self) -> Self;

    /// The values of a tensor in row-major order.
    fn values(&self) -> &[f32];

    /// The memory from the first value on, and the strides of the axes, where values lie in it at such.
    fn strided(&self) -> Option<(&[f32], Vec<usize>)>;

    /// Calls `work(start, piece)` on pieces that together are the whole tensor, in row-major order. Pieces begin at
    /// multiples of `unit`. The work is in place if the tensor's buffer is not shared, else in a copy.
    fn change(self, unit: usize, work: impl Fn(usize, &mut [f32]) + Sync) -> Self;

    /// Calls `kernel(data, shape, order)` on the values as they lie in memory, in row-major order if they have gaps there:
    /// in place if nobody else holds them, else in a copy. `order` gives the tensor's axis at each axis of `shape`.
    fn change_where_it_lies(self, kernel: impl FnOnce(&mut [f32], &[usize], &[usize])) -> Self;

    /// The tensor broadcast to these lengths.
    fn expand(self, dims: &[usize]) -> Self;
}

/// Elements of a piece: so few that a second loop over them finds them in the cache near the core.
const PIECE: usize = 1 << 14;

/// The work of [`InMemory::change`], in place.
pub(crate) fn change_in_place(
    data: &mut [f32],
    unit: usize,
    work: impl Fn(usize, &mut [f32]) + Sync,
) {
    let piece = PIECE.next_multiple_of(unit.max(1));
    let pieces = |(i, data): (usize, &mut [f32])| work(i * piece, data);
    match is_divided(data.len()) {
        true => data.par_chunks_mut(piece).enumerate().for_each(pieces),
        false => data.chunks_mut(piece).enumerate().for_each(pieces),
    }
}

/// The work of [`InMemory::change`], in a copy. Work on a piece begins as soon as the piece is copied.
pub(crate) fn changed_copy(
    source: &[f32],
    unit: usize,
    work: impl Fn(usize, &mut [f32]) + Sync,
) -> Vec<f32> {
    let piece = PIECE.next_multiple_of(unit.max(1));
    if !is_divided(source.len()) {
        let mut copy = Vec::with_capacity(source.len());
        for chunk in source.chunks(piece) {
            let start = copy.len();
            copy.extend_from_slice(chunk);
            work(start, &mut copy[start..]);
        }
        return copy;
    }
    let mut copy = Vec::with_capacity(source.len());
    copy.spare_capacity_mut()
        .par_chunks_mut(piece)
        .zip(source.par_chunks(piece))
        .enumerate()
        .for_each(|(i, (room, source))| {
            let copy: *mut f32 = room.as_mut_ptr().cast();
            // SAFETY: the chunk has room for as many elements as the source's, which are written before they are read.
            let copy = unsafe {
                copy.copy_from_nonoverlapping(source.as_ptr(), source.len());
                slice::from_raw_parts_mut(copy, source.len())
            };
            work(i * piece, copy);
        });
    // SAFETY: each chunk of the source was copied.
    unsafe { copy.set_len(source.len()) };
    copy
}

/// The second operand of an op where the first one's values lie.
pub(crate) enum Other<'a> {
    /// A number for each of the first one's.
    Each(&'a [f32]),
    /// One number for all.
    Number(f32),
}

/// Calls `work(piece, other)` on pieces of the first of two tensors of the same rank that broadcast, in place if nobody
/// else holds its values.
pub(crate) fn zip<T: InMemory>(lhs: T, rhs: T, work: impl Fn(&mut [f32], Other<'_>) + Sync) -> T {
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
    if inner > 1 && right[first..after] == output[first..after] {
        // A number for each row, again and again where axes before are broadcast: a channel's.
        let rhs = rhs.row_major();
        let numbers = rhs.values();
        return lhs.change(inner, |start, piece| {
            let skipped = start / inner % numbers.len();
            let numbers = numbers.iter().cycle().skip(skipped);
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
pub(crate) fn rows<T: InMemory>(tensor: T, work: impl Fn(&mut [f32], usize, usize) + Sync) -> T {
    let length = tensor.dims().last().copied().unwrap_or(1);
    let tensor = tensor.row_major();
    tensor.change(length, |start, rows| work(rows, length, start))
}

/// The order of the axes by which a strided tensor lies densely in memory, outermost first; `None` if it
/// does not (overlaps, gaps, negative strides).
///
/// A transposed tensor is such: its blocks can be quantized where they lie, along the matching axis.
pub(crate) fn memory_order(shape: &[usize], strides: &[isize]) -> Option<Vec<usize>> {
    let is_dense = |order: &[usize]| {
        let mut expected = 1;
        for &axis in order.iter().rev() {
            if shape[axis] > 1 && strides[axis] != expected {
                return false;
            }
            expected *= shape[axis] as isize;
        }
        true
    };
    let mut order: Vec<usize> = (0..shape.len()).collect();
    // Axes of length 1, whose strides mean nothing, stay in place: square blocks lie along neighbours.
    if is_dense(&order) {
        return Some(order);
    }
    order.sort_by_key(|&axis| (core::cmp::Reverse(strides[axis]), shape[axis] > 1));
    is_dense(&order).then_some(order)
}

#[cfg(test)]
mod tests {
    use super::memory_order;

    #[test]
    fn memory_order_of_dense_layouts() {
        assert_eq!(memory_order(&[2, 3, 4], &[12, 4, 1]), Some(vec![0, 1, 2]));
        assert_eq!(memory_order(&[2, 4, 3], &[12, 1, 4]), Some(vec![0, 2, 1]));
        assert_eq!(memory_order(&[], &[]), Some(vec![]));
        // A length-1 axis may have any stride, and stays in its place where it can.
        assert_eq!(memory_order(&[1, 5, 2], &[7, 2, 1]), Some(vec![0, 1, 2]));
        let order = memory_order(&[4, 3, 1, 1], &[3, 1, 1, 1]);
        assert_eq!(order, Some(vec![0, 1, 2, 3]));
    }

    #[test]
    fn memory_order_refuses_gaps_overlaps_and_reversals() {
        assert_eq!(memory_order(&[2, 3], &[4, 1]), None);
        assert_eq!(memory_order(&[2, 3], &[0, 1]), None);
        assert_eq!(memory_order(&[3], &[-1]), None);
        assert_eq!(memory_order(&[3], &[2]), None);
    }
}
