//! The operands that a step saves for its backward pass.
//!
//! burn-autodiff keeps one tensor for each node of the graph: the tensor of the first step that saved the node. A tensor may
//! be a weight to one op and an activation to the next, under another name. So each step keeps the tensor's meta for itself.

use burn_autodiff::NodeId;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::state::BackwardStates;
use burn_backend::tensor::{Device, FloatTensor};

use super::Tracked;
use crate::tensor::frozen_weight::FrozenWeight;
use crate::tensor::weight_cache::WeightCache;
use crate::tensor::{Float, Meta};
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::Operand;

/// An operand that burn-autodiff saves, or a packed weight, with its meta in the op that saves it.
#[derive(Clone, Debug)]
pub(crate) struct Saved<B: MxKernels> {
    values: Values<B>,
    meta: Meta,
    kept: Option<WeightCache<Operand<FloatTensor<B>>>>,
}

/// Where the values of an operand come from.
#[derive(Clone, Debug)]
enum Values<B: MxKernels> {
    Node(NodeId),
    Packed(FrozenWeight, Device<B>),
}

impl<B: MxKernels> Saved<B> {
    /// The operand of a tensor that its node saves or computes again.
    pub(crate) fn new(tensor: &Tracked<B>) -> Self {
        let Float::<B> { meta, kept, .. } = &tensor.primitive;
        Self {
            values: Values::Node(tensor.node.id),
            meta: *meta,
            kept: kept.clone(),
        }
    }

    /// A weight that is unpacked again.
    pub(crate) fn packed(weight: &Tracked<B>, packed: FrozenWeight) -> Self {
        let device = B::float_device(&weight.primitive.inner);
        Self {
            values: Values::Packed(packed, device),
            ..Self::new(weight)
        }
    }

    /// The tensor in the backward pass, where its node was saved.
    pub(crate) fn retrieve(self, checkpointer: &mut Checkpointer) -> Float<B> {
        self.in_role(|node| checkpointer.retrieve_node_output(node))
    }

    /// The tensor while gradient checkpointing computes an op again.
    pub(crate) fn state(self, states: &mut BackwardStates) -> Float<B> {
        self.in_role(|node| states.get_state(&node))
    }

    fn in_role(self, of_node: impl FnOnce(NodeId) -> Float<B>) -> Float<B> {
        Float::<B> {
            inner: match self.values {
                Values::Node(node) => of_node(node).inner,
                Values::Packed(packed, device) => packed.values::<B>(&device),
            },
            meta: self.meta,
            kept: self.kept,
        }
    }
}
