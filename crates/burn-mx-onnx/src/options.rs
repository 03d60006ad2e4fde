//! The options: which tensors to quantize, and how.

use globset::{Glob, GlobMatcher};
use microscaling::{BlockFormat, Rounding};
use std::path::PathBuf;

use crate::error::OnnxError;
use crate::weights::WeightTypes;

/// How a model is quantized.
///
/// ```
/// use burn_mx_onnx::QuantizeOptions;
///
/// let options = QuantizeOptions::new("mxfp8_e4m3".parse()?);
/// let options = QuantizeOptions { exclude: vec!["/head/*".into()], ..options };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct QuantizeOptions {
    /// The format of weights and activations.
    pub format: BlockFormat,
    /// How elements are rounded: ties to even, ties away from zero, or toward zero. Default: to even.
    pub rounding: Rounding,
    /// Weights, activations, or both (default).
    pub parts: Parts,
    /// The types by which weights are stored. Default: portable.
    pub types: WeightTypes,
    /// The layers to quantize: names of nodes, prefixes of names that end before `/` or `.`, or globs. A node without a name has
    /// the name of its first output. Empty: all layers.
    pub include: Vec<String>,
    /// The layers that stay unquantized, even if `include` matches them.
    pub exclude: Vec<String>,
    /// A safetensors file with the largest magnitudes of activations on calibration data, which fix the scales. The file has a
    /// tensor for the input of each layer, by the input's name. The tensor has one number for each place along the summed axis.
    /// Default: scales follow from the values at run time.
    pub calibration: Option<PathBuf>,
    /// A safetensors file with weights and biases in place of those in the model, by the names of initializers.
    pub tuned: Option<PathBuf>,
    /// Whether an output that exists is replaced. A file that is read is never replaced.
    pub force: bool,
}

/// The tensors of a layer to quantize.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parts {
    /// Weights and activations.
    #[default]
    Both,
    /// Weights.
    Weights,
    /// Activations.
    Activations,
}

impl QuantizeOptions {
    /// Weights and activations of all layers in this format.
    pub fn new(format: BlockFormat) -> Self {
        Self {
            format,
            rounding: Rounding::NearestEven,
            parts: Parts::Both,
            types: WeightTypes::Portable,
            include: Vec::new(),
            exclude: Vec::new(),
            calibration: None,
            tuned: None,
            force: false,
        }
    }
}

/// Patterns for names of layers.
pub(crate) struct Patterns(Vec<(String, GlobMatcher)>);

impl Patterns {
    pub(crate) fn new(texts: &[String], field: &str) -> Result<Self, OnnxError> {
        let patterns = texts.iter().map(|text| {
            let glob = Glob::new(text).map_err(|error| OnnxError::Field {
                field: field.to_owned(),
                value: format!("`{text}`, {}", error.kind()),
                allowed: "a name, a prefix of one, or a glob".into(),
            })?;
            Ok((text.clone(), glob.compile_matcher()))
        });
        Ok(Self(patterns.collect::<Result<_, OnnxError>>()?))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| matches(pattern, name))
    }

    /// Checks that each pattern matches one of the names at least.
    pub(crate) fn check(&self, names: &[&str]) -> Result<(), OnnxError> {
        let useless =
            |pattern: &&(String, GlobMatcher)| !names.iter().any(|name| matches(pattern, name));
        match self.0.iter().find(useless) {
            None => Ok(()),
            Some((pattern, _)) => Err(OnnxError::NoMatch {
                pattern: pattern.clone(),
                layers: names.join(", "),
            }),
        }
    }
}

fn matches((text, glob): &(String, GlobMatcher), name: &str) -> bool {
    let is_below = name
        .strip_prefix(text.as_str())
        .is_some_and(|rest| rest.starts_with(['/', '.']));
    is_below || name == text || glob.is_match(name)
}
