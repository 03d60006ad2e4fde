//! Layer and root-mean-square normalization.

use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};

use super::boundary::gradient_of;
use super::edge::Edge;
use super::saved::Saved;
use super::{Tracked, as_activation};
use crate::backend::MxBackend;
use crate::hooks;
use crate::semantics::norm;
use crate::tensor::random_streams::OpNumber;
use crate::tensor::{Float, Meta, OpContext};
use burn_mx_kernels::{MxKernels, internal};

#[derive(Debug)]
struct NormStep<const N: usize>;

#[derive(Clone, Debug)]
struct NormState<B: MxKernels> {
    /// Of the op in the forward pass.
    number: OpNumber,
    /// As the recorder knows it.
    layer: Option<&'static str>,
    norm: internal::Norm,
    x: Saved<B>,
    gamma: Saved<B>,
    beta_meta: Option<Meta>,
    epsilon: f64,
}

/// Normalization, by `plain` where nothing is emulated.
pub(crate) fn forward_or<B: MxKernels, C: CheckpointStrategy>(
    norm: internal::Norm,
    x: Tracked<B>,
    gamma: Tracked<B>,
    beta: Option<Tracked<B>>,
    epsilon: f64,
    plain: impl FnOnce(Tracked<B>, Tracked<B>, Option<Tracked<B>>) -> Tracked<B>,
) -> Tracked<B> {
    let x = as_activation::<B, C>(x);
    let meta = |tensor: &Tracked<B>| tensor.primitive.meta;
    let context = OpContext::of([Some(meta(&x)), Some(meta(&gamma)), beta.as_ref().map(meta)]);
    if let Some(shared) = context.emulation() {
        let number = shared.draws().op();
        return forward::<B, C>(number, norm, x, gamma, beta, epsilon);
    }
    let edge = Edge::new(&context);
    let [x, gamma] = [x, gamma].map(|tensor| edge.enter::<B, C>(tensor));
    let beta = beta.map(|beta| edge.enter::<B, C>(beta));
    edge.leave::<B, C>(plain(x, gamma, beta))
}

/// Normalization of tensors that are emulated.
fn forward<B: MxKernels, C: CheckpointStrategy>(
    number: OpNumber,
    norm: internal::Norm,
    x: Tracked<B>,
    gamma: Tracked<B>,
    beta: Option<Tracked<B>>,
    epsilon: f64,
) -> Tracked<B> {
    let beta_meta = beta.as_ref().map(|beta| beta.primitive.meta);
    let layer = hooks::tracked(|| hooks::name_elementwise(gamma.primitive.meta.label));
    // From the values alone. The operands are held until the op is recorded: burn-autodiff may otherwise forget their origin.
    let output = |x: Float<B>, gamma: Float<B>, beta| {
        hooks::tracked(|| norm::forward::<B>(Some(number), norm, x, gamma, beta, epsilon))
    };
    // burn-autodiff fixes the number of parents at compile time.
    macro_rules! prepare {
        ($nodes:expr, $beta:expr) => {
            match Backward::<MxBackend<B>, _>::prepare::<C>(NormStep, $nodes)
                .compute_bound()
                .stateful()
            {
                OpsKind::Tracked(mut prep) => {
                    prep.checkpoint(&x);
                    prep.checkpoint(&gamma);
                    let state = NormState {
                        number,
                        layer,
                        norm,
                        x: Saved::new(&x),
                        gamma: Saved::new(&gamma),
                        beta_meta,
                        epsilon,
                    };
                    prep.finish(state, output(x.primitive, gamma.primitive, $beta))
                }
                OpsKind::UnTracked(prep) => {
                    prep.finish(output(x.primitive, gamma.primitive, $beta))
                }
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

impl<B: MxKernels, const N: usize> Backward<MxBackend<B>, N> for NormStep<N> {
    type State = NormState<B>;

    fn backward(
        self,
        ops: Ops<NormState<B>, N>,
        grads: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let NormState {
            number,
            layer,
            norm,
            x,
            gamma,
            beta_meta,
            epsilon,
        } = ops.state;
        let grad = grads.consume::<MxBackend<B>>(&ops.node);
        let [x, gamma] = [x, gamma].map(|saved| saved.retrieve(checkpointer));
        let metas = [Some(x.meta), Some(gamma.meta), beta_meta];
        let backward =
            norm::backward::<B>(number, layer, norm, [x, gamma], beta_meta, grad, epsilon);
        let values = [backward.x, backward.gamma, backward.beta];
        for ((node, meta), value) in ops.parents.into_iter().zip(metas).zip(values) {
            if let (Some(node), Some(meta)) = (node, meta) {
                grads.register::<MxBackend<B>>(node.id, gradient_of::<B>(meta, value));
            }
        }
    }
}
