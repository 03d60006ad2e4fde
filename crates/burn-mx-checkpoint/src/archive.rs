//! The mapped files of a checkpoint, and their contents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use memmap2::Mmap;
use microscaling::Packed;
use microscaling::safetensors::{FileError, FileTensor, PackedFile, PackedFiles};
use serde::{Deserialize, Serialize};

use crate::error::CheckpointError;
use burn_mx_core::{MxSpecs, StaticInput};
use microscaling::safetensors::CheckpointLayout;

/// The key of [`Written`] in a file's metadata.
pub(super) const KEY: &str = "burn_mx";

/// Metadata that the tensors do not contain: the layout, and the specs of the packed weights.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) layout: String,
    /// The layer type whose names and shapes the tensors have. Without the field, the layout gives names and shapes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) names: Option<Names>,
    /// All different specs.
    pub(super) specs: Vec<MxSpecs>,
    /// The number of the specs of each packed weight, by the weight's name.
    pub(super) weights: BTreeMap<String, usize>,
    /// The static scales of the inputs of layers, by the name of the layer's packed weight.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) inputs: BTreeMap<String, StaticInput>,
}

/// Whose names and shapes the tensors of a checkpoint have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Names {
    /// As Burn's modules have them.
    Burn,
    /// As PyTorch's modules have them, such as in other tools' layouts.
    PyTorch,
}

/// The index of several files, as other tools write it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Index {
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, serde_json::Value>,
    /// The file of each stored tensor.
    pub(super) weight_map: BTreeMap<String, String>,
}

impl Index {
    pub(super) fn read(path: &Path) -> Result<Self, CheckpointError> {
        let text = fs::read_to_string(path).map_err(|source| io(path, source))?;
        serde_json::from_str(&text).map_err(|error| CheckpointError::Json {
            path: path.to_owned(),
            what: "the index",
            reason: error.to_string(),
        })
    }

    /// The files, each once, in alphabetical order.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        let files: BTreeSet<&str> = self.weight_map.values().map(String::as_str).collect();
        files.into_iter()
    }
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

pub(super) fn io(path: &Path, source: std::io::Error) -> CheckpointError {
    CheckpointError::Io {
        path: path.to_owned(),
        source,
    }
}

pub(super) fn file_error(path: &Path, source: FileError) -> CheckpointError {
    CheckpointError::File {
        path: path.to_owned(),
        source: Box::new(source),
    }
}

/// The index beside a file of this name.
pub(super) fn index_of(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(".index.json");
    path.into()
}

/// A mapped file. The system reads the parts that are used.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) path: PathBuf,
    map: Mmap,
}

impl Mapped {
    fn open(path: &Path) -> Result<Rc<Self>, CheckpointError> {
        let file = File::open(path).map_err(|source| io(path, source))?;
        // SAFETY: the file must not be changed while it is mapped. This project replaces checkpoints by new files and changes
        // none; nobody else may, as with every program that maps files.
        let map = unsafe { Mmap::map(&file) }.map_err(|source| io(path, source))?;
        Ok(Rc::new(Self {
            path: path.to_owned(),
            map,
        }))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.map
    }
}

/// The files of the checkpoint at this path.
pub(super) fn files(path: &Path) -> Result<Vec<Rc<Mapped>>, CheckpointError> {
    let none = |reason: &str| CheckpointError::NoCheckpoint {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let has_extension = |path: &Path, wanted| path.extension().is_some_and(|have| have == wanted);
    if path.is_dir() {
        let entries = fs::read_dir(path).map_err(|source| io(path, source))?;
        let mut found = Vec::new();
        for entry in entries {
            found.push(entry.map_err(|source| io(path, source))?.path());
        }
        let is_index = |file: &PathBuf| file.to_string_lossy().ends_with(".safetensors.index.json");
        let indices: Vec<PathBuf> = found
            .iter()
            .filter(|file| is_index(file))
            .cloned()
            .collect();
        found.retain(|file| has_extension(file, "safetensors"));
        // Shards without an index are what a save has left that was killed.
        let is_shard = |file: &PathBuf| count_of_shards(file).is_some();
        let (parts, found): (Vec<_>, Vec<_>) = found.into_iter().partition(is_shard);
        return match (&indices[..], &found[..], &parts[..]) {
            ([index], _, _) => shards(index),
            ([], [file], _) => Ok(vec![Mapped::open(file)?]),
            ([], [], [file]) if count_of_shards(file) == Some(1) => Ok(vec![Mapped::open(file)?]),
            ([], [], []) => Err(none("has no safetensors file")),
            ([], [], _) => Err(none("has shards of a checkpoint and no index of them")),
            _ => Err(none("has several checkpoints: name one")),
        };
    }
    if has_extension(path, "json") {
        return shards(path);
    }
    let index = index_of(path);
    match !path.exists() && index.exists() {
        true => shards(&index),
        false => Ok(vec![Mapped::open(path)?]),
    }
}

fn shards(index: &Path) -> Result<Vec<Rc<Mapped>>, CheckpointError> {
    let folder = index.parent().unwrap_or(Path::new(""));
    let read = Index::read(index)?;
    read.files()
        .map(|name| {
            // No other folder than the index's is anybody's business.
            if Path::new(name).file_name() != Some(name.as_ref()) {
                return Err(CheckpointError::Json {
                    path: index.to_owned(),
                    what: "the index",
                    reason: format!("`{name}` is not a file name"),
                });
            }
            Mapped::open(&folder.join(name))
        })
        .collect()
}

/// The contents of a checkpoint's files.
pub(super) struct Archive<'a> {
    mapped: &'a [Rc<Mapped>],
    read: PackedFiles<'a>,
    /// The metadata of all files.
    pub(super) written: Written,
}

impl<'a> Archive<'a> {
    /// `layout` is the layout of the packed weights, if it is known.
    pub(super) fn read(
        mapped: &'a [Rc<Mapped>],
        layout: Option<CheckpointLayout>,
    ) -> Result<Self, CheckpointError> {
        let mut written = Written::default();
        let mut files = Vec::new();
        for file in mapped {
            let packed = PackedFile::read(file.bytes());
            let packed = packed.map_err(|source| file_error(&file.path, source))?;
            if let Some(text) = packed.metadata(KEY) {
                written.add(file, text)?;
            }
            files.push(packed);
        }
        let said = || written.layout.parse().ok();
        let read = PackedFiles::new(files, layout.or_else(said));
        let read = read.map_err(|source| match (source, mapped) {
            (FileError::SameName { name }, _) => CheckpointError::SameName { name },
            (source, [first, ..]) => file_error(&first.path, source),
            (_, []) => unreachable!("no file has no error"),
        })?;
        Ok(Self {
            mapped,
            read,
            written,
        })
    }

    /// Whether tensors have PyTorch's names and shapes.
    pub(super) fn is_foreign(&self) -> bool {
        let is_own = |layout: &CheckpointLayout| *layout == CheckpointLayout::Microscaling;
        match (self.written.names, self.written.layout.as_str()) {
            (Some(names), _) => names == Names::PyTorch,
            (None, "") => !self.weights().values().all(is_own),
            (None, said) => said != CheckpointLayout::Microscaling.name(),
        }
    }

    /// The packed weights and their layouts, by name.
    pub(super) fn weights(&self) -> &BTreeMap<String, CheckpointLayout> {
        self.read.weights()
    }

    /// The names of the tensors that do not belong to a packed weight.
    pub(super) fn others(&self) -> &[String] {
        self.read.others()
    }

    /// The names of all stored tensors, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.read.names()
    }

    /// A stored tensor.
    pub(super) fn tensor(&self, name: &str) -> Option<FileTensor<'a>> {
        self.read.tensor(name)
    }

    /// The file of a stored tensor.
    pub(super) fn file(&self, name: &str) -> Option<&'a Rc<Mapped>> {
        Some(&self.mapped[self.read.file_of(name)?])
    }

    /// The specs that a packed weight was saved with, if the file has them.
    pub(super) fn specs(&self, name: &str) -> Option<&MxSpecs> {
        let number = self.written.weights.get(name)?;
        self.written.specs.get(*number)
    }

    /// The scales of the input of a packed weight's layer, if the file has them.
    pub(super) fn input(&self, name: &str) -> Option<&StaticInput> {
        self.written.inputs.get(name)
    }

    /// The packed weight of this name.
    pub(super) fn packed(&self, name: &str) -> Result<Packed, CheckpointError> {
        let packed = self.read.packed(name).expect("it is one of the names");
        packed.map_err(|source| match source {
            FileError::Layout(error) => CheckpointError::Layout(error),
            source => {
                let of_this = |file: &&PackedFile<'_>| file.packed().any(|own| own == name);
                let place = self.read.files().iter().position(|file| of_this(&file));
                file_error(&self.mapped[place.expect("a file has it")].path, source)
            }
        })
    }
}

impl Written {
    /// Adds a file's metadata. All files of a checkpoint must agree on the specs that they share.
    fn add(&mut self, file: &Mapped, text: &str) -> Result<(), CheckpointError> {
        let fail = |reason: String| CheckpointError::Json {
            path: file.path.clone(),
            what: "the metadata `burn_mx`",
            reason,
        };
        let written: Self = serde_json::from_str(text).map_err(|error| fail(error.to_string()))?;
        let before = self.specs.len();
        for (name, number) in written.weights {
            if number >= written.specs.len() {
                return Err(fail(format!(
                    "`{name}` refers to specs {number}; the file has {} specs",
                    written.specs.len()
                )));
            }
            self.weights.insert(name, before + number);
        }
        self.specs.extend(written.specs);
        self.inputs.extend(written.inputs);
        self.layout = written.layout;
        self.names = written.names;
        Ok(())
    }
}
