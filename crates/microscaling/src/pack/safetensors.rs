//! Sets of named packed tensors as safetensors files (feature `safetensors`).
//!
//! Each tensor `NAME` is stored as
//! * `NAME.scales`, u8: the [scales](Packed::scales), in their [shape](Packed::scales_shape), or `[0]` if there are none;
//! * `NAME.elements`, u8: the [element codes](Packed::elements), in the shape of the tensor with the bytes
//!   of a row for the length of its last axis, or flat where a row is no whole number of bytes;
//! * `NAME.tensor_scale`, f32 of shape `[1]`: the [tensor scale](Packed::tensor_scale), of NVFP4 with one.
//!
//! The file's metadata have one key, `microscaling`. Its value is JSON, an object with one entry a tensor:
//! `{"NAME": {"format": "mxfp4", "shape": [64, 96], "axis": 1}}`, where the format is the text of a
//! [`BlockFormat`]. A file may hold other tensors, which are skipped.

use crate::{BlockFormat, PackError, Packed, PackedView, ParseFormatError};
use ::safetensors::{Dtype, SafeTensorError, SafeTensors, tensor::TensorView};
use alloc::{
    borrow::ToOwned,
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use thiserror::Error;

/// The metadata's key.
const KEY: &str = "microscaling";

/// Why a file was not written, or is none of packed tensors.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// It is no safetensors file: truncated, or what its header says does not fit its length.
    #[error("packed tensors: no safetensors file: {0}")]
    Safetensors(#[from] SafeTensorError),
    /// The header says that a tensor lies outside of the file, or does not say where.
    #[error("packed tensors: `{name}` does not lie within the {size} bytes of data")]
    Offsets {
        /// Name of the stored tensor.
        name: String,
        /// Length of what follows the header.
        size: usize,
    },
    /// The header or the metadata are not what is expected of their JSON.
    #[error("packed tensors: the {part} cannot be read: {source}")]
    Json {
        /// "header" or "metadata".
        part: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The metadata have no key `microscaling`: a safetensors file of something else.
    #[error("packed tensors: the metadata have no key `microscaling`")]
    NoMetadata,
    /// The format of a tensor is unknown or not valid.
    #[error("packed tensors: tensor `{tensor}`: {source}")]
    Format {
        /// Name of the tensor.
        tensor: String,
        /// What is wrong with its format.
        source: ParseFormatError,
    },
    /// A part of a tensor is missing.
    #[error("packed tensors: tensor `{tensor}`: `{part}` is missing")]
    Missing {
        /// Name of the tensor.
        tensor: String,
        /// Name of the stored tensor that is missing.
        part: String,
    },
    /// A part of a tensor has another type or another shape.
    #[error("packed tensors: tensor `{tensor}`: `{part}` is {got}, expected {expected}")]
    Part {
        /// Name of the tensor.
        tensor: String,
        /// Name of the stored tensor.
        part: String,
        /// What it has to be.
        expected: String,
        /// What it is.
        got: String,
    },
    /// The parts do not make up a tensor of the format and shape that the metadata say.
    #[error("packed tensors: tensor `{tensor}`: {source}")]
    Pack {
        /// Name of the tensor.
        tensor: String,
        /// What does not fit.
        source: PackError,
    },
}

/// What the metadata say of a tensor.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    format: String,
    shape: Vec<usize>,
    axis: usize,
}

fn scales_name(name: &str) -> String {
    format!("{name}.scales")
}

fn elements_name(name: &str) -> String {
    format!("{name}.elements")
}

fn tensor_scale_name(name: &str) -> String {
    format!("{name}.tensor_scale")
}

/// The bytes of a file of these tensors, the same for the same tensors.
///
/// # Errors
/// [`FileError::Safetensors`] if the header becomes longer than safetensors allows.
pub fn save(tensors: &BTreeMap<String, Packed>) -> Result<Vec<u8>, FileError> {
    let tensor_scale = |packed: &Packed| packed.tensor_scale().map(f32::to_le_bytes);
    let tensor_scales: Vec<_> = tensors.values().map(tensor_scale).collect();
    let mut views = Vec::new();
    let mut entries = BTreeMap::new();
    for ((name, packed), tensor_scale) in tensors.iter().zip(&tensor_scales) {
        let entry = Entry {
            format: packed.format().to_string(),
            shape: packed.shape().to_vec(),
            axis: packed.axis(),
        };
        entries.insert(name, entry);
        let scales = TensorView::new(Dtype::U8, packed.scales_shape(), packed.scales())?;
        views.push((scales_name(name), scales));
        let elements = TensorView::new(Dtype::U8, packed.elements_shape(), packed.elements())?;
        views.push((elements_name(name), elements));
        if let Some(bytes) = tensor_scale {
            let view = TensorView::new(Dtype::F32, vec![1], bytes)?;
            views.push((tensor_scale_name(name), view));
        }
    }
    let entries = serde_json::to_string(&entries).map_err(|source| FileError::Json {
        part: "metadata",
        source,
    })?;
    let metadata = HashMap::from([(KEY.to_owned(), entries)]);
    Ok(::safetensors::serialize(views, Some(metadata))?)
}

/// The tensors of a file, by name.
///
/// A file that somebody made to do harm is an error at worst: nothing panics, and what is allocated is no
/// more than a small multiple of the file's length.
///
/// # Errors
/// [`FileError`], which says what is wrong with which tensor.
pub fn load(file: &[u8]) -> Result<BTreeMap<String, Packed>, FileError> {
    check_offsets(file)?;
    let (_, header) = SafeTensors::read_metadata(file)?;
    let metadata = header.metadata().as_ref();
    let entries = metadata
        .and_then(|metadata| metadata.get(KEY))
        .ok_or(FileError::NoMetadata)?;
    let entries: BTreeMap<String, Entry> =
        serde_json::from_str(entries).map_err(|source| FileError::Json {
            part: "metadata",
            source,
        })?;
    let stored = SafeTensors::deserialize(file)?;
    entries
        .into_iter()
        .map(|(name, entry)| {
            let packed = load_one(&stored, &name, &entry)?;
            Ok((name, packed))
        })
        .collect()
}

fn load_one(stored: &SafeTensors<'_>, name: &str, entry: &Entry) -> Result<Packed, FileError> {
    let format: BlockFormat = entry.format.parse().map_err(|source| FileError::Format {
        tensor: name.to_owned(),
        source,
    })?;
    let scales = part(stored, name, &scales_name(name), Dtype::U8)?;
    let elements = part(stored, name, &elements_name(name), Dtype::U8)?;
    let tensor_scale = match format.has_tensor_scale() {
        true => Some(tensor_scale(stored, name)?),
        false => None,
    };
    let (shape, axis) = (&entry.shape, entry.axis);
    // Only bytes that are there are copied, and only if there are as many as there must be.
    let packed = PackedView::new(
        format,
        shape,
        axis,
        tensor_scale,
        scales.data(),
        elements.data(),
    )
    .map_err(|source| FileError::Pack {
        tensor: name.to_owned(),
        source,
    })?
    .to_packed();
    check_shape(name, scales_name(name), &scales, packed.scales_shape())?;
    check_shape(
        name,
        elements_name(name),
        &elements,
        packed.elements_shape(),
    )?;
    Ok(packed)
}

/// That a stored tensor has the shape that it is written with.
fn check_shape(
    tensor: &str,
    part: String,
    stored: &TensorView<'_>,
    expected: Vec<usize>,
) -> Result<(), FileError> {
    if stored.shape() == expected {
        return Ok(());
    }
    Err(FileError::Part {
        tensor: tensor.to_owned(),
        part,
        expected: format!("of shape {expected:?}"),
        got: format!("of shape {:?}", stored.shape()),
    })
}

/// A stored tensor of a type.
fn part<'a>(
    stored: &SafeTensors<'a>,
    tensor: &str,
    part: &str,
    dtype: Dtype,
) -> Result<TensorView<'a>, FileError> {
    let view = stored.tensor(part).map_err(|_| FileError::Missing {
        tensor: tensor.to_owned(),
        part: part.to_owned(),
    })?;
    if view.dtype() != dtype {
        return Err(FileError::Part {
            tensor: tensor.to_owned(),
            part: part.to_owned(),
            expected: dtype.to_string(),
            got: view.dtype().to_string(),
        });
    }
    Ok(view)
}

/// The number in a stored f32 tensor of one.
fn tensor_scale(stored: &SafeTensors<'_>, tensor: &str) -> Result<f32, FileError> {
    let name = tensor_scale_name(tensor);
    let view = part(stored, tensor, &name, Dtype::F32)?;
    check_shape(tensor, name, &view, vec![1])?;
    let bytes = view.data().try_into();
    Ok(f32::from_le_bytes(bytes.expect("one f32 is 4 bytes")))
}

/// Where a stored tensor lies, or whatever else stands in its place.
#[derive(Deserialize)]
#[serde(untagged)]
enum Offsets {
    Range(u64, u64),
    Other(serde::de::IgnoredAny),
}

/// That all tensors lie within the file. The crate safetensors checks so only after adding up, which
/// overflows for some files.
fn check_offsets(file: &[u8]) -> Result<(), FileError> {
    #[derive(Deserialize)]
    struct Stored {
        data_offsets: Option<Offsets>,
    }
    // What is too short for its header is told by the crate safetensors.
    let Some((length, rest)) = file.split_first_chunk() else {
        return Ok(());
    };
    let Some((header, data)) = usize::try_from(u64::from_le_bytes(*length))
        .ok()
        .and_then(|length| rest.split_at_checked(length))
    else {
        return Ok(());
    };
    let header: BTreeMap<String, Option<Stored>> =
        serde_json::from_slice(header).map_err(|source| FileError::Json {
            part: "header",
            source,
        })?;
    for (name, stored) in header {
        let within = match stored.and_then(|stored| stored.data_offsets) {
            Some(Offsets::Range(start, end)) => start <= end && end <= data.len() as u64,
            _ => name == "__metadata__",
        };
        if !within {
            let size = data.len();
            return Err(FileError::Offsets { name, size });
        }
    }
    Ok(())
}
