//! Formats as Python sees them.

use crate::arguments::value_error;
use microscaling::p3109::P3109Format;
use microscaling::{BlockFormat, ElementFormat, ScaleFormat};
use numpy::PyArray1;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

/// Types of NumPy and ml_dtypes, each with the element format that has the same codes.
const TYPES: [(&str, &str); 12] = [
    ("float4_e2m1fn", "fp4_e2m1"),
    ("float6_e2m3fn", "fp6_e2m3"),
    ("float6_e3m2fn", "fp6_e3m2"),
    ("float8_e3m4", "fp8_e3m4"),
    ("float8_e4m3fn", "fp8_e4m3"),
    ("float8_e4m3fnuz", "fp8_e4m3fnuz"),
    ("float8_e4m3b11fnuz", "fp8_e4m3b11fnuz"),
    ("float8_e5m2", "fp8_e5m2"),
    ("float8_e5m2fnuz", "fp8_e5m2fnuz"),
    ("bfloat16", "bfloat16"),
    ("float16", "float16"),
    ("float32", "float32"),
];

/// A block format: how elements and the scales that blocks of them share are rounded and stored.
///
/// `Format("mxfp4")`, `Format("nvfp4(tensor_scale=true)")`, `Format("mx(element=int4,block_size=16,scale_mode=even)")`. `str` gives the
/// text. Formats with the same parameters are equal, also if their texts differ.
#[pyclass(frozen, eq, hash, module = "microscaling")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Format(pub(crate) BlockFormat);

#[pymethods]
impl Format {
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        if text.parse::<P3109Format>().is_ok() {
            return Err(value_error(format!(
                "format is {text}, elements without a scale; expected P3109Format('{text}'), or a block format such as \
                 'mx(element={text})'"
            )));
        }
        text.parse().map(Self).map_err(value_error)
    }

    /// The named formats.
    #[staticmethod]
    fn names() -> Vec<&'static str> {
        BlockFormat::NAMES.to_vec()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Format('{}')", self.0)
    }

    fn __getnewargs__(&self) -> (String,) {
        (self.0.to_string(),)
    }

    /// The format in one line.
    fn describe(&self) -> String {
        microscaling_cli::describe(&self.0)
    }

    /// The datasheet of the format, a dict from properties to their values as text: elements, scales, the rule of the scale, codes
    /// without a number, area and energy. `microscaling formats NAME` prints the same.
    fn datasheet<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        microscaling_cli::datasheet(&self.0).into_py_dict(py)
    }

    /// Bits per element in a full block, including the element's part of the block's scale.
    #[getter]
    fn bits(&self) -> f64 {
        self.0.bits_per_element()
    }

    /// Bits of an element's code.
    #[getter]
    fn element_bits(&self) -> u32 {
        self.0.element_bits()
    }

    /// Elements in a block along its axis; 0 makes the whole axis one block.
    #[getter]
    fn block_size(&self) -> usize {
        self.0.group_size()
    }

    /// Whether blocks lie along two axes.
    #[getter]
    fn is_square(&self) -> bool {
        self.0.square
    }

    /// Whether the whole tensor has one more scale, a float32.
    #[getter]
    fn has_tensor_scale(&self) -> bool {
        self.0.tensor_scale
    }

    /// The format of the elements, `"fp4_e2m1"`; None if the elements are a sign and a magnitude (`mx9`, `bfp16`).
    #[getter]
    fn element(&self) -> Option<String> {
        (!self.0.has_fixed_steps()).then(|| self.0.element.to_string())
    }

    /// The NumPy or ml_dtypes type whose codes equal the elements' codes, if there is one:
    /// `packed.codes().view(format.dtype)`.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let element = (!self.0.has_fixed_steps()).then_some(self.0.element);
        let name = element.and_then(ElementFormat::name);
        let name = name.and_then(type_of);
        name.map(|name| dtype(py, name)).transpose()
    }

    /// The NumPy or ml_dtypes type whose codes equal the scales' codes, if there is one:
    /// `packed.scales.view(format.scale_dtype)`. UE5M3, UE3M3 and UE6M2 have none: see `scale_values`.
    #[getter]
    fn scale_dtype<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let format = &self.0;
        // The record of a block has shifts, sub-scales or an outer scale beside the scale.
        let is_alone =
            format.shifts.is_none() && format.sub_scales.is_none() && format.outer.is_none();
        let name = match format.scale {
            _ if !is_alone => None,
            scale if scale.is_exponent() => Some("float8_e8m0fnu"),
            ScaleFormat::FLOAT32 => Some("float32"),
            scale => scale
                .float()
                .and_then(ElementFormat::name)
                .and_then(type_of),
        };
        name.map(|name| dtype(py, name)).transpose()
    }

    /// The values of the blocks' scales by code, without any other scale: float32 `[256]`, so that
    /// `format.scale_values()[packed.scales]` has the scale of each block. None if the scale of a block takes more than a byte, or if
    /// the format has shifts, sub-scales or an outer scale.
    fn scale_values<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f32>>> {
        let values = self.0.scale_values()?;
        Some(PyArray1::from_vec(py, values))
    }

    /// The values of the elements by code, without any scale: float32 `[2 ** element_bits]`. With several tables the
    /// first one counts.
    ///
    /// If elements are a sign and a magnitude, the block's scale is the power of two of its largest element.
    fn values<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        let bits = self.0.element_bits();
        let value = |code: u32| self.0.element.decode(code);
        PyArray1::from_iter(py, (0..1 << bits).map(value))
    }
}

fn type_of(element: &'static str) -> Option<&'static str> {
    TYPES
        .iter()
        .find(|(_, format)| *format == element)
        .map(|(name, _)| *name)
}

/// A type of NumPy's or of ml_dtypes', by its name.
pub(crate) fn dtype<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let numpy = py.import("numpy")?;
    let of = match name {
        "uint8" | "float16" | "float32" => numpy.getattr(name)?,
        _ => py.import("ml_dtypes")?.getattr(name)?,
    };
    numpy.call_method1("dtype", (of,))
}

/// A format: a `Format`, or its text.
pub(crate) struct FormatArgument(pub(crate) BlockFormat);

impl<'py> FromPyObject<'_, 'py> for FormatArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(format) = object.cast::<Format>() {
            return Ok(Self(format.get().0));
        }
        match object.extract::<&str>() {
            Ok(text) => text.parse().map(Self).map_err(value_error),
            Err(_) => {
                let of = object.get_type().name()?;
                let message = format!("format is of type {of}, expected Format or str");
                Err(PyTypeError::new_err(message))
            }
        }
    }
}
