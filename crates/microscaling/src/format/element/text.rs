//! Element formats as text.

use super::table::Table;
use super::{ElementFormat, Kind, SpecialCodes};
use crate::format::ParseFormatError;
use crate::format::text::one_of;
use crate::format::text::parameters::Parameters;
use crate::names::{NameError, impl_serde_by_text};
use crate::p3109::P3109Format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

const FLOAT_FIELDS: &[&str] = &["exponent_bits", "mantissa_bits", "bias", "specials"];
const FIXED_FIELDS: &[&str] = &["bits", "fraction_bits"];

impl FromStr for ElementFormat {
    type Err = ParseFormatError;

    /// The format that the text says, spelled exactly.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = |(name, alias, _): &&(&str, &str, _)| *name == text || *alias == text;
        if let Some((.., format)) = Self::ROWS.iter().find(named)
            && !text.is_empty()
        {
            return Ok(*format);
        }
        if P3109Format::has_name(text) {
            return Ok(Self::of_p3109(text.parse()?)?);
        }
        if text == "fp4" {
            return Ok(Self::FP4_E2M1);
        }
        let number = || String::from("a number");
        if let Some(parameters) = Parameters::of(text, "float", FLOAT_FIELDS) {
            let mut parameters = parameters?;
            let exponent_bits = parameters.take("exponent_bits", 0_u32, number)?;
            let mantissa_bits = parameters.take("mantissa_bits", 0, number)?;
            let usual = match exponent_bits {
                0..=1 => 1,
                bits => (1 << (bits.min(9) - 1)) - 1,
            };
            let bias = parameters.take("bias", usual, number)?;
            let specials = parameters.take("specials", SpecialCodes::None, || {
                "one of none, ieee, nan, fnuz, extended, nan_inf".to_string()
            })?;
            parameters.finish()?;
            return Ok(Self::float(exponent_bits, mantissa_bits, bias, specials)?);
        }
        if let Some(parameters) = Parameters::of(text, "fixed", FIXED_FIELDS) {
            let mut parameters = parameters?;
            let bits = parameters.take("bits", 0_u32, number)?;
            let usual = bits.min(32) as i32 - 2;
            let fraction_bits = parameters.take("fraction_bits", usual, number)?;
            parameters.finish()?;
            return Ok(Self::fixed(bits, fraction_bits)?);
        }
        if let Some(inside) = text
            .strip_prefix("table(")
            .and_then(|text| text.strip_suffix(')'))
        {
            return parse_tables(inside);
        }
        Err(ParseFormatError::Unknown(NameError::new(
            "element format",
            text.to_string(),
            Self::expected().collect(),
        )))
    }
}

/// The text between the parentheses of `table(…)`.
fn parse_tables(inside: &str) -> Result<ElementFormat, ParseFormatError> {
    let named = |(name, _): &&(&str, _)| *name == inside;
    if let Some((_, format)) = ElementFormat::TABLES.iter().find(named) {
        return Ok(*format);
    }
    let number = |text: &str| {
        text.parse::<f32>()
            .map_err(|_| ParseFormatError::FieldValue {
                format: "table",
                field: "number",
                value: text.to_string(),
                allowed: one_of(["a number"].into_iter().chain(ElementFormat::TABLE_NAMES)),
            })
    };
    let table = |text: &str| {
        text.split_ascii_whitespace()
            .map(number)
            .collect::<Result<Vec<f32>, _>>()
    };
    let tables: Vec<Vec<f32>> = inside.split('/').map(table).collect::<Result<_, _>>()?;
    let tables: Vec<&[f32]> = tables.iter().map(Vec::as_slice).collect();
    Ok(ElementFormat::tables(&tables)?)
}

impl fmt::Display for ElementFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => f.pad(&self.parameters()),
        }
    }
}

impl ElementFormat {
    /// The text that any format has.
    pub(crate) fn parameters(&self) -> String {
        let mantissa_bits = self.mantissa_bits;
        match self.kind() {
            Kind::Table(tables) => {
                let named = |(_, format): &&(&str, Self)| format == self;
                if let Some((name, _)) = Self::TABLES.iter().find(named) {
                    return alloc::format!("table({name})");
                }
                let numbers = |table: &Table| {
                    let numbers = table.numbers().map(|number| number.to_string());
                    numbers.collect::<Vec<_>>().join(" ")
                };
                let tables = tables.0.iter().map(numbers).collect::<Vec<_>>();
                alloc::format!("table({})", tables.join("/"))
            }
            Kind::Fixed => alloc::format!(
                "fixed(bits={},fraction_bits={})",
                self.bits(),
                i32::from(mantissa_bits) - self.emin()
            ),
            Kind::Float {
                exponent_bits,
                specials,
            } => match self.to_p3109() {
                Some(format) => format.to_string(),
                None => alloc::format!(
                    "float(exponent_bits={exponent_bits},mantissa_bits={mantissa_bits},bias={},specials={specials})",
                    self.bias()
                ),
            },
        }
    }
}

impl_serde_by_text!(ElementFormat, "the name of an element format");
