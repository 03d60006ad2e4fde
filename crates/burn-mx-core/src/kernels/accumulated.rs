//! Matrix products in host memory, for any backend, that sum up as a matrix unit does ([`Accumulation`]).

use std::borrow::Cow;
use std::sync::Arc;

use burn_backend::tensor::FloatTensor;
use burn_backend::{TensorData, TensorMetadata};
use microscaling::{
    Accumulation, AccumulatorOperand, Axis, BlockFormat, ElementFormat, FloatFormat, OperandKind,
    OperandType, Packed,
};

use super::product::{Operand, OperandForm};
use super::{MxKernels, read_values};

/// An operand of a product as a matrix unit takes it: elements and block scales apart.
#[derive(Debug)]
pub struct Accumulated {
    /// The kinds of elements and scales.
    kind: OperandKind,
    /// The axes before the last two.
    leading: Vec<usize>,
    elements: Lines,
    /// As long as there are blocks along the summed axis; empty without scales.
    scales: Lines,
    /// A factor of all elements.
    tensor_scale: f32,
}

/// `[matrices, free, segments, length]` without gaps. The summed axis is all segments, each of which begins with a block.
#[derive(Clone, Debug, Default)]
struct Lines {
    values: Vec<f32>,
    free: usize,
    segments: usize,
    length: usize,
}

impl Lines {
    /// Lines of a tensor in row-major order. All axes before the last one of a `flat` tensor are rows.
    fn of(values: Vec<f32>, shape: &[usize], summed: usize, flat: bool) -> Self {
        let rank = shape.len();
        let [rows, columns] = [shape[rank - 2], shape[rank - 1]];
        let matrices: usize = shape[..rank - 2].iter().product();
        let sums_columns = summed == rank - 1;
        if sums_columns {
            return Self {
                values,
                free: if flat { matrices * rows } else { rows },
                segments: 1,
                length: columns,
            };
        }
        // Of flat operands, a matrix is a segment.
        let together = if flat { values.len() } else { rows * columns };
        let mut turned = Vec::with_capacity(values.len());
        for matrix in values.chunks_exact(together.max(1)) {
            for column in 0..columns {
                turned.extend(matrix.iter().skip(column).step_by(columns));
            }
        }
        Self {
            values: turned,
            free: columns,
            segments: if flat { matrices } else { 1 },
            length: rows,
        }
    }

    /// Lengthens the segments by `fill`, or by their last value.
    fn with_length(&self, length: usize, fill: Option<f32>) -> Cow<'_, Self> {
        if length == self.length {
            return Cow::Borrowed(self);
        }
        let mut values = Vec::with_capacity(self.values.len() / self.length.max(1) * length);
        for segment in self.values.chunks_exact(self.length.max(1)) {
            values.extend_from_slice(segment);
            let fill = fill.unwrap_or(segment[segment.len() - 1]);
            values.resize(values.len() + length - self.length, fill);
        }
        Cow::Owned(Self {
            values,
            length,
            ..*self
        })
    }

    /// The lines of a matrix.
    fn matrix(&self, matrix: usize) -> &[f32] {
        let length = self.free * self.segments * self.length;
        &self.values[matrix * length..][..length]
    }
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
    form: OperandForm,
    kind: OperandKind,
) -> Operand<FloatTensor<B>> {
    let OperandForm {
        place,
        quantization,
        stream,
        ..
    } = form;
    let shape = tensor.shape().to_vec();
    let rank = shape.len();
    let (summed, flat) = (place.summed_axis(rank), place.flat && rank > 2);
    let mut values = read_values::<B>(tensor);
    if let Some((format, rounding)) = quantization.elementwise {
        format.round_slice(&mut values, rounding.with(stream));
    }
    let mut tensor_scale = 1.0;
    let mut scales = Lines::default();
    if let Some((format, rounding)) = quantization.blocks {
        let axis = place.block_axis(rank, &format);
        let packed = Packed::encode(format, &values, &shape, axis, rounding.with(stream))
            .unwrap_or_else(|error| panic!("burn-mx: {error}"));
        let apart = packed.elements_and_scales();
        let [elements, of_blocks] = apart.expect("the specs were resolved with this format");
        (values, tensor_scale) = (elements, packed.tensor_scale().unwrap_or(1.0));
        let mut shape = shape.clone();
        let free = 2 * rank - 3 - summed;
        let size = format.block_size();
        let blocks = match size {
            0 => usize::from(shape[summed] > 0),
            size => shape[summed].div_ceil(size),
        };
        shape[summed] = blocks;
        let of_blocks = match format.is_square() {
            true => spread(&of_blocks, &shape, free, size),
            false => of_blocks,
        };
        scales = Lines::of(of_blocks, &shape, summed, flat);
    }
    Operand::Accumulated(Arc::new(Accumulated {
        kind,
        leading: match flat {
            true => Vec::new(),
            false => shape[..rank - 2].to_vec(),
        },
        elements: Lines::of(values, &shape, summed, flat),
        scales,
        tensor_scale,
    }))
}

/// The scales of square blocks, each as often along the free axis as its block has elements there. `shape` is the shape of the result.
fn spread(scales: &[f32], shape: &[usize], free: usize, size: usize) -> Vec<f32> {
    let inner: usize = shape[free + 1..].iter().product();
    let blocks = shape[free].div_ceil(size);
    let mut spread = Vec::with_capacity(shape.iter().product());
    for matrix in scales.chunks_exact((blocks * inner).max(1)) {
        for at in 0..shape[free] {
            spread.extend_from_slice(&matrix[at / size * inner..][..inner]);
        }
    }
    spread
}

/// The product over the last two axes, in `f32`; the others broadcast. Both operands must be ones that the accumulator takes.
pub(crate) fn product<B: MxKernels>(
    accumulation: Accumulation,
    [lhs, rhs]: [&Accumulated; 2],
    device: &B::Device,
) -> FloatTensor<B> {
    let accumulator = accumulation
        .of(lhs.kind, rhs.kind)
        .unwrap_or_else(|error| panic!("burn-mx: {error}"));
    let rank = lhs.leading.len().max(rhs.leading.len());
    let length = |operand: &Accumulated, axis: usize| {
        let missing = rank - operand.leading.len();
        axis.checked_sub(missing)
            .map_or(1, |axis| operand.leading[axis])
    };
    let leading: Vec<usize> = (0..rank)
        .map(|axis| match [length(lhs, axis), length(rhs, axis)] {
            [1, other] | [other, _] => other,
        })
        .collect();
    // The matrix of an operand at a place of the result.
    let matrix = |operand: &Accumulated, at: usize| {
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
    let [rows, columns] = [lhs, rhs].map(|operand| operand.elements.free);
    let summed = segment_length(lhs, rhs);
    let padded = [lhs, rhs].map(|operand| Padded::of(operand, summed));
    let mut values = vec![0.0; leading.iter().product::<usize>() * rows * columns];
    let results = values.chunks_exact_mut((rows * columns).max(1));
    for (at, result) in results.enumerate() {
        let lhs_matrix = padded[0].matrix(matrix(lhs, at));
        let rhs_matrix = padded[1].matrix(matrix(rhs, at));
        accumulator
            .multiply(&lhs_matrix, &rhs_matrix, result)
            .unwrap_or_else(|error| panic!("burn-mx: {error}"));
    }
    let tensor_scale = lhs.tensor_scale * rhs.tensor_scale;
    if tensor_scale != 1.0 {
        values.iter_mut().for_each(|value| *value *= tensor_scale);
    }
    let mut shape = leading;
    shape.extend([rows, columns]);
    B::float_from_data(TensorData::new(values, shape), device)
}

/// How long a segment is of which both operands have whole blocks: a matrix unit gets zeros where a block is short.
fn segment_length(lhs: &Accumulated, rhs: &Accumulated) -> usize {
    let length = lhs.elements.length;
    if lhs.elements.segments == 1 {
        return length;
    }
    let mut unit = 1;
    for operand in [lhs, rhs] {
        if let OperandKind {
            scale: Some(_),
            block: block @ 1..,
            ..
        } = operand.kind
        {
            unit = unit / greatest_common_divisor(unit, block) * block;
        }
    }
    length.next_multiple_of(unit)
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    match b {
        0 => a,
        b => greatest_common_divisor(b, a % b),
    }
}

/// An operand with segments of a length.
struct Padded<'a> {
    kind: OperandKind,
    elements: Cow<'a, Lines>,
    scales: Cow<'a, Lines>,
}

impl<'a> Padded<'a> {
    fn of(operand: &'a Accumulated, length: usize) -> Self {
        let mut kind = operand.kind;
        if kind.block == 0 && operand.elements.segments > 1 {
            kind.block = length;
        }
        let blocks = match (kind.scale, kind.block) {
            (None, _) => operand.scales.length,
            (Some(_), 0) => 1,
            (Some(_), block) => length.div_ceil(block),
        };
        Self {
            kind,
            elements: operand.elements.with_length(length, Some(0.0)),
            scales: match operand.scales.values.is_empty() {
                true => Cow::Borrowed(&operand.scales),
                false => operand.scales.with_length(blocks, None),
            },
        }
    }

    fn matrix(&self, matrix: usize) -> AccumulatorOperand<'_> {
        let length = self.elements.segments * self.elements.length;
        AccumulatorOperand {
            kind: self.kind,
            elements: self.elements.matrix(matrix),
            free: Axis {
                length: self.elements.free,
                stride: length,
            },
            summed: Axis { length, stride: 1 },
            scales: match self.scales.values.is_empty() {
                true => &[],
                false => self.scales.matrix(matrix),
            },
        }
    }
}
