//! The files of a checkpoint that is read.

use crate::error::Error;
use crate::npy::{self, Bytes};
use memmap2::Mmap;
use microscaling::safetensors::{CheckpointLayout, PackedFile, PackedFiles};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The ending of an index of several files.
pub(crate) const INDEX: &str = ".safetensors.index.json";

/// A checkpoint, mapped: one safetensors file, those that an index names, or an array of NumPy.
pub(crate) struct Checkpoint {
    /// The path that the user gave.
    pub(crate) path: PathBuf,
    /// The name of the index, if there is one.
    pub(crate) index: Option<String>,
    pub(crate) files: Vec<PathBuf>,
    maps: Vec<Bytes>,
}

impl Checkpoint {
    /// Opens a safetensors file, the index of several, a folder with one of either, or NumPy's `.npy`.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let found = match path.is_dir() {
            true => in_folder(path)?,
            false => path.to_owned(),
        };
        let name = found.file_name().unwrap_or_default().to_string_lossy();
        let index = name.ends_with(INDEX).then(|| name.into_owned());
        let files = match &index {
            Some(_) => named_by(&found)?,
            None => vec![found],
        };
        let maps = files.iter().map(|path| map(path));
        Ok(Self {
            path: path.to_owned(),
            index,
            maps: maps.collect::<Result<_, _>>()?,
            files,
        })
    }

    /// Reads the headers. `layout` is the packed weights' layout, if the user names one.
    pub(crate) fn read(&self, layout: Option<CheckpointLayout>) -> Result<PackedFiles<'_>, Error> {
        let files = self.files.iter().zip(&self.maps).map(|(path, map)| {
            let file = PackedFile::read(map);
            file.map_err(|source| Error::file(path, source))
        });
        PackedFiles::new(files.collect::<Result<_, _>>()?, layout)
            .map_err(|source| Error::file(&self.path, source))
    }
}

fn map(path: &Path) -> Result<Bytes, Error> {
    let file = File::open(path).map_err(|source| Error::io(path, source))?;
    // SAFETY: the file must not be changed while it is mapped. This program replaces files by new ones and changes none; nobody
    // else may, as with every program that maps files.
    let map = unsafe { Mmap::map(&file) }.map_err(|source| Error::io(path, source))?;
    match path.extension().is_some_and(|end| end == npy::ENDING) {
        true => npy::as_safetensors(path, &map),
        false => Ok(Bytes::Mapped(map)),
    }
}

/// The index in a folder, or else its only safetensors file.
fn in_folder(folder: &Path) -> Result<PathBuf, Error> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(|source| Error::io(folder, source))? {
        let entry = entry.map_err(|source| Error::io(folder, source))?;
        entries.push(entry.path());
    }
    let ending = |wanted: &str| {
        let has = |path: &&PathBuf| path.to_string_lossy().ends_with(wanted);
        let found: Vec<PathBuf> = entries.iter().filter(has).cloned().collect();
        found
    };
    let (indices, files) = (ending(INDEX), ending(".safetensors"));
    match (&indices[..], &files[..]) {
        ([one], _) | ([], [one]) => Ok(one.clone()),
        _ => Err(Error::NoCheckpoint {
            path: folder.to_owned(),
            reason: format!(
                "has {} indices and {} safetensors files; allowed: one index, or one file and no index",
                indices.len(),
                files.len()
            ),
        }),
    }
}

/// The files that an index names, each once, in order.
fn named_by(index: &Path) -> Result<Vec<PathBuf>, Error> {
    let fail = |reason: String| Error::NoCheckpoint {
        path: index.to_owned(),
        reason,
    };
    let text = fs::read_to_string(index).map_err(|source| Error::io(index, source))?;
    let read: Value = serde_json::from_str(&text).map_err(|error| fail(error.to_string()))?;
    let map = read.get("weight_map").and_then(Value::as_object);
    let map = map.ok_or_else(|| fail("has no object `weight_map`".into()))?;
    let mut files = BTreeSet::new();
    for name in map.values() {
        let name = name.as_str().unwrap_or_default();
        // No other folder than the index's is anybody's business.
        if name.is_empty() || Path::new(name).file_name() != Some(name.as_ref()) {
            return Err(fail(format!("`{name}` is not a file name")));
        }
        files.insert(index.with_file_name(name));
    }
    if files.is_empty() {
        return Err(fail("names no file".into()));
    }
    Ok(files.into_iter().collect())
}
