//! Where the matrices of operands lie in their tensors.

use microscaling::{
    AccumulateError, Accumulation, Accumulator, Axis, BlockFormat, OperandKind, RandomStream,
    Rounding,
};

/// Where a product sums over a tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sums {
    /// The axis that is summed over, along which blocks lie.
    pub(crate) summed: usize,
    /// Square blocks lie along this axis, too.
    pub(crate) free: usize,
    /// Whether the axes before the last two are rows of one matrix.
    pub(crate) flat: bool,
}

/// How a tensor becomes an operand of a matrix unit.
#[derive(Clone, Copy, Debug)]
pub struct AccumulatedForm {
    /// The kinds of elements and scales.
    pub(crate) kind: OperandKind,
    /// The block format.
    pub(crate) blocks: Option<(BlockFormat, Rounding)>,
    /// The random numbers of stochastic rounding.
    pub(crate) stream: RandomStream,
    pub(crate) sums: Sums,
}

impl AccumulatedForm {
    /// The axis along which blocks of this format lie, as formats count it.
    pub(crate) fn block_axis(&self, format: &BlockFormat) -> usize {
        match format.is_square() {
            true => self.sums.summed.max(self.sums.free),
            false => self.sums.summed,
        }
    }
}

/// A product that a matrix unit sums up, of tensors on a device.
#[derive(Clone, Debug)]
pub struct AccumulatedProduct {
    /// The unit.
    pub accumulator: Accumulator,
    /// The forms that the tensors take.
    pub forms: [AccumulatedForm; 2],
    /// Their shapes.
    pub shapes: [Vec<usize>; 2],
}

impl AccumulatedProduct {
    /// # Errors
    ///
    /// If the unit does not take the operands.
    pub(crate) fn new(
        accumulation: Accumulation,
        forms: [AccumulatedForm; 2],
        shapes: [Vec<usize>; 2],
    ) -> Result<Self, AccumulateError> {
        let layouts = layouts(&forms, &shapes);
        let kind = |i: usize| OperandKind {
            block: layouts[i].block,
            ..forms[i].kind
        };
        Ok(Self {
            accumulator: accumulation.of(kind(0), kind(1))?,
            forms,
            shapes,
        })
    }

    /// Where the operands lie.
    #[cfg(feature = "cube")]
    pub(crate) fn layouts(&self) -> [Layout<'_>; 2] {
        layouts(&self.forms, &self.shapes)
    }

    /// The shape of the result.
    pub fn shape(&self) -> Vec<usize> {
        let [lhs, rhs] = layouts(&self.forms, &self.shapes);
        let (mut shape, _) = broadcast([lhs.leading, rhs.leading]);
        shape.extend([lhs.free.length, rhs.free.length]);
        shape
    }
}

fn layouts<'a>(forms: &[AccumulatedForm; 2], shapes: &'a [Vec<usize>; 2]) -> [Layout<'a>; 2] {
    let unit = common_block(forms.map(|form| form.kind));
    [0, 1].map(|i| Layout::of(&shapes[i], forms[i].kind, forms[i].sums, unit))
}

/// Where the matrices of an operand lie in a row-major tensor. The summed axis is one or more segments, and a matrix unit gets zeros
/// behind each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout<'a> {
    /// The axes along which the matrices lie.
    pub(crate) leading: &'a [usize],
    pub(crate) free: Axis,
    /// How far the next element along the summed axis is.
    pub(crate) stride: usize,
    pub(crate) segments: usize,
    /// Elements of a segment.
    pub(crate) given: usize,
    /// The same with the zeros.
    pub(crate) length: usize,
    /// Elements of a block; 0 means all of them.
    pub(crate) block: usize,
}

impl<'a> Layout<'a> {
    /// Where the summed axis is several axes, each index of the outer ones begins with a block, and a matrix unit gets zeros where
    /// that takes a multiple of `unit` elements.
    pub(crate) fn of(shape: &'a [usize], kind: OperandKind, sums: Sums, unit: usize) -> Self {
        let axis = |length, stride| Axis { length, stride };
        let (leading, [rows, columns]) = match shape {
            [leading @ .., rows, columns] => (leading, [*rows, *columns]),
            _ => unreachable!("matrices have two axes"),
        };
        let together = match sums.flat {
            true => leading.iter().product(),
            false => 1,
        };
        let leading = if sums.flat { &[] } else { leading };
        if sums.summed + 1 == shape.len() {
            return Self {
                leading,
                free: axis(together * rows, columns),
                stride: 1,
                segments: 1,
                given: columns,
                length: columns,
                block: kind.block,
            };
        }
        let length = match together {
            1 => rows,
            _ => rows.next_multiple_of(unit),
        };
        Self {
            leading,
            free: axis(columns, 1),
            stride: columns,
            segments: together,
            given: rows,
            length,
            block: match kind.block {
                0 if kind.scale.is_some() && together > 1 => length,
                block => block,
            },
        }
    }

    /// Elements that are summed up, with the zeros.
    pub(crate) fn summed(&self) -> usize {
        self.segments * self.length
    }
}

/// The smallest number of elements that are whole blocks of both operands.
pub(super) fn common_block(kinds: [OperandKind; 2]) -> usize {
    let blocks = kinds.map(|kind| match kind {
        OperandKind {
            scale: Some(_),
            block: block @ 1..,
            ..
        } => block,
        _ => 1,
    });
    blocks[0] / greatest_common_divisor(blocks[0], blocks[1]) * blocks[1]
}

pub(super) fn greatest_common_divisor(a: usize, b: usize) -> usize {
    match b {
        0 => a,
        b => greatest_common_divisor(b, a % b),
    }
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
