//! The mapped files of a checkpoint, and their contents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use memmap2::Mmap;
use microscaling::safetensors::{
    CheckpointFiles, CheckpointFilesError, FileError, FileTensor, IntegerWeight, PackedFile,
    PackedFiles, ScaledWeight,
};
use microscaling::{Packed, WeightLayout};
use microscaling_checkpoint::{ModelConfig, QuantizedLayers, Schemes, is_low_bit};
use serde::{Deserialize, Serialize};

use crate::error::CheckpointError;
use burn_mx_core::{MxSpecs, StaticInput};
use microscaling::safetensors::CheckpointLayout;

/// The key of [`Written`] in a file's metadata.
pub(super) use microscaling::safetensors::DESCRIPTION_KEY as KEY;

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

/// The mapped files of a checkpoint, and what its index says.
#[derive(Debug)]
pub(super) struct Files {
    found: CheckpointFiles,
    pub(super) mapped: Vec<Rc<Mapped>>,
}

/// The files of the checkpoint at this path.
pub(super) fn files(path: &Path) -> Result<Files, CheckpointError> {
    let found = CheckpointFiles::find(path).map_err(|error| match error {
        CheckpointFilesError::Io { path, source } => CheckpointError::Io { path, source },
        CheckpointFilesError::None { path, reason } => {
            CheckpointError::NoCheckpoint { path, reason }
        }
        CheckpointFilesError::Index { path, reason } => CheckpointError::Json {
            path,
            what: "the index",
            reason,
        },
        error => CheckpointError::NoCheckpoint {
            path: path.to_owned(),
            reason: error.to_string(),
        },
    })?;
    let mapped = found.files().iter().map(|file| Mapped::open(file));
    Ok(Files {
        mapped: mapped.collect::<Result<_, _>>()?,
        found,
    })
}

/// A weight of another tool that is loaded as values.
#[derive(Clone)]
pub(super) enum ForeignWeight {
    /// FP8 with scales of higher precision.
    Scaled(ScaledWeight),
    Integers(IntegerWeight),
}

impl ForeignWeight {
    /// The shape of the values; `tensor` looks up the weight's parts.
    pub(super) fn shape<'a>(
        &self,
        name: &str,
        tensor: impl Fn(&str) -> Option<FileTensor<'a>>,
    ) -> Vec<usize> {
        match self {
            Self::Scaled(_) => tensor(name).map_or_else(Vec::new, |codes| codes.shape),
            Self::Integers(weight) => weight.shape.to_vec(),
        }
    }

    /// The values in row-major order; `None` if one of the parts is missing.
    pub(super) fn values<'a>(
        &self,
        name: &str,
        tensor: impl Fn(&str) -> Option<FileTensor<'a>>,
    ) -> Option<Vec<f32>> {
        match self {
            Self::Scaled(weight) => Some(weight.values(&tensor(name)?, &tensor(&weight.scales)?)),
            Self::Integers(weight) => weight.values(tensor),
        }
    }
}

/// The contents of a checkpoint's files.
pub(super) struct Archive<'a> {
    mapped: &'a [Rc<Mapped>],
    read: PackedFiles<'a>,
    /// `None` beside files that describe themselves.
    config: Option<ModelConfig>,
    /// The metadata of all files.
    pub(super) written: Written,
}

impl<'a> Archive<'a> {
    /// `layout` is the layout of the packed weights, if it is known.
    pub(super) fn read(
        files: &'a Files,
        layout: Option<CheckpointLayout>,
    ) -> Result<Self, CheckpointError> {
        let mapped = &files.mapped;
        let mut said = Vec::new();
        let mut packed = Vec::new();
        for file in mapped {
            let own = PackedFile::read(file.bytes());
            let own = own.map_err(|source| file_error(&file.path, source))?;
            said.push(own.metadata(KEY).map(|text| Written::read(file, text)));
            packed.push(own);
        }
        let said = said.into_iter().map(Option::transpose);
        let said: Vec<Option<Written>> = said.collect::<Result<_, _>>()?;
        let layout = layout.or_else(|| said.iter().flatten().last()?.layout.parse().ok());
        let read = files.found.read(packed, layout);
        let path = files.found.index().unwrap_or(&mapped[0].path);
        let read = read.map_err(|source| file_error(path, source))?;
        let mut written = Written::default();
        for (number, said) in said.into_iter().enumerate() {
            // A file's word on a weight counts if the weight's parts in this file do.
            let counts = |name: &String| {
                let mut parts = read.parts_of(name).into_iter();
                parts.any(|part| read.file_of(&part) == Some(number))
            };
            said.into_iter().for_each(|said| written.add(said, counts));
        }
        let mut archive = Self {
            mapped,
            read,
            config: None,
            written,
        };
        if !archive.is_described() {
            let config = ModelConfig::beside(&files.found)?;
            Schemes::set_blocks(&config, &mut archive.read)?;
            archive.config = Some(config);
        }
        Ok(archive)
    }

    /// Checks that config.json and the tensors of other tools' weights agree, and that no two tensors have one name. `is_named`: the
    /// user has named the layout. Weights in a way that nobody here knows are an error unless the load is partial.
    ///
    /// Returns the tensors with the codes of weights that are not read, and why not.
    pub(super) fn check(
        &self,
        path: &Path,
        is_named: bool,
        is_partial: bool,
    ) -> Result<BTreeMap<String, String>, CheckpointError> {
        let mut names = self.loaded();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let name = pair[0].clone();
            return Err(CheckpointError::SameName { name });
        }
        let Some(config) = &self.config else {
            return Ok(BTreeMap::new());
        };
        let mut layers = QuantizedLayers::of(config, &self.read)?;
        let unread = layers.unread.values().cloned();
        let unread = unread.filter(|(codes, _)| is_low_bit(&self.read, codes));
        let unread = unread.collect();
        if self.is_foreign() || config.quantization().is_some() {
            layers.check_config(config, is_named)?;
            if is_partial {
                layers.unread.clear();
            }
            layers.check().map_err(|source| CheckpointError::Unread {
                path: path.to_owned(),
                source: Box::new(source),
            })?;
        }
        Ok(unread)
    }

    /// Whether the files of this project describe their weights. A `config.json` beside such files may be another model's.
    fn is_described(&self) -> bool {
        let is_said = !self.written.layout.is_empty();
        let is_own = !self.weights().is_empty() && self.are_own();
        self.written.is_burns() || (!self.has_values() && (is_said || is_own))
    }

    /// Whether every packed weight is in this project's layout.
    fn are_own(&self) -> bool {
        let mut layouts = self.weights().values();
        layouts.all(|layout| *layout == CheckpointLayout::Microscaling)
    }

    /// Whether there are weights that are loaded as values.
    fn has_values(&self) -> bool {
        self.with_values().next().is_some()
    }

    /// Whether tensors have PyTorch's names and shapes.
    pub(super) fn is_foreign(&self) -> bool {
        match (self.written.names, self.written.layout.as_str()) {
            (Some(names), _) => names == Names::PyTorch,
            (None, "") => self.has_values() || !self.are_own(),
            (None, said) => said != CheckpointLayout::Microscaling.name(),
        }
    }

    /// The packed weights and their layouts, by name.
    pub(super) fn weights(&self) -> &BTreeMap<String, CheckpointLayout> {
        self.read.weights()
    }

    /// The weights of other tools that no format of blocks describes: they are loaded as values, and keep the model's specs. A
    /// model's own tensors may have the names and types of such weights.
    pub(super) fn with_values(&self) -> impl Iterator<Item = (&String, ForeignWeight)> {
        let is_burns = self.written.is_burns();
        let scaled = self.read.scaled().iter();
        let scaled = scaled.map(|(name, weight)| (name, ForeignWeight::Scaled(weight.clone())));
        let integers = self.read.integers().iter();
        let integers =
            integers.map(|(name, weight)| (name, ForeignWeight::Integers(weight.clone())));
        let all = scaled.chain(integers);
        all.filter(move |_| !is_burns)
    }

    /// The names of the tensors that store a weight.
    pub(super) fn parts_of(&self, weight: &str) -> Vec<String> {
        self.read.parts_of(weight)
    }

    /// The names of the tensors that do not belong to a packed weight.
    pub(super) fn unpacked(&self) -> &[String] {
        self.read.others()
    }

    /// The names of the tensors that do not belong to a weight of either kind.
    pub(super) fn others(&self) -> Vec<&String> {
        let parts = self.with_values().flat_map(|(name, _)| self.parts_of(name));
        let parts: BTreeSet<String> = parts.collect();
        let others = self.read.others().iter();
        others.filter(|name| !parts.contains(*name)).collect()
    }

    /// The names of all tensors that are loaded, by which a model has them.
    pub(super) fn loaded(&self) -> Vec<&String> {
        let values = self.with_values().map(|(name, _)| name);
        let weights = self.weights().keys().chain(values);
        weights.chain(self.others()).collect()
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

    /// The packed weight with the divisor that compressed-tensors stores, if the file has one.
    pub(super) fn divided(&self, name: &str, packed: Packed) -> Packed {
        let layout = WeightLayout::Nvfp4PackQuantized;
        let is_divided = self.read.weights().get(name) == Some(&layout.into());
        let stored = layout.stored_as(name).pop();
        let divisor = stored.filter(|_| is_divided).and_then(|(part, _)| {
            let bytes = self.read.tensor(&part)?.bytes.try_into().ok()?;
            Some(f32::from_le_bytes(bytes))
        });
        match divisor {
            Some(divisor) => packed.with_divisor(divisor),
            None => packed,
        }
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
    /// Whether the files have this project's layout, and Burn's names.
    fn is_burns(&self) -> bool {
        self.layout == CheckpointLayout::Microscaling.name() && self.names != Some(Names::PyTorch)
    }

    /// The metadata of a file.
    fn read(file: &Mapped, text: &str) -> Result<Self, CheckpointError> {
        let fail = |reason: String| CheckpointError::Json {
            path: file.path.clone(),
            what: "the metadata `burn_mx`",
            reason,
        };
        let written: Self = serde_json::from_str(text).map_err(|error| fail(error.to_string()))?;
        let specs = written.specs.len();
        match written.weights.iter().find(|(_, number)| **number >= specs) {
            Some((name, number)) => Err(fail(format!(
                "`{name}` refers to specs {number}; the file has {specs} specs"
            ))),
            None => Ok(written),
        }
    }

    /// Adds what a file says of the weights that count there.
    fn add(&mut self, other: Self, counts: impl Fn(&String) -> bool) {
        let before = self.specs.len();
        let weights = other.weights.into_iter().filter(|(name, _)| counts(name));
        self.weights
            .extend(weights.map(|(name, number)| (name, before + number)));
        self.specs.extend(other.specs);
        let inputs = other.inputs.into_iter().filter(|(name, _)| counts(name));
        self.inputs.extend(inputs);
        self.layout = other.layout;
        self.names = other.names;
    }
}
