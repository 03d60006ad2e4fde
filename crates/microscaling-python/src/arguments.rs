//! The arguments of functions.

use microscaling::{RandomStream, Rounder, Rounding};
use pyo3::exceptions::{PyUserWarning, PyValueError};
use pyo3::prelude::*;
use std::ffi::CString;
use std::fmt::Display;

/// An error of the library's as Python's `ValueError`, with its message.
pub(crate) fn value_error(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// The axis counted from the first.
pub(crate) fn axis(axis: isize, rank: usize) -> PyResult<usize> {
    let counted = if axis < 0 { axis + rank as isize } else { axis };
    let within = usize::try_from(counted).ok().filter(|axis| *axis < rank);
    within.ok_or_else(|| {
        let allowed = match rank {
            0 => "an array of one axis or more".to_owned(),
            _ => format!("-{rank} to {}", rank - 1),
        };
        value_error(format!(
            "axis is {axis} of an array of {rank} axes, expected {allowed}"
        ))
    })
}

/// How numbers are rounded. A seed without random numbers is a warning.
pub(crate) fn rounder(py: Python<'_>, rounding: &str, seed: Option<u64>) -> PyResult<Rounder> {
    let rounding: Rounding = rounding.parse().map_err(value_error)?;
    match (rounding, seed) {
        (Rounding::Stochastic, None) => {
            return Err(value_error(
                "rounding is `stochastic` and seed is None, expected an integer",
            ));
        }
        (Rounding::Stochastic, Some(_)) | (_, None) => {}
        (_, Some(seed)) => {
            let message = format!(
                "seed is {seed} and has no effect: rounding `{rounding}` draws no random numbers"
            );
            let category = py.get_type::<PyUserWarning>();
            PyErr::warn(py, &category, &CString::new(message)?, 1)?;
        }
    }
    Ok(rounding.with(RandomStream::new(seed.unwrap_or(0), 0)))
}
