//! `MxAutodiff`'s own backward steps, for the ops whose gradients burn-autodiff would compute otherwise than
//! the emulation asks for.
//!
//! Each step saves its unrounded inputs and calls the semantics' backward function; the gradient it hands on
//! carries the specs of the tensor it belongs to.

pub(crate) mod boundary;
pub(crate) mod elementwise;
pub(crate) mod linear;
pub(crate) mod matmul;
pub(crate) mod norm;
pub(crate) mod parameter;
pub(crate) mod softmax;

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::tensor::FloatTensor;

use crate::backend::MxBackend;
use crate::kernels::MxKernels;
use crate::tensor::Meta;

/// A float tensor of `MxAutodiff<B>`, whatever its checkpointing strategy.
pub(crate) type Tracked<B> = FloatTensor<Autodiff<MxBackend<B>>>;

/// The tensor in the role of an activation, which its place in an op may say.
pub(crate) fn as_activation<B: MxKernels>(mut tensor: Tracked<B>) -> Tracked<B> {
    tensor.primitive = tensor.primitive.into_activation();
    tensor
}

/// What an op on these tensors is joined from.
pub(crate) fn metas<B: MxKernels, const N: usize>(tensors: [&Tracked<B>; N]) -> [Option<Meta>; N] {
    tensors.map(|tensor| Some(tensor.primitive.meta))
}

/// Refuses gradient checkpointing where it would give other numbers.
///
/// # Panics
///
/// If elementwise ops are recomputed in the backward pass (`BalancedCheckpointing`) although that pass is not
/// to be quantized: the recomputed values would not be those of the forward pass.
pub(crate) fn check_checkpointing<C: CheckpointStrategy>(specs: &crate::specs::ResolvedSpecs) {
    use core::any::TypeId;
    let recomputes =
        TypeId::of::<C>() != TypeId::of::<burn_autodiff::checkpoint::strategy::NoCheckpointing>();
    assert!(
        specs.quantize_backprop() || !recomputes || specs.float_format().is_none(),
        "burn-mx: gradient checkpointing recomputes elementwise ops in the backward pass, which \
         `quantize_backprop = false` leaves unrounded, so the recomputed values would differ from the forward \
         pass's. Allowed: `quantize_backprop = true`, or `MxAutodiff<B>` without checkpointing."
    );
}
