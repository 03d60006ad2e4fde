//! Elementwise ops whose gradient the emulation defines op by op.

mod binary;
mod unary;

use burn_autodiff::NodeId;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::retro_forward::RetroForward;
use burn_autodiff::checkpoint::state::BackwardStates;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind, binary as binary_step, unary as unary_step};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::boundary::gradient_of;
use super::saved::Saved;
use super::{Tracked, check_recorded, edge, metas};
use crate::backend::MxBackend;
use crate::hooks;
use crate::semantics::elementwise::{self, GradientOf, Passes, broadcast_dims};
use crate::semantics::stored;
use crate::tensor::random_streams::OpNumber;
use crate::tensor::{Float, Meta, OpContext};
pub(crate) use binary::BinaryRule;
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::formulas::Arithmetic;
pub(crate) use unary::UnaryRule;

type Operands<B> = [Option<Float<B>>; 2];

const SAVED: &str = "operands are saved where they are needed";

/// A unary op of emulated tensors.
pub(crate) fn unary<B: MxKernels, C: CheckpointStrategy>(
    x: Tracked<B>,
    rule: UnaryRule,
) -> Tracked<B> {
    check_recorded::<B, C, 1>([&x]);
    let number = number_of(&OpContext::of([Some(x.primitive.meta)]));
    let retro = RetroUnary::<B> {
        number,
        input: Saved::new(&x),
        rule,
    };
    let layer = hooks::tracked(|| hooks::name_elementwise(x.primitive.meta.label));
    // From the values alone. The operands are held until the op is recorded: burn-autodiff may otherwise forget their origin.
    let output = |x: Float<B>| hooks::tracked(|| rule.forward::<B>(number, x));
    match Backward::<MxBackend<B>, 1>::prepare::<C>(Unary(rule), [x.node.clone()])
        .memory_bound()
        .retro_forward(retro)
        .parents([&x])
        .stateful()
    {
        OpsKind::Tracked(mut prep) => {
            prep.checkpoint(&x);
            let state = (number, layer, Saved::new(&x));
            prep.finish(state, output(x.primitive))
        }
        OpsKind::UnTracked(prep) => prep.finish(output(x.primitive)),
    }
}

/// A binary op: by its rule if elementwise ops are emulated, else by `plain`.
pub(crate) fn binary_or<B: MxKernels, C: CheckpointStrategy>(
    lhs: Tracked<B>,
    rhs: Tracked<B>,
    rule: BinaryRule,
    plain: impl FnOnce(Tracked<B>, Tracked<B>) -> Tracked<B>,
) -> Tracked<B> {
    match elementwise::emulation(&OpContext::of(metas::<B, 2>([&lhs, &rhs]))) {
        Some(_) => binary::<B, C>(lhs, rhs, rule),
        None => edge::exempt_or_not::<B, C>(lhs, rhs, plain),
    }
}

/// A binary op of emulated tensors.
fn binary<B: MxKernels, C: CheckpointStrategy>(
    lhs: Tracked<B>,
    rhs: Tracked<B>,
    rule: BinaryRule,
) -> Tracked<B> {
    check_recorded::<B, C, 2>([&lhs, &rhs]);
    let metas = [lhs.primitive.meta, rhs.primitive.meta];
    let number = number_of(&OpContext::of(metas.map(Some)));
    let retro = RetroBinary::<B> {
        number,
        inputs: [Saved::new(&lhs), Saved::new(&rhs)],
        rule,
    };
    let label = metas.iter().find_map(|meta| meta.label);
    let layer = hooks::tracked(|| hooks::name_elementwise(label));
    // Of values alone, as for a unary op.
    let output =
        |lhs: Float<B>, rhs: Float<B>| hooks::tracked(|| rule.forward::<B>(number, lhs, rhs));
    match Backward::<MxBackend<B>, 2>::prepare::<C>(
        Binary(rule),
        [lhs.node.clone(), rhs.node.clone()],
    )
    .memory_bound()
    .retro_forward(retro)
    .parents([&lhs, &rhs])
    .stateful()
    {
        OpsKind::Tracked(mut prep) => {
            let state = BinaryState {
                number,
                layer,
                saved: rule.needs_operands().then(|| {
                    [&lhs, &rhs].map(|operand| {
                        prep.checkpoint(operand);
                        Saved::new(operand)
                    })
                }),
                shapes: [lhs.primitive.shape(), rhs.primitive.shape()],
                metas,
            };
            prep.finish(state, output(lhs.primitive, rhs.primitive))
        }
        OpsKind::UnTracked(prep) => prep.finish(output(lhs.primitive, rhs.primitive)),
    }
}

/// The number of a new op.
fn number_of(context: &OpContext) -> OpNumber {
    let shared = elementwise::emulation(context).expect(EMULATED);
    shared.draws().op()
}

const EMULATED: &str = "the op has a step of its own only where elementwise ops are emulated";

/// The arithmetic of the backward pass of the op with this number, of tensors with these metas.
fn passes<B: MxKernels>(number: OpNumber, context: &OpContext) -> Passes<B> {
    Passes::emulated(context, Some(number)).expect(EMULATED)
}

#[derive(Debug)]
struct Unary(UnaryRule);

impl<B: MxKernels> Backward<MxBackend<B>, 1> for Unary {
    /// Number and layer of the op in the forward pass, and its operand.
    type State = (OpNumber, Option<&'static str>, Saved<B>);

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let (number, layer, x) = ops.state;
        let x = x.retrieve(checkpointer);
        unary_step::<MxBackend<B>, _>(ops.parents, ops.node, grads, |grad| {
            let meta = x.meta;
            let context = OpContext::of([Some(meta)]);
            let pass = passes::<B>(number, &context);
            let op = self.0.name();
            let formula = |pass: &Passes<B>, [x]: [_; 1], g| self.0.backward(pass, x, g);
            let dx = pass.gradient_by(
                GradientOf { op, layer },
                "input gradient",
                [x],
                grad,
                formula,
            );
            gradient_of::<B>(meta, pass.backward.finish(dx, &context))
        });
    }
}

#[derive(Debug)]
struct Binary(BinaryRule);

#[derive(Clone, Debug)]
struct BinaryState<B: MxKernels> {
    /// Of the op in the forward pass.
    number: OpNumber,
    /// As the recorder knows it.
    layer: Option<&'static str>,
    saved: Option<[Saved<B>; 2]>,
    shapes: [Shape; 2],
    metas: [Meta; 2],
}

impl<B: MxKernels> Backward<MxBackend<B>, 2> for Binary {
    type State = BinaryState<B>;

    fn backward(
        self,
        ops: Ops<BinaryState<B>, 2>,
        grads: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let BinaryState {
            number,
            layer,
            saved,
            shapes,
            metas,
        } = ops.state;
        let rule = self.0;
        let context = OpContext::of(metas.map(Some));
        let pass = passes::<B>(number, &context);
        let operands: Operands<B> = match saved {
            Some(saved) => saved.map(|saved| Some(saved.retrieve(checkpointer))),
            None => [None, None],
        };
        let v = &pass.backward;
        // The gradient of an operand, with this name.
        let gradient = |operand: usize, name, grad: Float<B>| {
            let (shape, meta) = (&shapes[operand], metas[operand]);
            let rounded = rule.is_rounded(operand);
            let broadcast = |grad: &FloatTensor<B>| broadcast_dims(shape, &grad.shape());
            // The gradient of a constant without specs has the op's specs.
            let own = OpContext::of([Some(meta), Some(context.result)]);
            let compute = |pass: &Passes<B>, operands, g| {
                let (v, grad) = (&pass.backward, rule.backward(operand, pass, operands, g));
                let broadcast = broadcast(&grad);
                match (broadcast.is_empty(), rounded) {
                    (true, _) => grad,
                    (false, true) => v.sum_dims(grad, broadcast),
                    (false, false) => v.sum_dims(v.round(grad), broadcast),
                }
            };
            let op = GradientOf {
                op: rule.name(),
                layer,
            };
            let summed = !broadcast(&grad.inner).is_empty();
            let dx = match operands.clone() {
                // As it came.
                _ if !rounded && !summed => compute(&pass, [None, None], grad),
                [Some(lhs), Some(rhs)] => {
                    let compute = |pass: &Passes<B>, [lhs, rhs]: [_; 2], g| {
                        compute(pass, [Some(lhs), Some(rhs)], g)
                    };
                    pass.gradient_by(op, name, [lhs, rhs], grad, compute)
                }
                _ => pass.gradient_by(op, name, [], grad, |pass, [], g| {
                    compute(pass, [None, None], g)
                }),
            };
            let gradient = match rounded || summed {
                true => v.finish(dx, &own),
                false => stored::<B>(dx, own.result),
            };
            gradient_of::<B>(meta, gradient)
        };
        binary_step::<MxBackend<B>, _, _>(
            ops.parents,
            ops.node,
            grads,
            |grad| gradient(0, "lhs gradient", grad),
            |grad| gradient(1, "rhs gradient", grad),
        );
    }
}

/// Recomputes a unary op for gradient checkpointing.
#[derive(Debug)]
struct RetroUnary<B: MxKernels> {
    number: OpNumber,
    input: Saved<B>,
    rule: UnaryRule,
}

impl<B: MxKernels> RetroForward for RetroUnary<B> {
    fn forward(&self, states: &mut BackwardStates, out_node: NodeId) {
        let x = self.input.clone().state(states);
        let output = hooks::again(|| self.rule.forward::<B>(self.number, x));
        states.save(out_node, output);
    }
}

/// Recomputes a binary op for gradient checkpointing.
#[derive(Debug)]
struct RetroBinary<B: MxKernels> {
    number: OpNumber,
    inputs: [Saved<B>; 2],
    rule: BinaryRule,
}

impl<B: MxKernels> RetroForward for RetroBinary<B> {
    fn forward(&self, states: &mut BackwardStates, out_node: NodeId) {
        let [lhs, rhs] = self.inputs.clone().map(|input| input.state(states));
        let output = hooks::again(|| self.rule.forward::<B>(self.number, lhs, rhs));
        states.save(out_node, output);
    }
}
