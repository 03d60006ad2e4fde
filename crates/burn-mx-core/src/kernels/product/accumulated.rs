//! Products in host memory, for any backend, that sum up as a matrix unit does ([`Accumulation`]).

mod convolution;
mod looks;

use std::borrow::Cow;
use std::sync::Arc;

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use microscaling::{
    AccumulateError, Accumulation, AccumulatorOperand, Axis, BlockFormat, ElementFormat,
    FloatFormat, OperandKind, OperandType, Packed, RandomStream, Rounding,
};

use super::Operand;
use crate::kernels::{MxKernels, read_values};
pub(crate) use convolution::convolve;
pub(crate) use looks::SumLooks;

/// An operand of a product as a matrix unit takes it: a tensor with elements and block scales apart.
#[derive(Debug)]
pub struct Accumulated {
    /// The kinds of elements and scales.
    kind: OperandKind,
    shape: Vec<usize>,
    sums: Sums,
    elements: Vec<f32>,
    /// The scales. Their shape is the shape of the elements, with the number of blocks along the summed axis. Empty without scales.
    scales: Vec<f32>,
    /// A factor of all elements.
    tensor_scale: f32,
}

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

/// The kind of numbers in an operand with this block format, or only an elementwise format, or neither. `None` if elements have
/// other factors than the scale of their block.
pub(crate) fn kind_of(
    blocks: Option<&BlockFormat>,
    elementwise: Option<FloatFormat>,
) -> Option<OperandKind> {
    let element = match (blocks, elementwise) {
        // Stochastic scales cannot be packed.
        (Some(format), _) if format.float_scale().is_some_and(|format| format.eden) => return None,
        (Some(format), _) => return OperandKind::of_format(format),
        (None, None) => OperandType::Float32,
        (None, Some(format)) => match (format.exponent_bits(), format.mantissa_bits()) {
            (8, ..=7) => ElementFormat::BFLOAT16.into(),
            (5, ..=10) => ElementFormat::FLOAT16.into(),
            (8, ..=10) => OperandType::Tf32,
            _ => OperandType::Float32,
        },
    };
    Some(element.into())
}

/// The operand, quantized.
pub(crate) fn operand<B: MxKernels>(
    tensor: FloatTensor<B>,
    blocks: Option<(BlockFormat, Rounding)>,
    stream: RandomStream,
    kind: OperandKind,
    sums: Sums,
) -> Operand<FloatTensor<B>> {
    let shape = tensor.shape().to_vec();
    let mut elements = read_values::<B>(tensor);
    let (mut scales, mut tensor_scale) = (Vec::new(), 1.0);
    if let Some((format, rounding)) = blocks {
        let axis = match format.is_square() {
            true => sums.summed.max(sums.free),
            false => sums.summed,
        };
        let packed = Packed::encode(format, &elements, &shape, axis, rounding.with(stream))
            .unwrap_or_else(|error| panic!("burn-mx: {error}"));
        let apart = packed.elements_and_scales(sums.summed);
        [elements, scales] = apart.expect("the specs were resolved with this format");
        tensor_scale = packed.tensor_scale().unwrap_or(1.0);
    }
    Operand::Accumulated(Arc::new(Accumulated {
        kind,
        shape,
        sums,
        elements,
        scales,
        tensor_scale,
    }))
}

/// The product of two operands over their last two axes, and its shape; the other axes broadcast. Some of the sums are looked at.
pub(crate) fn product(
    accumulation: Accumulation,
    operands: [&Accumulated; 2],
    looks: &mut Option<SumLooks>,
) -> Result<(Vec<f32>, Vec<usize>), AccumulateError> {
    let unit = common_block(operands);
    let [lhs, rhs] = operands.map(|operand| operand.matrices(unit));
    let accumulator = accumulation.of(lhs.kind, rhs.kind)?;
    let rank = lhs.leading.len().max(rhs.leading.len());
    let length = |operand: &Matrices<'_>, axis: usize| {
        let missing = rank - operand.leading.len();
        axis.checked_sub(missing)
            .map_or(1, |axis| operand.leading[axis])
    };
    let mut shape: Vec<usize> = (0..rank)
        .map(|axis| match [length(&lhs, axis), length(&rhs, axis)] {
            [1, other] | [other, _] => other,
        })
        .collect();
    // The matrix of an operand at a place of the result.
    let matrix = |operand: &Matrices<'_>, leading: &[usize], at: usize| {
        let (mut rest, mut index, mut stride) = (at, 0, 1);
        for axis in (0..rank).rev() {
            let place = rest % leading[axis];
            rest /= leading[axis];
            let own = length(operand, axis);
            index += if own == 1 { 0 } else { place * stride };
            stride *= own;
        }
        index
    };
    let of_matrix = lhs.free.length * rhs.free.length;
    let matrices = shape.iter().product();
    let mut values = vec![0.0; matrices * of_matrix];
    for (at, result) in values.chunks_exact_mut(of_matrix.max(1)).enumerate() {
        let of_lhs = lhs.operand(matrix(&lhs, &shape, at));
        let of_rhs = rhs.operand(matrix(&rhs, &shape, at));
        accumulator.multiply(&of_lhs, &of_rhs, result)?;
        if let Some(looks) = looks {
            looks.see([at, matrices], [&of_lhs, &of_rhs]);
        }
    }
    shape.extend([lhs.free.length, rhs.free.length]);
    scale(operands, &mut values);
    Ok((values, shape))
}

/// Multiplies a result by the tensor scales.
fn scale([lhs, rhs]: [&Accumulated; 2], values: &mut [f32]) {
    let tensor_scale = lhs.tensor_scale * rhs.tensor_scale;
    if tensor_scale != 1.0 {
        values.iter_mut().for_each(|value| *value *= tensor_scale);
    }
}

/// The smallest number of elements that are whole blocks of both operands.
fn common_block(operands: [&Accumulated; 2]) -> usize {
    let blocks = operands.map(|operand| match operand.kind {
        OperandKind {
            scale: Some(_),
            block: block @ 1..,
            ..
        } => block,
        _ => 1,
    });
    blocks[0] / greatest_common_divisor(blocks[0], blocks[1]) * blocks[1]
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    match b {
        0 => a,
        b => greatest_common_divisor(b, a % b),
    }
}

/// The matrices of an operand: [free, summed].
struct Matrices<'a> {
    kind: OperandKind,
    /// The axes along which the matrices lie.
    leading: &'a [usize],
    free: Axis,
    summed: Axis,
    elements: Cow<'a, [f32]>,
    /// [free, blocks] of each matrix.
    scales: Cow<'a, [f32]>,
    /// Scales of a line.
    blocks: usize,
}

impl Accumulated {
    /// The matrices. Where the summed axis is several axes, each index of the outer ones begins with a block, and a matrix unit gets
    /// zeros where that takes a multiple of `unit` elements.
    fn matrices(&self, unit: usize) -> Matrices<'_> {
        let axis = |length, stride| Axis { length, stride };
        let (leading, [rows, columns]) = match self.shape.as_slice() {
            [leading @ .., rows, columns] => (leading, [*rows, *columns]),
            _ => unreachable!("matrices have two axes"),
        };
        let together: usize = leading.iter().product();
        let mut matrices = Matrices {
            kind: self.kind,
            leading: if self.sums.flat { &[] } else { leading },
            free: axis(rows, columns),
            summed: axis(columns, 1),
            elements: Cow::Borrowed(&self.elements),
            scales: Cow::Borrowed(&self.scales),
            blocks: self.blocks(),
        };
        if self.sums.summed + 1 == self.shape.len() {
            if self.sums.flat {
                matrices.free.length *= together;
            }
            return matrices;
        }
        let segments = if self.sums.flat { together } else { 1 };
        let length = match segments {
            1 => rows,
            _ => rows.next_multiple_of(unit),
        };
        matrices.free = axis(columns, 1);
        matrices.summed = axis(segments * length, columns);
        if length > rows {
            matrices.elements = padded(&self.elements, rows * columns, length * columns, 0.0);
        }
        if self.kind.scale.is_none() {
            return matrices;
        }
        if self.kind.block == 0 && segments > 1 {
            matrices.kind.block = length;
        }
        let blocks = match matrices.kind.block {
            0 => self.blocks(),
            block => length.div_ceil(block),
        };
        // The scale of zeros can be any.
        let sizes = [self.blocks(), blocks].map(|blocks| blocks * columns);
        let by_block = padded(&self.scales, sizes[0], sizes[1], 1.0);
        matrices.blocks = segments * blocks;
        matrices.scales = Cow::Owned(turned(&by_block, matrices.blocks, columns));
        matrices
    }

    /// Blocks along the summed axis.
    fn blocks(&self) -> usize {
        let length = self.shape[self.sums.summed];
        match (self.kind.scale, self.kind.block) {
            (None, _) => 0,
            (Some(_), 0) => length.min(1),
            (Some(_), block) => length.div_ceil(block),
        }
    }
}

/// Lengthens pieces of a size to another one.
fn padded(values: &[f32], size: usize, to: usize, fill: f32) -> Cow<'_, [f32]> {
    if size == to || size == 0 {
        return Cow::Borrowed(values);
    }
    let mut padded = Vec::with_capacity(values.len() / size * to);
    for piece in values.chunks_exact(size) {
        padded.extend_from_slice(piece);
        padded.resize(padded.len() + to - size, fill);
    }
    Cow::Owned(padded)
}

/// Matrices with rows and columns swapped.
fn turned(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut turned = Vec::with_capacity(values.len());
    for matrix in values.chunks_exact((rows * columns).max(1)) {
        for column in 0..columns {
            turned.extend(matrix.iter().skip(column).step_by(columns));
        }
    }
    turned
}

impl Matrices<'_> {
    /// One of them.
    fn operand(&self, matrix: usize) -> AccumulatorOperand<'_> {
        let elements = self.free.length * self.summed.length;
        let scales = self.free.length * self.blocks;
        AccumulatorOperand {
            kind: self.kind,
            elements: &self.elements[matrix * elements..][..elements],
            free: self.free,
            summed: self.summed,
            scales: &self.scales[matrix * scales..][..scales],
        }
    }
}
