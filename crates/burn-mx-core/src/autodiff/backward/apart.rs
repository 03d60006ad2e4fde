//! The ops of attention that is written out in a scope.

use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind, unary};

use super::boundary::gradient_of;
use super::saved::Saved;
use super::{Tracked, as_activation};
use crate::backend::MxBackend;
use crate::hooks;
use crate::semantics::attention::formatted::{Attention, KeptScores};
use crate::semantics::attention::scope::{AttentionMatmul, OfOp};
use crate::tensor::Meta;
use burn_mx_kernels::MxKernels;

#[derive(Debug)]
struct MatmulStep;

#[derive(Clone, Debug)]
struct MatmulState<B: MxKernels> {
    attention: Attention<B>,
    which: AttentionMatmul,
    operands: [Saved<B>; 2],
}

/// A matmul of attention.
pub(crate) fn matmul<B: MxKernels, C: CheckpointStrategy>(
    (which, specs): (AttentionMatmul, OfOp),
    operands: [Tracked<B>; 2],
) -> Tracked<B> {
    let operands = operands.map(as_activation::<B, C>);
    let attention = hooks::tracked(|| Attention::<B>::apart(specs));
    let nodes = operands.each_ref().map(|operand| operand.node.clone());
    match Backward::<MxBackend<B>, 2>::prepare::<C>(MatmulStep, nodes)
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(mut prep) => {
            for operand in &operands {
                prep.checkpoint(operand);
            }
            let saved = operands.each_ref().map(Saved::new);
            let operands = operands.map(|operand| operand.primitive);
            let product = hooks::tracked(|| attention.matmul(which, operands));
            let state = MatmulState {
                attention,
                which,
                operands: saved,
            };
            prep.finish(state, product)
        }
        OpsKind::UnTracked(prep) => {
            let operands = operands.map(|operand| operand.primitive);
            prep.finish(hooks::tracked(|| attention.matmul(which, operands)))
        }
    }
}

impl<B: MxKernels> Backward<MxBackend<B>, 2> for MatmulStep {
    type State = MatmulState<B>;

    fn backward(
        self,
        ops: Ops<MatmulState<B>, 2>,
        grads: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let MatmulState {
            attention,
            which,
            operands,
        } = ops.state;
        let grad = grads.consume::<MxBackend<B>>(&ops.node);
        let operands = operands.map(|saved| saved.retrieve(checkpointer));
        let gradients = attention.matmul_backward(which, operands, grad);
        for (node, (meta, gradient)) in ops.parents.into_iter().zip(gradients) {
            if let Some(node) = node {
                grads.register::<MxBackend<B>>(node.id, gradient_of::<B>(meta, gradient));
            }
        }
    }
}

#[derive(Debug)]
struct SoftmaxStep;

#[derive(Clone, Debug)]
struct SoftmaxState<B: MxKernels> {
    attention: Attention<B>,
    kept: KeptScores<B>,
    input: Meta,
}

/// The softmax of scores along their last axis.
pub(crate) fn softmax<B: MxKernels, C: CheckpointStrategy>(
    specs: OfOp,
    scores: Tracked<B>,
) -> Tracked<B> {
    let attention = hooks::tracked(|| Attention::<B>::apart(specs));
    match Backward::<MxBackend<B>, 1>::prepare::<C>(SoftmaxStep, [scores.node])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => {
            let input = scores.primitive.meta;
            let (probabilities, kept) = hooks::tracked(|| attention.softmax(scores.primitive));
            let state = SoftmaxState {
                attention,
                kept,
                input,
            };
            prep.finish(state, probabilities)
        }
        OpsKind::UnTracked(prep) => {
            prep.finish(hooks::tracked(|| attention.softmax(scores.primitive)).0)
        }
    }
}

impl<B: MxKernels> Backward<MxBackend<B>, 1> for SoftmaxStep {
    type State = SoftmaxState<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let SoftmaxState {
            attention,
            kept,
            input,
        } = ops.state;
        unary::<MxBackend<B>, _>(ops.parents, ops.node, grads, |grad| {
            let (meta, gradient) = attention.softmax_backward(kept, grad, input);
            gradient_of::<B>(meta, gradient)
        });
    }
}
