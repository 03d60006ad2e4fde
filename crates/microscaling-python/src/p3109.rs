//! The codes and values of IEEE P3109 as NumPy arrays.

use crate::arguments::value_error;
use microscaling::p3109::{P3109Format, P3109Rounding, Projection};
use numpy::{PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

/// The values of all codes as float64.
pub(crate) fn values(
    py: Python<'_>,
    format: P3109Format,
) -> PyResult<Bound<'_, numpy::PyArray1<f64>>> {
    let value = |code| {
        format.decode(code).to_f64().ok_or_else(|| {
            value_error(format!(
                "the format is {format}, expected one whose numbers float64 holds: code {code:#x} is beyond"
            ))
        })
    };
    let values: PyResult<Vec<f64>> = (0..1 << format.bits()).map(value).collect();
    Ok(numpy::PyArray1::from_vec(py, values?))
}

/// The mode of a name, with its random bits.
pub(crate) fn projection(
    rounding: &str,
    saturation: &str,
    random_bits: u32,
) -> PyResult<Projection> {
    Ok(Projection {
        rounding: P3109Rounding::named(rounding, random_bits, 0).map_err(value_error)?,
        saturation: saturation.parse().map_err(value_error)?,
    })
}

/// The codes of numbers. Each has its random number of `random_bits` bits.
pub(crate) fn project<'py>(
    py: Python<'py>,
    format: P3109Format,
    x: &Bound<'py, PyAny>,
    projection: Projection,
    (random_bits, random): (u32, Option<&Bound<'py, PyAny>>),
) -> PyResult<Bound<'py, PyArrayDyn<u16>>> {
    let x: PyReadonlyArrayDyn<'py, f64> = array(py, x, "float64", "x")?;
    let random = match random {
        None => None,
        Some(random) => {
            let numpy = py.import("numpy")?;
            let same = numpy.call_method1("broadcast_to", (random, x.shape()))?;
            let random: PyReadonlyArrayDyn<'py, i64> = array(py, &same, "int64", "random")?;
            Some(random)
        }
    };
    let numbers = x.as_slice().map_err(value_error)?;
    let random = random.as_ref().map(|random| random.as_slice());
    let random = random.transpose().map_err(value_error)?;
    let code = |(i, number): (usize, &f64)| {
        let mut projection = projection;
        if let Some(random) = random {
            let drawn = u32::try_from(random[i]).map_err(|_| {
                let allowed = format!("0 or more, and less than 2^{random_bits}");
                value_error(format!("random is {}, expected {allowed}", random[i]))
            })?;
            let rounding = projection.rounding.with_random(drawn);
            projection.rounding = rounding.map_err(value_error)?;
        }
        Ok(format.project(*number, projection) as u16)
    };
    let codes: PyResult<Vec<u16>> = numbers.iter().enumerate().map(code).collect();
    numpy::PyArray1::from_vec(py, codes?).reshape(x.shape().to_vec())
}

/// The argument as a contiguous array of a type.
fn array<'py, T: numpy::Element>(
    py: Python<'py>,
    argument: &Bound<'py, PyAny>,
    dtype: &str,
    name: &str,
) -> PyResult<PyReadonlyArrayDyn<'py, T>> {
    let numpy = py.import("numpy")?;
    let given = numpy.call_method1("asarray", (argument,))?;
    let kind: String = given.getattr("dtype")?.getattr("kind")?.extract()?;
    let is_float = dtype == "float64";
    // ml_dtypes' types have the kind `V` or `f`.
    if !is_float && !matches!(kind.as_str(), "i" | "u")
        || is_float && !matches!(kind.as_str(), "i" | "u" | "f" | "V")
    {
        let wanted = if is_float { "numbers" } else { "integers" };
        let dtype = given.getattr("dtype")?;
        return Err(PyTypeError::new_err(format!(
            "{name} is an array of {dtype}, expected {wanted}"
        )));
    }
    let options = [("dtype", dtype), ("order", "C")].into_py_dict(py)?;
    let contiguous = numpy.call_method("array", (given,), Some(&options))?;
    contiguous.extract()
}
