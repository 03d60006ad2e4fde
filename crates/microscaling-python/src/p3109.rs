//! The formats of IEEE P3109 as Python sees them.

use crate::arguments::value_error;
use microscaling::p3109::{P3109Format, P3109Rounding, Projection};
use numpy::{PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

/// A format of IEEE P3109, "Arithmetic formats for machine learning", by the working group's interim report 4.0, a draft.
///
/// `P3109Format("binary8p4se")` has 8 bits, precision 4, a sign (`s`; unsigned: `u`) and infinities (`e`; finite: `f`). `str` gives the
/// name.
#[pyclass(frozen, eq, hash, module = "microscaling", name = "P3109Format")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PyP3109Format(P3109Format);

#[pymethods]
impl PyP3109Format {
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        text.parse().map(Self).map_err(value_error)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("P3109Format('{}')", self.0)
    }

    fn __getnewargs__(&self) -> (String,) {
        (self.0.to_string(),)
    }

    /// Bits of a code.
    #[getter]
    fn bits(&self) -> u32 {
        self.0.bits()
    }

    /// Bits of a significand, with the implicit bit.
    #[getter]
    fn precision(&self) -> u32 {
        self.0.precision()
    }

    /// The bias of the exponent field.
    #[getter]
    fn bias(&self) -> i32 {
        self.0.bias()
    }

    /// Whether there are numbers below 0.
    #[getter]
    fn is_signed(&self) -> bool {
        self.0.is_signed()
    }

    /// Whether there are infinities.
    #[getter]
    fn is_extended(&self) -> bool {
        self.0.is_extended()
    }

    /// The code of NaN.
    #[getter]
    fn nan(&self) -> u32 {
        self.0.nan()
    }

    /// The values of all codes as float64 `[2 ** bits]`. A ValueError if float64 does not hold a number of the format.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, numpy::PyArray1<f64>>> {
        let value = |code| {
            self.0.decode(code).to_f64().ok_or_else(|| {
                let format = self.0;
                value_error(format!(
                    "the format is {format}, expected one whose numbers float64 holds: code {code:#x} is beyond"
                ))
            })
        };
        let values: PyResult<Vec<f64>> = (0..1 << self.0.bits()).map(value).collect();
        Ok(numpy::PyArray1::from_vec(py, values?))
    }

    /// The codes of numbers, rounded and saturated, as uint16 of the shape of `x`. Integers beyond 2^53 are rounded to float64 first.
    ///
    /// `rounding` is `"TowardZero"`, `"TowardPositive"`, `"TowardNegative"`, `"NearestTiesToAway"`, `"NearestTiesToEven"`, `"ToOdd"`,
    /// or `"StochasticA"`, `"StochasticB"`, `"StochasticC"` with 1 to 31 `random_bits` and `random` numbers of these bits: one for all, or
    /// an array that broadcasts to `x`. `saturation` is `"SatFinite"`, `"SatPropagate"` or `"SatNone"`.
    #[pyo3(signature = (x, rounding="NearestTiesToEven", saturation="SatFinite", random_bits=0, random=None))]
    fn project<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        rounding: &str,
        saturation: &str,
        random_bits: u32,
        random: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArrayDyn<u16>>> {
        let projection = Projection {
            rounding: P3109Rounding::named(rounding, random_bits, 0).map_err(value_error)?,
            saturation: saturation.parse().map_err(value_error)?,
        };
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
            Ok(self.0.project(*number, projection) as u16)
        };
        let codes: PyResult<Vec<u16>> = numbers.iter().enumerate().map(code).collect();
        numpy::PyArray1::from_vec(py, codes?).reshape(x.shape().to_vec())
    }
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
