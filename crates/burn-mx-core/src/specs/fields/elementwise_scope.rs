//! Which tensors the elementwise format applies to.

use std::fmt::{self, Display};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Which elementwise ops are emulated, in both passes. Products are quantized in either scope.
///
/// As text (`FromStr`, `Display`, serde): `all`, `activations`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ElementwiseScope {
    /// Every op that an input or a parameter has taken part in, as in the reference.
    #[default]
    All,
    /// Ops whose operands follow from data and from parameters: the activations of a model.
    ///
    /// An op on data, integers and constants alone is float32's, such as a batch's normalization or a loss's targets. So is an
    /// op on parameters and constants alone, such as an average of weights. An activation that is reduced to one element,
    /// such as a loss, counts as data from there on.
    Activations,
}

/// The error for a text that is not an [`ElementwiseScope`].
#[derive(Clone, PartialEq, Eq, Error)]
#[error("elementwise scope `{text}` is unknown; allowed: all, activations")]
pub struct ParseElementwiseScopeError {
    text: String,
}

microscaling::debug_is_display!(ParseElementwiseScopeError);

impl FromStr for ElementwiseScope {
    type Err = ParseElementwiseScopeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::All),
            "activations" => Ok(Self::Activations),
            _ => Err(ParseElementwiseScopeError {
                text: text.to_owned(),
            }),
        }
    }
}

impl Display for ElementwiseScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::All => "all",
            Self::Activations => "activations",
        })
    }
}
