//! Files: the model, mapped, its external data, and the output, which appears when it is complete.

pub(crate) mod safetensors_file;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use burn_mx_files::{NewFile, folder_of, input_at, put_all};
use half::{bf16, f16};
use memmap2::Mmap;

use crate::error::OnnxError;
use crate::proto::wire::Message;
use crate::proto::{self, Data, Tensor, data_type};

/// Tensors in a file of their own start at multiples of this.
const ALIGNMENT: u64 = 64;

pub(crate) fn map(path: &Path) -> Result<Mmap, OnnxError> {
    let file = File::open(path).map_err(OnnxError::io(path))?;
    // SAFETY: the file must not be changed while it is mapped. This program replaces files by new ones and changes none; nobody
    // else may, as with every program that maps files.
    unsafe { Mmap::map(&file) }.map_err(OnnxError::io(path))
}

/// The files of external data beside a model.
#[derive(Debug)]
pub(crate) struct ExternalData {
    folder: PathBuf,
    maps: RefCell<HashMap<String, &'static Mmap>>,
}

impl ExternalData {
    pub(crate) fn beside(model: &Path) -> Self {
        Self {
            folder: folder_of(model).to_owned(),
            maps: RefCell::default(),
        }
    }

    /// The bytes of a tensor's elements. `None` if the file stores the elements as numbers of protobuf.
    pub(crate) fn bytes<'a>(&self, tensor: &Tensor<'a>) -> Result<Option<&'a [u8]>, OnnxError> {
        match tensor.data {
            Data::Raw(bytes) => Ok(Some(bytes)),
            Data::External {
                location,
                offset,
                length,
            } => {
                let refuse = |reason: String| OnnxError::External {
                    tensor: tensor.name.to_owned(),
                    location: location.to_owned(),
                    reason,
                };
                let map = self.map(location).map_err(refuse)?;
                let length = length.unwrap_or((map.len() as u64).saturating_sub(offset));
                let range = offset.checked_add(length).and_then(|end| {
                    map.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)
                });
                let bytes = range.ok_or_else(|| {
                    let size = map.len();
                    refuse(format!(
                        "it has {size} bytes, expected {length} at {offset}"
                    ))
                })?;
                Ok(Some(bytes))
            }
            _ => Ok(None),
        }
    }

    /// A map of a file. The map lives to the end of the program, because the output has pieces of the map.
    fn map(&self, location: &str) -> Result<&'static Mmap, String> {
        if let Some(map) = self.maps.borrow().get(location) {
            return Ok(map);
        }
        let path = Path::new(location);
        let is_below = path
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if location.is_empty() || !is_below {
            return Err("allowed: a file in the model's folder".into());
        }
        let read = |error: io::Error| error.to_string();
        let folder = fs::canonicalize(&self.folder).map_err(read)?;
        let path = fs::canonicalize(folder.join(path)).map_err(read)?;
        if !path.starts_with(&folder) {
            return Err("a link out of the model's folder; allowed: a file in it".into());
        }
        let map = map(&path).map_err(|error| error.to_string())?;
        let map: &'static Mmap = Box::leak(Box::new(map));
        self.maps.borrow_mut().insert(location.to_owned(), map);
        Ok(map)
    }

    /// The elements of a tensor as float32.
    pub(crate) fn floats(&self, tensor: &Tensor<'_>) -> Result<Vec<f32>, OnnxError> {
        let count: usize = tensor.shape().map_or(0, |shape| shape.iter().product());
        let wrong = |got: usize| {
            let reason = format!(
                "it has {got} elements, expected {count} for the shape {:?}",
                tensor.dims
            );
            OnnxError::tensor(tensor.name, reason)
        };
        let bytes = self.bytes(tensor)?;
        let floats: Vec<f32> = match (&tensor.data, bytes) {
            (_, Some(bytes)) => match tensor.data_type {
                data_type::FLOAT => numbers(bytes, f32::from_le_bytes),
                data_type::FLOAT16 => numbers(bytes, |bytes| f16::from_le_bytes(bytes).to_f32()),
                _ => numbers(bytes, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            }
            .ok_or_else(|| {
                let reason = format!("{} bytes are no whole number of elements", bytes.len());
                OnnxError::tensor(tensor.name, reason)
            })?,
            (Data::Floats(floats), _) => floats.clone(),
            (Data::Integers(patterns), _) if tensor.data_type == data_type::FLOAT16 => patterns
                .iter()
                .map(|bits| f16::from_bits(*bits as u16).to_f32())
                .collect(),
            (Data::Integers(patterns), _) => patterns
                .iter()
                .map(|bits| bf16::from_bits(*bits as u16).to_f32())
                .collect(),
            _ => Vec::new(),
        };
        match floats.len() == count {
            true => Ok(floats),
            false => Err(wrong(floats.len())),
        }
    }
}

fn numbers<const N: usize>(bytes: &[u8], number: fn([u8; N]) -> f32) -> Option<Vec<f32>> {
    let (numbers, rest) = bytes.as_chunks();
    rest.is_empty()
        .then(|| numbers.iter().map(|bytes| number(*bytes)).collect())
}

/// The output: a model, and a file of external data where the input has one.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    folder: PathBuf,
    force: bool,
    data: Option<DataFile>,
}

/// A file of external data that is being written.
#[derive(Debug)]
struct DataFile {
    /// Its name beside the output.
    name: String,
    file: NewFile,
    length: u64,
}

impl Output {
    /// # Errors
    /// If the output is one of the files that are read, exists and is not to be replaced, or its folder cannot be written to.
    pub(crate) fn at(
        path: &Path,
        force: bool,
        is_external: bool,
        inputs: &[PathBuf],
    ) -> Result<Self, OnnxError> {
        let mut output = Self {
            path: path.to_owned(),
            folder: folder_of(path).to_owned(),
            force,
            data: None,
        };
        let data = format!("{}.data", path.file_name().unwrap_or_default().display());
        let data = is_external.then_some(data);
        for path in [
            Some(path.to_owned()),
            data.as_ref().map(|data| output.folder.join(data)),
        ] {
            let Some(path) = path else { continue };
            if path.is_dir() {
                let source = io::ErrorKind::IsADirectory.into();
                return Err(OnnxError::Io { path, source });
            }
            if let Some(input) = input_at(&path, inputs) {
                let input = input.clone();
                return Err(OnnxError::Input { path, input });
            }
            // A link that leads nowhere is there, too.
            if !force && path.symlink_metadata().is_ok() {
                return Err(OnnxError::Exists { path });
            }
        }
        if let Some(name) = data {
            output.data = Some(DataFile {
                file: output.new_file(&output.folder.join(&name))?,
                name,
                length: 0,
            });
        }
        Ok(output)
    }

    fn new_file(&self, path: &Path) -> Result<NewFile, OnnxError> {
        NewFile::at(path).map_err(OnnxError::io(&self.folder))
    }

    /// Adds the elements of a tensor to its message: into the data file if there is one and they are many, else as they are.
    pub(crate) fn elements<'a>(
        &mut self,
        tensor: &mut Message<'a>,
        elements: Cow<'a, [u8]>,
    ) -> Result<(), OnnxError> {
        const MANY: usize = 1 << 10;
        let Some(data) = &mut self.data else {
            tensor.bytes(9, elements);
            return Ok(());
        };
        if elements.len() < MANY {
            tensor.bytes(9, elements);
            return Ok(());
        }
        let offset = data.length.next_multiple_of(ALIGNMENT);
        let zeros = vec![0; (offset - data.length) as usize];
        let written = data
            .file
            .write_all(&zeros)
            .and_then(|()| data.file.write_all(&elements));
        written.map_err(OnnxError::io(data.file.path()))?;
        data.length = offset + elements.len() as u64;
        let entries = [
            ("location", data.name.clone()),
            ("offset", offset.to_string()),
            ("length", elements.len().to_string()),
        ];
        for (key, value) in entries {
            tensor.message(Tensor::EXTERNAL_DATA, proto::entry_message(key, &value));
        }
        tensor.integer(Tensor::DATA_LOCATION, 1);
        Ok(())
    }

    /// Writes the model, and gives the files their names. Returns the bytes of all of them.
    pub(crate) fn finish(self, model: &Message<'_>) -> Result<u64, OnnxError> {
        if model.len() > i32::MAX as usize {
            let reason = format!(
                "it would have {} bytes; allowed: {}, or external data",
                model.len(),
                i32::MAX
            );
            return Err(OnnxError::Model {
                path: self.path,
                reason,
            });
        }
        let mut file = self.new_file(&self.path)?;
        for piece in model.pieces() {
            file.write_all(piece).map_err(OnnxError::io(&self.path))?;
        }
        let mut size = model.len() as u64;
        let mut files = Vec::new();
        if let Some(data) = self.data {
            size += data.length;
            files.push(data.file);
        }
        files.push(file);
        put_all(files, self.force)?;
        Ok(size)
    }
}
