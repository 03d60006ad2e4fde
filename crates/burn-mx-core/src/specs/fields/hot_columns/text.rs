//! [`HotColumns`] as text.

use std::fmt::{self, Display};
use std::str::FromStr;

use microscaling::internal::Parameters;
use microscaling::{ParseFormatError, Rounding};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

use super::HotColumns;
use crate::specs::fields::grouped::Text;

/// The error for a text that is not [`HotColumns`].
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseHotColumnsError {
    /// Not `hot_columns(field=value,…)`.
    #[error("hot columns `{text}` are unknown; allowed: hot_columns(field=value,…) with the fields {}", HotColumns::NAMES.join(", "))]
    Unknown {
        /// The text.
        text: String,
    },
    /// Fields that cannot be told apart, or one that does not exist.
    #[error("hot columns: {0}")]
    Fields(ParseFormatError),
    /// A field's value.
    #[error("hot columns: `{field}` is `{value}`; {error}")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        error: String,
    },
}

microscaling::debug_is_display!(ParseHotColumnsError);

impl Text for Rounding {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error| format!("{error}"))
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl FromStr for HotColumns {
    type Err = ParseHotColumnsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || ParseHotColumnsError::Unknown {
            text: text.to_owned(),
        };
        let parameters = Parameters::of(text, Self::NAME, Self::NAMES).ok_or_else(unknown)?;
        let mut parameters = parameters.map_err(ParseHotColumnsError::Fields)?;
        let hot = Self::of_fields(|field| parameters.take_text(field, "").map(str::to_owned));
        let hot = hot.map_err(|(field, value, error)| ParseHotColumnsError::Value {
            field,
            value,
            error,
        })?;
        parameters.finish().map_err(ParseHotColumnsError::Fields)?;
        Ok(hot)
    }
}

impl Display for HotColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self.texts().join(",");
        match texts.as_str() {
            "" => f.pad(Self::NAME),
            _ => f.pad(&format!("{}({texts})", Self::NAME)),
        }
    }
}

impl Serialize for HotColumns {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HotColumns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}
