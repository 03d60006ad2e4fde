//! Configurations: a name, or AMD Quark's attributes as JSON.

use microscaling::{
    BfpFormat, BlockFormat, ElementFormat, MicroexponentFormat, MxFormat, Rounding,
};
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
        let mut options =
            options.map_err(|error| wrong("config", error, "an object of JSON as Quark has it"))?;
        let is_tuned = options.remove("FastFinetune").is_some();
        let names: Vec<&str> = options.keys().map(String::as_str).collect();
        let names = match names.is_empty() {
            true => "without attributes".to_owned(),
            false => names.join(", "),
        };
        let allowed = "`MXAttributes` or `BFPAttributes`, and `FastFinetune`";
        let mut options = options.into_iter();
        let (Some((name, Value::Object(fields))), None) = (options.next(), options.next()) else {
            return Err(wrong("config", names, allowed));
        };
        let mut attributes = Attributes(fields);
        let format = match name.as_str() {
            "MXAttributes" => attributes.mx()?,
            "BFPAttributes" => attributes.bfp()?,
            _ => return Err(wrong("config", names, allowed)),
        };
        let rounding = attributes.rounding()?;
        attributes.finish()?;
        Ok(Self {
            // As text the format is checked.
            format: format.to_string().parse()?,
            rounding,
            is_tuned,
        })
    }
}

fn wrong(field: &str, value: impl ToString, allowed: &str) -> OnnxError {
    OnnxError::Field {
        field: field.to_owned(),
        value: value.to_string(),
        allowed: allowed.to_owned(),
    }
}

/// Quark's attributes that are not yet read.
struct Attributes(Map<String, Value>);

impl Attributes {
    fn mx(&mut self) -> Result<BlockFormat, OnnxError> {
        let element = self.text("element_dtype", "int8")?;
        let element: ElementFormat = element.parse()?;
        let block_size = self.number("block_size", 32)?;
        Ok(BlockFormat::Mx(MxFormat::new(element, block_size)))
    }

    fn bfp(&mut self) -> Result<BlockFormat, OnnxError> {
        let method = self.text("bfp_method", "to_bfp")?;
        let bit_width = self.number("bit_width", BfpFormat::BFP16.bit_width)?;
        let block_size = self.number("block_size", BfpFormat::BFP16.block_size)?;
        match method.as_str() {
            // The attributes of sub-blocks stay, and are unknown.
            "to_bfp" => Ok(BlockFormat::Bfp(BfpFormat {
                bit_width,
                block_size,
            })),
            "to_bfp_prime" => Ok(BlockFormat::Microexponent(MicroexponentFormat {
                bit_width,
                block_size,
                sub_block_size: self.number("sub_block_size", 2)?,
                shift_bits: self.number("sub_block_shift_bits", 1)?,
            })),
            _ => Err(wrong("bfp_method", method, "to_bfp, to_bfp_prime")),
        }
    }

    /// How elements are rounded. Blocks lie along the axis that products sum over, which Quark calls 1.
    fn rounding(&mut self) -> Result<Rounding, OnnxError> {
        let axis = self.0.remove("axis").unwrap_or(1.into());
        if axis != 1 {
            return Err(wrong("axis", axis, "1, the axis that products sum over"));
        }
        let mode = self.0.remove("rounding_mode").unwrap_or(2.into());
        match mode.as_u64() {
            Some(0) => Ok(Rounding::NearestAway),
            Some(2) => Ok(Rounding::NearestEven),
            _ => {
                let allowed = "0 (ties away from zero), 2 (ties to even)";
                Err(wrong("rounding_mode", mode, allowed))
            }
        }
    }

    fn number<T: TryFrom<u64>>(&mut self, field: &str, default: T) -> Result<T, OnnxError> {
        let Some(value) = self.0.remove(field) else {
            return Ok(default);
        };
        let number = value.as_u64().and_then(|number| number.try_into().ok());
        number.ok_or_else(|| wrong(field, value, "a whole number, 0 or more"))
    }

    fn text(&mut self, field: &str, default: &str) -> Result<String, OnnxError> {
        match self.0.remove(field) {
            None => Ok(default.to_owned()),
            Some(Value::String(text)) => Ok(text),
            Some(value) => Err(wrong(field, value, "a text")),
        }
    }

    /// Checks that no attribute is left.
    fn finish(self) -> Result<(), OnnxError> {
        let Some((field, value)) = self.0.into_iter().next() else {
            return Ok(());
        };
        let allowed = "no such attribute; `MXAttributes` has element_dtype, axis, block_size, rounding_mode; `BFPAttributes` has \
            bfp_method, axis, bit_width, block_size, rounding_mode, and sub_block_size, sub_block_shift_bits with to_bfp_prime";
        Err(wrong(&field, value, allowed))
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
