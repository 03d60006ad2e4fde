//! The edge of a piece of a model that is computed by other rules. Values pass through. Their meta changes, and changes
//! back for the gradients.

use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind, unary};

use super::Tracked;
use crate::backend::MxBackend;
use crate::tensor::{Float, Meta, MxTensor, Rule};
use burn_mx_kernels::MxKernels;

#[derive(Debug)]
struct Boundary;

/// The tensor, from here on with the meta that `change` returns.
pub(crate) fn cross<B: MxKernels, C: CheckpointStrategy>(
    mut tensor: Tracked<B>,
    change: impl FnOnce(Meta) -> Meta,
) -> Tracked<B> {
    let before = tensor.primitive.meta;
    let unpacked = tensor.primitive.unpacked();
    tensor.primitive =
        MxTensor::new(tensor.primitive.inner, change(before)).with_values_of(unpacked);
    step::<B, C>(tensor, before)
}

/// The tensor, whose gradient goes back with the meta `before`.
fn step<B: MxKernels, C: CheckpointStrategy>(tensor: Tracked<B>, before: Meta) -> Tracked<B> {
    match Backward::<MxBackend<B>, 1>::prepare::<C>(Boundary, [tensor.node])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => prep.finish(before, tensor.primitive),
        OpsKind::UnTracked(prep) => prep.finish(tensor.primitive),
    }
}

/// The tensor, whose gradient will have the tensor's meta.
pub(crate) fn returned<B: MxKernels, C: CheckpointStrategy>(tensor: Tracked<B>) -> Tracked<B> {
    if !tensor.is_tracked() {
        return tensor;
    }
    let meta = tensor.primitive.meta;
    step::<B, C>(tensor, meta)
}

/// The result of `piece` on the tensor, computed at full precision in both passes.
pub(crate) fn full_precision<B: MxKernels, C: CheckpointStrategy>(
    tensor: Tracked<B>,
    piece: impl FnOnce(Tracked<B>) -> Tracked<B>,
) -> Tracked<B> {
    let before = tensor.primitive.meta;
    let output = piece(enter::<B, C>(tensor));
    cross::<B, C>(output, |meta| meta.after_with(Rule::AFTER_PIECE, before))
}

/// The tensor, from here on computed at full precision.
pub(crate) fn enter<B: MxKernels, C: CheckpointStrategy>(tensor: Tracked<B>) -> Tracked<B> {
    cross::<B, C>(tensor, |meta| meta.after(Rule::FULL_PRECISION))
}

/// The tensor, from here on computed at full precision as a loss is.
pub(crate) fn begin_loss<B: MxKernels, C: CheckpointStrategy>(tensor: Tracked<B>) -> Tracked<B> {
    cross::<B, C>(tensor, |meta| meta.after(Rule::LOSS))
}

impl<B: MxKernels> Backward<MxBackend<B>, 1> for Boundary {
    type State = Meta;

    fn backward(self, ops: Ops<Meta, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        unary::<MxBackend<B>, _>(ops.parents, ops.node, grads, |grad| {
            let rounded = grad.meta.rounded;
            let mut meta = Meta::computed([Some(ops.state)]);
            meta.rounded = rounded;
            gradient_of::<B>(ops.state, MxTensor::new(grad.inner, meta))
        });
    }
}

/// The gradient of a tensor with meta `operand`, as its node gets it.
pub(crate) fn gradient_of<B: MxKernels>(operand: Meta, mut gradient: Float<B>) -> Float<B> {
    gradient.meta = gradient.meta.after_with(Rule::GRADIENT, operand);
    gradient
}
