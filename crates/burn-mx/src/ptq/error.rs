//! Why a model was not quantized.

use crate::module::PathError;
use crate::specs::SpecsError;

/// Why a model was not quantized. Nothing was done before it was found, but where it says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PtqError {
    /// No configuration has this name.
    #[error("there is no configuration `{name}`; allowed: {allowed}")]
    Name {
        /// The name given.
        name: String,
        /// Those that there are.
        allowed: String,
    },
    /// A text is no configuration.
    #[error("the configuration is not as it should be: {reason}")]
    Json {
        /// What is wrong with it.
        reason: String,
    },
    /// A field that cannot be used.
    #[error("`{field}` is {value}; allowed: {allowed}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The specs do not resolve.
    #[error(transparent)]
    Specs(#[from] SpecsError),
    /// A pattern is none, or matches no layer.
    #[error(transparent)]
    Path(#[from] PathError),
    /// There is nothing to quantize.
    #[error(
        "the model has no layer to quantize: no linear layer and no convolution that is not excluded"
    )]
    NoLayers,
    /// There is no calibration data.
    #[error("there is no calibration data, which fast fine-tuning needs: give one batch or more")]
    NoCalibration,
    /// A layer was given, or gave, what is no number.
    #[error("layer `{layer}` meets a NaN or an infinity in its {what} on the calibration data")]
    NotFinite {
        /// The layer's path.
        layer: String,
        /// Input or output.
        what: &'static str,
    },
    /// The model computes something else in the second pass over the same data.
    #[error(
        "layer `{layer}` is called otherwise in the second pass over the calibration data: the model does not compute the \
         same each time"
    )]
    Changes {
        /// The layer's path.
        layer: String,
    },
}
