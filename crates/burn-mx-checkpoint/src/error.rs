//! Errors of saving and loading checkpoints.

use std::path::PathBuf;

use burn_backend::DType;
use microscaling::safetensors::FileError;
use microscaling::{DialectError, PackError, WeightLayoutError};

use microscaling_checkpoint::{ConfigError, UnreadWeight};

use burn_mx_core::SpecsError;
use burn_mx_module::PathError;

/// Why a checkpoint was not saved or not loaded.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A pattern of layers is not valid.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A renaming rule is not a regular expression.
    #[error("checkpoint: pattern `{pattern}` is not a regular expression: {reason}")]
    Rename {
        /// The expression given.
        pattern: String,
        /// The reason why the expression is not valid.
        reason: String,
    },
    /// A renaming rule matches no tensor.
    #[error(
        "checkpoint: renaming pattern `{pattern}` matches no name of a tensor; allowed: a pattern that matches, of {names}"
    )]
    RenamesNothing {
        /// The expression given.
        pattern: String,
        /// The names to which the rule applies, after the rules before it: all of a few, else the nearest ones.
        names: String,
    },
    /// Two tensors would have the same name.
    #[error("checkpoint: two tensors would have the name `{name}`; allowed: names that differ")]
    SameName {
        /// The name.
        name: String,
    },
    /// The forward product rounds the weight at random.
    #[error(
        "checkpoint: `{weight}`: `{field}` is stochastic, so each product would draw other values; allowed: \
         another rounding, or the weight left unpacked"
    )]
    Random {
        /// Path of the weight.
        weight: String,
        /// The field of the specs.
        field: &'static str,
    },
    /// The forward product transforms the weight.
    #[error(
        "checkpoint: `{weight}`: `hadamard_forward` is {transform}, but a packed weight is not transformed; allowed: \
         none, or the weight left unpacked"
    )]
    Transformed {
        /// Path of the weight.
        weight: String,
        /// The transform.
        transform: String,
    },
    /// The forward product has hot rows of the weight in another format, or adds their errors.
    #[error(
        "checkpoint: `{weight}`: `hot_columns` need rows in another format, or the errors of rows, and a packed weight has neither; allowed: \
         none, or the weight left unpacked"
    )]
    HotColumns {
        /// Path of the weight.
        weight: String,
    },
    /// A dialect was requested for the weight of a convolution. The dialects' tools do not pack convolutions.
    #[error(
        "checkpoint: `{weight}` belongs to a convolution, but dialects pack only linear layers' weights; allowed: no dialect, or the \
         weight left unpacked"
    )]
    DialectOfConvolution {
        /// Path of the weight.
        weight: String,
    },
    /// The summed axis of a weight is unknown, because its module is not a layer of Burn.
    #[error(
        "checkpoint: `{weight}` belongs to a module that is not one of Burn's layers, so the axis that its \
         products sum over is unknown; allowed: `Checkpoint::summed_axis(\"{weight}\", axis)`, with axis 0 of `[in, out]` and 1 \
         of `[out, in]`, or a checkpoint that was saved with the weight left unpacked"
    )]
    UnknownLayer {
        /// Path of the weight.
        weight: String,
    },
    /// Packed weights cannot have blocks along the given summed axis.
    #[error(
        "checkpoint: `{weight}` of shape {shape:?}: the summed axis is {axis}; allowed: 0 or 1"
    )]
    SummedAxis {
        /// Path of the weight.
        weight: String,
        /// The axis given.
        axis: usize,
        /// The weight's shape.
        shape: Vec<usize>,
    },
    /// Layers that engines fuse cannot share a tensor scale.
    #[error(
        "checkpoint: fused layers `{group}`: {reason}; allowed: {allowed}, or `Checkpoint::fused` with the layers that the engine fuses \
         (`FusedLayers::NONE`: none)"
    )]
    Fused {
        /// The names of the layers, as `PARENT.{MEMBER,MEMBER}`.
        group: String,
        /// The layers that differ, and how.
        reason: String,
        /// The layers that are allowed.
        allowed: &'static str,
    },
    /// The dialect cannot pack a weight.
    #[error("checkpoint: `{weight}`: {source}")]
    Dialect {
        /// Path of the weight.
        weight: String,
        /// The cause.
        source: DialectError,
    },
    /// A weight cannot be packed.
    #[error("checkpoint: `{weight}`: {source}")]
    Pack {
        /// Path of the weight.
        weight: String,
        /// The cause.
        source: PackError,
    },
    /// The layout cannot store a weight, or a file's tensors are not valid in the layout.
    #[error("checkpoint: {0}")]
    Layout(Box<WeightLayoutError>),
    /// A file cannot store a tensor of this type.
    #[error("checkpoint: `{tensor}` has type {dtype}, which safetensors cannot store")]
    Type {
        /// The tensor.
        tensor: String,
        /// Its type.
        dtype: String,
    },
    /// A tensor could not be read from its device or from the file.
    #[error("checkpoint: `{tensor}`: {reason}")]
    Tensor {
        /// The tensor.
        tensor: String,
        /// The cause.
        reason: String,
    },
    /// The size of shards is not allowed.
    #[error("checkpoint: the shard size is {bytes} bytes; allowed: 1 or more")]
    Shards {
        /// The number given.
        bytes: u64,
    },
    /// A file or folder cannot be read or written.
    #[error("checkpoint: {}: {source}", .path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file is not a safetensors file, or its metadata do not fit its tensors.
    #[error("checkpoint: {}: {source}", .path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: Box<FileError>,
    },
    /// There is not a checkpoint at the path.
    #[error("checkpoint: {} {reason}", .path.display())]
    NoCheckpoint {
        /// Its path.
        path: PathBuf,
        /// Description of the tensor or value at the path.
        reason: String,
    },
    /// A checkpoint cannot be saved at the path, because a folder is there.
    #[error("checkpoint: {} is a folder; allowed: the name of a file, such as `model.safetensors`", .path.display())]
    Folder {
        /// The path.
        path: PathBuf,
    },
    /// An index, or the specs in a file's metadata, are not valid JSON of their kind.
    #[error("checkpoint: {}: {what} cannot be read: {reason}", .path.display())]
    Json {
        /// Its path.
        path: PathBuf,
        /// The part that was read.
        what: &'static str,
        /// The reason why it is not valid.
        reason: String,
    },
    /// The model's `config.json`, or the description of the quantization in it, cannot be read.
    #[error("checkpoint: {0}")]
    Config(#[from] ConfigError),
    /// A weight that another tool quantized is not read.
    #[error("checkpoint: {}: {source}", .path.display())]
    Unread {
        /// The checkpoint.
        path: PathBuf,
        /// The weight, and why not.
        source: Box<UnreadWeight>,
    },
    /// The shapes of a tensor in the file and in the model differ.
    #[error("checkpoint: `{tensor}` has shape {got:?} in the file, expected {expected:?}")]
    Shape {
        /// The tensor's path in the model.
        tensor: String,
        /// The shape that fits the model.
        expected: Vec<usize>,
        /// The shape in the file.
        got: Vec<usize>,
    },
    /// A parameter's type cannot hold the values of a packed weight.
    #[error(
        "checkpoint: `{weight}` has type {dtype:?}, which cannot represent the packed values; allowed: f32"
    )]
    Inexact {
        /// Its path in the model.
        weight: String,
        /// The parameter's type.
        dtype: DType,
    },
    /// The model has tensors that the checkpoint does not have.
    #[error("checkpoint: {}: tensors of the model are missing in the file: {missing}; the file has: {found}; `Checkpoint::partial` keeps the model's own values for those missing", .path.display())]
    Missing {
        /// The checkpoint.
        path: PathBuf,
        /// Paths in the model, separated by commas: the first ten, and how many more.
        missing: String,
        /// Names in the file, separated by commas: the first ten, and how many more.
        found: String,
    },
    /// The specs of a packed weight do not resolve.
    #[error("checkpoint: `{weight}`: {source}")]
    Specs {
        /// Its path in the model.
        weight: String,
        /// The cause.
        source: Box<SpecsError>,
    },
}

microscaling::debug_is_display!(CheckpointError);

impl From<WeightLayoutError> for CheckpointError {
    fn from(error: WeightLayoutError) -> Self {
        Self::Layout(Box::new(error))
    }
}
