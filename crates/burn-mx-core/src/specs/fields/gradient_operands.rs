//! Which operands the gradient products read.

use std::fmt::{self, Display};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Which form of its saved operand, input or weight, a gradient product quantizes.
///
/// As text (`FromStr`, `Display`, serde): `original`, `forward`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GradientOperands {
    /// The operand before the forward product's quantization.
    #[default]
    Original,
    /// The operand as the forward product used it, in the basis of the forward product's transform if that has one: the
    /// gradient is the quantized forward product's own. The product is transformed back.
    Forward,
}

/// The error for a text that is not a [`GradientOperands`].
#[derive(Clone, PartialEq, Eq, Error)]
#[error("gradient operands `{text}` are unknown; allowed: original, forward")]
pub struct ParseGradientOperandsError {
    text: String,
}

microscaling::debug_is_display!(ParseGradientOperandsError);

impl FromStr for GradientOperands {
    type Err = ParseGradientOperandsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "original" => Ok(Self::Original),
            "forward" => Ok(Self::Forward),
            _ => Err(ParseGradientOperandsError {
                text: text.to_owned(),
            }),
        }
    }
}

impl Display for GradientOperands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Original => "original",
            Self::Forward => "forward",
        })
    }
}
