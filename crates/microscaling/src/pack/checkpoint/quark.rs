//! AMD Quark's attributes of a format (`extra_options` of its ONNX quantizer).

use std::string::{String, ToString};
use std::vec::Vec;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::format::{BlockFormat, ElementFormat, ParseFormatError};
use crate::round::mode::Rounding;

/// Why attributes have no meaning here.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttributeError {
    /// A value that cannot be used.
    #[error("`{field}` is {value}; allowed: {allowed}")]
    Field {
        /// The attribute.
        field: String,
        /// Its value.
        value: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// A name without a format, or parameters that make up none.
    #[error(transparent)]
    Format(#[from] ParseFormatError),
}

/// Reads `MXAttributes` or `BFPAttributes`, with Quark's defaults for missing attributes: the format of weights and
/// activations, and how its elements are rounded. Nothing else may stand beside the attributes.
///
/// # Errors
/// If there is another attribute, or an attribute has a value without a meaning here.
pub fn read_attributes(
    options: Map<String, Value>,
) -> Result<(BlockFormat, Rounding), AttributeError> {
    let names: Vec<&str> = options.keys().map(String::as_str).collect();
    let names = match names.is_empty() {
        true => "without attributes".to_owned(),
        false => names.join(", "),
    };
    let allowed = "`MXAttributes` or `BFPAttributes`, one of the two, and `FastFinetune`";
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
    // As text the format is checked.
    Ok((format.to_string().parse()?, rounding))
}

fn wrong(field: &str, value: impl ToString, allowed: &'static str) -> AttributeError {
    AttributeError::Field {
        field: field.to_owned(),
        value: value.to_string(),
        allowed,
    }
}

/// Quark's attributes that are not yet read.
struct Attributes(Map<String, Value>);

impl Attributes {
    fn mx(&mut self) -> Result<BlockFormat, AttributeError> {
        let element = self.text("element_dtype", "int8")?;
        let element: ElementFormat = element.parse()?;
        let block_size = self.number("block_size", 32)?;
        Ok(BlockFormat::mx(element, block_size))
    }

    fn bfp(&mut self) -> Result<BlockFormat, AttributeError> {
        let method = self.text("bfp_method", "to_bfp")?;
        let usual = BlockFormat::BFP16;
        let bit_width = self.number("bit_width", usual.bit_width())?;
        let block_size = self.number("block_size", usual.block_size)?;
        let format = match method.as_str() {
            // The attributes of sub-blocks stay, and are unknown.
            "to_bfp" => BlockFormat::bfp(bit_width, block_size),
            "to_bfp_prime" => {
                let sub_block_size = self.number("sub_block_size", 2)?;
                let shift_bits = self.number("sub_block_shift_bits", 1)?;
                BlockFormat::microexponent(bit_width, block_size, sub_block_size, shift_bits)
            }
            _ => return Err(wrong("bfp_method", method, "to_bfp, to_bfp_prime")),
        };
        Ok(format.map_err(ParseFormatError::from)?)
    }

    /// How elements are rounded. Blocks lie along the axis that products sum over, which Quark calls 1.
    fn rounding(&mut self) -> Result<Rounding, AttributeError> {
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

    fn number<T: TryFrom<u64>>(&mut self, field: &str, default: T) -> Result<T, AttributeError> {
        let Some(value) = self.0.remove(field) else {
            return Ok(default);
        };
        let number = value.as_u64().and_then(|number| number.try_into().ok());
        number.ok_or_else(|| wrong(field, value, "a whole number, 0 or more"))
    }

    fn text(&mut self, field: &str, default: &str) -> Result<String, AttributeError> {
        match self.0.remove(field) {
            None => Ok(default.to_owned()),
            Some(Value::String(text)) => Ok(text),
            Some(value) => Err(wrong(field, value, "a text")),
        }
    }

    /// Checks that no attribute is left.
    fn finish(self) -> Result<(), AttributeError> {
        let Some((field, value)) = self.0.into_iter().next() else {
            return Ok(());
        };
        let allowed = "no such attribute; `MXAttributes` has element_dtype, axis, block_size, rounding_mode; `BFPAttributes` has \
            bfp_method, axis, bit_width, block_size, rounding_mode, and sub_block_size, sub_block_shift_bits with to_bfp_prime";
        Err(wrong(&field, value, allowed))
    }
}
