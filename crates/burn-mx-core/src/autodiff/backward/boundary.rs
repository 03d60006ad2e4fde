//! The edge of a piece of a model that is computed by other rules. Values pass through. Their meta changes, and changes
//! back for the gradients.

use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind, unary};

use super::parameter::{gradient_of, marked};
use super::{Tracked, metas};
use crate::backend::MxBackend;
use crate::kernels::MxKernels;
use crate::tensor::{Flags, Meta, MxTensor, OpContext};

#[derive(Debug)]
struct Boundary;

/// The tensor, from here on with the meta that `change` returns.
pub(crate) fn cross<B: MxKernels, C: CheckpointStrategy>(
    tensor: Tracked<B>,
    change: impl FnOnce(Meta) -> Meta,
) -> Tracked<B> {
    let before = tensor.primitive.meta;
    let unpacked = tensor.primitive.unpacked();
    let after = MxTensor::new(tensor.primitive.inner, change(before)).with_values_of(unpacked);
    match Backward::<MxBackend<B>, 1>::prepare::<C>(Boundary, [tensor.node])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => prep.finish(before, after),
        OpsKind::UnTracked(prep) => prep.finish(after),
    }
}

/// The result of `piece` on the tensor, computed at full precision in both passes.
pub(crate) fn full_precision<B: MxKernels, C: CheckpointStrategy>(
    tensor: Tracked<B>,
    piece: impl FnOnce(Tracked<B>) -> Tracked<B>,
) -> Tracked<B> {
    let before = tensor.primitive.meta.flags & Flags::FULL_PRECISION;
    let output = piece(enter::<B, C>(tensor));
    cross::<B, C>(output, |mut meta| {
        meta.flags = (meta.flags - Flags::FULL_PRECISION) | before;
        meta
    })
}

/// The tensor, from here on computed at full precision.
pub(crate) fn enter<B: MxKernels, C: CheckpointStrategy>(tensor: Tracked<B>) -> Tracked<B> {
    cross::<B, C>(tensor, |mut meta| {
        meta.flags.insert(Flags::FULL_PRECISION);
        meta
    })
}

/// The tensor, from here on computed at full precision as a loss is.
pub(crate) fn begin_loss<B: MxKernels, C: CheckpointStrategy>(tensor: Tracked<B>) -> Tracked<B> {
    cross::<B, C>(tensor, |mut meta| {
        meta.flags.insert(Flags::LOSS);
        meta
    })
}

/// The edge of an op that a parameter's specs may exempt from the emulation that its other operands come from. An exempt
/// op is a piece at full precision, or its gradients would be emulated as those operands are.
pub(crate) struct Exemption {
    /// Of the output, if the op is exempt.
    exempt: Option<Meta>,
    /// Whether gradients are rounded.
    rounds: bool,
}

impl Exemption {
    /// Of an op with burn-autodiff's step.
    pub(crate) fn new(context: &OpContext) -> Self {
        Self {
            exempt: context.is_exempt().then_some(context.result),
            rounds: context.rounds(),
        }
    }

    /// The tensor as the op takes it.
    pub(crate) fn enter<B: MxKernels, C: CheckpointStrategy>(
        &self,
        tensor: Tracked<B>,
    ) -> Tracked<B> {
        match (self.exempt, self.rounds) {
            (Some(_), _) => enter::<B, C>(tensor),
            (None, true) => marked::<B, C>(tensor),
            (None, false) => tensor,
        }
    }

    /// The op's output as the next op takes it.
    pub(crate) fn leave<B: MxKernels, C: CheckpointStrategy>(
        self,
        output: Tracked<B>,
    ) -> Tracked<B> {
        match self.exempt {
            Some(meta) => cross::<B, C>(output, |_| meta),
            None => output,
        }
    }
}

/// An op on two tensors that is not emulated, but may be exempt.
pub(crate) fn exempt_or_not<B: MxKernels, C: CheckpointStrategy>(
    lhs: Tracked<B>,
    rhs: Tracked<B>,
    op: impl FnOnce(Tracked<B>, Tracked<B>) -> Tracked<B>,
) -> Tracked<B> {
    let exemption = Exemption::new(&OpContext::of(metas::<B, 2>([&lhs, &rhs])));
    let [lhs, rhs] = [lhs, rhs].map(|tensor| exemption.enter::<B, C>(tensor));
    exemption.leave::<B, C>(op(lhs, rhs))
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
