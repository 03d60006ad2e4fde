//! Operands in memory, as a product sees them.

use crate::PanelsError;
use microscaling::internal::largest;

/// An axis of a matrix in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// Number of elements.
    pub length: usize,
    /// How far the next element is.
    pub stride: usize,
}

/// Matrices in memory, all of the same lengths and strides, as an operand of products. Rows or columns of each lie
/// without gaps: one of the axes has stride 1.
#[derive(Debug, Clone, Copy)]
pub struct Matrices<'a> {
    /// The memory of the matrices.
    pub data: &'a [f32],
    /// Where each of them begins.
    pub starts: &'a [usize],
    /// The axis that the result has, too: the rows of a left operand, the columns of a right one.
    pub free: Axis,
    /// The axis that is summed over.
    pub summed: Axis,
    /// Blocks begin anew after this number of elements along the summed axis. The number is the axis' length, or a
    /// divisor if several axes are taken as one.
    pub group: usize,
}

impl Matrices<'_> {
    pub(super) fn check(&self) -> Result<(), PanelsError> {
        let Self {
            data,
            starts,
            free,
            summed,
            group,
        } = *self;
        let last = |axis: Axis| axis.length.checked_sub(1)?.checked_mul(axis.stride);
        let ends = |start: usize| match (last(free), last(summed)) {
            (Some(free), Some(summed)) => {
                let end = start.checked_add(free)?.checked_add(summed);
                end.filter(|end| *end < data.len())
            }
            // Without elements, or beyond all memory.
            _ => (free.length == 0 || summed.length == 0).then_some(0),
        };
        let lies = [free, summed].iter().any(|axis| axis.is_dense());
        let divides = group > 0 && summed.length.is_multiple_of(group);
        let sound = lies
            && (divides || summed.length == 0)
            && starts.iter().all(|start| ends(*start).is_some());
        match sound {
            true => Ok(()),
            false => Err(PanelsError::Layout {
                free,
                summed,
                group,
                length: data.len(),
            }),
        }
    }
}

impl Matrices<'_> {
    /// The largest magnitude as a pattern: of a NaN or Inf if there is one. `rows` says that the summed axis is the dense one.
    pub(super) fn largest(&self, rows: bool) -> u32 {
        let (outer, inner) = match rows {
            true => (self.free, self.summed.length),
            false => (self.summed, self.free.length),
        };
        // Matrices without gaps are looked at as a whole, by all threads.
        let whole = outer.stride == inner || outer.length <= 1;
        let (count, length) = match whole {
            true => (1, outer.length * inner),
            false => (outer.length, inner),
        };
        let of_matrix = |start: &usize| {
            let rows = (0..count).map(|i| start + i * outer.stride);
            rows.map(|start| largest(&self.data[start..start + length]))
                .max()
        };
        self.starts.iter().filter_map(of_matrix).max().unwrap_or(0)
    }
}

impl Axis {
    /// Whether neighbours along the axis are neighbours in memory.
    pub(super) fn is_dense(&self) -> bool {
        self.stride == 1 || self.length <= 1
    }
}
