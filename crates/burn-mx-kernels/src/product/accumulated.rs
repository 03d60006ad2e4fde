//! Products in host memory, for any backend, that sum up as a matrix unit does ([`Accumulation`](microscaling_product::Accumulation)).

mod blocks;
pub(crate) mod convolution;
mod form;
mod laid;
pub(crate) mod layout;
mod looks;
mod segment;
mod unit_product;

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use microscaling::{BlockFormat, ElementFormat, FloatFormat, Packed};
use microscaling_product::{AccumulateError, OperandKind, OperandType};

use crate::MxKernels;
use crate::float_types::read_values;
pub use form::{AccumulatedForm, Sums};
pub use looks::SumLooks;
pub use unit_product::AccumulatedProduct;

/// An operand of a product as a matrix unit takes it: a tensor with elements and block scales apart.
#[derive(Debug)]
pub struct Accumulated {
    /// How the tensor became the operand.
    pub form: AccumulatedForm,
    /// The shape of the elements.
    pub shape: Vec<usize>,
    elements: Vec<f32>,
    /// The scales. Their shape is the shape of the elements, with the number of blocks along the summed axis. Empty without scales.
    scales: Vec<f32>,
    /// A factor of all elements.
    tensor_scale: f32,
}

/// The kind of numbers in an operand with this block format, or only an elementwise format, or neither. `None` if elements have
/// other factors than the scale of their block.
pub fn kind_of(
    blocks: Option<&BlockFormat>,
    elementwise: Option<FloatFormat>,
) -> Option<OperandKind> {
    let element = match (blocks, elementwise) {
        // Stochastic scales cannot be packed.
        (Some(format), _) if format.eden => return None,
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
    pub fn on_host<B: MxKernels>(&self, tensor: FloatTensor<B>) -> Accumulated {
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

impl AccumulatedForm {
    /// The operand that a packed weight is, of a layer whose weight has this shape. The packed weight may have its two axes swapped.
    pub fn of_packed(&self, packed: &Packed, shape: &[usize]) -> Accumulated {
        let swapped = packed.shape() != shape;
        let summed = match swapped {
            true => 1 - self.sums.summed,
            false => self.sums.summed,
        };
        let apart = packed.elements_and_scales(summed);
        let [mut elements, mut scales] = apart.expect("the specs were resolved with this format");
        if swapped {
            let lines = packed.shape()[0];
            [elements, scales] = [elements, scales].map(|matrix| transposed(&matrix, lines));
        }
        Accumulated {
            form: *self,
            shape: shape.to_vec(),
            elements,
            scales,
            tensor_scale: packed.tensor_scale().unwrap_or(1.0),
        }
    }
}

/// A matrix with this number of rows, transposed.
fn transposed(matrix: &[f32], rows: usize) -> Vec<f32> {
    let columns = matrix.len().checked_div(rows).unwrap_or(0);
    let column = |column| matrix.iter().skip(column).step_by(columns).copied();
    (0..columns).flat_map(column).collect()
}

/// The elements of a product in row-major order. Some of the sums are looked at.
pub fn multiply(
    product: &AccumulatedProduct,
    operands: [&Accumulated; 2],
    looks: &mut Option<SumLooks>,
) -> Result<Vec<f32>, AccumulateError> {
    let mut values = laid::multiply(product, operands, looks)?;
    // In float64, as in other products: the product of two tensor scales may be less than any float32.
    let factor = operands.map(|operand| f64::from(operand.tensor_scale));
    let factor = factor[0] * factor[1];
    if factor != 1.0 {
        for value in &mut values {
            *value = (f64::from(*value) * factor) as f32;
        }
    }
    Ok(values)
}

impl Accumulated {
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
