//! Products of bfloat16 panels, for backends whose tensors are slices of this process's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use microscaling::{BlockFormat, OperandQuantization, Rounder, Rounding};
use microscaling_product::{Axis, Epilogue, Matrices, Panels, PanelsError, ProductPath};

use super::memory::InMemory;
use super::native;
use super::quantize::quantize;
use crate::kernel_op::rounding::BFLOAT16;
use crate::product::accumulated::layout::broadcast;
use crate::product::{Operand, OperandForm, OperandLayout};

/// Significant bits of a bfloat16 number.
const SIGNIFICANT_BITS: u32 = 8;

/// Whether this process multiplies values of at most this number of significant bits in bfloat16. The log names the
/// path.
pub(crate) fn multiplies(significant_bits: u32) -> bool {
    let path = ProductPath::current().filter(|_| significant_bits <= SIGNIFICANT_BITS);
    path.inspect(|path| say(*path)).is_some()
}

/// `None` where values turn out to be no bfloat16 numbers, which leaves them to float32.
pub(crate) fn exact<T>(panels: Result<T, PanelsError>) -> Option<T> {
    match panels {
        Ok(panels) => Some(panels),
        Err(PanelsError::Inexact | PanelsError::TensorScale { .. }) => {
            log::debug!(
                "burn-mx: bfloat16 does not hold the numbers of an operand: the product is computed in float32"
            );
            None
        }
        Err(error) => panic!("burn-mx: {error}"),
    }
}

/// The tensor, of at least two axes, quantized into panels; `None` if its values are to be multiplied in float32.
pub(crate) fn operand<T: InMemory, P>(tensor: &T, form: OperandForm) -> Option<Operand<P>> {
    if !multiplies(form.significant_bits) {
        return None;
    }
    let (tensor, form) = match (form.quantization.blocks, form.tensor_scale) {
        (Some(blocks), _) if is_taken_as_a_whole(tensor, form, blocks.0) => {
            quantized(tensor.clone(), form, blocks)?
        }
        // Random numbers depend on the place in memory.
        (Some((_, Rounding::Stochastic)), _) => (tensor.clone().row_major(), form),
        (None, Some(scale)) => (without(scale, tensor.clone()), form),
        _ => (tensor.clone(), form),
    };
    let shape = tensor.dims();
    let (panels, leading) = match tensor.strided() {
        Some((data, strides)) if lies_in_rows(&shape, &strides, form.place) => {
            in_panels(data, &shape, &strides, form)
        }
        _ => {
            let tensor = tensor.clone().row_major();
            in_panels(tensor.values(), &shape, &row_major(&shape), form)
        }
    }?;
    // The scale goes beside the elements, also if they are quantized here.
    let panels = match form.tensor_scale {
        Some(scale) => panels.with_tensor_scale(scale),
        None => panels,
    };
    Some(Operand::Panels {
        panels: Arc::new(panels),
        leading,
    })
}

/// Whether an operand is quantized before it goes into panels. Square blocks belong to one matrix, also if several matrices
/// are taken as one.
fn is_taken_as_a_whole<T: InMemory>(tensor: &T, form: OperandForm, format: BlockFormat) -> bool {
    form.place.flat && tensor.dims().len() > 2 && format.square
}

/// The quantized tensor, and the form that remains; `None` if there is a tensor scale that cannot be taken out of the
/// elements.
fn quantized<T: InMemory>(
    tensor: T,
    form: OperandForm,
    (format, rounding): (BlockFormat, Rounding),
) -> Option<(T, OperandForm)> {
    let axis = form.place.block_axis(tensor.dims().len(), &format);
    let (tensor, tensor_scale) = match format.tensor_scale {
        true => {
            let tensor = quantize(tensor, axis, form.quantization.before_blocks());
            let stream = form.quantization.stream;
            let in_units = native::quantize_without_tensor_scale;
            let (tensor, scale) = in_units(tensor, axis, format, rounding, stream)?;
            (tensor, Some(scale))
        }
        false => (quantize(tensor, axis, form.quantization), None),
    };
    let form = OperandForm {
        quantization: OperandQuantization::default(),
        tensor_scale,
        ..form
    };
    Some((tensor, form))
}

/// The elements without a factor that all of them have, a tensor scale: bfloat16 numbers, of which each is the product with it,
/// rounded.
fn without<T: InMemory>(scale: f32, tensor: T) -> T {
    native::elementwise(tensor, |elements| {
        elements.iter_mut().for_each(|x| *x /= scale);
        BFLOAT16.round_slice(elements, Rounder::NearestEven);
    })
}

/// The product of two operands, whose leading axes broadcast; `None` if they are not both panels.
pub(crate) fn multiply<T: InMemory, P>(
    lhs: &Operand<P>,
    rhs: &Operand<P>,
    epilogue: Epilogue<'_>,
) -> Option<T> {
    let (lhs, lhs_leading, rhs, rhs_leading) = match (lhs, rhs) {
        (
            Operand::Panels {
                panels: lhs,
                leading: lhs_leading,
            },
            Operand::Panels {
                panels: rhs,
                leading: rhs_leading,
            },
        ) => (lhs, lhs_leading, rhs, rhs_leading),
        _ => return None,
    };
    let (mut shape, pairs) = broadcast([lhs_leading, rhs_leading]);
    let pairs: Vec<(usize, usize)> = pairs.into_iter().map(Into::into).collect();
    let result = Panels::product_with(lhs, rhs, &pairs, epilogue)
        .unwrap_or_else(|error| panic!("burn-mx: {error}"));
    shape.extend([lhs.free(), rhs.free()]);
    Some(T::from_values(result, shape))
}

/// Quantizes an operand in rows or columns; `None` if the results are not bfloat16 numbers.
fn in_panels(
    data: &[f32],
    shape: &[usize],
    strides: &[usize],
    form: OperandForm,
) -> Option<(Panels, Vec<usize>)> {
    let OperandLayout { side, flat, .. } = form.place;
    let (leading, [rows, columns]) = split(shape);
    let (leading_strides, [row, column]) = split(strides);
    let count = match flat {
        true => leading.iter().product(),
        false => 1,
    };
    let all_rows = Axis {
        length: rows * count,
        stride: row,
    };
    let columns = Axis {
        length: columns,
        stride: column,
    };
    let (free, summed, group) = match form.place.sums_rows() {
        true => (columns, all_rows, rows),
        false => (all_rows, columns, columns.length),
    };
    let (starts, leading) = match flat {
        true => (vec![0], Vec::new()),
        false => (offsets(leading, leading_strides), leading.to_vec()),
    };
    let matrices = Matrices {
        data,
        starts: &starts,
        free,
        summed,
        group,
    };
    let panels = exact(Panels::quantize(side, matrices, form.quantization))?;
    Some((panels, leading))
}

/// Whether rows or columns lie without gaps, and leading axes that are rows follow on one another.
fn lies_in_rows(shape: &[usize], strides: &[usize], place: OperandLayout) -> bool {
    let (_, lengths) = split(shape);
    let (_, steps) = split(strides);
    let dense = lengths
        .iter()
        .zip(steps)
        .any(|(length, stride)| *length <= 1 || stride == 1);
    let rank = shape.len();
    let follows =
        |axis: usize| shape[axis] == 1 || strides[axis] == shape[axis + 1] * strides[axis + 1];
    dense && (!place.flat || (0..rank - 2).all(follows))
}

/// Leading axes, and the last two.
fn split(axes: &[usize]) -> (&[usize], [usize; 2]) {
    let (leading, last) = axes.split_last_chunk().expect("a product has two axes");
    (leading, *last)
}

/// Strides of a tensor in row-major order.
fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// Where each position along these axes lies, in row-major order.
fn offsets(shape: &[usize], strides: &[usize]) -> Vec<usize> {
    let axes = shape.iter().zip(strides);
    axes.fold(vec![0], |offsets, (&length, &stride)| {
        let along = |start: usize| (0..length).map(move |i| start + i * stride);
        offsets.into_iter().flat_map(along).collect()
    })
}

/// Says by which path products are computed: once, and again when a call of this process changes the path.
fn say(path: ProductPath) {
    static SAID: AtomicUsize = AtomicUsize::new(usize::MAX);
    let number = path as usize;
    if SAID.load(Ordering::Relaxed) != number && SAID.swap(number, Ordering::Relaxed) != number {
        log::info!(
            "burn-mx: matrix products of operands that are exact in bfloat16 are computed in bfloat16 by {path}"
        );
    }
}
