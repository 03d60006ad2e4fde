//! Softmax.

use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind, unary};

use super::Tracked;
use super::boundary::gradient_of;
use crate::backend::MxBackend;
use crate::hooks;
use crate::semantics::softmax;
use crate::tensor::{Float, Meta};
use burn_mx_kernels::MxKernels;

#[derive(Debug)]
struct Softmax;

#[derive(Clone, Debug)]
struct SoftmaxState<T> {
    output: T,
    input: Meta,
    /// The op's layer in the forward pass, as the recorder names it.
    layer: Option<&'static str>,
    dim: usize,
}

/// Softmax of tensors that are emulated.
pub(crate) fn forward<B: MxKernels, C: CheckpointStrategy>(
    x: Tracked<B>,
    dim: usize,
) -> Tracked<B> {
    match Backward::<MxBackend<B>, 1>::prepare::<C>(Softmax, [x.node])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => {
            let input = x.primitive.meta;
            let output = hooks::tracked(|| softmax::forward::<B>(x.primitive, dim));
            let state = SoftmaxState {
                output: output.clone(),
                input,
                layer: hooks::tracked(|| hooks::name_elementwise(None)),
                dim,
            };
            prep.finish(state, output)
        }
        OpsKind::UnTracked(prep) => {
            prep.finish(hooks::tracked(|| softmax::forward::<B>(x.primitive, dim)))
        }
    }
}

impl<B: MxKernels> Backward<MxBackend<B>, 1> for Softmax {
    type State = SoftmaxState<Float<B>>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let SoftmaxState {
            output,
            input,
            layer,
            dim,
        } = ops.state;
        unary::<MxBackend<B>, _>(ops.parents, ops.node, grads, |grad| {
            gradient_of::<B>(input, softmax::backward::<B>(layer, output, grad, dim))
        });
    }
}
