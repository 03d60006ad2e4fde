//! A model's `config.json`, and what other files say of the quantization.

use microscaling::safetensors::CheckpointFiles;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The ending of the name of an index of several files.
pub const INDEX_END: &str = ".safetensors.index.json";

/// Why a config cannot be read.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A field of the file has a value that is not allowed.
    #[error("{}: cannot be read: {reason}", .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The field, its value, and the allowed values.
        reason: String,
    },
}

microscaling::debug_is_display!(ConfigError);

/// A field of config.json, and how another file contradicts the field.
pub(crate) type Conflict = (&'static str, String);

/// The config of a model: `config.json` beside its files, with the quantization from `hf_quant_config.json` of NVIDIA Model
/// Optimizer or from `NAME.config.json` of the program `microscaling` where config.json has none.
#[derive(Debug, Clone)]
pub struct ModelConfig {
    /// The path of config.json, whether the file exists or not.
    pub path: PathBuf,
    /// The fields of config.json, with `quantization_config` from wherever it stands; null without any of the files.
    pub fields: Value,
    /// A field of config.json that `hf_quant_config.json` contradicts, and how.
    pub(crate) conflict: Option<Conflict>,
}

impl ModelConfig {
    /// The config beside the files of a checkpoint.
    ///
    /// # Errors
    /// [`ConfigError`]: a file cannot be read, or does not hold an object of JSON.
    pub fn beside(files: &CheckpointFiles) -> Result<Self, ConfigError> {
        let path = files.files()[0].with_file_name("config.json");
        let (fields, conflict) = config(files)?;
        Ok(Self {
            path,
            fields,
            conflict,
        })
    }

    /// The description of the quantization; `None` if there is none.
    pub fn quantization(&self) -> Option<&Value> {
        let said = self.fields.get("quantization_config");
        said.filter(|said| !said.is_null())
    }

    /// The error of a field of the quantization's description.
    pub(crate) fn invalid(&self, reason: impl std::fmt::Display) -> ConfigError {
        ConfigError::Invalid {
            path: self.path.clone(),
            reason: format!("quantization_config{reason}"),
        }
    }
}

/// The fields of all files, and a contradiction between two of them.
fn config(found: &CheckpointFiles) -> Result<(Value, Option<Conflict>), ConfigError> {
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

/// The file in which the program `microscaling` describes a checkpoint.
fn own_config(found: &CheckpointFiles) -> PathBuf {
    let Some(index) = found.index() else {
        return found.files()[0].with_extension("config.json");
    };
    let name = index.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(INDEX_END).unwrap_or(&name);
    index.with_file_name(format!("{stem}.config.json"))
}

/// The JSON of a file, or null if the file is missing.
fn json(path: &Path) -> Result<Value, ConfigError> {
    if !path.is_file() {
        return Ok(Value::Null);
    }
    let text = fs::read_to_string(path).map_err(|source| ConfigError::Io {
        path: path.to_owned(),
        source,
    })?;
    let fail = |reason: String| ConfigError::Invalid {
        path: path.to_owned(),
        reason,
    };
    let read: Value = serde_json::from_str(&text).map_err(|error| fail(error.to_string()))?;
    match read.is_object() {
        true => Ok(read),
        false => Err(fail(format!("the file is {read}; allowed: an object"))),
    }
}
