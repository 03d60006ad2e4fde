//! The description of each layer's quantization in a model's `config.json`.

mod block;
mod refused;

use crate::config::{ConfigError, ModelConfig};
use globset::{Glob, GlobMatcher};
pub use refused::RefusedField;
use regex::Regex;
use serde_json::{Value, json};

/// A pattern of modules' names.
#[derive(Debug)]
enum Modules {
    /// `re:` of compressed-tensors: from the name's start on.
    Regex(Regex),
    /// The name of a module, or a pattern with `*`.
    Name(String, Option<GlobMatcher>),
    /// Words of a name, between dots.
    Words(String),
}

impl Modules {
    fn of(text: &str) -> Result<Self, String> {
        if let Some(pattern) = text.strip_prefix("re:") {
            let regex = Regex::new(&format!("^(?:{pattern})"));
            return regex.map(Self::Regex).map_err(|error| error.to_string());
        }
        let glob = match text.contains('*') {
            true => Some(Glob::new(text).map_err(|error| error.to_string())?),
            false => None,
        };
        let glob = glob.map(|glob| glob.compile_matcher());
        Ok(Self::Name(text.to_owned(), glob))
    }

    /// Whether the module is meant. A name means the modules within, too, as in `modules_to_not_convert`.
    fn has(&self, module: &str) -> bool {
        match self {
            Self::Regex(regex) => regex.is_match(module),
            Self::Words(words) => format!(".{module}.").contains(words),
            Self::Name(name, None) => {
                let rest = module.strip_prefix(name.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            }
            Self::Name(_, Some(glob)) => {
                let parents = module.match_indices('.').map(|(end, _)| &module[..end]);
                parents.chain([module]).any(|name| glob.is_match(name))
            }
        }
    }
}

/// Layers that have one format.
#[derive(Debug)]
#[non_exhaustive]
pub struct LayerGroup {
    /// The name in config.json.
    pub name: String,
    targets: Vec<Modules>,
    /// Whether the group has all linear layers without another group.
    is_rest: bool,
    /// The format of the weights: `float-quantized`, `NVFP4`.
    format: Option<String>,
    /// The fields that the config has for the weights: `num_bits`, `type`, `group_size`, …
    pub weights: Value,
    /// How activations are quantized; null if they are not.
    pub activations: Value,
}

/// The description of the layers in config.json.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Schemes {
    /// `quant_method`, or the tool that made the checkpoint.
    pub method: Option<String>,
    /// How the keys and values of attention are quantized; null if they are not.
    pub kv_cache: Value,
    /// Why weights of GPTQ and AWQ are not what this program reads.
    pub(crate) other_version: Option<String>,
    /// Whether the zero points of GPTQ weights are stored as they are.
    is_gptq_v2: bool,
    /// The fields with which no weight is read.
    pub refused: Vec<RefusedField>,
    groups: Vec<LayerGroup>,
    ignored: Vec<(String, Modules)>,
}

/// The methods whose layout has versions, the key of the version, which may also be `format`, and the versions that are read.
const VERSIONS: [(&str, &str, &[&str]); 2] = [
    ("gptq", "checkpoint_format", &["gptq", "gptq_v2"]),
    ("awq", "version", &["gemm"]),
];

/// The keys of modules that are not quantized.
const IGNORED: [&str; 3] = ["ignore", "exclude_modules", "modules_to_not_convert"];

impl Schemes {
    /// The description that a config has; empty without one.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`]: the description is not an object, or a pattern of modules' names is not valid.
    pub fn of(model: &ModelConfig) -> Result<Self, ConfigError> {
        let Some(config) = model.quantization() else {
            return Ok(Self::default());
        };
        if !config.is_object() {
            return Err(model.invalid(format_args!(" is {config}; allowed: an object")));
        }
        let fail = |key: &str, text: &str, reason: String| {
            model.invalid(format_args!(": {key}: `{text}`: {reason}"))
        };
        let target =
            |key: &str, text: &str| Modules::of(text).map_err(|reason| fail(key, text, reason));
        let mut schemes = Self {
            method: ["quant_method", "quant_algo"]
                .iter()
                .find_map(|key| Some(config.get(*key)?.as_str()?.to_owned())),
            kv_cache: ["kv_cache_scheme", "kv_cache_quant_algo"]
                .iter()
                .find_map(|key| config.get(*key).filter(|value| !value.is_null()).cloned())
                .unwrap_or_default(),
            refused: refused::refused(config, model.conflict.as_ref()),
            ..Self::default()
        };
        for (method, key, known) in VERSIONS {
            let said = config.get(key).or(config.get("format"));
            let said = said.and_then(Value::as_str);
            let said = said.filter(|_| schemes.method.as_deref() == Some(method));
            let is_known = |said: &str| known.iter().any(|x| said.eq_ignore_ascii_case(x));
            schemes.is_gptq_v2 |= said == Some("gptq_v2");
            if let Some(said) = said.filter(|said| !is_known(said)) {
                let known = known.join("`, `");
                let reason = format!("config.json has {key} `{said}`; allowed: `{known}`");
                schemes.other_version = Some(reason);
            }
        }
        for key in IGNORED {
            for text in texts(config.get(key)) {
                let modules = match key {
                    // transformers takes a part of a module's name, too.
                    "modules_to_not_convert" if !text.contains(['*', ':']) => {
                        Modules::Words(format!(".{text}."))
                    }
                    _ => target(key, text)?,
                };
                schemes.ignored.push((text.to_owned(), modules));
            }
        }
        let layers = config.get("quantized_layers").and_then(Value::as_object);
        let groups = config.get("config_groups").and_then(Value::as_object);
        for (name, group) in groups.into_iter().flatten() {
            let targets = texts(group.get("targets"));
            let is_rest = targets.contains(&"Linear");
            let targets = targets.into_iter().filter(|text| *text != "Linear");
            let targets = targets.map(|text| target("targets", text));
            let mut targets = targets
                .collect::<Result<Vec<_>, _>>()?
                .into_iter()
                .peekable();
            let of = |key: &str| group.get(key).cloned().unwrap_or_default();
            // Model Optimizer names the format for each layer.
            let algorithm = targets.peek().and_then(|target| match target {
                Modules::Name(name, None) => layers?.get(name)?.get("quant_algo")?.as_str(),
                _ => None,
            });
            let format = group.get("format").or(config.get("format"));
            let format = format.or(config.get("quant_algo"));
            let format = algorithm.or(format.and_then(Value::as_str));
            schemes.groups.push(LayerGroup {
                name: name.clone(),
                format: format.map(str::to_owned),
                targets: targets.collect(),
                is_rest,
                weights: of("weights"),
                activations: of("input_activations"),
            });
        }
        if groups.is_none() {
            schemes.without_groups(config, layers, fail)?;
        }
        Ok(schemes)
    }

    /// The groups of a config that has none by this name.
    fn without_groups(
        &mut self,
        config: &Value,
        layers: Option<&serde_json::Map<String, Value>>,
        fail: impl Fn(&str, &str, String) -> ConfigError,
    ) -> Result<(), ConfigError> {
        for (name, layer) in layers.into_iter().flatten() {
            self.groups.push(LayerGroup {
                name: "quantized_layers".to_owned(),
                targets: vec![Modules::Name(name.clone(), None)],
                is_rest: false,
                format: layer
                    .get("quant_algo")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
                weights: layer.clone(),
                activations: Value::Null,
            });
        }
        if layers.is_none() {
            let of = |key: &str| config.get(key).cloned().unwrap_or_default();
            let is_integer = matches!(self.method.as_deref(), Some("gptq" | "awq"));
            let integers = |bits: Value, size: Value| json!({"num_bits": bits, "group_size": size, "type": "int"});
            let weights = match (of("bits"), of("weight_block_size")) {
                (Value::Null, block) if !is_integer => json!({"block_structure": block}),
                (bits, _) => integers(bits, of("group_size")),
            };
            // GPTQModel's own fields of layers: `-:` before the pattern of those that are not quantized.
            let dynamic = config.get("dynamic").and_then(Value::as_object);
            for (text, own) in dynamic.into_iter().flatten() {
                let (is_left, pattern) = match text.strip_prefix("-:") {
                    Some(pattern) => (true, pattern),
                    None => (false, text.strip_prefix("+:").unwrap_or(text)),
                };
                let target = Modules::of(&format!("re:{pattern}"))
                    .map_err(|reason| fail("dynamic", text, reason))?;
                if is_left {
                    self.ignored.push((text.clone(), target));
                    continue;
                }
                let or = |key: &str| own.get(key).cloned().unwrap_or_else(|| of(key));
                self.groups.push(LayerGroup {
                    name: text.clone(),
                    targets: vec![target],
                    is_rest: false,
                    format: None,
                    weights: integers(or("bits"), or("group_size")),
                    activations: Value::Null,
                });
            }
            self.groups.push(LayerGroup {
                name: self.method.clone().unwrap_or_default(),
                targets: Vec::new(),
                is_rest: true,
                format: None,
                weights,
                activations: of("activation_scheme"),
            });
        }
        Ok(())
    }

    /// The group of a module. A name counts before a pattern, and a pattern before all linear layers.
    pub fn group(&self, module: &str) -> Option<&LayerGroup> {
        let named = |group: &&LayerGroup| group.targets.iter().any(|target| target.has(module));
        let rest = |group: &&LayerGroup| group.is_rest;
        self.groups
            .iter()
            .find(named)
            .or_else(|| self.groups.iter().find(rest))
    }

    /// The pattern by which a module is not quantized.
    pub fn ignored(&self, module: &str) -> Option<&str> {
        let mut ignored = self.ignored.iter();
        let found = ignored.find(|(_, target)| target.has(module));
        found.map(|(text, _)| text.as_str())
    }
}

impl LayerGroup {
    /// The format that the config has for the group.
    pub fn format(&self) -> Option<&str> {
        self.format.as_deref()
    }
}

/// The texts of a list, or a text alone.
fn texts(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(text)) => vec![text],
        _ => Vec::new(),
    }
}
