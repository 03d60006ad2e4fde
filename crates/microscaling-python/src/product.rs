//! Products under an accumulator.

use crate::arguments::value_error;
use crate::format::FormatArgument;
use crate::packed::Packed;
use crate::pool;
use microscaling::{PackedView, Rounder};
use microscaling_product::{
    Accumulation, AccumulatorMatrix, AccumulatorOperand, Axis, OperandType,
};
use numpy::{PyReadonlyArray2, PyReadwriteArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;

/// An operand of two axes.
enum PyOperand<'py> {
    /// With block scales.
    Blocks(AccumulatorMatrix),
    /// Without scales.
    Elements(PyReadonlyArray2<'py, f32>, OperandType),
}

impl<'py> PyOperand<'py> {
    /// The operand of a packed tensor, or of an array and its format. `axis` is the summed axis.
    fn new(
        object: &Bound<'py, PyAny>,
        format: Option<&Bound<'py, PyAny>>,
        axis: usize,
    ) -> PyResult<Self> {
        let py = object.py();
        if let Ok(packed) = object.cast::<Packed>() {
            let matrix = packed.get().with(py, |view| matrix_of(&view, axis))?;
            return matrix.map(Self::Blocks);
        }
        let Some(format) = format else {
            let side = ["w", "x"][axis];
            let message = format!("{side} is an array and its format is None, expected a format");
            return Err(value_error(message));
        };
        let array: PyReadonlyArray2<'_, f32> = object.extract()?;
        if let Ok(Ok(element)) = format.extract::<&str>().map(str::parse) {
            return Ok(Self::Elements(array, element));
        }
        let FormatArgument(format) = format.extract()?;
        let data = array.as_slice().map_err(value_error)?;
        let shape = [array.shape()[0], array.shape()[1]];
        let quantize =
            || AccumulatorMatrix::quantize(&format, data, shape, axis, Rounder::NearestEven);
        let matrix = py.detach(|| pool::share(data.len(), quantize));
        matrix.map(Self::Blocks).map_err(value_error)
    }

    fn view(&self, axis: usize) -> PyResult<AccumulatorOperand<'_>> {
        let (array, element) = match self {
            Self::Blocks(matrix) => return Ok(matrix.operand()),
            Self::Elements(array, element) => (array, *element),
        };
        let shape = array.shape();
        let axes = [
            Axis {
                length: shape[0],
                stride: shape[1],
            },
            Axis {
                length: shape[1],
                stride: 1,
            },
        ];
        Ok(AccumulatorOperand {
            kind: element.into(),
            elements: array.as_slice().map_err(value_error)?,
            free: axes[1 - axis],
            summed: axes[axis],
            scales: &[],
        })
    }

    fn tensor_scale(&self) -> Option<f32> {
        match self {
            Self::Blocks(matrix) => matrix.tensor_scale(),
            Self::Elements(..) => None,
        }
    }
}

/// A packed matrix, or a packed vector as a matrix of one row or column.
fn matrix_of(packed: &PackedView<'_>, axis: usize) -> PyResult<AccumulatorMatrix> {
    let mut shape = [1; 2];
    let view = match *packed.shape() {
        [length] => {
            shape[axis] = length;
            let (scales, elements) = (packed.scales(), packed.elements());
            PackedView::new(
                packed.format(),
                &shape,
                axis,
                packed.tensor_scale(),
                scales,
                elements,
            )
        }
        _ if packed.axis() != axis => {
            let (side, got) = (["w", "x"][axis], packed.axis());
            return Err(value_error(format!(
                "{side} is packed along axis {got}, expected {axis}, the axis that is summed over"
            )));
        }
        _ => Ok(*packed),
    };
    let view = view.map_err(value_error)?;
    AccumulatorMatrix::of_packed(&view).map_err(value_error)
}

/// Adds the product of two matrices `[m, k]` and `[k, n]` to the sums `[m, n]`, then multiplies by the tensor scales.
#[pyfunction]
pub(crate) fn dot(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    w: &Bound<'_, PyAny>,
    accumulator: &str,
    format: Option<&Bound<'_, PyAny>>,
    w_format: Option<&Bound<'_, PyAny>>,
    mut sums: PyReadwriteArray2<'_, f32>,
) -> PyResult<()> {
    let accumulation: Accumulation = accumulator.parse().map_err(value_error)?;
    let (x, w) = (
        PyOperand::new(x, format, 1)?,
        PyOperand::new(w, w_format, 0)?,
    );
    let (lhs, rhs) = (x.view(1)?, w.view(0)?);
    let accumulator = accumulation.of(lhs.kind, rhs.kind).map_err(value_error)?;
    let tensor_scale = x.tensor_scale().unwrap_or(1.0) * w.tensor_scale().unwrap_or(1.0);
    let sums = sums.as_slice_mut().map_err(value_error)?;
    let operations = sums.len().saturating_mul(lhs.summed.length);
    let multiply = || {
        accumulator.multiply_add(&lhs, &rhs, sums)?;
        if tensor_scale != 1.0 {
            sums.iter_mut().for_each(|sum| *sum *= tensor_scale);
        }
        Ok::<(), microscaling_product::AccumulateError>(())
    };
    py.detach(|| pool::share(operations, multiply))
        .map_err(value_error)
}
