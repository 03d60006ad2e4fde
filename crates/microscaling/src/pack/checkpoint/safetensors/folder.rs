//! Which files are a checkpoint, and which tensors of them count.

use super::{CheckpointLayout, FileError, PackedFile, PackedFiles};
use alloc::{
    borrow::ToOwned,
    collections::{BTreeMap, BTreeSet},
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::{fs, io};
use thiserror::Error;

/// The ending of an index's name.
const INDEX: &str = ".safetensors.index.json";

/// The files of a checkpoint: one safetensors file, or those that an index names.
///
/// The index says which file has a tensor. A tensor of the same name in another file, and a tensor without an entry, do not
/// count: they are what another program left.
#[derive(Debug, Clone)]
pub struct CheckpointFiles {
    index: Option<PathBuf>,
    files: Vec<PathBuf>,
    /// The file of each tensor, by its place in `files`.
    places: Option<BTreeMap<String, usize>>,
}

/// Why a path leads to no checkpoint.
#[derive(Error)]
#[non_exhaustive]
pub enum CheckpointFilesError {
    /// A folder or an index cannot be read.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The folder or the index.
        path: PathBuf,
        /// The defect.
        source: io::Error,
    },
    /// The index is not valid.
    #[error("{}: the index cannot be read: {reason}", .path.display())]
    Index {
        /// The index.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// The folder has no checkpoint, or several.
    #[error("{}: {reason}", .path.display())]
    None {
        /// The folder.
        path: PathBuf,
        /// The number of files found, and the allowed number.
        reason: String,
    },
}

crate::error::debug_is_display!(CheckpointFilesError);

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl CheckpointFiles {
    /// The checkpoint at this path: a safetensors file, the index of several, or a folder with one of either. A path
    /// without a file means the index `PATH.index.json`.
    ///
    /// # Errors
    /// [`CheckpointFilesError`]. A folder with several checkpoints is refused, and an index that names a file outside its folder.
    pub fn find(path: &Path) -> Result<Self, CheckpointFilesError> {
        let found = match path.is_dir() {
            true => in_folder(path)?,
            false => path.to_owned(),
        };
        if found
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            return Self::indexed(found);
        }
        let mut index = found.as_os_str().to_owned();
        index.push(".index.json");
        let index = PathBuf::from(index);
        if !found.exists() && index.exists() {
            return Self::indexed(index);
        }
        Ok(Self {
            index: None,
            files: vec![found],
            places: None,
        })
    }

    fn indexed(path: PathBuf) -> Result<Self, CheckpointFilesError> {
        let text = fs::read_to_string(&path);
        let text = text.map_err(|source| CheckpointFilesError::Io {
            path: path.clone(),
            source,
        })?;
        let fail = |reason: String| CheckpointFilesError::Index {
            path: path.clone(),
            reason,
        };
        let Index { weight_map } =
            serde_json::from_str(&text).map_err(|error| fail(error.to_string()))?;
        let names: BTreeSet<&str> = weight_map.values().map(String::as_str).collect();
        let names: Vec<&str> = names.into_iter().collect();
        // No other folder than the index's is anybody's business.
        let outside = |name: &&&str| Path::new(name).file_name() != Some(name.as_ref());
        if let Some(name) = names.iter().find(outside) {
            return Err(fail(format!("`{name}` is not a file name")));
        }
        if names.is_empty() {
            return Err(fail("it names no file".to_owned()));
        }
        let files = names.iter().map(|name| path.with_file_name(name)).collect();
        let place = |file: &str| names.binary_search(&file).expect("it is one of them");
        let places = weight_map
            .iter()
            .map(|(name, file)| (name.clone(), place(file)));
        let places = places.collect();
        Ok(Self {
            files,
            places: Some(places),
            index: Some(path),
        })
    }

    /// The index, if there is one.
    pub fn index(&self) -> Option<&Path> {
        self.index.as_deref()
    }

    /// The safetensors files, each once, in alphabetical order.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The tensors of these files, which are [`files`](Self::files) in the same order. The arguments are as in
    /// [`PackedFiles::new`].
    ///
    /// # Errors
    /// [`FileError::NotInFile`]: the index names a tensor that its file does not have.
    pub fn read<'a>(
        &self,
        files: Vec<PackedFile<'a>>,
        layout: Option<CheckpointLayout>,
    ) -> Result<PackedFiles<'a>, FileError> {
        let Some(places) = &self.places else {
            return PackedFiles::new(files, layout);
        };
        for (name, place) in places {
            if files[*place].tensor(name).is_none() {
                let file = self.files[*place].file_name().unwrap_or_default();
                return Err(FileError::NotInFile {
                    name: name.clone(),
                    file: file.to_string_lossy().to_string(),
                });
            }
        }
        Ok(PackedFiles::of(files, places.clone(), layout))
    }
}

/// The index in a folder, or else its only safetensors file.
fn in_folder(folder: &Path) -> Result<PathBuf, CheckpointFilesError> {
    let io = |source| CheckpointFilesError::Io {
        path: folder.to_owned(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        found.push(entry.map_err(io)?.path());
    }
    found.sort();
    let ends = |path: &PathBuf, end: &str| path.to_string_lossy().ends_with(end);
    let indices: Vec<&PathBuf> = found.iter().filter(|path| ends(path, INDEX)).collect();
    let files = found.iter().filter(|path| ends(path, ".safetensors"));
    // Shards without an index are what a save has left that was killed.
    let is_shard = |path: &&PathBuf| count_of_shards(path).is_some();
    let (shards, files): (Vec<_>, Vec<_>) = files.partition(is_shard);
    let reason = match (&indices[..], &files[..], &shards[..]) {
        ([one], _, _) | ([], [one], _) => return Ok((*one).clone()),
        ([], [], [one]) if count_of_shards(one) == Some(1) => return Ok((*one).clone()),
        ([], [], []) => "has no safetensors file".to_owned(),
        ([], [], _) => "has shards of a checkpoint and no index of them".to_owned(),
        _ => format!(
            "has several checkpoints: {} indices and {} safetensors files; allowed: one index, or one file and no index",
            indices.len(),
            files.len()
        ),
    };
    Err(CheckpointFilesError::None {
        path: folder.to_owned(),
        reason,
    })
}

/// The number of shards in a name such as `NAME-00001-of-00003`. Only an index makes shards a checkpoint.
fn count_of_shards(path: &Path) -> Option<u32> {
    let stem = path.file_stem()?.to_str()?;
    let (stem, count) = stem.rsplit_once("-of-")?;
    let (_, number) = stem.rsplit_once('-')?;
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let count = Some(count).filter(|count| is_number(count) && is_number(number));
    count?.parse().ok()
}
