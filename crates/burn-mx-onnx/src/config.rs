//! Configurations: a name, or AMD Quark's attributes as JSON.

use microscaling::{BlockFormat, Rounding, internal::quark};
use serde_json::{Map, Value};
use std::str::FromStr;

use crate::error::OnnxError;

/// The end of the names of configurations with tuned weights.
const ADAQUANT: &str = "_ADAQUANT";

/// A format, and how its elements are rounded.
///
/// ```
/// use burn_mx_onnx::Configuration;
///
/// let named: Configuration = "MX6_ADAQUANT".parse()?;
/// assert!(named.is_tuned);
/// let quark = r#"{ "MXAttributes": { "element_dtype": "int8", "axis": 1, "block_size": 8, "rounding_mode": 2 } }"#;
/// let quark = Configuration::from_json(quark)?;
/// assert_eq!(quark.format, "mx(element=int8,block_size=8)".parse()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Configuration {
    /// The format of weights and activations.
    pub format: BlockFormat,
    /// How elements are rounded. Names mean ties to even.
    pub rounding: Rounding,
    /// Whether the configuration asks for tuned weights: a name `…_ADAQUANT`, or `FastFinetune` in JSON.
    pub is_tuned: bool,
}

impl FromStr for Configuration {
    type Err = OnnxError;

    /// The configuration with this name: a format as [`BlockFormat`] reads it, also with `_ADAQUANT` at the end. Without parameters,
    /// `NVFP4` has a tensor scale; [`BlockFormat`] gives this name to the blocks alone, `nvfp4(tensor_scale=false)`.
    fn from_str(name: &str) -> Result<Self, OnnxError> {
        let format = name.strip_suffix(ADAQUANT);
        let text = format.unwrap_or(name);
        Ok(Self {
            format: match text.parse()? {
                BlockFormat::NVFP4 if !text.contains('(') => BlockFormat::nvfp4(true),
                format => format,
            },
            rounding: Rounding::NearestEven,
            is_tuned: format.is_some(),
        })
    }
}

impl Configuration {
    /// Reads the `extra_options` of AMD Quark's ONNX quantizer: `MXAttributes` or `BFPAttributes`, with Quark's defaults for
    /// missing attributes. `FastFinetune` may stand beside them; its fields are not read.
    ///
    /// # Errors
    /// If the text is not JSON, has an unknown attribute, or an attribute has a value without a meaning here
    /// ([`OnnxError::Field`], [`OnnxError::Parse`]).
    pub fn from_json(json: &str) -> Result<Self, OnnxError> {
        let options = serde_json::from_str::<Map<String, Value>>(json);
        let mut options = options.map_err(|error| OnnxError::Field {
            field: "config".to_owned(),
            value: error.to_string(),
            allowed: "an object of JSON as Quark has it".to_owned(),
        })?;
        let is_tuned = options.remove("FastFinetune").is_some();
        let (format, rounding) = quark::read_attributes(options)?;
        Ok(Self {
            format,
            rounding,
            is_tuned,
        })
    }
}
