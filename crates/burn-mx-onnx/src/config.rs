//! Configurations: a name, or AMD Quark's attributes as JSON.

use microscaling::{BlockFormat, Rounding, quark};
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

    /// The configuration with this name: a format as [`BlockFormat`] reads it, also with `_ADAQUANT` at the end.
    fn from_str(name: &str) -> Result<Self, OnnxError> {
        let format = name.strip_suffix(ADAQUANT);
        Ok(Self {
            format: format.unwrap_or(name).parse()?,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_quarks_documentation() {
        let microscaling = r#"{"MXAttributes": {"element_dtype": "int8", "axis": 1, "block_size": 8, "rounding_mode": 2}}"#;
        let microexponents = r#"{
            "BFPAttributes": {"bfp_method": "to_bfp_prime", "axis": 1, "bit_width": 16, "block_size": 16,
                "sub_block_size": 2, "sub_block_shift_bits": 1, "rounding_mode": 2},
            "FastFinetune": {"DataSize": 100, "OptimAlgorithm": "adaquant"}
        }"#;
        let away = r#"{"BFPAttributes": {"bit_width": 12, "rounding_mode": 0}}"#;
        let mxint8 = r#"{"MXAttributes": {}}"#;
        use Rounding::{NearestAway, NearestEven};
        for (json, format, rounding, is_tuned) in [
            (
                microscaling,
                "mx(element=int8,block_size=8)",
                NearestEven,
                false,
            ),
            (microexponents, "MX9", NearestEven, true),
            (away, "bfp(bit_width=12,block_size=8)", NearestAway, false),
            (mxint8, "MXINT8", NearestEven, false),
        ] {
            let expected = Configuration {
                format: format.parse().unwrap(),
                rounding,
                is_tuned,
            };
            assert_eq!(Configuration::from_json(json).unwrap(), expected, "{json}");
        }
    }

    #[test]
    fn attributes_without_a_meaning() {
        for (json, texts) in [
            ("[]", ["`config` is", "JSON"]),
            ("{}", ["without attributes", "`MXAttributes`"]),
            (
                r#"{"MXAttributes": {}, "BFPAttributes": {}}"#,
                ["MXAttributes", "`MXAttributes` or"],
            ),
            (r#"{"Attributes": {}}"#, ["Attributes", "`MXAttributes` or"]),
            (
                r#"{"MXAttributes": {"axis": 0}}"#,
                ["`axis` is 0", "allowed: 1"],
            ),
            (
                r#"{"MXAttributes": {"rounding_mode": 1}}"#,
                ["`rounding_mode` is 1", "2 (ties to even)"],
            ),
            (
                r#"{"MXAttributes": {"element_dtype": "fp3"}}"#,
                ["fp3", "fp4_e2m1"],
            ),
            (
                r#"{"MXAttributes": {"element": "int8"}}"#,
                ["`element` is", "element_dtype"],
            ),
            (
                r#"{"MXAttributes": {"block_size": -1}}"#,
                ["`block_size` is -1", "0 or more"],
            ),
            (
                r#"{"BFPAttributes": {"sub_block_size": 2}}"#,
                ["`sub_block_size` is 2", "to_bfp_prime"],
            ),
            (
                r#"{"BFPAttributes": {"bfp_method": "to_mx"}}"#,
                ["`bfp_method` is to_mx", "to_bfp_prime"],
            ),
            (
                r#"{"BFPAttributes": {"bit_width": 99}}"#,
                ["99", "expected"],
            ),
        ] {
            let error = Configuration::from_json(json).unwrap_err().to_string();
            for text in texts {
                assert!(error.contains(text), "{json}: {error}");
            }
        }
    }
}
