//! The operands that a step saves for its backward pass.
//!
//! burn-autodiff keeps one tensor for each node of the graph: the tensor of the first step that saved the node. A tensor may
//! be a weight to one op and an activation to the next, under another name. So each step keeps the tensor's meta for itself.

use burn_autodiff::NodeId;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::state::BackwardStates;
use burn_backend::tensor::FloatTensor;

use super::Tracked;
use crate::tensor::weight_cache::WeightCache;
use crate::tensor::{Float, Meta};
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::Operand;

/// An operand that burn-autodiff saves, with its meta in the op that saves it.
#[derive(Clone, Debug)]
pub(crate) struct Saved<B: MxKernels> {
    node: NodeId,
    meta: Meta,
    kept: Option<WeightCache<Operand<FloatTensor<B>>>>,
}

impl<B: MxKernels> Saved<B> {
    /// The operand of a tensor that its node saves or computes again.
    pub(crate) fn new(tensor: &Tracked<B>) -> Self {
        let Float::<B> { meta, kept, .. } = &tensor.primitive;
        Self {
            node: tensor.node.id,
            meta: *meta,
            kept: kept.clone(),
        }
    }

    /// The tensor in the backward pass, where its node was saved.
    pub(crate) fn retrieve(self, checkpointer: &mut Checkpointer) -> Float<B> {
        let tensor = checkpointer.retrieve_node_output(self.node);
        self.in_role(tensor)
    }

    /// The tensor while gradient checkpointing computes an op again.
    pub(crate) fn state(self, states: &mut BackwardStates) -> Float<B> {
        let tensor = states.get_state(&self.node);
        self.in_role(tensor)
    }

    fn in_role(self, tensor: Float<B>) -> Float<B> {
        Float::<B> {
            inner: tensor.inner,
            meta: self.meta,
            kept: self.kept,
        }
    }
}
