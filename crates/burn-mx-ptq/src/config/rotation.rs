//! The setting of a rotation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A random Hadamard rotation of features, folded into the weights of the layers that write and read the features.
///
/// The rotation is [`RandomHadamard`](microscaling::RandomHadamard) in blocks of 128, with the signs of `seed`. A part shorter than 128 is one block for each
/// power of two in its length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// Paths of the linear layers and embeddings whose outputs are rotated, with their biases.
    pub writers: Vec<String>,
    /// Paths of the linear layers whose inputs are rotated.
    pub readers: Vec<String>,
    /// Paths of the RMS norms between writers and readers, each with the readers of its output. The scale of a norm is
    /// multiplied into their weights, and becomes 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub norms: BTreeMap<String, Vec<String>>,
    /// The length of the parts that are rotated alike: the features of an attention head. `None`: all features are one part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// The seed of the signs.
    #[serde(default)]
    pub seed: u64,
}
