//! Attention whose points have formats of their own.

use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::ops::AttentionModuleOptions;
use burn_backend::tensor::BoolTensor;

use super::Tracked;
use super::boundary::gradient_of;
use super::saved::Saved;
use crate::backend::MxBackend;
use crate::hooks;
use crate::semantics::attention::formatted::{Attention, Kept};
use crate::specs::AttentionSpecs;
use crate::tensor::shared_specs::SharedSpecs;
use burn_mx_kernels::MxKernels;

#[derive(Debug)]
struct AttentionStep<const N: usize>;

#[derive(Clone, Debug)]
struct AttentionState<B: MxKernels> {
    attention: Attention<B>,
    operands: [Saved<B>; 3],
    kept: Kept<B>,
}

/// Attention of activations.
pub(crate) fn forward<B: MxKernels, C: CheckpointStrategy>(
    specs: (&'static SharedSpecs, &'static AttentionSpecs),
    operands: [Tracked<B>; 3],
    mask: Option<BoolTensor<MxBackend<B>>>,
    bias: Option<Tracked<B>>,
    options: AttentionModuleOptions,
) -> Tracked<B> {
    let mask = mask.map(|mask| mask.inner);
    let of_bias = bias.as_ref().map(|bias| bias.primitive.clone());
    let attention = hooks::tracked(|| Attention::<B>::new(specs, options, mask, of_bias));
    // burn-autodiff fixes the number of parents at compile time.
    macro_rules! prepare {
        ($nodes:expr) => {
            match Backward::<MxBackend<B>, _>::prepare::<C>(AttentionStep, $nodes)
                .compute_bound()
                .stateful()
            {
                OpsKind::Tracked(mut prep) => {
                    for operand in &operands {
                        prep.checkpoint(operand);
                    }
                    let saved = operands.each_ref().map(Saved::new);
                    let operands = operands.map(|operand| operand.primitive);
                    let attended = hooks::tracked(|| attention.forward(operands));
                    let state = AttentionState {
                        attention,
                        operands: saved,
                        kept: attended.kept,
                    };
                    prep.finish(state, attended.output)
                }
                OpsKind::UnTracked(prep) => {
                    let operands = operands.map(|operand| operand.primitive);
                    prep.finish(hooks::tracked(|| attention.forward(operands)).output)
                }
            }
        };
    }
    let [q, k, v] = operands.each_ref().map(|operand| operand.node.clone());
    match bias {
        Some(bias) => prepare!([q, k, v, bias.node]),
        None => prepare!([q, k, v]),
    }
}

impl<B: MxKernels, const N: usize> Backward<MxBackend<B>, N> for AttentionStep<N> {
    type State = AttentionState<B>;

    fn backward(
        self,
        ops: Ops<AttentionState<B>, N>,
        grads: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let AttentionState {
            attention,
            operands,
            kept,
        } = ops.state;
        let grad = grads.consume::<MxBackend<B>>(&ops.node);
        let operands = operands.map(|saved| saved.retrieve(checkpointer));
        let wants_bias = ops.parents.get(3).is_some_and(Option::is_some);
        let gradients = attention.backward(kept, operands, grad, wants_bias);
        for (node, (meta, gradient)) in ops.parents.into_iter().zip(gradients) {
            if let Some(node) = node {
                grads.register::<MxBackend<B>>(node.id, gradient_of::<B>(meta, gradient));
            }
        }
    }
}
