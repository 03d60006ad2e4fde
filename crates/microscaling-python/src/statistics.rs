//! Statistics of a tensor's quantization, for Python.

use crate::arguments::{axis, value_error};
use crate::format::FormatArgument;
use crate::pool;
use microscaling::{Comparison, OperandQuantization, Rounding};
use numpy::{PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;
use std::collections::BTreeMap;

/// Statistics of a tensor's quantization. Elements that are not finite before or after are counted, and are in no other
/// figure.
#[pyclass(frozen, module = "microscaling")]
pub(crate) struct Statistics(microscaling::Statistics);

#[pymethods]
impl Statistics {
    /// Elements of the tensor.
    #[getter]
    fn elements(&self) -> u64 {
        self.0.elements()
    }

    /// Elements that are NaN or Inf before or after.
    #[getter]
    fn non_finite(&self) -> u64 {
        self.0.non_finite()
    }

    /// Elements that are finite before and Inf after.
    #[getter]
    fn overflow(&self) -> u64 {
        self.0.overflow()
    }

    /// Blocks, including blocks of zeros.
    #[getter]
    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    /// The sum of x².
    #[getter]
    fn power(&self) -> f64 {
        self.0.power()
    }

    /// The sum of (x − q)².
    #[getter]
    fn error(&self) -> f64 {
        self.0.error()
    }

    /// The mean of (x − q)²; None without finite elements.
    #[getter]
    fn mse(&self) -> Option<f64> {
        self.0.mse()
    }

    /// 10 log₁₀(power / error) in dB; None of zeros.
    #[getter]
    fn sqnr(&self) -> Option<f64> {
        self.0.sqnr()
    }

    /// ⟨x, q⟩ / ⟨x, x⟩.
    #[getter]
    fn slope(&self) -> Option<f64> {
        self.0.slope()
    }

    /// The cosine of the angle between the tensor before and after; None of zeros.
    #[getter]
    fn cosine(&self) -> Option<f64> {
        self.0.cosine()
    }

    /// Elements that are not zero before.
    #[getter]
    fn nonzero(&self) -> u64 {
        self.0.nonzero()
    }

    /// Elements that are not zero before and are zero after.
    #[getter]
    fn underflow(&self) -> u64 {
        self.0.underflow()
    }

    /// Elements beyond the largest number of their block.
    #[getter]
    fn saturated(&self) -> u64 {
        self.0.saturated()
    }

    /// The largest magnitude.
    #[getter]
    fn amax(&self) -> f32 {
        self.0.amax()
    }

    /// The smallest magnitude but zero.
    #[getter]
    fn smallest(&self) -> Option<f32> {
        self.0.smallest()
    }

    /// log₂(amax / smallest).
    #[getter]
    fn dynamic_range(&self) -> Option<f64> {
        self.0.dynamic_range()
    }

    /// ⌊log₂ scale⌋, and the number of blocks with such a scale, without blocks of zeros.
    #[getter]
    fn scales(&self) -> BTreeMap<i32, u64> {
        self.0.scales().collect()
    }

    /// Mean and standard deviation of log₂ of the scales.
    #[getter]
    fn scale_log2(&self) -> Option<(f64, f64)> {
        self.0.scale_log2().map(Into::into)
    }

    /// The smallest and the largest scale of a block that is not zero.
    #[getter]
    fn scale_range(&self) -> Option<(f32, f32)> {
        self.0.scale_range().map(Into::into)
    }

    /// The SQNR in dB of the block at this share of all, from the worst (0) to the best (1).
    fn block_sqnr(&self, share: f64) -> Option<f64> {
        self.0.block_sqnr([share]).map(|[sqnr]| sqnr)
    }

    fn __repr__(&self) -> String {
        let sqnr = self
            .0
            .sqnr()
            .map_or("None".into(), |sqnr| format!("{sqnr:.2}"));
        let (elements, underflow, saturated) =
            (self.0.elements(), self.0.underflow(), self.0.saturated());
        format!(
            "Statistics(elements={elements}, sqnr={sqnr}, underflow={underflow}, saturated={saturated})"
        )
    }
}

/// Statistics of a contiguous array and of the values that a format gives it.
#[pyfunction]
pub(crate) fn statistics(
    py: Python<'_>,
    x: PyReadonlyArrayDyn<'_, f32>,
    format: FormatArgument,
    axis: isize,
    rounding: &str,
) -> PyResult<Statistics> {
    let rounding: Rounding = rounding.parse().map_err(value_error)?;
    if rounding == Rounding::Stochastic {
        let message = "rounding is `stochastic` and quantized is None, expected nearest, even or floor, or a quantized array";
        return Err(value_error(message));
    }
    let axis = self::axis(axis, x.shape().len())?;
    let quantization = OperandQuantization {
        blocks: Some((format.0, rounding)),
        ..OperandQuantization::default()
    };
    let (data, shape) = (x.as_slice().map_err(value_error)?, x.shape());
    let work = || microscaling::Statistics::of_quantizing(data, shape, axis, quantization);
    let statistics = py.detach(|| pool::share(data.len(), work));
    statistics.map(Statistics).map_err(value_error)
}

/// Statistics of two contiguous arrays, before and after.
#[pyfunction]
pub(crate) fn statistics_of(
    py: Python<'_>,
    original: PyReadonlyArrayDyn<'_, f32>,
    quantized: PyReadonlyArrayDyn<'_, f32>,
    format: FormatArgument,
    axis: isize,
) -> PyResult<Statistics> {
    let shape = original.shape();
    let comparison = Comparison {
        original: original.as_slice().map_err(value_error)?,
        quantized: quantized.as_slice().map_err(value_error)?,
        shape,
        axis: self::axis(axis, shape.len())?,
        format: Some(format.0),
    };
    let work = || microscaling::Statistics::of(comparison);
    let statistics = py.detach(|| pool::share(comparison.original.len(), work));
    statistics.map(Statistics).map_err(value_error)
}
