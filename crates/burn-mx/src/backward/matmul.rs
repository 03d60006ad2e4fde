//! The matrix product.

use burn_autodiff::NodeId;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind, binary};
use burn_backend::{Shape, TensorMetadata};

use super::{Tracked, check_checkpointing};
use crate::backend::MxBackend;
use crate::kernels::MxKernels;
use crate::registry::Interned;
use crate::semantics::Float;
use crate::semantics::matmul::{self, Side};
use crate::tensor::Meta;

#[derive(Debug)]
struct Matmul;

#[derive(Clone, Debug)]
struct State {
    interned: &'static Interned,
    /// Saved if the other operand's gradient is wanted.
    saved: [Option<NodeId>; 2],
    shapes: [Shape; 2],
    metas: [Meta; 2],
}

/// `lhs · rhs`, emulated by `interned`.
pub(crate) fn forward<B: MxKernels, C: CheckpointStrategy>(
    lhs: Tracked<B>,
    rhs: Tracked<B>,
    interned: &'static Interned,
) -> Tracked<B> {
    check_checkpointing::<C>(&interned.specs);
    match Backward::<MxBackend<B>, 2>::prepare::<C>(Matmul, [lhs.node.clone(), rhs.node.clone()])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(mut prep) => {
            let state = State {
                interned,
                saved: [
                    rhs.is_tracked().then(|| prep.checkpoint(&lhs)),
                    lhs.is_tracked().then(|| prep.checkpoint(&rhs)),
                ],
                shapes: [lhs.primitive.shape(), rhs.primitive.shape()],
                metas: [lhs.primitive.meta, rhs.primitive.meta],
            };
            prep.finish(state, matmul::forward::<B>(lhs.primitive, rhs.primitive))
        }
        OpsKind::UnTracked(prep) => prep.finish(matmul::forward::<B>(lhs.primitive, rhs.primitive)),
    }
}

impl<B: MxKernels> Backward<MxBackend<B>, 2> for Matmul {
    type State = State;

    fn backward(self, ops: Ops<State, 2>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let State {
            interned,
            saved,
            shapes: [lhs_shape, rhs_shape],
            metas: [lhs_meta, rhs_meta],
        } = ops.state;
        let [lhs, rhs] =
            saved.map(|id| id.map(|id| checkpointer.retrieve_node_output::<Float<B>>(id)));
        let wanted = "an operand is saved if the other's gradient is wanted";
        binary::<MxBackend<B>, _, _>(
            ops.parents,
            ops.node,
            grads,
            |grad| {
                let rhs = rhs.expect(wanted);
                matmul::backward::<B>(Side::Lhs, rhs, grad, &lhs_shape, interned, lhs_meta)
            },
            |grad| {
                let lhs = lhs.expect(wanted);
                matmul::backward::<B>(Side::Rhs, lhs, grad, &rhs_shape, interned, rhs_meta)
            },
        );
    }
}
