//! Why a model was not quantized.

use burn_mx_core::SpecsError;
use burn_mx_core::internal::suggestion::nearest;
use burn_mx_module::{FusedError, PathError};

/// Why a model was not quantized.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum PtqError {
    /// No configuration has this name.
    #[error("configuration `{name}` is unknown{}; allowed: {allowed}", nearest(name, allowed.split(", ")))]
    Name {
        /// The name given.
        name: String,
        /// The existing names.
        allowed: String,
    },
    /// A text is not a valid configuration.
    #[error("the configuration does not load: {reason}")]
    Json {
        /// The reason why the text is not valid.
        reason: String,
    },
    /// A field that cannot be used.
    #[error("`{field}` is {value}; allowed: {allowed}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// Layers that engines fuse cannot share a tensor scale.
    #[error("fused layers `{group}`: {reason}; allowed: {allowed}")]
    Fused {
        /// The paths of the layers, as `PARENT.{MEMBER,MEMBER}`.
        group: String,
        /// The layers that differ, and how.
        reason: String,
        /// The layers that are allowed.
        allowed: &'static str,
    },
    /// Weights of fused layers cannot share a tensor scale.
    #[error(transparent)]
    Shared(#[from] FusedError),
    /// The specs do not resolve.
    #[error(transparent)]
    Specs(#[from] SpecsError),
    /// A pattern is not valid.
    #[error(transparent)]
    Path(#[from] PathError),
    /// No layer matches a pattern.
    #[error("pattern `{pattern}` matches no layer; the model has the layers {layers}")]
    NoMatch {
        /// The pattern given.
        pattern: String,
        /// The paths of the model's layers, separated by commas.
        layers: String,
    },
    /// No batch norm has a path that the configuration names.
    #[error("`batch_norms` names `{norm}`, which the model does not have; allowed: {norms}")]
    NoNorm {
        /// The path given.
        norm: String,
        /// The paths of the model's batch norms, separated by commas.
        norms: String,
    },
    /// The model has no parameter that a rotation names.
    #[error("`rotations` names `{label}`, which the model does not have; it has {parameters}")]
    NoParameter {
        /// The parameter's path.
        label: String,
        /// The paths of the model's parameters, separated by commas.
        parameters: String,
    },
    /// Rotations change the model's output.
    #[error(
        "`rotations` change the output of the unquantized model by {distance:.1e} of its norm: a writer, a reader or a norm of the \
         rotated features is missing; allowed: rotations that keep the output"
    )]
    Rotation {
        /// ‖a − b‖ / ‖b‖, with a and b the outputs with and without rotations.
        distance: f64,
    },
    /// The model has no layer to quantize.
    #[error(
        "the model has no layer to quantize: no linear layer and no convolution that is not excluded"
    )]
    NoLayers,
    /// Calibration data is missing.
    #[error(
        "the calibration data are empty, but fast fine-tuning, GPTQ, static activations, folded batch norms and rotations need them; allowed: one batch \
         or more, with items in it"
    )]
    NoCalibration,
    /// The model's output cannot be compared.
    #[error(
        "`forward` does not return one float tensor of `MxBackend`, by which folding compares the folded model with the original; \
         allowed: such a `forward`, or a configuration without `fold_batch_norm` and `rotations`"
    )]
    Output,
    /// An input, an output or a weight of a layer is not finite, or its square is not.
    #[error(
        "layer `{layer}`: its {what} on the calibration data has a NaN, an Inf, or a number whose square overflows"
    )]
    NotFinite {
        /// The layer's path.
        layer: String,
        /// Input, output or weight.
        what: &'static str,
    },
    /// A layer's input has no scales.
    #[error(
        "layer `{layer}` cannot have static activations: the layer computes nothing on the calibration data on the thread that calls \
         the model, or is a deformable convolution; exclude the layer"
    )]
    NotCalibrated {
        /// The layer's path.
        layer: String,
    },
    /// Inputs of a layer do not have the same blocks.
    #[error(
        "layer `{layer}` cannot have static activations: its inputs in the calibration data have the shapes {calibrated:?} and \
         {other:?}, which differ along the summed axis; exclude the layer"
    )]
    Shapes {
        /// The layer's path.
        layer: String,
        /// The shape of an input.
        calibrated: Vec<usize>,
        /// The shape of another input.
        other: Vec<usize>,
    },
    /// The quantized model calls a layer in another way than the unquantized model.
    #[error(
        "the quantized model calls layer `{layer}` differently from the float model on the same calibration data; number \
         and shapes of calls must not depend on values or change between passes"
    )]
    Changes {
        /// The layer's path.
        layer: String,
    },
    /// The weight of a layer is used elsewhere, in another way than by the layer.
    #[error(
        "layer `{layer}` cannot be tuned: its weight is used as a view (a transposed one, for example), only some calls have a \
         bias, or GPTQ meets a layer that is not linear; leave the layer out"
    )]
    View {
        /// The layer's path.
        layer: String,
    },
    /// A file of a tuned layer, or its folder, cannot be written.
    #[error("tuned layers cannot be saved in {}: {reason}", path.display())]
    Folder {
        /// The folder, or a file in it.
        path: std::path::PathBuf,
        /// The error of the system.
        reason: String,
    },
    /// No layer was observed.
    #[error(
        "no layer that is to be tuned computes anything on the calibration data, on the thread that calls the model"
    )]
    NothingCalled,
}

microscaling::debug_is_display!(PtqError);
