//! Why a model was not quantized.

use burn_mx_files::PutError;
use microscaling::ParseFormatError;
use microscaling::internal::quark::AttributeError;
use std::io;
use std::path::{Path, PathBuf};

use crate::proto::wire::Malformed;

/// Why a model was not quantized. The output is unchanged.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not an ONNX model, or is cut off.
    #[error("{}: no ONNX model: {reason}", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// The part that is not as it should be.
        reason: String,
    },
    /// The output exists.
    #[error("{} exists; `--force` replaces it", path.display())]
    Exists {
        /// The output.
        path: PathBuf,
    },
    /// The output is a file that is read.
    #[error("{} is {}, which is read; allowed: another file", path.display(), input.display())]
    Input {
        /// The output.
        path: PathBuf,
        /// The model, its external data, or a file of an option.
        input: PathBuf,
    },
    /// The model has an operator set that this crate does not know.
    #[error("the operator set of {place} is {got}; allowed: {allowed}")]
    Opset {
        /// The model or one of its functions.
        place: String,
        /// The version found.
        got: i64,
        /// The versions allowed.
        allowed: String,
    },
    /// A format that cannot be used here.
    #[error("format `{format}` of {tensors}: {reason}")]
    Format {
        /// The format as text.
        format: String,
        /// Weights or activations.
        tensors: &'static str,
        /// The reason.
        reason: String,
    },
    /// A name without a configuration, or an option that cannot be used.
    #[error("`{field}` is {value}; allowed: {allowed}")]
    Field {
        /// The option.
        field: String,
        /// Its value.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// A name without a format, or parameters that make up none.
    #[error(transparent)]
    Parse(#[from] ParseFormatError),
    /// No layer matches a pattern.
    #[error("pattern `{pattern}` matches no layer; the model has {layers}")]
    NoMatch {
        /// The pattern.
        pattern: String,
        /// The names of the layers.
        layers: String,
    },
    /// The model has no layer to quantize.
    #[error(
        "the model has no layer to quantize: no MatMul, Gemm, Conv or ConvTranspose with a constant weight of floats that is not \
         excluded"
    )]
    NoLayers,
    /// No product with a constant operand can be quantized.
    #[error("the model has no layer to quantize; these stay unchanged: {layers}")]
    OnlyLeft {
        /// Their names, and where their constants come from.
        layers: String,
    },
    /// A weight has an axis without a fixed length.
    #[error(
        "layer `{layer}`: axis {axis} of its weight `{input}` has the length {got}, which is dynamic; allowed: 0 or more"
    )]
    DynamicShape {
        /// The name of the layer's node.
        layer: String,
        /// The input of the node.
        input: String,
        /// The axis of the input, counted from 0.
        axis: usize,
        /// The length that the model has there.
        got: i64,
    },
    /// A layer that cannot be quantized.
    #[error("layer `{layer}`: {reason}")]
    Layer {
        /// Its name.
        layer: String,
        /// The reason.
        reason: String,
    },
    /// A tensor that cannot be quantized.
    #[error("tensor `{tensor}`: {reason}")]
    Tensor {
        /// Its name.
        tensor: String,
        /// The reason.
        reason: String,
    },
    /// External data that may not be read.
    #[error("tensor `{tensor}`: external data at `{location}`: {reason}")]
    External {
        /// The tensor.
        tensor: String,
        /// The place that the model names.
        location: String,
        /// Why it is not read.
        reason: String,
    },
}

impl From<PutError> for OnnxError {
    fn from(error: PutError) -> Self {
        match error.source.kind() {
            io::ErrorKind::AlreadyExists => Self::Exists { path: error.path },
            _ => Self::Io {
                path: error.path,
                source: error.source,
            },
        }
    }
}

impl From<AttributeError> for OnnxError {
    fn from(error: AttributeError) -> Self {
        match error {
            AttributeError::Field {
                field,
                value,
                allowed,
            } => Self::Field {
                field,
                value,
                allowed: allowed.to_owned(),
            },
            AttributeError::Format(error) => Self::Parse(error),
            error => Self::Field {
                field: "config".to_owned(),
                value: error.to_string(),
                allowed: "attributes as Quark has them".to_owned(),
            },
        }
    }
}

microscaling::debug_is_display!(OnnxError);

impl OnnxError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    pub(crate) fn layer(layer: &str, reason: impl Into<String>) -> Self {
        Self::Layer {
            layer: layer.to_owned(),
            reason: reason.into(),
        }
    }

    pub(crate) fn tensor(tensor: &str, reason: impl ToString) -> Self {
        Self::Tensor {
            tensor: tensor.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// The error for a file that is not a model, before the path is known.
#[derive(Debug)]
pub(crate) struct NoModel(pub(crate) String);

impl From<Malformed> for NoModel {
    fn from(_: Malformed) -> Self {
        Self("a message in it is malformed or cut off".into())
    }
}
