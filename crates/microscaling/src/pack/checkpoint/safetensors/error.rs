//! Why a file is not written, or not read.

use crate::format::ParseFormatError;
use crate::names::NameError;
use crate::pack::{PackError, WeightLayoutError};
use ::safetensors::SafeTensorError;
use alloc::{boxed::Box, string::String};
use thiserror::Error;

/// Why a file was not written, or is none of packed tensors.
#[derive(Error)]
#[non_exhaustive]
pub enum FileError {
    /// The bytes are not a safetensors file: they are truncated, or the header contradicts their length.
    #[error("packed tensors: not a safetensors file: {0}")]
    Safetensors(#[from] SafeTensorError),
    /// The header says that a tensor lies outside of the file, or does not say where.
    #[error("packed tensors: `{name}` does not lie within the {size} bytes of data")]
    Offsets {
        /// Name of the stored tensor.
        name: String,
        /// Length of the bytes after the header.
        size: usize,
    },
    /// The JSON of the header or of the metadata does not have the expected form.
    #[error("packed tensors: the {part} cannot be read: {source}")]
    Json {
        /// "header" or "metadata".
        part: &'static str,
        /// The defect.
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
        /// The defect of its format.
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
        /// The expected value.
        expected: String,
        /// The value in the file.
        got: String,
    },
    /// The parts do not make up a tensor of the format and shape that the metadata say.
    #[error("packed tensors: tensor `{tensor}`: {source}")]
    Pack {
        /// Name of the tensor.
        tensor: String,
        /// The defect.
        source: PackError,
    },
    /// Two files of one checkpoint have a tensor of one name.
    #[error("packed tensors: two tensors would have the name `{name}`; allowed: names that differ")]
    SameName {
        /// The name.
        name: String,
    },
    /// The index says that a file has a tensor, and the file does not have it.
    #[error("packed tensors: the index says that `{name}` is in `{file}`, which does not have it")]
    NotInFile {
        /// The name.
        name: String,
        /// The name of the file.
        file: String,
    },
    /// The description of a checkpoint of burn-mx does not name a layout.
    #[error("packed tensors: the description under `burn_mx`: `layout` is missing")]
    NoLayout,
    /// A checkpoint of burn-mx names a layout that this version does not know.
    #[error("packed tensors: the description under `burn_mx`: {0}")]
    Description(NameError),
    /// The tensors of a weight are none in the layout that their names and types say.
    #[error("packed tensors: {0}")]
    Layout(Box<WeightLayoutError>),
}

crate::error::debug_is_display!(FileError);
