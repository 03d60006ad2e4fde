//! Why a checkpoint was not saved, or not loaded.

use std::path::PathBuf;

use burn_backend::DType;
use microscaling::safetensors::FileError;
use microscaling::{DialectError, PackError, WeightLayoutError};

use burn_mx_core::SpecsError;
use burn_mx_module::PathError;

/// Why a checkpoint was not saved, or not loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A pattern of layers is none.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A rule for names is no regular expression.
    #[error("checkpoint: `{pattern}` is no regular expression: {reason}")]
    Rename {
        /// The expression given.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Two tensors would have one name.
    #[error("checkpoint: two tensors would be `{name}`; names have to differ")]
    SameName {
        /// The name.
        name: String,
    },
    /// What the forward product multiplies with is drawn at random.
    #[error(
        "checkpoint: `{weight}`: `{field}` is stochastic: what its products multiply with is drawn anew each time; allowed: \
         another rounding, or the weight left unpacked"
    )]
    Random {
        /// Path of the weight.
        weight: String,
        /// The field of the specs.
        field: &'static str,
    },
    /// What the forward product multiplies with is transformed.
    #[error(
        "checkpoint: `{weight}`: `hadamard_forward` is {transform}: a packed weight is not in the transform's basis; allowed: \
         none, or the weight left unpacked"
    )]
    Transformed {
        /// Path of the weight.
        weight: String,
        /// The transform.
        transform: String,
    },
    /// The weight of a convolution, which the dialects' tools do not pack.
    #[error(
        "checkpoint: `{weight}` belongs to a convolution: dialects are of linear layers' weights; allowed: no dialect, or the \
         weight left unpacked"
    )]
    DialectOfConvolution {
        /// Path of the weight.
        weight: String,
    },
    /// Nothing says how a weight lies: its module is no layer of Burn's.
    #[error(
        "checkpoint: `{weight}` belongs to a module that is no layer of Burn's, whatever its name: which axis of the weight its \
         products sum over is not known; allowed: `Checkpoint::summed_axis(\"{weight}\", axis)`, with axis 0 of `[in, out]` and 1 \
         of `[out, in]`, or a checkpoint that was saved with the weight left unpacked"
    )]
    UnknownLayer {
        /// Path of the weight.
        weight: String,
    },
    /// The axis that products are said to sum over is none that packed weights have their blocks along.
    #[error(
        "checkpoint: `{weight}` of shape {shape:?}: products are said to sum over axis {axis}; allowed: 0 or 1"
    )]
    SummedAxis {
        /// Path of the weight.
        weight: String,
        /// The axis given.
        axis: usize,
        /// The weight's shape.
        shape: Vec<usize>,
    },
    /// The dialect has no bytes for a weight.
    #[error("checkpoint: `{weight}`: {source}")]
    Dialect {
        /// Path of the weight.
        weight: String,
        /// Why.
        source: DialectError,
    },
    /// A weight cannot be packed.
    #[error("checkpoint: `{weight}`: {source}")]
    Pack {
        /// Path of the weight.
        weight: String,
        /// Why.
        source: PackError,
    },
    /// The layout cannot say a weight, or a file's tensors are none in it.
    #[error("checkpoint: {0}")]
    Layout(Box<WeightLayoutError>),
    /// A tensor's type has no place in a file.
    #[error("checkpoint: `{tensor}` is {dtype}, which a safetensors file does not have")]
    Type {
        /// The tensor.
        tensor: String,
        /// Its type.
        dtype: String,
    },
    /// A tensor could not be read from its device, or from the file.
    #[error("checkpoint: `{tensor}`: {reason}")]
    Tensor {
        /// The tensor.
        tensor: String,
        /// Why.
        reason: String,
    },
    /// Shards of no bytes.
    #[error("checkpoint: shards of {bytes} bytes; allowed: 1 or more")]
    Shards {
        /// The number given.
        bytes: u64,
    },
    /// A file or folder cannot be read or written.
    #[error("checkpoint: {}: {source}", .path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is no safetensors file, or what it says of itself does not fit.
    #[error("checkpoint: {}: {source}", .path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What is wrong.
        source: Box<FileError>,
    },
    /// There is no checkpoint.
    #[error("checkpoint: {} {reason}", .path.display())]
    NoCheckpoint {
        /// Its path.
        path: PathBuf,
        /// What is there instead.
        reason: String,
    },
    /// An index, or what a file says of its specs, is not as it should be.
    #[error("checkpoint: {}: {what} cannot be read: {reason}", .path.display())]
    Json {
        /// Its path.
        path: PathBuf,
        /// What is read.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor has another shape than the model's.
    #[error("checkpoint: `{tensor}` has shape {got:?} in the file, expected {expected:?}")]
    Shape {
        /// Its path in the model.
        tensor: String,
        /// The shape that the file would have to have.
        expected: Vec<usize>,
        /// The one that it has.
        got: Vec<usize>,
    },
    /// A parameter's type does not hold the values of a packed weight.
    #[error("checkpoint: `{weight}` is {dtype:?}, which does not hold its values; allowed: f32")]
    Inexact {
        /// Its path in the model.
        weight: String,
        /// The parameter's type.
        dtype: DType,
    },
    /// The model has tensors that the checkpoint does not have.
    #[error("checkpoint: {}: the model's {missing} are missing; the file has: {found}", .path.display())]
    Missing {
        /// The checkpoint.
        path: PathBuf,
        /// Paths in the model, separated by commas.
        missing: String,
        /// Names in the file, separated by commas.
        found: String,
    },
    /// The specs of a packed weight do not resolve.
    #[error("checkpoint: `{weight}`: {source}")]
    Specs {
        /// Its path in the model.
        weight: String,
        /// Why.
        source: Box<SpecsError>,
    },
}

impl From<WeightLayoutError> for CheckpointError {
    fn from(error: WeightLayoutError) -> Self {
        Self::Layout(Box::new(error))
    }
}
