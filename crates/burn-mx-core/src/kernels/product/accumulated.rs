//! Products in host memory, for any backend, that sum up as a matrix unit does ([`Accumulation`]).

pub(crate) mod convolution;
mod laid;
pub(crate) mod layout;
mod looks;

use std::borrow::Cow;

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use microscaling::{
    AccumulateError, AccumulatorOperand, Axis, BlockFormat, ElementFormat, FloatFormat,
    OperandKind, OperandType, Packed,
};

use crate::kernels::{MxKernels, read_values};
use laid::convolve;
pub(crate) use layout::{AccumulatedForm, AccumulatedProduct, Sums};
use layout::{Layout, broadcast};
pub(crate) use looks::SumLooks;

/// An operand of a product as a matrix unit takes it: a tensor with elements and block scales apart.
#[derive(Debug)]
pub struct Accumulated {
    pub(crate) form: AccumulatedForm,
    pub(crate) shape: Vec<usize>,
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
            form: *self,
            shape,
            elements,
            scales,
            tensor_scale,
        }
    }
}

/// The elements of a product in row-major order. Some of the sums are looked at.
pub(crate) fn multiply(
    product: &AccumulatedProduct,
    operands: [&Accumulated; 2],
    looks: &mut Option<SumLooks>,
) -> Result<Vec<f32>, AccumulateError> {
    let mut values = match product.convolution {
        Some(_) => convolve(product, operands, looks)?,
        None => multiply_matrices(product, operands, looks)?,
    };
    let tensor_scale = operands[0].tensor_scale * operands[1].tensor_scale;
    if tensor_scale != 1.0 {
        values.iter_mut().for_each(|value| *value *= tensor_scale);
    }
    Ok(values)
}

/// The product over the last two axes; the other axes broadcast.
fn multiply_matrices(
    product: &AccumulatedProduct,
    operands: [&Accumulated; 2],
    looks: &mut Option<SumLooks>,
) -> Result<Vec<f32>, AccumulateError> {
    let layouts = product.layouts();
    let [lhs, rhs] = [0, 1].map(|i| operands[i].matrices(&layouts[i]));
    let (_, numbers) = broadcast(layouts.each_ref().map(|layout| &layout.leading[..]));
    let of_matrix = lhs.free.length * rhs.free.length;
    let matrices = numbers.len();
    let mut values = vec![0.0; matrices * of_matrix];
    let results = values.chunks_exact_mut(of_matrix.max(1)).zip(numbers);
    for (at, (result, numbers)) in results.enumerate() {
        let of_lhs = lhs.operand(numbers[0]);
        let of_rhs = rhs.operand(numbers[1]);
        product.accumulator.multiply(&of_lhs, &of_rhs, result)?;
        if let Some(looks) = looks {
            looks.see([at, matrices], [&of_lhs, &of_rhs]);
        }
    }
    Ok(values)
}

/// The matrices of an operand: [free, summed].
struct Matrices<'a> {
    kind: OperandKind,
    free: Axis,
    summed: Axis,
    elements: Cow<'a, [f32]>,
    /// [free, blocks] of each matrix.
    scales: Cow<'a, [f32]>,
    /// Scales of a line.
    blocks: usize,
}

impl Accumulated {
    /// The matrices, with zeros behind each segment.
    fn matrices(&self, layout: &Layout) -> Matrices<'_> {
        let [segments, segment] = layout.summed;
        let sizes = [layout.given, segment.count].map(|length| length * segment.stride);
        let mut matrices = Matrices {
            kind: layout.kind(self.form.kind),
            free: Axis {
                length: layout.lines(),
                stride: layout.free[1].stride,
            },
            summed: Axis {
                length: layout.length(),
                stride: segment.stride,
            },
            elements: padded(&self.elements, sizes[0], sizes[1], 0.0),
            scales: Cow::Borrowed(&self.scales),
            blocks: self.blocks(),
        };
        if self.form.sums.summed + 1 == self.shape.len() || self.form.kind.scale.is_none() {
            return matrices;
        }
        let columns = layout.lines();
        let blocks = match layout.block {
            0 => self.blocks(),
            block => segment.count.div_ceil(block),
        };
        // The scale of zeros can be any.
        let sizes = [self.blocks(), blocks].map(|blocks| blocks * columns);
        let by_block = padded(&self.scales, sizes[0], sizes[1], 1.0);
        matrices.blocks = segments.count * blocks;
        matrices.scales = Cow::Owned(turned(&by_block, matrices.blocks, columns));
        matrices
    }

    /// Blocks along the summed axis.
    fn blocks(&self) -> usize {
        let length = self.shape[self.form.sums.summed];
        match (self.form.kind.scale, self.form.kind.block) {
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
