//! Layer and root-mean-square normalization.

use burn_autodiff::NodeId;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};

use super::Tracked;
use crate::backend::MxBackend;
use crate::kernels::{self, MxKernels};
use crate::semantics::{Float, norm};

#[derive(Debug)]
struct Norm<const N: usize>;

#[derive(Clone, Debug)]
struct State {
    norm: kernels::Norm,
    x: NodeId,
    gamma: NodeId,
    epsilon: f64,
}

/// Normalization of tensors that are emulated.
pub(crate) fn forward<B: MxKernels, C: CheckpointStrategy>(
    norm: kernels::Norm,
    x: Tracked<B>,
    gamma: Tracked<B>,
    beta: Option<Tracked<B>>,
    epsilon: f64,
) -> Tracked<B> {
    // burn-autodiff fixes the number of parents at compile time.
    macro_rules! prepare {
        ($nodes:expr, $beta:expr) => {
            match Backward::<MxBackend<B>, _>::prepare::<C>(Norm, $nodes)
                .compute_bound()
                .stateful()
            {
                OpsKind::Tracked(mut prep) => {
                    let state = State {
                        norm,
                        x: prep.checkpoint(&x),
                        gamma: prep.checkpoint(&gamma),
                        epsilon,
                    };
                    let output =
                        norm::forward::<B>(norm, x.primitive, gamma.primitive, $beta, epsilon);
                    prep.finish(state, output)
                }
                OpsKind::UnTracked(prep) => prep.finish(norm::forward::<B>(
                    norm,
                    x.primitive,
                    gamma.primitive,
                    $beta,
                    epsilon,
                )),
            }
        };
    }
    match beta {
        Some(beta) => prepare!(
            [x.node.clone(), gamma.node.clone(), beta.node.clone()],
            Some(beta.primitive)
        ),
        None => prepare!([x.node.clone(), gamma.node.clone()], None),
    }
}

impl<B: MxKernels, const N: usize> Backward<MxBackend<B>, N> for Norm<N> {
    type State = State;

    fn backward(self, ops: Ops<State, N>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let State {
            norm,
            x,
            gamma,
            epsilon,
        } = ops.state;
        let grad = grads.consume::<MxBackend<B>>(&ops.node);
        let x = checkpointer.retrieve_node_output::<Float<B>>(x);
        let gamma = checkpointer.retrieve_node_output::<Float<B>>(gamma);
        let backward = norm::backward::<B>(norm, x, gamma, grad, epsilon);
        let values = [backward.x, backward.gamma, backward.beta];
        for (node, value) in ops.parents.into_iter().zip(values) {
            if let Some(node) = node {
                grads.register::<MxBackend<B>>(node.id, value);
            }
        }
    }
}
