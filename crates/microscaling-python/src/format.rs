//! Formats as Python sees them.

use crate::arguments::value_error;
use crate::p3109;
use microscaling::p3109::P3109Format;
use microscaling::{BlockFormat, ElementFormat, ScaleFormat};
use numpy::{PyArray1, PyArrayDyn};
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

/// A number format. A block format says how elements, and the scales that blocks of them share, are rounded and stored. A format of
/// IEEE P3109, "Arithmetic formats for machine learning", has elements alone. The source is the working group's interim report 4.0, a draft.
///
/// `Format("mxfp4")`, `Format("nvfp4(tensor_scale=true)")`, `Format("mx(element=int4,block_size=16,scale_mode=even)")`.
/// `Format("binary8p4se")` of P3109 has 8 bits, precision 4, a sign (`s`, unsigned: `u`) and infinities (`e`, finite: `f`). `str` gives
/// the text. Formats with the same parameters are equal, also if their texts differ.
#[pyclass(frozen, eq, hash, module = "microscaling")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Format(FormatKind);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum FormatKind {
    Blocks(BlockFormat),
    P3109(P3109Format),
}

impl From<BlockFormat> for Format {
    fn from(format: BlockFormat) -> Self {
        Self(FormatKind::Blocks(format))
    }
}

impl Format {
    fn parse(text: &str) -> PyResult<Self> {
        Ok(Self(match P3109Format::has_name(text) {
            true => FormatKind::P3109(text.parse().map_err(value_error)?),
            false => FormatKind::Blocks(text.parse().map_err(value_error)?),
        }))
    }

    /// `None` for a format of P3109.
    fn blocks(&self) -> Option<&BlockFormat> {
        match &self.0 {
            FormatKind::Blocks(format) => Some(format),
            FormatKind::P3109(_) => None,
        }
    }

    /// `None` for a block format.
    fn p3109(&self) -> Option<P3109Format> {
        match self.0 {
            FormatKind::Blocks(_) => None,
            FormatKind::P3109(format) => Some(format),
        }
    }

    /// The block format, for a function that takes no other.
    fn expect_blocks(&self) -> PyResult<BlockFormat> {
        self.blocks().copied().ok_or_else(|| {
            value_error(format!(
                "format is {}, elements without a scale; expected a block format, such as 'mx(element=binary8p4se)'",
                self.__str__()
            ))
        })
    }
}

#[pymethods]
impl Format {
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        Self::parse(text)
    }

    /// The named formats.
    #[staticmethod]
    fn names() -> Vec<&'static str> {
        BlockFormat::NAMES.to_vec()
    }

    fn __str__(&self) -> String {
        match self.0 {
            FormatKind::Blocks(format) => format.to_string(),
            FormatKind::P3109(format) => format.to_string(),
        }
    }

    fn __repr__(&self) -> String {
        format!("Format('{}')", self.__str__())
    }

    fn __getnewargs__(&self) -> (String,) {
        (self.__str__(),)
    }

    /// The format in one line.
    fn describe(&self) -> String {
        match &self.0 {
            FormatKind::Blocks(format) => microscaling_cli::describe(format),
            FormatKind::P3109(format) => {
                let properties = microscaling_cli::p3109_datasheet(*format);
                let properties: Vec<String> = properties
                    .into_iter()
                    .map(|(property, value)| format!("{property} {value}"))
                    .collect();
                format!("{format}: {}", properties.join(", "))
            }
        }
    }

    /// The datasheet of the format, a dict from properties to their values as text: elements, scales, the rule of the scale, codes
    /// without a number, area and energy. `microscaling formats NAME` prints the same; of P3109, `microscaling p3109 NAME`.
    fn datasheet<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match &self.0 {
            FormatKind::Blocks(format) => microscaling_cli::datasheet(format).into_py_dict(py),
            FormatKind::P3109(format) => {
                microscaling_cli::p3109_datasheet(*format).into_py_dict(py)
            }
        }
    }

    /// Bits per element in a full block, including the element's part of the block's scale; of P3109, bits of a code.
    #[getter]
    fn bits(&self) -> f64 {
        match self.0 {
            FormatKind::Blocks(format) => format.bits_per_element(),
            FormatKind::P3109(format) => format.bits().into(),
        }
    }

    /// Bits of an element's code.
    #[getter]
    fn element_bits(&self) -> u32 {
        match self.0 {
            FormatKind::Blocks(format) => format.element_bits(),
            FormatKind::P3109(format) => format.bits(),
        }
    }

    /// Elements in a block along its axis; 0 makes the whole axis one block. None for P3109, which has no blocks.
    #[getter]
    fn block_size(&self) -> Option<usize> {
        self.blocks().map(BlockFormat::group_size)
    }

    /// Whether blocks lie along two axes.
    #[getter]
    fn is_square(&self) -> bool {
        self.blocks().is_some_and(|format| format.square)
    }

    /// Whether the whole tensor has one more scale, a float32.
    #[getter]
    fn has_tensor_scale(&self) -> bool {
        self.blocks().is_some_and(|format| format.tensor_scale)
    }

    /// The format of the elements, `"fp4_e2m1"`; None if the elements are a sign and a magnitude (`mx9`, `bfp16`).
    #[getter]
    fn element(&self) -> Option<String> {
        match self.0 {
            FormatKind::Blocks(format) => {
                (!format.has_fixed_steps()).then(|| format.element.to_string())
            }
            FormatKind::P3109(format) => Some(format.to_string()),
        }
    }

    /// The NumPy or ml_dtypes type whose codes equal the elements' codes, if there is one:
    /// `packed.codes().view(format.dtype)`.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let element = match self.0 {
            FormatKind::Blocks(format) => (!format.has_fixed_steps()).then_some(format.element),
            FormatKind::P3109(format) => ElementFormat::of_p3109(format).ok(),
        };
        let name = element.and_then(ElementFormat::name);
        let name = name.and_then(type_of);
        name.map(|name| dtype(py, name)).transpose()
    }

    /// The NumPy or ml_dtypes type whose codes equal the scales' codes, if there is one:
    /// `packed.scales.view(format.scale_dtype)`. UE5M3, UE3M3 and UE6M2 have none: see `scale_values`.
    #[getter]
    fn scale_dtype<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(format) = self.blocks() else {
            return Ok(None);
        };
        // The record of a block has shifts, sub-scales or an outer scale beside the scale.
        let is_alone = format.shifts.is_none() && format.other_scales().is_none();
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
    /// the format has shifts, sub-scales or an outer scale, or no blocks.
    fn scale_values<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f32>>> {
        let values = self.blocks()?.scale_values()?;
        Some(PyArray1::from_vec(py, values))
    }

    /// The values of the elements by code, without any scale: float32 `[2 ** element_bits]`. With several tables the
    /// first one counts. Formats of P3109 have float64, and a ValueError if float64 does not hold a number of the format.
    ///
    /// If elements are a sign and a magnitude, the block's scale is the power of two of its largest element.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.0 {
            FormatKind::Blocks(format) => {
                let value = |code: u32| format.element.decode(code);
                let codes = 0..1 << format.element_bits();
                Ok(PyArray1::from_iter(py, codes.map(value)).into_any())
            }
            FormatKind::P3109(format) => Ok(p3109::values(py, format)?.into_any()),
        }
    }

    /// The codes of numbers in a format of P3109, rounded and saturated, as uint16 of the shape of `x`. Integers beyond 2^53 are rounded
    /// to float64 first. A ValueError for a block format: see `pack`.
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
        let Some(format) = self.p3109() else {
            return Err(value_error(format!(
                "format is {}, a block format; expected a format of P3109, such as 'binary8p4se' (`pack` has the codes of blocks)",
                self.__str__()
            )));
        };
        let projection = p3109::projection(rounding, saturation, random_bits)?;
        p3109::project(py, format, x, projection, (random_bits, random))
    }

    /// Bits of a significand with the implicit bit, of a format of P3109; None for blocks.
    #[getter]
    fn precision(&self) -> Option<u32> {
        self.p3109().map(P3109Format::precision)
    }

    /// The bias of the exponent field of a format of P3109; None for blocks.
    #[getter]
    fn bias(&self) -> Option<i32> {
        self.p3109().map(P3109Format::bias)
    }

    /// Whether a format of P3109 has numbers below 0; None for blocks.
    #[getter]
    fn is_signed(&self) -> Option<bool> {
        self.p3109().map(P3109Format::is_signed)
    }

    /// Whether a format of P3109 has infinities; None for blocks.
    #[getter]
    fn is_extended(&self) -> Option<bool> {
        self.p3109().map(P3109Format::is_extended)
    }

    /// The code of NaN of a format of P3109; None for blocks.
    #[getter]
    fn nan(&self) -> Option<u32> {
        self.p3109().map(P3109Format::nan)
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
            return format.get().expect_blocks().map(Self);
        }
        match object.extract::<&str>() {
            Ok(text) => Format::parse(text)?.expect_blocks().map(Self),
            Err(_) => {
                let of = object.get_type().name()?;
                let message = format!("format is of type {of}, expected Format or str");
                Err(PyTypeError::new_err(message))
            }
        }
    }
}
