//! Pieces of a model that are computed by other rules, and roles of single tensors.

use burn_core::tensor::Tensor;

use burn_mx_core::{MxModelOps, MxTensorOps, TensorChange};

use super::change::change;
use burn_mx_core::hooks::SharedSpecs;
use burn_mx_core::{AsResolvedSpecs, ResolvedSpecs};

/// The tensor, from here on computed in full precision, with all later ops. Use it for a loss, for example. Gradients are
/// emulated again where they leave the piece, at this call.
///
/// On a plain backend, such as `Autodiff<Flex>` or `Flex`, the tensor is returned unchanged.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_mx::{MxAutodiff, MxDevice, MxSpecs, module::{emulated, full_precision}};
/// # use burn_core::tensor::Tensor;
/// # use burn_flex::{Flex, FlexDevice};
/// # use burn_mx::ElementwiseScope;
/// let everywhere = ElementwiseScope::All; // the tensors here are data, which presets do not round
/// let specs = MxSpecs { elementwise_scope: everywhere, ..MxSpecs::mxfp8_e4m3() };
/// let device = MxDevice::new(FlexDevice, specs)?;
/// let logits = Tensor::<MxAutodiff<Flex>, 1>::from_floats([1.01, 2.02], &device);
/// let exact = full_precision(logits) * 3.0; // 3.03: not a bfloat16
/// assert_eq!(exact.clone().into_data().to_vec::<f32>()?[0], 1.01 * 3.0);
/// let rounded = emulated(exact) * 1.0;
/// assert_eq!(rounded.into_data().to_vec::<f32>()?[0], 3.03125);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn full_precision<B: MxModelOps, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    change(tensor, TensorChange::FullPrecision(true))
}

/// The tensor, from here on emulated again by its specs. Ends a [`full_precision`] piece.
pub fn emulated<B: MxModelOps, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    change(tensor, TensorChange::FullPrecision(false))
}

/// The tensor, from here on computed by `specs`. Gradients follow the former specs again where they leave the piece.
pub fn with_specs<B: MxTensorOps, const D: usize>(
    tensor: Tensor<B, D>,
    specs: &impl AsResolvedSpecs,
) -> Tensor<B, D> {
    change(
        tensor,
        TensorChange::Specs(SharedSpecs::of(specs.as_resolved())),
    )
}

/// The specs that the tensor carries, if any.
pub fn specs_of<B: MxTensorOps, const D: usize>(tensor: &Tensor<B, D>) -> Option<ResolvedSpecs> {
    B::specs_of(&tensor.clone().into_primitive().tensor()).cloned()
}

/// The path of the parameter that the tensor is, if [`label_parameters`](super::label_parameters) set the path.
pub fn label_of<B: MxTensorOps, const D: usize>(tensor: &Tensor<B, D>) -> Option<&'static str> {
    B::label_of(&tensor.clone().into_primitive().tensor())
}

/// The tensor in the role of a weight. Matrix products use the `w` formats for a weight, and gradients from several uses are
/// summed in plain `f32`. Leaves that require gradients are weights already.
pub fn as_weight<B: MxModelOps, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    change(tensor, TensorChange::Weight(true))
}

/// The tensor in the role of an activation. Matrix products use the `a` formats for an activation, and emulated additions sum
/// gradients from several uses. Use it for an input whose gradient you want; without it, the input would count as a weight.
pub fn as_activation<B: MxModelOps, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    change(tensor, TensorChange::Weight(false))
}
