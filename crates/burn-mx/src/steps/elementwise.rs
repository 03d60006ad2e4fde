//! Elementwise ops whose gradient the emulation defines step by step.

use core::fmt::Debug;
use core::marker::PhantomData;

use burn_autodiff::NodeId;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::retro_forward::RetroForward;
use burn_autodiff::checkpoint::state::BackwardStates;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind, binary as binary_step, unary as unary_step};
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::{Tracked, check_checkpointing};
use crate::backend::MxBackend;
use crate::kernels::MxKernels;
use crate::semantics::Float;
use crate::semantics::elementwise::{Vector, broadcast_dims};
use crate::tensor::{Join, Meta};

/// An op on one tensor and its gradient.
pub(crate) trait UnaryRule<B: MxKernels>: Clone + Debug + Send + 'static {
    /// The op.
    fn forward(&self, x: Float<B>) -> Float<B>;
    /// The gradient of the input; `x` and `g` are rounded.
    fn backward(&self, v: &Vector<B>, x: FloatTensor<B>, g: FloatTensor<B>) -> FloatTensor<B>;
}

/// An op on two tensors of the same rank, which broadcast, and its gradients.
pub(crate) trait BinaryRule<B: MxKernels>: Clone + Debug + Default + Send + 'static {
    /// Whether the gradients need the operands' values.
    const NEEDS_OPERANDS: bool;
    /// The op.
    fn forward(lhs: Float<B>, rhs: Float<B>) -> Float<B>;
    /// The gradient of the left operand before it is summed over broadcast axes; operands are given, rounded,
    /// where they are needed.
    fn lhs(v: &Vector<B>, operands: [Option<FloatTensor<B>>; 2], g: FloatTensor<B>) -> FloatTensor<B>;
    /// As [`BinaryRule::lhs`], of the right operand.
    fn rhs(v: &Vector<B>, operands: [Option<FloatTensor<B>>; 2], g: FloatTensor<B>) -> FloatTensor<B>;
}

const SAVED: &str = "operands are saved where they are needed";

/// Natural logarithm: `g / x`.
#[derive(Clone, Debug)]
pub(crate) struct Log;

impl<B: MxKernels> UnaryRule<B> for Log {
    fn forward(&self, x: Float<B>) -> Float<B> {
        MxBackend::<B>::float_log(x)
    }
    fn backward(&self, v: &Vector<B>, x: FloatTensor<B>, g: FloatTensor<B>) -> FloatTensor<B> {
        v.div(g, x)
    }
}

/// Square root: `(g / 2) / y`.
#[derive(Clone, Debug)]
pub(crate) struct Sqrt;

impl<B: MxKernels> UnaryRule<B> for Sqrt {
    fn forward(&self, x: Float<B>) -> Float<B> {
        MxBackend::<B>::float_sqrt(x)
    }
    fn backward(&self, v: &Vector<B>, x: FloatTensor<B>, g: FloatTensor<B>) -> FloatTensor<B> {
        v.div(v.div_scalar(g, 2.0), v.sqrt(x))
    }
}

/// Mean over one axis, or over all: `g / n`.
#[derive(Clone, Debug)]
pub(crate) struct Mean {
    pub(crate) dim: Option<usize>,
}

impl<B: MxKernels> UnaryRule<B> for Mean {
    fn forward(&self, x: Float<B>) -> Float<B> {
        match self.dim {
            Some(dim) => MxBackend::<B>::float_mean_dim(x, dim),
            None => MxBackend::<B>::float_mean(x),
        }
    }
    fn backward(&self, v: &Vector<B>, x: FloatTensor<B>, g: FloatTensor<B>) -> FloatTensor<B> {
        let shape = x.shape();
        let count = self.dim.map_or(shape.num_elements(), |dim| shape[dim]);
        let share = v.div_scalar(g, count as f32);
        let share = match self.dim {
            Some(_) => share,
            None => B::float_reshape(share, Shape::from(vec![1; shape.num_dims()])),
        };
        B::float_expand(share, shape)
    }
}

/// Sum: `g`, `g`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Add;

impl<B: MxKernels> BinaryRule<B> for Add {
    const NEEDS_OPERANDS: bool = false;
    fn forward(lhs: Float<B>, rhs: Float<B>) -> Float<B> {
        MxBackend::<B>::float_add(lhs, rhs)
    }
    fn lhs(_: &Vector<B>, _: [Option<FloatTensor<B>>; 2], g: FloatTensor<B>) -> FloatTensor<B> {
        g
    }
    fn rhs(_: &Vector<B>, _: [Option<FloatTensor<B>>; 2], g: FloatTensor<B>) -> FloatTensor<B> {
        g
    }
}

/// Difference: `g`, `-g`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sub;

impl<B: MxKernels> BinaryRule<B> for Sub {
    const NEEDS_OPERANDS: bool = false;
    fn forward(lhs: Float<B>, rhs: Float<B>) -> Float<B> {
        MxBackend::<B>::float_sub(lhs, rhs)
    }
    fn lhs(_: &Vector<B>, _: [Option<FloatTensor<B>>; 2], g: FloatTensor<B>) -> FloatTensor<B> {
        g
    }
    fn rhs(v: &Vector<B>, _: [Option<FloatTensor<B>>; 2], g: FloatTensor<B>) -> FloatTensor<B> {
        v.neg(g)
    }
}

/// Product: `g b`, `g a`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mul;

impl<B: MxKernels> BinaryRule<B> for Mul {
    const NEEDS_OPERANDS: bool = true;
    fn forward(lhs: Float<B>, rhs: Float<B>) -> Float<B> {
        MxBackend::<B>::float_mul(lhs, rhs)
    }
    fn lhs(v: &Vector<B>, [_, b]: [Option<FloatTensor<B>>; 2], g: FloatTensor<B>) -> FloatTensor<B> {
        v.mul(g, b.expect(SAVED))
    }
    fn rhs(v: &Vector<B>, [a, _]: [Option<FloatTensor<B>>; 2], g: FloatTensor<B>) -> FloatTensor<B> {
        v.mul(g, a.expect(SAVED))
    }
}

/// Quotient: `g / b`, `g (-y / b)`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Div;

impl<B: MxKernels> BinaryRule<B> for Div {
    const NEEDS_OPERANDS: bool = true;
    fn forward(lhs: Float<B>, rhs: Float<B>) -> Float<B> {
        MxBackend::<B>::float_div(lhs, rhs)
    }
    fn lhs(v: &Vector<B>, [_, b]: [Option<FloatTensor<B>>; 2], g: FloatTensor<B>) -> FloatTensor<B> {
        v.div(g, b.expect(SAVED))
    }
    fn rhs(v: &Vector<B>, [a, b]: [Option<FloatTensor<B>>; 2], g: FloatTensor<B>) -> FloatTensor<B> {
        let b = b.expect(SAVED);
        let y = v.div(a.expect(SAVED), b.clone());
        v.mul(g, v.div(v.neg(y), b))
    }
}

/// A unary op of emulated tensors.
pub(crate) fn unary<B: MxKernels, C: CheckpointStrategy, R: UnaryRule<B>>(
    x: Tracked<B>,
    rule: R,
) -> Tracked<B> {
    check::<C>(&Join::of([Some(x.primitive.meta)]));
    let retro = RetroUnary::<B, R> {
        input: x.node.id,
        rule: rule.clone(),
        _backend: PhantomData,
    };
    match Backward::<MxBackend<B>, 1>::prepare::<C>(Unary(rule.clone()), [x.node.clone()])
        .memory_bound()
        .retro_forward(retro)
        .parents([&x])
        .stateful()
    {
        OpsKind::Tracked(mut prep) => {
            let state = prep.checkpoint(&x);
            prep.finish(state, rule.forward(x.primitive))
        }
        OpsKind::UnTracked(prep) => prep.finish(rule.forward(x.primitive)),
    }
}

/// A binary op of emulated tensors.
pub(crate) fn binary<B: MxKernels, C: CheckpointStrategy, R: BinaryRule<B>>(
    lhs: Tracked<B>,
    rhs: Tracked<B>,
) -> Tracked<B> {
    let metas = [lhs.primitive.meta, rhs.primitive.meta];
    check::<C>(&Join::of(metas.map(Some)));
    let retro = RetroBinary::<B, R> {
        inputs: [lhs.node.id, rhs.node.id],
        _backend: PhantomData,
    };
    match Backward::<MxBackend<B>, 2>::prepare::<C>(
        Binary(R::default()),
        [lhs.node.clone(), rhs.node.clone()],
    )
    .memory_bound()
    .retro_forward(retro)
    .parents([&lhs, &rhs])
    .stateful()
    {
        OpsKind::Tracked(mut prep) => {
            let state = BinaryState {
                saved: R::NEEDS_OPERANDS.then(|| [prep.checkpoint(&lhs), prep.checkpoint(&rhs)]),
                shapes: [lhs.primitive.shape(), rhs.primitive.shape()],
                metas,
            };
            prep.finish(state, R::forward(lhs.primitive, rhs.primitive))
        }
        OpsKind::UnTracked(prep) => prep.finish(R::forward(lhs.primitive, rhs.primitive)),
    }
}

fn check<C: CheckpointStrategy>(join: &Join) {
    if let Some(interned) = join.emulation() {
        check_checkpointing::<C>(&interned.specs);
    }
}

/// The arithmetic of a backward pass of ops with these metas.
fn vector<B: MxKernels>(join: &Join) -> Vector<B> {
    Vector::recipe(join).expect("the op has a step of its own only where elementwise ops are emulated")
}

#[derive(Debug)]
struct Unary<R>(R);

impl<B: MxKernels, R: UnaryRule<B>> Backward<MxBackend<B>, 1> for Unary<R> {
    type State = NodeId;

    fn backward(self, ops: Ops<NodeId, 1>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let x = checkpointer.retrieve_node_output::<Float<B>>(ops.state);
        unary_step::<MxBackend<B>, _>(ops.parents, ops.node, grads, |grad| {
            let join = Join::of([Some(x.meta)]);
            let v = vector::<B>(&join);
            let dx = self.0.backward(&v, v.operand(x), v.operand(grad));
            v.finish(dx, &join)
        });
    }
}

#[derive(Debug)]
struct Binary<R>(#[allow(dead_code, reason = "names the op in the debug output")] R);

#[derive(Clone, Debug)]
struct BinaryState {
    saved: Option<[NodeId; 2]>,
    shapes: [Shape; 2],
    metas: [Meta; 2],
}

impl<B: MxKernels, R: BinaryRule<B>> Backward<MxBackend<B>, 2> for Binary<R> {
    type State = BinaryState;

    fn backward(self, ops: Ops<BinaryState, 2>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let BinaryState {
            saved,
            shapes: [lhs_shape, rhs_shape],
            metas,
        } = ops.state;
        let join = Join::of(metas.map(Some));
        let v = vector::<B>(&join);
        let operands: [Option<FloatTensor<B>>; 2] = match saved {
            Some(ids) => {
                ids.map(|id| Some(v.operand(checkpointer.retrieve_node_output::<Float<B>>(id))))
            }
            None => [None, None],
        };
        let reduce = |grad: FloatTensor<B>, shape: &Shape, meta: Meta| {
            let broadcast = broadcast_dims(shape, &grad.shape());
            let grad = match broadcast.is_empty() {
                true => grad,
                false => v.sum_dims(grad, broadcast),
            };
            // The gradient of a constant without specs goes by the op's.
            let own = Join::of([Some(meta), Some(join.result)]);
            v.finish(grad, &own)
        };
        let [lhs_meta, rhs_meta] = metas;
        binary_step::<MxBackend<B>, _, _>(
            ops.parents,
            ops.node,
            grads,
            |grad| reduce(R::lhs(&v, operands.clone(), v.operand(grad)), &lhs_shape, lhs_meta),
            |grad| reduce(R::rhs(&v, operands.clone(), v.operand(grad)), &rhs_shape, rhs_meta),
        );
    }
}

/// Recomputes a unary op for gradient checkpointing.
#[derive(Debug)]
struct RetroUnary<B, R> {
    input: NodeId,
    rule: R,
    _backend: PhantomData<B>,
}

impl<B: MxKernels, R: UnaryRule<B>> RetroForward for RetroUnary<B, R> {
    fn forward(&self, states: &mut BackwardStates, out_node: NodeId) {
        let x = states.get_state::<Float<B>>(&self.input);
        states.save(out_node, self.rule.forward(x));
    }
}

/// Recomputes a binary op for gradient checkpointing.
#[derive(Debug)]
struct RetroBinary<B, R> {
    inputs: [NodeId; 2],
    _backend: PhantomData<(B, R)>,
}

impl<B: MxKernels, R: BinaryRule<B>> RetroForward for RetroBinary<B, R> {
    fn forward(&self, states: &mut BackwardStates, out_node: NodeId) {
        let lhs = states.get_state::<Float<B>>(&self.inputs[0]);
        let rhs = states.get_state::<Float<B>>(&self.inputs[1]);
        states.save(out_node, R::forward(lhs, rhs));
    }
}
