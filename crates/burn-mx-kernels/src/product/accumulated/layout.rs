//! Where the matrices of operands lie in their tensors.

use microscaling_product::OperandKind;

use super::blocks::block_within;
use super::form::Sums;

/// Equal steps through an operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    pub count: usize,
    /// How far the next element is.
    pub(crate) stride: usize,
    /// How far the next entry of the table of windows is.
    pub(crate) window: usize,
}

impl Steps {
    pub(crate) const ONE: Self = Self::of(1, 0);

    pub(crate) const fn of(count: usize, stride: usize) -> Self {
        Self {
            count,
            stride,
            window: 0,
        }
    }

    /// Steps from window to window, or from one element of all windows to the next.
    pub(crate) const fn of_windows(count: usize, window: usize) -> Self {
        Self {
            count,
            stride: 0,
            window,
        }
    }
}

/// Where the matrices of an operand lie in a row-major tensor. Each axis of a matrix is two axes of the tensor, one inside the other.
/// The summed axis is one or more segments, and a matrix unit gets zeros behind each.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The axes along which the matrices lie.
    pub(crate) leading: Vec<usize>,
    /// How far the next matrix is.
    pub(crate) matrix: usize,
    pub(crate) free: [Steps; 2],
    /// From segment to segment, and through a segment with the zeros.
    pub(crate) summed: [Steps; 2],
    /// Elements of a segment.
    pub(crate) given: usize,
    /// Elements of a block; 0 means all of them.
    pub(crate) block: usize,
}

impl Layout {
    /// Where the summed axis is several axes, each index of the outer ones is a segment.
    pub(super) fn of(shape: &[usize], kind: OperandKind, sums: Sums, segment: usize) -> Self {
        let (leading, [rows, columns]) = match shape {
            [leading @ .., rows, columns] => (leading, [*rows, *columns]),
            _ => unreachable!("matrices have two axes"),
        };
        let together = match sums.flat {
            true => leading.iter().product(),
            false => 1,
        };
        let leading = if sums.flat { &[] } else { leading }.to_vec();
        let matrix = together * rows * columns;
        if sums.summed + 1 == shape.len() {
            return Self {
                leading,
                matrix,
                free: [Steps::ONE, Steps::of(together * rows, columns)],
                summed: [Steps::ONE, Steps::of(columns, 1)],
                given: columns,
                block: kind.block,
            };
        }
        let length = match together {
            1 => rows,
            _ => segment,
        };
        Self {
            leading,
            matrix,
            free: [Steps::ONE, Steps::of(columns, 1)],
            summed: [
                Steps::of(together, rows * columns),
                Steps::of(length, columns),
            ],
            given: rows,
            block: match kind.scale {
                Some(_) if together > 1 => block_within(kind.block, rows, length),
                _ => kind.block,
            },
        }
    }

    /// Rows of a left operand, columns of a right one.
    pub(crate) fn lines(&self) -> usize {
        self.free[0].count * self.free[1].count
    }

    /// Elements that are summed up, with the zeros.
    pub(crate) fn length(&self) -> usize {
        self.summed[0].count * self.summed[1].count
    }

    /// How far the next line and the next element of a line are, if the steps of each axis are equal and no zeros come in.
    pub(super) fn strides(&self) -> Option<[usize; 2]> {
        let ([lines, line], [segments, element]) = (self.free, self.summed);
        let in_one = segments.count == 1 || segments.stride == element.count * element.stride;
        let is_even = lines.count == 1 && in_one && element.count == self.given;
        is_even.then_some([line.stride, element.stride])
    }

    #[cfg(feature = "cube")]
    pub(crate) fn matrices(&self) -> usize {
        self.leading.iter().product()
    }

    /// The kind of operands so laid out.
    pub(super) fn kind(&self, kind: OperandKind) -> OperandKind {
        OperandKind {
            block: self.block,
            ..kind
        }
    }
}

/// Where the elements of a result lie in its tensor: how far the next matrix, the next row and the next column are. Columns lie along
/// both [`free`](Layout::free) axes of the right operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Results {
    pub(crate) matrix: usize,
    pub(crate) row: usize,
    pub(crate) column: [usize; 2],
}

/// The axes along which the matrices of a product lie, and for each of its matrices the numbers of the operands' matrices.
pub(crate) fn broadcast(leading: [&[usize]; 2]) -> (Vec<usize>, Vec<[usize; 2]>) {
    let rank = leading[0].len().max(leading[1].len());
    let length = |operand: &[usize], axis: usize| {
        let missing = rank - operand.len();
        axis.checked_sub(missing).map_or(1, |axis| operand[axis])
    };
    let shape: Vec<usize> = (0..rank)
        .map(|axis| match leading.map(|operand| length(operand, axis)) {
            [1, other] | [other, _] => other,
        })
        .collect();
    let matrix = |operand: &[usize], at: usize| {
        let (mut rest, mut index, mut stride) = (at, 0, 1);
        for axis in (0..rank).rev() {
            let place = rest % shape[axis];
            rest /= shape[axis];
            let own = length(operand, axis);
            index += if own == 1 { 0 } else { place * stride };
            stride *= own;
        }
        index
    };
    let matrices = 0..shape.iter().product();
    let numbers = matrices.map(|at| leading.map(|operand| matrix(operand, at)));
    let numbers = numbers.collect();
    (shape, numbers)
}
