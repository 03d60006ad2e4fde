//! The bytes of a file, made while they are written.

use super::new_file;
use crate::archive::{file_error, io as io_error};
use crate::error::CheckpointError;
use crate::weights::Weight;
use burn_mx_files::{NewFile, folder_of};
use burn_store::TensorSnapshot;
use microscaling::safetensors::CheckpointLayout;
use microscaling::{Dialect, StoredTensor};
use safetensors::tensor::{Dtype, View};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// The source of a stored tensor.
pub(crate) enum Source {
    /// Part of a packed weight: the number of the weight, and of the part.
    Part { weight: usize, part: usize },
    /// An unpacked tensor.
    Tensor(TensorSnapshot),
}

/// A tensor that is stored.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: usize,
    pub(crate) source: Source,
}

/// A packed weight with its name in the file.
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) weight: Weight,
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
    pub(super) error: RefCell<Option<CheckpointError>>,
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
            error: RefCell::new(None),
        }
    }

    /// The stored tensors of a packed weight.
    pub(crate) fn stored(&self, weight: usize) -> Result<Vec<StoredTensor>, CheckpointError> {
        let Named { name, weight } = &self.weights[weight];
        let (packed, divisor) = weight.pack(self.dialect)?;
        Ok(match self.layout {
            CheckpointLayout::Microscaling => {
                microscaling::safetensors::store(name, &packed.view())
            }
            CheckpointLayout::Weights(layout) => layout.store(name, &packed.view(), divisor)?,
        })
    }

    pub(super) fn of(&self, source: &Source) -> Result<Vec<u8>, CheckpointError> {
        match source {
            Source::Part { weight, part } => {
                let mut last = self.last.borrow_mut();
                if last.as_ref().is_none_or(|(number, _)| number != weight) {
                    // Before the next one is made.
                    *last = None;
                    *last = Some((*weight, self.stored(*weight)?));
                }
                let (_, stored) = last.as_mut().expect("it was just set");
                Ok(stored[*part].bytes.clone())
            }
            Source::Tensor(snapshot) => {
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
        entries: &[&Entry],
        metadata: HashMap<String, String>,
        path: &Path,
    ) -> Result<NewFile, CheckpointError> {
        let folder = folder_of(path);
        let file = new_file(path)?;
        let views = entries.iter().map(|entry| {
            let view = Lazy { entry, bytes: self };
            (entry.name.as_str(), view)
        });
        let written = safetensors::serialize_to_file(views, Some(metadata), file.temporary());
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        written.map_err(|error| match error {
            safetensors::SafeTensorError::IoError(source) => io_error(folder, source),
            error => file_error(folder, error.into()),
        })?;
        let opened = File::options()
            .read(true)
            .write(true)
            .open(file.temporary());
        opened
            .and_then(|file| sort_header(&file))
            .map_err(|source| io_error(folder, source))?;
        Ok(file)
    }
}

/// Sorts the header's entries. The crate safetensors writes metadata in a random order, and the same model must give the same
/// bytes.
fn sort_header(mut file: &File) -> io::Result<()> {
    let mut length = [0; 8];
    file.rewind()?;
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header)?;
    let sorted: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&header)?;
    let sorted = serde_json::to_vec(&sorted)?;
    debug_assert!(sorted.len() <= header.len());
    header.fill(b' ');
    header[..sorted.len()].copy_from_slice(&sorted);
    file.seek(SeekFrom::Start(8))?;
    file.write_all(&header)
}

/// An entry whose bytes are produced when they are written.
struct Lazy<'a> {
    pub(super) entry: &'a Entry,
    pub(super) bytes: &'a Bytes<'a>,
}

impl View for Lazy<'_> {
    fn dtype(&self) -> Dtype {
        self.entry.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.entry.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let Lazy { entry, bytes } = self;
        // An error cannot be handed over here; the file is not kept.
        let data = match bytes.error.borrow().is_some() {
            true => Ok(Vec::new()),
            false => bytes.of(&entry.source),
        };
        let data = data.unwrap_or_else(|error| {
            bytes.error.borrow_mut().get_or_insert(error);
            Vec::new()
        });
        let done = bytes.done.get() + data.len() as u64;
        bytes.done.set(done);
        (bytes.progress)(done, bytes.all);
        data.into()
    }

    fn data_len(&self) -> usize {
        self.entry.bytes
    }
}
