//! Products in host memory, for any backend, that sum up as a matrix unit does ([`Accumulation`]).

mod convolution;
pub(crate) mod layout;
mod looks;

use std::borrow::Cow;

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use microscaling::{
    AccumulateError, Accumulation, AccumulatorOperand, Axis, BlockFormat, ElementFormat,
    FloatFormat, OperandKind, OperandType, Packed,
};

use crate::kernels::{MxKernels, read_values};
pub(crate) use convolution::convolve;
pub(crate) use layout::{AccumulatedForm, AccumulatedProduct, Sums};
use layout::{Layout, broadcast, common_block};
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

impl AccumulatedForm {
    /// The operand, quantized in host memory.
    pub(crate) fn on_host<B: MxKernels>(&self, tensor: FloatTensor<B>) -> Accumulated {
        let shape = tensor.shape().to_vec();
        let mut elements = read_values::<B>(tensor);
        let (mut scales, mut tensor_scale) = (Vec::new(), 1.0);
        if let Some((format, rounding)) = self.blocks {
            let axis = self.block_axis(&format);
            let rounder = rounding.with(self.stream);
            let packed = Packed::encode(format, &elements, &shape, axis, rounder)
                .unwrap_or_else(|error| panic!("burn-mx: {error}"));
            let apart = packed.elements_and_scales(self.sums.summed);
            [elements, scales] = apart.expect("the specs were resolved with this format");
            tensor_scale = packed.tensor_scale().unwrap_or(1.0);
        }
        Accumulated {
            kind: self.kind,
            shape,
            sums: self.sums,
            elements,
            scales,
            tensor_scale,
        }
    }
}

/// The product of two operands over their last two axes, and its shape; the other axes broadcast. Some of the sums are looked at.
pub(crate) fn product(
    accumulation: Accumulation,
    operands: [&Accumulated; 2],
    looks: &mut Option<SumLooks>,
) -> Result<(Vec<f32>, Vec<usize>), AccumulateError> {
    let unit = common_block(operands.map(|operand| operand.kind));
    let [lhs, rhs] = operands.map(|operand| operand.matrices(unit));
    let accumulator = accumulation.of(lhs.kind, rhs.kind)?;
    let (mut shape, numbers) = broadcast([lhs.leading, rhs.leading]);
    let of_matrix = lhs.free.length * rhs.free.length;
    let matrices = numbers.len();
    let mut values = vec![0.0; matrices * of_matrix];
    let results = values.chunks_exact_mut(of_matrix.max(1)).zip(numbers);
    for (at, (result, numbers)) in results.enumerate() {
        let of_lhs = lhs.operand(numbers[0]);
        let of_rhs = rhs.operand(numbers[1]);
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
    /// The matrices, with zeros as [`Layout::of`] says.
    fn matrices(&self, unit: usize) -> Matrices<'_> {
        let layout = Layout::of(&self.shape, self.kind, self.sums, unit);
        let sizes = [layout.given, layout.length].map(|length| length * layout.stride);
        let mut matrices = Matrices {
            kind: OperandKind {
                block: layout.block,
                ..self.kind
            },
            leading: layout.leading,
            free: layout.free,
            summed: Axis {
                length: layout.summed(),
                stride: layout.stride,
            },
            elements: padded(&self.elements, sizes[0], sizes[1], 0.0),
            scales: Cow::Borrowed(&self.scales),
            blocks: self.blocks(),
        };
        if self.sums.summed + 1 == self.shape.len() || self.kind.scale.is_none() {
            return matrices;
        }
        let (columns, length) = (layout.free.length, layout.length);
        let blocks = match layout.block {
            0 => self.blocks(),
            block => length.div_ceil(block),
        };
        // The scale of zeros can be any.
        let sizes = [self.blocks(), blocks].map(|blocks| blocks * columns);
        let by_block = padded(&self.scales, sizes[0], sizes[1], 1.0);
        matrices.blocks = layout.segments * blocks;
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
