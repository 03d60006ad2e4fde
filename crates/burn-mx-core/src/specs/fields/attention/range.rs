//! A range of numbers.

use std::fmt::{self, Display};
use std::str::FromStr;

use thiserror::Error;

/// The largest magnitude of scaled numbers: a positive number. As text (`FromStr`, `Display`): `2.25`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ValueRange(
    /// The pattern of a float32.
    u32,
);

/// The error for a number or text that is not a [`ValueRange`].
#[derive(Clone, PartialEq, Eq, Error)]
#[error("`{text}` is not a range; allowed: a positive number such as 2.25")]
pub struct ParseValueRangeError {
    text: String,
}

microscaling::debug_is_display!(ParseValueRangeError);

impl ValueRange {
    /// 2.25, with which 64 products with numbers up to 448 sum up to less than fp16's largest number.
    pub const SAGE: Self = Self(2.25_f32.to_bits());

    /// The number.
    pub const fn get(self) -> f32 {
        f32::from_bits(self.0)
    }
}

impl TryFrom<f32> for ValueRange {
    type Error = ParseValueRangeError;

    fn try_from(range: f32) -> Result<Self, Self::Error> {
        match range.is_finite() && range > 0.0 {
            true => Ok(Self(range.to_bits())),
            false => Err(ParseValueRangeError {
                text: range.to_string(),
            }),
        }
    }
}

impl FromStr for ValueRange {
    type Err = ParseValueRangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseValueRangeError {
            text: text.to_owned(),
        };
        let range: f32 = text.parse().map_err(|_| wrong())?;
        Self::try_from(range).map_err(|_| wrong())
    }
}

impl Display for ValueRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
