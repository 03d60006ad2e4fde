//! Safetensors files: calibration, and tuned weights.

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use std::path::{Path, PathBuf};

use crate::error::OnnxError;
use crate::files::map;

/// The shape and the elements of a tensor.
pub(crate) type Array = (Vec<usize>, Vec<f32>);

/// A mapped file of float32 tensors.
#[derive(Debug)]
pub(crate) struct TensorFile {
    path: PathBuf,
    map: Mmap,
}

impl TensorFile {
    pub(crate) fn open(path: &Path) -> Result<Self, OnnxError> {
        let file = Self {
            path: path.to_owned(),
            map: map(path)?,
        };
        file.tensors()?;
        Ok(file)
    }

    fn tensors(&self) -> Result<SafeTensors<'_>, OnnxError> {
        SafeTensors::deserialize(&self.map).map_err(|error| OnnxError::Field {
            field: "file".into(),
            value: format!("{}: {error}", self.path.display()),
            allowed: "a safetensors file".into(),
        })
    }

    pub(crate) fn names(&self) -> Result<Vec<String>, OnnxError> {
        Ok(self
            .tensors()?
            .names()
            .into_iter()
            .map(ToString::to_string)
            .collect())
    }

    /// The shape and the elements of a tensor.
    pub(crate) fn get(&self, name: &str) -> Result<Option<Array>, OnnxError> {
        let tensors = self.tensors()?;
        let Ok(tensor) = tensors.tensor(name) else {
            return Ok(None);
        };
        if tensor.dtype() != Dtype::F32 {
            let reason = format!(
                "it is {:?} in {}; allowed: F32",
                tensor.dtype(),
                self.path.display()
            );
            return Err(OnnxError::tensor(name, reason));
        }
        let (numbers, _) = tensor.data().as_chunks();
        let numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes));
        Ok(Some((tensor.shape().to_vec(), numbers.collect())))
    }
}
