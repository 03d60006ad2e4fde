//! The files of a checkpoint that is read.

use crate::error::Error;
use crate::npy::{self, Contents};
use memmap2::Mmap;
use microscaling::safetensors::{CheckpointFiles, CheckpointLayout, PackedFile, PackedFiles};
use microscaling_checkpoint::{ModelConfig, Schemes};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A checkpoint, mapped: one safetensors file, those that an index names, or an array of NumPy.
pub(crate) struct Checkpoint {
    /// The path that the user gave.
    pub(crate) path: PathBuf,
    /// The name of the index, if there is one.
    pub(crate) index: Option<String>,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) config: ModelConfig,
    found: CheckpointFiles,
    maps: Vec<Contents>,
}

impl Checkpoint {
    /// Opens a safetensors file, the index of several, a folder with one of either, or NumPy's `.npy`.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let found = CheckpointFiles::find(path)?;
        let name = found.index().and_then(Path::file_name);
        let maps = found.files().iter().map(|path| map(path));
        Ok(Self {
            path: path.to_owned(),
            index: name.map(|name| name.to_string_lossy().into_owned()),
            maps: maps.collect::<Result<_, _>>()?,
            files: found.files().to_vec(),
            config: ModelConfig::beside(&found)?,
            found,
        })
    }

    /// The files that are read, which stay as they are.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let index = self.index.iter();
        let index = index.map(|name| self.files[0].with_file_name(name));
        index.chain(self.files.iter().cloned()).collect()
    }

    /// Reads the headers. `layout` is the packed weights' layout, if the user names one.
    pub(crate) fn read(&self, layout: Option<CheckpointLayout>) -> Result<PackedFiles<'_>, Error> {
        let files = self.files.iter().zip(&self.maps).map(|(path, map)| {
            let file = PackedFile::read(map);
            file.map_err(|source| Error::file(path, source))
        });
        let files = files.collect::<Result<_, _>>()?;
        let read = self.found.read(files, layout);
        let mut read = read.map_err(|source| Error::file(&self.path, source))?;
        Schemes::set_blocks(&self.config, &mut read)?;
        Ok(read)
    }
}

fn map(path: &Path) -> Result<Contents, Error> {
    let file = File::open(path).map_err(|source| Error::io(path, source))?;
    // SAFETY: the file must not be changed while it is mapped. This program replaces files by new ones and changes none; nobody
    // else may, as with every program that maps files.
    let map = unsafe { Mmap::map(&file) }.map_err(|source| Error::io(path, source))?;
    match path.extension().is_some_and(|end| end == npy::ENDING) {
        true => npy::as_safetensors(path, &map),
        false => Ok(Contents::Mapped(map)),
    }
}
