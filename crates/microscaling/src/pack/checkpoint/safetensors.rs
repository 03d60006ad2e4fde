//! Sets of named packed tensors as safetensors files (feature `safetensors`).
//!
//! Each tensor `NAME` is stored as
//! * `NAME.scales`, u8: the [scales](Packed::scales), in their [shape](Packed::scales_shape), or `[0]` if there are none;
//! * `NAME.elements`, u8: the [element codes](Packed::elements), in the tensor's shape with the bytes of a row in place
//!   of the last axis' length. The shape is flat if a row is not a whole number of bytes;
//! * `NAME.tensor_scale`, f32 of shape `[1]`: the [tensor scale](Packed::tensor_scale), if the format has one;
//! * `NAME.divisor`, f32 of shape `[1]`: the [divisor](Packed::divisor), if the tensor has one.
//!
//! The file's metadata have one key, `microscaling`. Its value is JSON, an object with one entry for each tensor:
//! `{"NAME": {"format": "mxfp4", "shape": [64, 96], "axis": 1}}`, where the format is the text of a [`BlockFormat`]. A
//! file may hold other tensors, which are skipped.

pub(crate) mod compressed;
mod error;
mod files;
mod folder;
mod header;
mod integers;
mod layout;
mod scaled;

use crate::format::BlockFormat;
use crate::pack::{Packed, PackedView, StoredTensor, StoredType};
use ::safetensors::{Dtype, SafeTensorError, tensor::TensorView};
use alloc::{
    borrow::ToOwned,
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};
pub use error::FileError;
pub use files::PackedFiles;
pub use folder::{CheckpointFiles, CheckpointFilesError};
pub use header::{HeaderEntry, header};
pub use integers::{IntegerFormat, IntegerLayout, IntegerMatrix, IntegerWeight, RepackedTensor};
pub use layout::{CheckpointLayout, DESCRIPTION_KEY};
pub use scaled::ScaledWeight;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The key of the file's metadata that [`metadata`] is the value of.
pub const METADATA_KEY: &str = "microscaling";

impl StoredType {
    /// Of the crate safetensors.
    fn dtype(self) -> Dtype {
        match self {
            Self::U8 => Dtype::U8,
            Self::F8E4M3 => Dtype::F8_E4M3,
            Self::F8E8M0 => Dtype::F8_E8M0,
            Self::F32 => Dtype::F32,
        }
    }
}

/// The metadata of a tensor.
#[derive(Debug, Serialize, Deserialize)]
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

fn divisor_name(name: &str) -> String {
    format!("{name}.divisor")
}

/// The bytes of a file of these tensors, the same for the same tensors.
///
/// # Errors
/// [`FileError::Safetensors`] if the header becomes longer than safetensors allows.
pub fn save(tensors: &BTreeMap<String, Packed>) -> Result<Vec<u8>, FileError> {
    let described = tensors.iter().map(|(name, packed)| {
        let (format, axis) = (packed.format(), packed.axis());
        (name.as_str(), format, packed.shape(), axis)
    });
    let metadata = HashMap::from([(METADATA_KEY.to_owned(), metadata(described)?)]);
    let stored = tensors.iter();
    let stored: Vec<_> = stored
        .flat_map(|(name, packed)| store(name, &packed.view()))
        .collect();
    let views = stored.iter().map(|tensor| {
        let dtype = tensor.dtype.dtype();
        let view = TensorView::new(dtype, tensor.shape.clone(), &tensor.bytes)?;
        Ok((tensor.name.as_str(), view))
    });
    let views: Vec<_> = views.collect::<Result<_, SafeTensorError>>()?;
    Ok(::safetensors::serialize(views, Some(metadata))?)
}

/// The tensors in which [`save`] stores a packed tensor.
pub fn store(name: &str, packed: &PackedView<'_>) -> Vec<StoredTensor> {
    let bytes = |name, shape, bytes: &[u8]| StoredTensor {
        name,
        dtype: StoredType::U8,
        shape,
        bytes: bytes.to_vec(),
    };
    let mut stored = vec![
        bytes(scales_name(name), packed.scales_shape(), packed.scales()),
        bytes(
            elements_name(name),
            packed.elements_shape(),
            packed.elements(),
        ),
    ];
    let numbers = [
        (tensor_scale_name(name), packed.tensor_scale()),
        (divisor_name(name), packed.divisor()),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, number)| {
        Some(StoredTensor {
            name,
            dtype: StoredType::F32,
            shape: vec![1],
            bytes: number?.to_le_bytes().to_vec(),
        })
    });
    stored.extend(numbers);
    stored
}

/// The metadata of a file of tensors with these names, formats, shapes and axes, under [`METADATA_KEY`].
///
/// # Errors
/// [`FileError::Json`]: JSON cannot say it.
pub fn metadata<'a>(
    tensors: impl IntoIterator<Item = (&'a str, BlockFormat, &'a [usize], usize)>,
) -> Result<String, FileError> {
    let entries: BTreeMap<&str, Entry> = tensors
        .into_iter()
        .map(|(name, format, shape, axis)| {
            let entry = Entry {
                format: format.to_string(),
                shape: shape.to_vec(),
                axis,
            };
            (name, entry)
        })
        .collect();
    serde_json::to_string(&entries).map_err(|source| FileError::Json {
        part: "metadata",
        source,
    })
}

/// The tensors of a file, by name.
///
/// A crafted file gives an error at worst: nothing panics, and memory stays below a small multiple of the file's
/// length.
///
/// # Errors
/// [`FileError`], which names the tensor and its defect.
pub fn load(file: &[u8]) -> Result<BTreeMap<String, Packed>, FileError> {
    let file = PackedFile::read(file)?;
    if file.metadata(METADATA_KEY).is_none() {
        return Err(FileError::NoMetadata);
    }
    let names: Vec<String> = file.packed().map(str::to_owned).collect();
    names
        .into_iter()
        .map(|name| {
            let packed = file.get(&name).expect("it is one of them")?;
            Ok((name, packed))
        })
        .collect()
}

/// A safetensors file with borrowed bytes, for example a mapped file: its packed tensors, one at a time, and all other
/// tensors.
///
/// As with [`load`], a crafted file gives an error at worst.
#[derive(Debug)]
pub struct PackedFile<'a> {
    tensors: BTreeMap<String, FileTensor<'a>>,
    metadata: HashMap<String, String>,
    entries: BTreeMap<String, Entry>,
}

/// A tensor in the form of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileTensor<'a> {
    /// The type of its elements, by safetensors' name: `BF16`.
    pub dtype: String,
    /// The lengths of its axes.
    pub shape: Vec<usize>,
    /// Its bytes, in row-major order.
    pub bytes: &'a [u8],
}

impl<'a> PackedFile<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`FileError`]: the bytes are not a safetensors file, or the description of packed tensors is not valid. A file
    /// without packed tensors is allowed.
    pub fn read(file: &'a [u8]) -> Result<Self, FileError> {
        let (tensors, metadata) = header::read(file)?;
        let entries = metadata.get(METADATA_KEY);
        let entries = entries.map(|entries| serde_json::from_str(entries));
        let entries = entries.transpose().map_err(|source| FileError::Json {
            part: "metadata",
            source,
        })?;
        Ok(Self {
            tensors,
            metadata,
            entries: entries.unwrap_or_default(),
        })
    }

    /// The value of a key in the file's metadata.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    /// The keys of the file's metadata, in order.
    pub fn metadata_keys(&self) -> Vec<&str> {
        let mut keys: Vec<&str> = self.metadata.keys().map(String::as_str).collect();
        keys.sort_unstable();
        keys
    }

    /// The names of the packed tensors, in order.
    pub fn packed(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// A packed tensor; `None` if there is none of this name.
    pub fn get(&self, name: &str) -> Option<Result<Packed, FileError>> {
        let entry = self.entries.get(name)?;
        Some(load_one(self, name, entry))
    }

    /// The names of the tensors that store the packed tensor of this name, if there is one.
    pub fn parts_of(&self, name: &str) -> Vec<String> {
        let Some(entry) = self.entries.get(name) else {
            return Vec::new();
        };
        let mut parts = vec![scales_name(name), elements_name(name)];
        let format = entry.format.parse::<BlockFormat>();
        if format.is_ok_and(|format| format.tensor_scale) {
            parts.push(tensor_scale_name(name));
            let divisor = divisor_name(name);
            parts.extend(self.tensors.contains_key(&divisor).then_some(divisor));
        }
        parts
    }

    /// The names of all stored tensors, in order, including the parts of packed tensors.
    pub fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    /// A stored tensor; `None` if there is none of this name.
    pub fn tensor(&self, name: &str) -> Option<FileTensor<'a>> {
        self.tensors.get(name).cloned()
    }
}

fn load_one(file: &PackedFile<'_>, name: &str, entry: &Entry) -> Result<Packed, FileError> {
    let format: BlockFormat = entry.format.parse().map_err(|source| FileError::Format {
        tensor: name.to_owned(),
        source,
    })?;
    let scales = part(file, name, &scales_name(name), "U8")?;
    let elements = part(file, name, &elements_name(name), "U8")?;
    let tensor_scale = match format.tensor_scale {
        true => Some(number(file, name, tensor_scale_name(name))?),
        false => None,
    };
    let divisor = divisor_name(name);
    let divisor = match tensor_scale.is_some() && file.tensors.contains_key(&divisor) {
        true => Some(number(file, name, divisor)?),
        false => None,
    };
    let (shape, axis) = (&entry.shape, entry.axis);
    // Only bytes of the file are copied, and only if their number is right.
    let packed = PackedView::new(
        format,
        shape,
        axis,
        tensor_scale,
        scales.bytes,
        elements.bytes,
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
    Ok(match divisor {
        Some(divisor) => packed.with_divisor(divisor),
        None => packed,
    })
}

/// That a stored tensor has the shape that it is written with.
fn check_shape(
    tensor: &str,
    part: String,
    stored: &FileTensor<'_>,
    expected: Vec<usize>,
) -> Result<(), FileError> {
    if stored.shape == expected {
        return Ok(());
    }
    Err(FileError::Part {
        tensor: tensor.to_owned(),
        part,
        expected: format!("of shape {expected:?}"),
        got: format!("of shape {:?}", stored.shape),
    })
}

/// A stored tensor of a type.
fn part<'a>(
    file: &PackedFile<'a>,
    tensor: &str,
    part: &str,
    dtype: &str,
) -> Result<FileTensor<'a>, FileError> {
    let stored = file.tensor(part).ok_or_else(|| FileError::Missing {
        tensor: tensor.to_owned(),
        part: part.to_owned(),
    })?;
    if stored.dtype != dtype {
        return Err(FileError::Part {
            tensor: tensor.to_owned(),
            part: part.to_owned(),
            expected: dtype.to_owned(),
            got: stored.dtype,
        });
    }
    Ok(stored)
}

/// The number in a stored f32 tensor of one.
fn number(file: &PackedFile<'_>, tensor: &str, name: String) -> Result<f32, FileError> {
    let stored = part(file, tensor, &name, "F32")?;
    check_shape(tensor, name, &stored, vec![1])?;
    let bytes = stored.bytes.try_into();
    Ok(f32::from_le_bytes(bytes.expect("one f32 is 4 bytes")))
}
