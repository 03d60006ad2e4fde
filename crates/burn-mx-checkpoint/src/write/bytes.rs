//! The bytes of a file, made while they are written.

use super::new_file;
use crate::archive::{file_error, io as io_error};
use crate::error::CheckpointError;
use crate::weights::Weight;
use burn_mx_files::{NewFile, folder_of};
use burn_store::TensorSnapshot;
use microscaling::safetensors::{CheckpointLayout, HeaderEntry, header};
use microscaling::{Dialect, StoredTensor};
use safetensors::Dtype;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// The source of a stored tensor.
pub(crate) enum EntrySource {
    /// Part of a packed weight: the number of the weight, and of the part.
    Part { weight: usize, part: usize },
    /// An unpacked tensor.
    Tensor(TensorSnapshot),
}

/// A tensor that is stored.
pub(crate) struct StoredEntry {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: usize,
    pub(crate) source: EntrySource,
}

/// A packed weight with its name in the file.
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) weight: Weight,
    /// The largest magnitude of the fused layers that the weight belongs to.
    pub(crate) largest: Option<f32>,
}

/// Produces the bytes of entries, with one weight in memory at a time.
pub(crate) struct Bytes<'a> {
    pub(crate) weights: &'a [Named],
    pub(crate) layout: CheckpointLayout,
    pub(crate) dialect: Option<Dialect>,
    /// Called with the number of finished bytes, and of all bytes.
    pub(crate) progress: &'a dyn Fn(u64, u64),
    pub(crate) all: u64,
    done: Cell<u64>,
    /// The tensors of the last requested weight.
    last: RefCell<Option<(usize, Vec<StoredTensor>)>>,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(
        weights: &'a [Named],
        layout: CheckpointLayout,
        dialect: Option<Dialect>,
        progress: &'a dyn Fn(u64, u64),
    ) -> Self {
        Self {
            weights,
            layout,
            dialect,
            progress,
            all: 0,
            done: Cell::new(0),
            last: RefCell::new(None),
        }
    }

    /// The stored tensors of a packed weight.
    pub(crate) fn stored(&self, weight: usize) -> Result<Vec<StoredTensor>, CheckpointError> {
        let Named {
            name,
            weight,
            largest,
        } = &self.weights[weight];
        let (packed, divisor) = weight.pack(self.dialect, *largest)?;
        Ok(match self.layout {
            CheckpointLayout::Microscaling => {
                microscaling::safetensors::store(name, &packed.view())
            }
            CheckpointLayout::Weights(layout) => layout.store(name, &packed.view(), divisor)?,
        })
    }

    pub(super) fn of(&self, source: &EntrySource) -> Result<Vec<u8>, CheckpointError> {
        match source {
            EntrySource::Part { weight, part } => {
                let mut last = self.last.borrow_mut();
                if last.as_ref().is_none_or(|(number, _)| number != weight) {
                    // Before the next one is made.
                    *last = None;
                    *last = Some((*weight, self.stored(*weight)?));
                }
                let (_, stored) = last.as_mut().expect("it was just set");
                Ok(stored[*part].bytes.clone())
            }
            EntrySource::Tensor(snapshot) => {
                let data = snapshot.to_data();
                let data = data.map_err(|error| CheckpointError::Tensor {
                    tensor: snapshot.full_path(),
                    reason: error.to_string(),
                })?;
                Ok(data.as_bytes().to_vec())
            }
        }
    }

    /// Writes a file that does not have its path yet.
    pub(super) fn write(
        &self,
        entries: &[&StoredEntry],
        metadata: &BTreeMap<String, String>,
        path: &Path,
    ) -> Result<NewFile, CheckpointError> {
        let mut sorted = entries.to_vec();
        // Types with wide elements first: each tensor begins at a multiple of its element's size.
        sorted.sort_by(|a, b| (b.dtype, &a.name).cmp(&(a.dtype, &b.name)));
        let dtypes: Vec<String> = sorted.iter().map(|entry| entry.dtype.to_string()).collect();
        let described = sorted
            .iter()
            .zip(&dtypes)
            .map(|(entry, dtype)| HeaderEntry {
                name: &entry.name,
                dtype,
                shape: &entry.shape,
                bytes: entry.bytes,
            });
        let header = header(described, metadata);
        let header = header.map_err(|error| file_error(folder_of(path), error))?;
        let failed = |source| io_error(folder_of(path), source);
        let mut file = new_file(path)?;
        file.write_all(&header).map_err(failed)?;
        for entry in sorted {
            let bytes = self.of(&entry.source)?;
            debug_assert_eq!(bytes.len(), entry.bytes);
            file.write_all(&bytes).map_err(failed)?;
            let done = self.done.get() + bytes.len() as u64;
            self.done.set(done);
            (self.progress)(done, self.all);
        }
        Ok(file)
    }
}
