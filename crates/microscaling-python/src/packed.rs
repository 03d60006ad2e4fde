//! Packed tensors as Python sees them.

use crate::arguments::{axis, rounder, value_error};
use crate::format::{Format, FormatArgument, dtype};
use crate::pool;
use half::{bf16, f16};
use microscaling::{
    BlockFormat, DecodeNumber, Dialect, EncodeNumber, PackedView, Rounder, StoredType, StoredView,
    WeightLayout,
};
use numpy::{
    IntoPyArray, PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArray1, PyReadonlyArrayDyn,
    PyUntypedArrayMethods,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::BTreeMap;

/// A tensor in the bytes of a block format. `pack` creates one from values, and
/// `Packed(format, shape, scales, elements, axis=-1, tensor_scale=None)` creates one from existing bytes.
///
/// `scales` and `elements` are arrays of any shape whose elements have one byte, in row-major order, or lists of numbers. They are
/// copied. `shape` is the shape of the tensor, and `axis` the axis along which its blocks lie.
#[pyclass(frozen, module = "microscaling")]
pub(crate) struct Packed {
    format: BlockFormat,
    shape: Vec<usize>,
    /// The axis along which blocks lie, counted from the first axis.
    #[pyo3(get)]
    axis: usize,
    /// The scale of the tensor, a factor of every value.
    #[pyo3(get)]
    tensor_scale: Option<f32>,
    /// The number that compressed-tensors stores in place of the tensor's scale, if the bytes have its dialect.
    #[pyo3(get)]
    divisor: Option<f32>,
    /// The scales, uint8, read-only, in the shape of the tensor with each block as one element. A scale of several bytes adds one
    /// more axis.
    #[pyo3(get)]
    scales: Py<PyArrayDyn<u8>>,
    /// The codes, uint8, read-only, in the shape of the tensor with the bytes of a row in place of the last axis. The array is
    /// flat if a row is not a whole number of bytes. Low bits first, without gaps.
    #[pyo3(get)]
    elements: Py<PyArrayDyn<u8>>,
}

impl Packed {
    fn new(py: Python<'_>, packed: microscaling::Packed, divisor: Option<f32>) -> PyResult<Self> {
        let shapes = [packed.scales_shape(), packed.elements_shape()];
        let parts = packed.into_parts();
        let [scales, elements] = [parts.scales, parts.elements].map(|bytes| bytes.into_pyarray(py));
        let frozen = |bytes: Bound<'_, PyArray1<u8>>, shape: &[usize]| {
            let bytes = bytes.reshape(shape)?;
            bytes.call_method1("setflags", (false,))?;
            PyResult::Ok(bytes.unbind())
        };
        Ok(Self {
            format: parts.format,
            shape: parts.shape,
            axis: parts.axis,
            tensor_scale: parts.tensor_scale,
            divisor,
            scales: frozen(scales, &shapes[0])?,
            elements: frozen(elements, &shapes[1])?,
        })
    }

    /// Calls a function with the packed tensor.
    pub(crate) fn with<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(PackedView<'_>) -> T,
    ) -> PyResult<T> {
        let [scales, elements] =
            [&self.scales, &self.elements].map(|bytes| bytes.bind(py).readonly());
        let view = PackedView::new(
            self.format,
            &self.shape,
            self.axis,
            self.tensor_scale,
            scales.as_slice()?,
            elements.as_slice()?,
        );
        view.map(work).map_err(value_error)
    }

    /// The values in row-major order.
    fn decoded<'py, T: DecodeNumber + numpy::Element>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let values = self.with(py, |view| {
            // The product of the axes' lengths may overflow if there are no elements.
            let count = match view.rows() {
                0 => 0,
                _ => self.shape.iter().product(),
            };
            let mut values = vec![T::default(); count];
            let work = || view.decode_into(0..view.rows(), &mut values);
            let decoded = py.detach(|| pool::share(count, work));
            decoded.map(|()| values)
        })?;
        let values = values.map_err(value_error)?.into_pyarray(py);
        Ok(values.into_any())
    }
}

#[pymethods]
impl Packed {
    #[new]
    #[pyo3(
        signature = (format, shape, scales, elements, axis=-1, tensor_scale=None),
        text_signature = "(format, shape, scales, elements, axis=-1, tensor_scale=None)"
    )]
    fn of_parts(
        py: Python<'_>,
        format: FormatArgument,
        shape: Vec<usize>,
        scales: &Bound<'_, PyAny>,
        elements: &Bound<'_, PyAny>,
        axis: isize,
        tensor_scale: Option<f32>,
    ) -> PyResult<Self> {
        let axis = self::axis(axis, shape.len())?;
        let [scales, elements] = [bytes_of(scales)?.to_vec()?, bytes_of(elements)?.to_vec()?];
        let packed = microscaling::Packed::from_parts(
            format.0,
            &shape,
            axis,
            tensor_scale,
            scales,
            elements,
        );
        Self::new(py, packed.map_err(value_error)?, None)
    }

    /// The lengths of the tensor's axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The format.
    #[getter]
    fn format(&self) -> Format {
        self.format.into()
    }

    /// Bytes of scales and elements.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> usize {
        let tensor_scale = self.tensor_scale.map_or(0, |_| size_of::<f32>());
        self.scales.bind(py).len() + self.elements.bind(py).len() + tensor_scale
    }

    /// The values, an array of the tensor's shape.
    #[pyo3(signature = (dtype="float32"))]
    fn unpack<'py>(&self, py: Python<'py>, dtype: &str) -> PyResult<Bound<'py, PyAny>> {
        let values = match dtype {
            "float32" => self.decoded::<f32>(py)?,
            "bfloat16" => self.decoded::<bf16>(py)?,
            "float16" => self.decoded::<f16>(py)?,
            _ => {
                let message = format!("dtype is `{dtype}`, expected float32, bfloat16 or float16");
                return Err(value_error(message));
            }
        };
        values.call_method1("reshape", (self.shape.clone(),))
    }

    /// The codes, one for each element, in an array of the tensor's shape: uint8, or uint16 for codes of more than 8
    /// bits.
    fn codes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let codes = self.with(py, |view| py.detach(|| view.codes()))?;
        let codes = match self.format.element_bits() {
            0..=8 => {
                let codes: Vec<u8> = codes.into_iter().map(|code| code as u8).collect();
                codes.into_pyarray(py).into_any()
            }
            _ => {
                let codes: Vec<u16> = codes.into_iter().map(|code| code as u16).collect();
                codes.into_pyarray(py).into_any()
            }
        };
        codes.call_method1("reshape", (self.shape.clone(),))
    }

    /// How two packed tensors differ: `elements` and `scales` (the numbers of both), `elements_differ`, `scales_differ`,
    /// `tensor_scale_differs`, `values_differ`, and `largest`, the largest difference of two values. None if they cannot be compared.
    fn difference<'py>(
        &self,
        py: Python<'py>,
        other: &Self,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let difference = self.with(py, |one| {
            other.with(py, |other| py.detach(|| one.difference(&other)))
        })??;
        let Some(difference) = difference else {
            return Ok(None);
        };
        let found = PyDict::new(py);
        found.set_item("elements", difference.elements)?;
        found.set_item("scales", difference.scales)?;
        found.set_item("elements_differ", difference.elements_differ)?;
        found.set_item("scales_differ", difference.scales_differ)?;
        found.set_item("tensor_scale_differs", difference.tensor_scale_differs)?;
        found.set_item("values_differ", difference.values_differ)?;
        found.set_item("largest", difference.largest)?;
        Ok(Some(found))
    }

    /// The tensors, by name, that store the weight in another tool's checkpoint.
    ///
    /// `layout` is `"mxfp4-pack-quantized"`, `"mxfp8-quantized"` or `"nvfp4-pack-quantized"` (compressed-tensors),
    /// `"modelopt-nvfp4"` (NVIDIA Model Optimizer), `"gpt-oss"` or `"gguf-mxfp4"`.
    #[pyo3(signature = (layout, name="weight"))]
    fn store<'py>(
        &self,
        py: Python<'py>,
        layout: &str,
        name: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let layout: WeightLayout = layout.parse().map_err(value_error)?;
        let stored = self.with(py, |view| layout.store(name, &view, self.divisor))?;
        let tensors = PyDict::new(py);
        for tensor in stored.map_err(value_error)? {
            let of = match tensor.dtype {
                StoredType::F8E4M3 => "float8_e4m3fn",
                StoredType::F8E8M0 => "float8_e8m0fnu",
                StoredType::F32 => "float32",
                _ => "uint8",
            };
            let bytes = tensor.bytes.into_pyarray(py);
            let array = bytes.call_method1("view", (dtype(py, of)?,))?;
            tensors.set_item(tensor.name, array.call_method1("reshape", (tensor.shape,))?)?;
        }
        Ok(tensors)
    }

    fn __eq__(&self, py: Python<'_>, other: &Self) -> PyResult<bool> {
        self.with(py, |one| other.with(py, |other| one == other))?
    }

    fn __repr__(&self) -> String {
        let Self {
            format,
            shape,
            axis,
            ..
        } = self;
        format!("Packed('{format}', shape={shape:?}, axis={axis})")
    }
}

/// Packs a contiguous array of float32, bfloat16 or float16. A dialect needs float32.
#[pyfunction]
pub(crate) fn pack(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    format: FormatArgument,
    axis: isize,
    rounding: &str,
    seed: Option<u64>,
    dialect: Option<&str>,
) -> PyResult<Packed> {
    let rounder = rounder(py, rounding, seed)?;
    let dialect: Option<Dialect> = dialect.map(str::parse).transpose().map_err(value_error)?;
    if let Ok(x) = x.extract::<PyReadonlyArrayDyn<'_, bf16>>() {
        return encode(py, &x, format.0, axis, rounder);
    }
    if let Ok(x) = x.extract::<PyReadonlyArrayDyn<'_, f16>>() {
        return encode(py, &x, format.0, axis, rounder);
    }
    let x = x.extract::<PyReadonlyArrayDyn<'_, f32>>()?;
    let Some(dialect) = dialect else {
        return encode(py, &x, format.0, axis, rounder);
    };
    let (data, shape) = (x.as_slice().map_err(value_error)?, x.shape());
    let axis = self::axis(axis, shape.len())?;
    let last = shape.len() - 1;
    if axis != last {
        return Err(value_error(format!(
            "axis is {axis} and dialect is {dialect}, whose blocks lie along the last axis, expected {last}"
        )));
    }
    let work = || dialect.encode(format.0, data, shape);
    let encoded = py.detach(|| pool::share(data.len(), work));
    let encoded = encoded.map_err(value_error)?;
    Packed::new(py, encoded.packed, encoded.divisor)
}

fn encode<T: EncodeNumber + numpy::Element>(
    py: Python<'_>,
    x: &PyReadonlyArrayDyn<'_, T>,
    format: BlockFormat,
    axis: isize,
    rounder: Rounder,
) -> PyResult<Packed> {
    let (data, shape) = (x.as_slice().map_err(value_error)?, x.shape());
    let axis = self::axis(axis, shape.len())?;
    let work = || microscaling::Packed::encode_from(format, data, shape, axis, rounder);
    let packed = py.detach(|| pool::share(data.len(), work));
    Packed::new(py, packed.map_err(value_error)?, None)
}

/// The weight in another tool's checkpoint. `tensors` gives, for each name, the name of the type, the shape and the
/// bytes.
#[pyfunction]
pub(crate) fn load(
    py: Python<'_>,
    layout: &str,
    name: &str,
    tensors: BTreeMap<String, (String, Vec<usize>, PyReadonlyArray1<'_, u8>)>,
) -> PyResult<Packed> {
    let layout: WeightLayout = layout.parse().map_err(value_error)?;
    let mut views = BTreeMap::new();
    for (name, (of, shape, bytes)) in &tensors {
        let dtype = match of.as_str() {
            "uint8" => StoredType::U8,
            "float8_e4m3fn" => StoredType::F8E4M3,
            "float8_e8m0fnu" => StoredType::F8E8M0,
            "float32" => StoredType::F32,
            _ => {
                let message = format!(
                    "tensor `{name}` is {of}, expected uint8, float8_e4m3fn, float8_e8m0fnu or float32"
                );
                return Err(PyTypeError::new_err(message));
            }
        };
        let bytes = bytes.as_slice().map_err(value_error)?;
        views.insert(
            name.as_str(),
            StoredView {
                dtype,
                shape,
                bytes,
            },
        );
    }
    let packed = layout.load(name, |part| views.get(part).copied());
    Packed::new(py, packed.map_err(value_error)?, None)
}

/// The bytes of an array with any one-byte type, or of a list of numbers.
fn bytes_of<'py>(array: &Bound<'py, PyAny>) -> PyResult<PyReadonlyArrayDyn<'py, u8>> {
    let py = array.py();
    let numpy = py.import("numpy")?;
    let array = match array.hasattr("dtype")? {
        true => numpy.call_method1("ascontiguousarray", (array,))?,
        false => numpy.call_method1("array", (array, dtype(py, "uint8")?))?,
    };
    let of = array.getattr("dtype")?;
    if of.getattr("itemsize")?.extract::<usize>()? != 1 {
        let message = format!("bytes are of dtype {of}, expected uint8 or another of one byte");
        return Err(PyTypeError::new_err(message));
    }
    let bytes = array.call_method1("view", (dtype(py, "uint8")?,))?;
    bytes.extract()
}
