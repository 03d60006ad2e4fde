//! [`MxSpecs`] as JSON, the reference's and this project's.

pub(super) mod deserialize;

use serde_json::{Map, Value};

use super::suggestion;
use super::{MxSpecs, SpecsError};

impl MxSpecs {
    /// Reads a JSON object, the reference's or [`to_json`](Self::to_json)'s. Missing fields keep
    /// their default.
    ///
    /// # Errors
    /// [`SpecsError::JsonField`] for an unknown field or a value that its field cannot hold (an unknown format, a
    /// string for a number), [`SpecsError::Json`] for a text that is not a JSON object or has a field twice. Ranges are
    /// checked by [`resolve`](Self::resolve).
    pub fn from_json(json: &str) -> Result<Self, SpecsError> {
        let fail = |error: serde_json::Error| SpecsError::Json {
            reason: error.to_string(),
        };
        let fields: Map<String, Value> =
            serde_json::from_str(json).map_err(|error| SpecsError::Json {
                reason: format!("{error}{}", suggestion::of_python(json)),
            })?;
        serde_json::from_str(json)
            .map_err(|error| SpecsError::of_field(fields).unwrap_or_else(|| fail(error)))
    }

    /// The specs as a JSON object, which [`from_json`](Self::from_json) reads back, and the
    /// reference too unless a field or a format beyond its own is set.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .expect("a struct of numbers, strings and booleans is JSON")
    }
}

impl SpecsError {
    /// The error of the first field that does not load. A parser's error names a place in the text but no field, so the
    /// fields are tried one by one.
    fn of_field(fields: Map<String, Value>) -> Option<Self> {
        fields.into_iter().find_map(|(field, value)| {
            let alone = Map::from_iter([(field.clone(), value.clone())]);
            let error = serde_json::from_value::<MxSpecs>(alone.into()).err()?;
            Some(Self::JsonField {
                field,
                value: value.to_string(),
                reason: error.to_string(),
            })
        })
    }
}
