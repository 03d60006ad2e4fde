//! The products that specs tell apart.

use core::fmt::{self, Display};

use serde::{Deserialize, Serialize};

/// The op of Burn that a product belongs to, which decides by which fields of the specs its gradients round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProductOp {
    /// A linear layer.
    Linear,
    /// A matrix product.
    Matmul,
    /// A convolution, transposed or deformable ones among them.
    Convolution,
}

impl ProductOp {
    /// The op's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Matmul => "matmul",
            Self::Convolution => "convolution",
        }
    }
}

impl Display for ProductOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The result of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProductKind {
    /// The op's output.
    Forward,
    /// The gradient of an activation.
    InputGradient,
    /// The gradient of a weight.
    WeightGradient,
}

impl ProductKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Forward, Self::InputGradient, Self::WeightGradient];

    /// Whether a gradient is computed.
    pub(crate) fn is_gradient(self) -> bool {
        self != Self::Forward
    }

    /// The name of the result.
    pub(crate) fn result(self) -> &'static str {
        match self {
            Self::Forward => "output",
            Self::InputGradient => "input gradient",
            Self::WeightGradient => "weight gradient",
        }
    }
}

impl Display for ProductKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::InputGradient => "input gradient",
            Self::WeightGradient => "weight gradient",
        })
    }
}
