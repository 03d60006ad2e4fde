//! Copies of strided tensors in row-major order.

use core::mem::MaybeUninit;
use core::ops::Range;

use microscaling_processor::threads::{Divide, share_all};

/// Rows, and columns, of a tile of a transposed matrix: the lines of both sides stay in the nearest cache.
const TILE: usize = 16;
/// Elements that are copied between two calculations of a place.
const TOGETHER: usize = 1024;

/// The values of a strided tensor in row-major order. Its first element is `source[start]`. An axis with a negative stride is reversed. Each element of
/// `source` may have any number of places in the tensor.
///
/// # Panics
///
/// If the tensor does not lie in `source`.
pub(crate) fn row_major(
    source: &[f32],
    start: usize,
    shape: &[usize],
    strides: &[isize],
) -> Vec<f32> {
    let axes = merged(shape, strides);
    let count = shape.iter().product();
    let mut copy = Vec::with_capacity(count);
    if count == 0 {
        return copy;
    }
    let last = |from_end: usize| match axes.len().checked_sub(from_end) {
        Some(axis) => axes[axis],
        None => StridedAxis {
            length: 1,
            stride: 0,
        },
    };
    let [rows, columns] = [last(2), last(1)];
    let outer = &axes[..axes.len().saturating_sub(2)];
    let together = (TOGETHER / columns.length).max(TILE).min(rows.length);
    let blocks = rows.length.div_ceil(together);
    let work = CopyBlocks {
        source,
        start: start as isize,
        outer,
        rows,
        columns,
        together,
        blocks: 0..outer.iter().map(|axis| axis.length).product::<usize>() * blocks,
    };
    let to = CopiedTo(copy.spare_capacity_mut().as_mut_ptr());
    // SAFETY: blocks have no element of the copy in common, and the copy has room for all.
    share_all(work, &|part| unsafe { part.write(&to) });
    // SAFETY: all blocks are written.
    unsafe { copy.set_len(count) };
    copy
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StridedAxis {
    pub(super) length: usize,
    pub(super) stride: isize,
}

/// The offset in memory of the element at this place in row-major order.
pub(super) fn offset(axes: &[StridedAxis], mut place: usize) -> isize {
    let mut offset = 0;
    for axis in axes.iter().rev() {
        offset += (place % axis.length) as isize * axis.stride;
        place /= axis.length;
    }
    offset
}

/// The axes that are longer than 1. Neighbours are one axis where their elements lie evenly.
fn merged(shape: &[usize], strides: &[isize]) -> Vec<StridedAxis> {
    let mut axes: Vec<StridedAxis> = Vec::with_capacity(shape.len());
    for (&length, &stride) in shape.iter().zip(strides) {
        match axes.last_mut() {
            _ if length == 1 => {}
            Some(outer) if outer.stride == length as isize * stride => {
                *outer = StridedAxis {
                    length: outer.length * length,
                    stride,
                };
            }
            _ => axes.push(StridedAxis { length, stride }),
        }
    }
    axes
}

/// Memory of the copy.
struct CopiedTo(*mut MaybeUninit<f32>);

// SAFETY: no two blocks have an element in common.
unsafe impl Sync for CopiedTo {}

/// Some blocks of rows. A matrix of rows and columns has a whole number of blocks, the last of which may have fewer rows.
struct CopyBlocks<'a> {
    source: &'a [f32],
    /// The place of the tensor's first element.
    start: isize,
    outer: &'a [StridedAxis],
    rows: StridedAxis,
    columns: StridedAxis,
    together: usize,
    blocks: Range<usize>,
}

impl Divide for CopyBlocks<'_> {
    fn elements(&self) -> usize {
        self.blocks.len() * self.together * self.columns.length
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let Range { start, end } = self.blocks;
        let middle = start + (end - start) / 2;
        if middle == start {
            return Err(self);
        }
        Ok([start..middle, middle..end].map(|blocks| Self { blocks, ..self }))
    }
}

impl CopyBlocks<'_> {
    /// # Safety
    /// The target must have room for the whole copy, and these blocks must be written by nobody else.
    unsafe fn write(self, to: &CopiedTo) {
        let Self {
            source,
            start,
            outer,
            rows,
            columns,
            together,
            blocks,
        } = self;
        let per_matrix = rows.length.div_ceil(together);
        for block in blocks {
            let (matrix, first) = (block / per_matrix, block % per_matrix * together);
            let start = start + offset(outer, matrix) + first as isize * rows.stride;
            let count = together.min(rows.length - first);
            let at = (matrix * rows.length + first) * columns.length;
            // SAFETY: as the caller says.
            let block =
                unsafe { core::slice::from_raw_parts_mut(to.0.add(at), count * columns.length) };
            match columns.stride {
                1 => copy_rows(block, source, start, rows.stride, columns.length),
                _ => copy_tiles(block, source, start, rows.stride, columns),
            }
        }
    }
}

/// Rows whose elements lie side by side.
fn copy_rows(
    block: &mut [MaybeUninit<f32>],
    source: &[f32],
    start: isize,
    stride: isize,
    length: usize,
) {
    for (i, row) in block.chunks_exact_mut(length).enumerate() {
        let values = &source[(start + i as isize * stride) as usize..][..length];
        // SAFETY: both have the length, and one is exclusively borrowed.
        unsafe {
            let row: *mut f32 = row.as_mut_ptr().cast();
            row.copy_from_nonoverlapping(values.as_ptr(), length);
        }
    }
}

/// Rows whose elements lie apart, as a transposed matrix has them.
fn copy_tiles(
    block: &mut [MaybeUninit<f32>],
    source: &[f32],
    start: isize,
    stride: isize,
    columns: StridedAxis,
) {
    let StridedAxis {
        length,
        stride: step,
    } = columns;
    for (i, rows) in block.chunks_mut(TILE * length).enumerate() {
        let start = start + (i * TILE) as isize * stride;
        for first in (0..length).step_by(TILE) {
            let last = length.min(first + TILE);
            for (i, row) in rows.chunks_exact_mut(length).enumerate() {
                let start = start + i as isize * stride + first as isize * step;
                for (j, x) in row[first..last].iter_mut().enumerate() {
                    x.write(source[(start + j as isize * step) as usize]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each element by its coordinates.
    fn one_by_one(source: &[f32], start: usize, shape: &[usize], strides: &[isize]) -> Vec<f32> {
        (0..shape.iter().product())
            .map(|mut i: usize| {
                let mut at = start as isize;
                for (length, stride) in shape.iter().zip(strides).rev() {
                    at += (i % length) as isize * stride;
                    i /= length;
                }
                source[at as usize]
            })
            .collect()
    }

    /// All orders of the axes of tensors, large and small, with axes of length 1, repeated elements, reversed axes, gaps and none at all.
    #[test]
    fn copies_are_those_of_single_elements() {
        let source: Vec<f32> = (0..1 << 21).map(|i| i as f32).collect();
        let shapes: [&[usize]; 8] = [
            &[],
            &[5],
            &[3, 0, 4],
            &[17, 33],
            &[2, 1, 37],
            &[3, 64, 4, 32],
            &[40, 3, 1, 70, 2],
            &[12, 300, 130],
        ];
        for shape in shapes {
            for gap in [0, 3] {
                let mut strides = vec![0; shape.len()];
                let mut stride = 1;
                for (axis, length) in shape.iter().enumerate().rev() {
                    strides[axis] = stride;
                    stride *= (length + gap) as isize;
                }
                if shape.len() == 2 {
                    // A row that is repeated.
                    let strides = [0, strides[1]];
                    assert_eq!(
                        row_major(&source, 0, shape, &strides),
                        one_by_one(&source, 0, shape, &strides)
                    );
                }
                for order in orders(shape.len()) {
                    let shape: Vec<usize> = order.iter().map(|&i| shape[i]).collect();
                    let strides: Vec<isize> = order.iter().map(|&i| strides[i]).collect();
                    for reversed in 0..1 << shape.len().min(3) {
                        let is_reversed = |axis: usize| reversed >> axis & 1 == 1;
                        let mut strides = strides.clone();
                        let mut start = 0;
                        for (axis, stride) in strides.iter_mut().enumerate() {
                            if axis < 3 && is_reversed(axis) {
                                start += shape[axis].saturating_sub(1) * *stride as usize;
                                *stride = -*stride;
                            }
                        }
                        let copy = row_major(&source, start, &shape, &strides);
                        assert!(
                            copy == one_by_one(&source, start, &shape, &strides),
                            "{shape:?} {strides:?}"
                        );
                    }
                }
            }
        }
    }

    fn orders(count: usize) -> Vec<Vec<usize>> {
        let mut all = vec![vec![]];
        for next in 0..count {
            let with_next = |order: Vec<usize>| {
                (0..=order.len()).map(move |at| {
                    let mut order = order.clone();
                    order.insert(at, next);
                    order
                })
            };
            all = all.into_iter().flat_map(with_next).collect();
        }
        all
    }
}
