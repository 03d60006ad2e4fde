//! `MxAutodiff`'s own backward steps, for ops whose gradients differ between burn-autodiff and the emulation.
//!
//! Each step saves its unrounded inputs ([`saved`]) and calls the semantics' backward function; the gradient it hands on
//! carries the specs of the tensor it belongs to.

pub(crate) mod apart;
pub(crate) mod attention;
pub(crate) mod boundary;
pub(crate) mod edge;
pub(crate) mod elementwise;
pub(crate) mod linear;
pub(crate) mod matmul;
pub(crate) mod norm;
pub(crate) mod saved;
pub(crate) mod softmax;

use core::any::TypeId;

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::{CheckpointStrategy, NoCheckpointing};
use burn_backend::tensor::FloatTensor;
use microscaling::Rounding;

use crate::backend::MxBackend;
use crate::hooks;
use crate::specs::{ProductOp, ResolvedSpecs};
use crate::tensor::{Meta, OpContext};
use burn_mx_kernels::MxKernels;

/// A float tensor of `MxAutodiff<B>`, for every checkpointing strategy.
pub(crate) type Tracked<B> = FloatTensor<Autodiff<MxBackend<B>>>;

/// The tensor in the role of an activation, which its place in an op may say.
pub(crate) fn as_activation<B: MxKernels, C: CheckpointStrategy>(tensor: Tracked<B>) -> Tracked<B> {
    let mut tensor = edge::returned_elsewhere::<B, C>(tensor);
    tensor.primitive = tensor.primitive.into_activation();
    tensor
}

/// The weight of a layer that is about to be used, by the layer's name, for the products of both passes.
pub(crate) fn named<B: MxKernels>(op: ProductOp, mut weight: Tracked<B>) -> Tracked<B> {
    let label = &mut weight.primitive.meta.label;
    *label = hooks::name_product(op, *label);
    weight
}

/// The metas of an op's tensors.
pub(crate) fn metas<B: MxKernels, const N: usize>(tensors: [&Tracked<B>; N]) -> [Option<Meta>; N] {
    tensors.map(|tensor| Some(tensor.primitive.meta))
}

/// Refuses to record an elementwise op on these tensors where gradient checkpointing (`BalancedCheckpointing`) would
/// compute the op again in the backward pass, with other results than in the forward pass. Products are never computed
/// again.
///
/// # Panics
///
/// If the backward pass is not to be quantized.
pub(crate) fn check_recorded<B: MxKernels, C: CheckpointStrategy, const N: usize>(
    tensors: [&Tracked<B>; N],
) {
    let Some(specs) = specs_of_recomputed::<B, C, N>(tensors) else {
        return;
    };
    assert!(
        specs.quantize_backprop(),
        "burn-mx: gradient checkpointing recomputes elementwise ops in the backward pass, which \
         `quantize_backprop = false` leaves unrounded, so the recomputed values would differ from the forward \
         pass's. Allowed: `quantize_backprop = true`, or `MxAutodiff<B>` without checkpointing."
    );
}

/// As [`check_recorded`], of an op with burn-autodiff's gradient. Ops of our own draw the same random numbers again; that
/// one cannot know of them.
///
/// # Panics
///
/// If the backward pass is not to be quantized, or elementwise values are rounded at random.
pub(crate) fn check_recorded_by_autodiff<B: MxKernels, C: CheckpointStrategy, const N: usize>(
    tensors: [&Tracked<B>; N],
) {
    check_recorded::<B, C, N>(tensors);
    let Some(specs) = specs_of_recomputed::<B, C, N>(tensors) else {
        return;
    };
    assert!(
        specs.round() != Rounding::Stochastic,
        "burn-mx: gradient checkpointing recomputes this elementwise op in the backward pass, where `round = stochastic` \
         draws other random numbers, so the recomputed values would differ from the forward pass's. Allowed: `round` \
         = `nearest`, `even` or `floor`, or `MxAutodiff<B>` without checkpointing."
    );
}

/// The specs by which an op on these tensors is emulated elementwise, if it may be computed again in the backward pass.
fn specs_of_recomputed<B: MxKernels, C: CheckpointStrategy, const N: usize>(
    tensors: [&Tracked<B>; N],
) -> Option<&'static ResolvedSpecs> {
    let recomputes = TypeId::of::<C>() != TypeId::of::<NoCheckpointing>();
    if !recomputes || !tensors.iter().any(|tensor| tensor.is_tracked()) {
        return None;
    }
    let specs = &OpContext::of(metas::<B, N>(tensors)).emulation()?.specs;
    specs.float_format().map(|_| specs)
}
