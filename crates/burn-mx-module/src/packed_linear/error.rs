//! Why a packed linear layer was not made, merged or loaded.

use thiserror::Error;

use burn_mx_core::FrozenWeightError;

/// Why a [`PackedLinear`](super::PackedLinear) was not made, merged or loaded.
#[derive(Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum PackedLinearError {
    /// The packed bytes cannot be the layer's weight.
    #[error(transparent)]
    Weight(#[from] FrozenWeightError),
    /// A weight has no packed bytes, and its specs do not say which ones.
    #[error(
        "the weight's specs do not quantize it to a format; allowed: a w_elem_format without hadamard_forward and hot_columns, or packed bytes"
    )]
    NoFormat,
    /// The bias does not fit the weight.
    #[error("the bias has {got} elements; allowed: {outputs}, the outputs of the packed weight")]
    Bias {
        /// Elements of the bias.
        got: usize,
        /// Outputs of the layer.
        outputs: usize,
    },
    /// The adapter's rank.
    #[error("rank is {rank}; allowed: 1 to {largest}, the smaller one of inputs and outputs")]
    Rank {
        /// The given rank.
        rank: usize,
        /// The largest one.
        largest: usize,
    },
    /// The adapter's factor.
    #[error("alpha is {alpha}; allowed: finite numbers")]
    Alpha {
        /// The given number.
        alpha: f64,
    },
    /// The merged weight has a NaN or Inf.
    #[error("the weight with its adapter has a NaN or Inf; allowed: finite values")]
    NotFinite,
    /// Layers that cannot share a tensor scale.
    #[error(
        "fused layers are packed as {one} and as {other}; allowed: one format and one number of inputs"
    )]
    Fused {
        /// Format and inputs of a layer.
        one: String,
        /// Format and inputs of the next layer.
        other: String,
    },
    /// The format cannot pack the weight.
    #[error("{0}")]
    Pack(String),
    /// The record is of an adapter for another layer.
    #[error("the record's adapter belongs to {got}; allowed: an adapter of the layer, {expected}")]
    OtherBase {
        /// The layer of the record's adapter.
        got: String,
        /// The layer that loads the record.
        expected: String,
    },
}

microscaling::debug_is_display!(PackedLinearError);
