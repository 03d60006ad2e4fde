//! The matrix product.

use core::cell::OnceCell;

use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind, binary};
use burn_backend::{Shape, TensorMetadata};

use super::Tracked;
use super::boundary::gradient_of;
use super::saved::Saved;
use crate::backend::MxBackend;
use crate::hooks;
use crate::semantics::elementwise;
use crate::semantics::matmul::{self, Side};
use crate::specs::ProductOp;
use crate::tensor::random_streams::OpNumber;
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::{Float, Meta};
use burn_mx_kernels::MxKernels;

#[derive(Debug)]
struct Matmul;

#[derive(Clone, Debug)]
struct MatmulState<B: MxKernels> {
    shared: &'static SharedSpecs,
    /// By which the operands are drawn where their elementwise rounding is random: the same in all products.
    numbers: [OpNumber; 2],
    /// Saved if the other operand's gradient is wanted, or its own is and has a mask.
    saved: [Option<Saved<B>>; 2],
    shapes: [Shape; 2],
    metas: [Meta; 2],
}

/// An operand as all products of the op take it.
fn drawn<B: MxKernels>(
    number: OpNumber,
    operand: Float<B>,
    shared: &'static SharedSpecs,
) -> Float<B> {
    let rounding = match operand.meta.is_weight() {
        true => shared.specs.round_weight(),
        false => shared.specs.round_output(),
    };
    elementwise::drawn::<B>(number, operand, rounding, shared)
}

/// `lhs · rhs`, emulated by `shared`.
pub(crate) fn forward<B: MxKernels, C: CheckpointStrategy>(
    mut lhs: Tracked<B>,
    mut rhs: Tracked<B>,
    shared: &'static SharedSpecs,
) -> Tracked<B> {
    let label = matmul::label_of([lhs.primitive.meta, rhs.primitive.meta]);
    let label = hooks::name_product(ProductOp::Matmul, label);
    lhs.primitive.meta.label = label;
    rhs.primitive.meta.label = label;
    let numbers = [shared.draws().op(), shared.draws().op()];
    // From the values alone. The operands are held until the op is recorded: burn-autodiff may otherwise forget their origin.
    let product = |lhs: Float<B>, rhs: Float<B>| {
        let lhs = drawn::<B>(numbers[0], lhs, shared);
        let rhs = drawn::<B>(numbers[1], rhs, shared);
        hooks::tracked(|| matmul::forward::<B>(lhs, rhs))
    };
    match Backward::<MxBackend<B>, 2>::prepare::<C>(Matmul, [lhs.node.clone(), rhs.node.clone()])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(mut prep) => {
            let masks = shared.specs.mask_clipped();
            let [of_lhs, of_rhs] = [lhs.is_tracked(), rhs.is_tracked()];
            let saves_lhs = of_rhs || masks && of_lhs;
            let saves_rhs = of_lhs || masks && of_rhs;
            let mut save = |operand: &Tracked<B>| {
                prep.checkpoint(operand);
                Saved::new(operand)
            };
            let state = MatmulState {
                shared,
                numbers,
                saved: [saves_lhs.then(|| save(&lhs)), saves_rhs.then(|| save(&rhs))],
                shapes: [lhs.primitive.shape(), rhs.primitive.shape()],
                metas: [lhs.primitive.meta, rhs.primitive.meta],
            };
            prep.finish(state, product(lhs.primitive, rhs.primitive))
        }
        OpsKind::UnTracked(prep) => prep.finish(product(lhs.primitive, rhs.primitive)),
    }
}

impl<B: MxKernels> Backward<MxBackend<B>, 2> for Matmul {
    type State = MatmulState<B>;

    fn backward(
        self,
        ops: Ops<MatmulState<B>, 2>,
        grads: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let MatmulState {
            shared,
            numbers,
            saved,
            shapes: [lhs_shape, rhs_shape],
            metas: [lhs_meta, rhs_meta],
        } = ops.state;
        let [lhs, rhs] = saved.map(|saved| Some(saved?.retrieve(checkpointer)));
        let quantized = shared.specs.quantize_backprop();
        let reads_rounded = shared.specs.gradients_read_rounded();
        let operand = |number, operand: Float<B>| match reads_rounded {
            true => drawn::<B>(number, operand, shared),
            false => operand,
        };
        let number = shared.draws().op();
        let is_for_both = ops.parents.iter().all(Option::is_some);
        let for_both = OnceCell::new();
        let gradient = |grad: Float<B>| {
            if !quantized {
                return grad;
            }
            let rounding = shared.specs.round_grad_input();
            let mut grad = elementwise::drawn::<B>(number, grad, rounding, shared);
            if is_for_both {
                let make = || matmul::read_once::<B>(&grad, [lhs_meta, rhs_meta], shared);
                grad.kept = for_both.get_or_init(make).clone();
            }
            grad
        };
        // A mask compares what the forward product read.
        let masks = shared.specs.mask_clipped();
        let mask = |number, saved: &Option<Float<B>>| {
            let saved = saved.clone().filter(|_| masks);
            saved.map(|saved| drawn::<B>(number, saved, shared))
        };
        let (lhs_mask, rhs_mask) = (mask(numbers[0], &lhs), mask(numbers[1], &rhs));
        let wanted = "an operand is saved if the other's gradient is wanted";
        binary::<MxBackend<B>, _, _>(
            ops.parents,
            ops.node,
            grads,
            |grad| {
                let (rhs, grad) = (operand(numbers[1], rhs.expect(wanted)), gradient(grad));
                let shape = &lhs_shape;
                let da =
                    matmul::backward::<B>(Side::Lhs, rhs, lhs_mask, grad, shape, shared, lhs_meta);
                gradient_of::<B>(lhs_meta, da)
            },
            |grad| {
                let (lhs, grad) = (operand(numbers[0], lhs.expect(wanted)), gradient(grad));
                let shape = &rhs_shape;
                let db =
                    matmul::backward::<B>(Side::Rhs, lhs, rhs_mask, grad, shape, shared, rhs_meta);
                gradient_of::<B>(rhs_meta, db)
            },
        );
    }
}
