//! [`AttentionSpecs`] as text.

use std::fmt::{self, Display};
use std::str::FromStr;

use microscaling::ParseFormatError;
use microscaling::internal::Parameters;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

use super::AttentionSpecs;

/// The error for a text that is not an [`AttentionSpecs`].
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseAttentionError {
    /// Neither a scheme's name nor `attention(field=value,…)`.
    #[error(
        "attention specs `{text}` are unknown; allowed: {}, or attention(field=value,…) with the fields {}",
        AttentionSpecs::SCHEMES.join(", "),
        AttentionSpecs::NAMES.join(", ")
    )]
    Unknown {
        /// The text.
        text: String,
    },
    /// Fields that cannot be told apart, or one that does not exist.
    #[error("attention specs: {0}")]
    Fields(ParseFormatError),
    /// A field's value.
    #[error("attention: `{field}` is `{value}`; {error}")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        error: String,
    },
}

microscaling::debug_is_display!(ParseAttentionError);

impl FromStr for AttentionSpecs {
    type Err = ParseAttentionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(scheme) = Self::scheme(text) {
            return Ok(scheme);
        }
        let unknown = || ParseAttentionError::Unknown {
            text: text.to_owned(),
        };
        let parameters = Parameters::of(text, "attention", Self::NAMES).ok_or_else(unknown)?;
        let mut parameters = parameters.map_err(ParseAttentionError::Fields)?;
        let specs = Self::of_fields(|field| parameters.take_text(field, "").map(str::to_owned));
        let specs = specs.map_err(|(field, value, error)| ParseAttentionError::Value {
            field,
            value,
            error,
        })?;
        parameters.finish().map_err(ParseAttentionError::Fields)?;
        Ok(specs)
    }
}

impl Display for AttentionSpecs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schemes = AttentionSpecs::SCHEMES.iter();
        match schemes
            .copied()
            .find(|name| Self::scheme(name) == Some(*self))
        {
            Some(name) => f.pad(name),
            None => f.pad(&match self.texts().as_slice() {
                [] => "attention".into(),
                texts => format!("attention({})", texts.join(",")),
            }),
        }
    }
}

impl Serialize for AttentionSpecs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AttentionSpecs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}
