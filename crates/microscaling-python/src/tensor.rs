//! Tensors of float32, rounded.

use crate::arguments::{axis, rounder, value_error};
use crate::format::FormatArgument;
use crate::pool;
use microscaling::{
    BlockFormat, FloatFormat, QuantizeError, RandomHadamard, RandomStream, Rounder, Signs,
};
use numpy::{
    PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyReadwriteArrayDyn, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use rayon::prelude::*;

/// Elements of a piece that stays in a core's cache between being copied and being quantized.
const PIECE: usize = 1 << 16;

/// Quantizes a contiguous array in place.
#[pyfunction]
pub(crate) fn quantize_(
    py: Python<'_>,
    mut x: PyReadwriteArrayDyn<'_, f32>,
    format: FormatArgument,
    axis: isize,
    rounding: &str,
    seed: Option<u64>,
) -> PyResult<()> {
    let rounder = rounder(py, rounding, seed)?;
    let shape = x.shape().to_vec();
    let axis = self::axis(axis, shape.len())?;
    let data = x.as_slice_mut().map_err(value_error)?;
    let quantize = || format.0.quantize(data, &shape, axis, rounder);
    py.detach(|| pool::share(elements(&shape), quantize))
        .map_err(value_error)
}

/// A quantized copy of a contiguous array.
#[pyfunction]
pub(crate) fn quantize<'py>(
    py: Python<'py>,
    x: PyReadonlyArrayDyn<'py, f32>,
    format: FormatArgument,
    axis: isize,
    rounding: &str,
    seed: Option<u64>,
) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
    let rounder = rounder(py, rounding, seed)?;
    let shape = x.shape().to_vec();
    let axis = self::axis(axis, shape.len())?;
    let from = x.as_slice().map_err(value_error)?;
    // SAFETY: no element is read before it is written. All of them are written below, where the copy is not dropped for an error.
    let copy = unsafe { PyArrayDyn::<f32>::new(py, shape.clone(), false) };
    {
        let mut to = copy.readwrite();
        let to = to.as_slice_mut().map_err(value_error)?;
        let job = || quantized_copy(from, to, &shape, axis, &format.0, rounder);
        py.detach(|| pool::share(elements(&shape), job))
            .map_err(value_error)?;
    }
    Ok(copy)
}

/// Copies and quantizes. If rows of the first axis do not depend on each other, the work goes piece by piece: one pass over
/// memory in place of two.
fn quantized_copy(
    from: &[f32],
    to: &mut [f32],
    shape: &[usize],
    axis: usize,
    format: &BlockFormat,
    rounder: Rounder,
) -> Result<(), QuantizeError> {
    if from.len() <= PIECE {
        to.copy_from_slice(from);
        return format.quantize(to, shape, axis, rounder);
    }
    let depend = axis == 0
        || (axis == 1 && format.square)
        || format.tensor_scale
        || matches!(rounder, Rounder::Stochastic(_));
    if depend {
        let pieces = to.par_chunks_mut(PIECE).zip(from.par_chunks(PIECE));
        pieces.for_each(|(to, from)| to.copy_from_slice(from));
        return format.quantize(to, shape, axis, rounder);
    }
    let row: usize = shape[1..].iter().product();
    let length = PIECE.div_ceil(row) * row;
    let pieces = to.par_chunks_mut(length).zip(from.par_chunks(length));
    pieces.try_for_each(|(to, from)| {
        to.copy_from_slice(from);
        let shape = [&[to.len() / row], &shape[1..]].concat();
        format.quantize(to, &shape, axis, rounder)
    })
}

/// Rounds the elements of a contiguous array to bfloatN or fpN, in place.
#[pyfunction]
pub(crate) fn round_(
    py: Python<'_>,
    mut x: PyReadwriteArrayDyn<'_, f32>,
    family: &str,
    bits: u32,
    subnormals: bool,
    rounding: &str,
    seed: Option<u64>,
) -> PyResult<()> {
    let format = match family {
        "bfloat" => FloatFormat::bfloat(bits),
        _ => FloatFormat::fp(bits),
    };
    let format = format.map_err(value_error)?;
    let format = format.with_subnormals(subnormals);
    let rounder = rounder(py, rounding, seed)?;
    let data = x.as_slice_mut().map_err(value_error)?;
    py.detach(|| pool::share(data.len(), || format.round_slice(data, rounder)));
    Ok(())
}

/// The random Hadamard transform of a contiguous array in place, or its inverse.
#[pyfunction]
pub(crate) fn hadamard_(
    py: Python<'_>,
    mut x: PyReadwriteArrayDyn<'_, f32>,
    block_size: usize,
    axis: isize,
    seed: Option<u64>,
    signs: Option<u128>,
    inverse: bool,
) -> PyResult<()> {
    let signs = match (seed, signs) {
        (Some(seed), None) => Signs::Random(RandomStream::new(seed, 0)),
        (None, signs) => Signs::Repeated(signs.unwrap_or(0)),
        (Some(seed), Some(signs)) => {
            let both = format!("seed is {seed} and signs is {signs:#x}, expected one of them");
            return Err(value_error(both));
        }
    };
    let transform = RandomHadamard { block_size };
    let shape = x.shape().to_vec();
    let axis = self::axis(axis, shape.len())?;
    let data = x.as_slice_mut().map_err(value_error)?;
    let work = || match inverse {
        false => transform.transform(data, &shape, axis, signs),
        true => transform.inverse(data, &shape, axis, signs),
    };
    py.detach(|| pool::share(elements(&shape), work))
        .map_err(value_error)
}

/// How many elements an array of this shape has: NumPy has seen to it that the product is one.
fn elements(shape: &[usize]) -> usize {
    match shape.contains(&0) {
        true => 0,
        false => shape.iter().product(),
    }
}
