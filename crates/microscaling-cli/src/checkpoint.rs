//! The files of a checkpoint that is read.

use crate::error::Error;
use crate::npy::{self, Contents};
use crate::scheme::{Conflict, Schemes};
use memmap2::Mmap;
use microscaling::safetensors::{CheckpointFiles, CheckpointLayout, PackedFile, PackedFiles};
use serde_json::Value;
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
    /// The model's `config.json` beside the files, with the quantization from `hf_quant_config.json`; null without them.
    pub(crate) config: Value,
    /// A field of config.json that `hf_quant_config.json` contradicts, and how.
    pub(crate) conflict: Option<Conflict>,
    found: CheckpointFiles,
    maps: Vec<Contents>,
}

impl Checkpoint {
    /// Opens a safetensors file, the index of several, a folder with one of either, or NumPy's `.npy`.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let found = CheckpointFiles::find(path)?;
        let name = found.index().and_then(Path::file_name);
        let maps = found.files().iter().map(|path| map(path));
        let (config, conflict) = config(&found)?;
        Ok(Self {
            path: path.to_owned(),
            index: name.map(|name| name.to_string_lossy().into_owned()),
            maps: maps.collect::<Result<_, _>>()?,
            files: found.files().to_vec(),
            config,
            conflict,
            found,
        })
    }

    /// The files that are read, which stay as they are.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let index = self.index.iter();
        let index = index.map(|name| self.files[0].with_file_name(name));
        index.chain(self.files.iter().cloned()).collect()
    }

    /// The description of the layers in config.json.
    pub(crate) fn schemes(&self) -> Result<Schemes, Error> {
        let path = self.files[0].with_file_name("config.json");
        Schemes::of(&self.config, &path, self.conflict.as_ref())
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
        if !read.scaled().is_empty() || !read.integers().is_empty() {
            self.schemes()?.set_blocks(&mut read);
        }
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

/// The config of the model beside a file. Model Optimizer describes quantized weights in `hf_quant_config.json`, and this program in
/// `NAME.config.json`.
fn config(found: &CheckpointFiles) -> Result<(Value, Option<Conflict>), Error> {
    let beside = &found.files()[0];
    let mut config = json(&beside.with_file_name("config.json"))?;
    let quantized = json(&beside.with_file_name("hf_quant_config.json"))?;
    let own = json(&own_config(found))?;
    let said = own
        .get("quantization_config")
        .or(quantized.get("quantization"));
    // Older versions of compressed-tensors have another name, and models of text and images a config for the text.
    let places = [
        "/quantization_config",
        "/compression_config",
        "/text_config/quantization_config",
        "/text_config/compression_config",
    ];
    let mut in_model = places.iter().filter_map(|place| config.pointer(place));
    let in_model = in_model.find(|said| !said.is_null());
    let is_missing = config.get("quantization_config").is_none_or(Value::is_null);
    if let Some(said) = in_model.or(said).filter(|_| is_missing) {
        let mut fields = config.as_object().cloned().unwrap_or_default();
        fields.insert("quantization_config".to_owned(), said.clone());
        config = fields.into();
    }
    let conflict = conflict(&config["quantization_config"], &quantized["quantization"]);
    Ok((config, conflict))
}

/// The first field that `config.json` and `hf_quant_config.json` both have, with different words.
fn conflict(config: &Value, other: &Value) -> Option<Conflict> {
    let differ = |one: &Value, other: &Value| {
        let reason = || format!("{one}; hf_quant_config.json has {other}");
        (!one.is_null() && !other.is_null() && one != other).then(reason)
    };
    let of_all = ["quant_algo", "kv_cache_quant_algo"];
    let of_all = of_all
        .iter()
        .find_map(|key| Some((*key, differ(&config[*key], &other[*key])?)));
    let layers = other["quantized_layers"].as_object();
    let of_layer = layers.into_iter().flatten().find_map(|(name, layer)| {
        let said = &config["quantized_layers"][name]["quant_algo"];
        let reason = differ(said, &layer["quant_algo"])?;
        Some(("quantized_layers", format!("`{name}`: {reason}")))
    });
    of_all.or(of_layer)
}

/// The file in which this program describes a checkpoint.
fn own_config(found: &CheckpointFiles) -> PathBuf {
    let Some(index) = found.index() else {
        return found.files()[0].with_extension("config.json");
    };
    let name = index.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(INDEX).unwrap_or(&name);
    index.with_file_name(format!("{stem}.config.json"))
}

/// The JSON of a file, or null if the file is missing.
fn json(path: &Path) -> Result<Value, Error> {
    if !path.is_file() {
        return Ok(Value::Null);
    }
    let text = fs::read_to_string(path).map_err(|source| Error::io(path, source))?;
    let fail = |reason: String| Error::Config {
        path: path.to_owned(),
        reason,
    };
    let read: Value = serde_json::from_str(&text).map_err(|error| fail(error.to_string()))?;
    match read.is_object() {
        true => Ok(read),
        false => Err(fail(format!("the file is {read}; allowed: an object"))),
    }
}
