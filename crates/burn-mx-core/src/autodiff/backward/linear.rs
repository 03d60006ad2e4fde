//! The linear layer.

use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::ops::ModuleOps;

use super::boundary::gradient_of;
use super::saved::Saved;
use super::{Tracked, named};
use crate::backend::MxBackend;
use crate::hooks::{self, LayerOp};
use crate::semantics::elementwise;
use crate::semantics::linear::{self, LayerColumns};
use crate::specs::ProductOp;
use crate::tensor::frozen_weight::FrozenWeight;
use crate::tensor::random_streams::OpNumber;
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::{Float, Meta};
use burn_mx_kernels::MxKernels;

#[derive(Debug)]
struct Linear<const N: usize>;

/// The state for the backward pass: the layer's specs, the saved inputs of its products, and the metas of their
/// gradients.
#[derive(Clone, Debug)]
struct LinearState<B: MxKernels> {
    shared: &'static SharedSpecs,
    x: Option<Saved<B>>,
    weight: Option<Saved<B>>,
    operands: OperandNumbers,
    x_meta: Meta,
    weight_meta: Meta,
    bias_meta: Option<Meta>,
    /// The ranks of the input's columns in the forward product.
    columns: Option<LayerColumns>,
}

/// The numbers by which x and the weight are drawn where their elementwise rounding is random: the same in all products.
#[derive(Clone, Copy, Debug)]
struct OperandNumbers {
    shared: &'static SharedSpecs,
    x: OpNumber,
    weight: OpNumber,
}

impl OperandNumbers {
    fn new(shared: &'static SharedSpecs) -> Self {
        Self {
            shared,
            x: shared.draws().op(),
            weight: shared.draws().op(),
        }
    }

    fn x<B: MxKernels>(&self, x: Float<B>) -> Float<B> {
        let rounding = self.shared.specs.round_output();
        elementwise::drawn::<B>(self.x, x, rounding, self.shared)
    }

    fn weight<B: MxKernels>(&self, weight: Float<B>) -> Float<B> {
        let rounding = self.shared.specs.round_weight();
        elementwise::drawn::<B>(self.weight, weight, rounding, self.shared)
    }
}

/// `x · w + b`, emulated by `shared`. The backward pass unpacks a packed weight again.
pub(crate) fn forward<B: MxKernels, C: CheckpointStrategy>(
    x: Tracked<B>,
    weight: Tracked<B>,
    bias: Option<Tracked<B>>,
    packed: Option<FrozenWeight>,
    shared: &'static SharedSpecs,
) -> Tracked<B> {
    let weight = named::<B>(ProductOp::Linear, weight);
    let operands = OperandNumbers::new(shared);
    let columns = hooks::tracked(|| LayerColumns::of::<B>(shared, &x.primitive, &weight.primitive));
    // From the values alone. The operands are held until the op is recorded: burn-autodiff may otherwise forget their origin.
    let product = |x: Float<B>, weight: Float<B>, bias| {
        let x = operands.x::<B>(x);
        let weight = operands.weight::<B>(weight);
        let forward = |x, weight, bias| {
            linear::forward_in_columns::<B>(x, weight, bias, |_, _, _| columns.clone())
        };
        hooks::tracked(|| hooks::layer::<B>(|| LayerOp::Linear, x, weight, bias, forward))
    };
    let state = LinearState::<B> {
        shared,
        operands,
        x: None,
        weight: None,
        x_meta: x.primitive.meta,
        weight_meta: weight.primitive.meta,
        bias_meta: bias.as_ref().map(|bias| bias.primitive.meta),
        columns: columns.clone(),
    };
    // burn-autodiff fixes the number of parents at compile time.
    macro_rules! prepare {
        ($nodes:expr, $bias:expr) => {
            match Backward::<MxBackend<B>, _>::prepare::<C>(Linear, $nodes)
                .compute_bound()
                .stateful()
            {
                OpsKind::Tracked(mut prep) => {
                    let masks = shared.specs.mask_clipped();
                    let [of_x, of_weight] = [x.is_tracked(), weight.is_tracked()];
                    let saves_x = of_weight || masks && of_x;
                    let saves_weight = of_x || masks && of_weight;
                    let mut save = |operand: &Tracked<B>| {
                        prep.checkpoint(operand);
                        Saved::new(operand)
                    };
                    let state = LinearState {
                        x: saves_x.then(|| save(&x)),
                        weight: saves_weight.then(|| match packed {
                            Some(packed) => Saved::packed(&weight, packed),
                            None => save(&weight),
                        }),
                        ..state
                    };
                    prep.finish(state, product(x.primitive, weight.primitive, $bias))
                }
                OpsKind::UnTracked(prep) => {
                    prep.finish(product(x.primitive, weight.primitive, $bias))
                }
            }
        };
    }
    match bias {
        Some(bias) => prepare!(
            [x.node.clone(), weight.node.clone(), bias.node.clone()],
            Some(bias.primitive)
        ),
        None => prepare!([x.node.clone(), weight.node.clone()], None),
    }
}

impl<B: MxKernels, const N: usize> Backward<MxBackend<B>, N> for Linear<N> {
    type State = LinearState<B>;

    fn backward(
        self,
        ops: Ops<LinearState<B>, N>,
        grads: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let LinearState {
            shared,
            x,
            weight,
            operands,
            x_meta,
            weight_meta,
            bias_meta,
            columns,
        } = ops.state;
        let columns = &columns;
        let mut grad = grads.consume::<MxBackend<B>>(&ops.node);
        let mut x = x.map(|saved| saved.retrieve(checkpointer));
        let mut weight = weight.map(|saved| saved.retrieve(checkpointer));
        // A mask compares what the forward product read.
        let masks = shared.specs.mask_clipped();
        let mask_of_x = x.clone().filter(|_| masks).map(|x| operands.x::<B>(x));
        let mask_of_weight = weight.clone().filter(|_| masks);
        let mask_of_weight = mask_of_weight.map(|weight| operands.weight::<B>(weight));
        if shared.specs.gradients_read_rounded() {
            x = x.map(|x| operands.x::<B>(x));
            weight = weight.map(|weight| operands.weight::<B>(weight));
        }
        if shared.specs.quantize_backprop() {
            let rounding = shared.specs.round_grad_input();
            grad = elementwise::drawn::<B>(shared.draws().op(), grad, rounding, shared);
        }
        let [x_node, weight_node, bias_node] =
            core::array::from_fn(|parent| ops.parents.get(parent).cloned().flatten());
        if shared.specs.quantize_backprop() && x_node.is_some() && weight_node.is_some() {
            grad.kept = linear::read_once::<B>(&grad, shared);
        }

        // The last one to use the gradient may quantize it where it lies.
        if let (Some(node), Some(meta)) = (bias_node, bias_meta) {
            let db = linear::bias_backward::<B>(grad.clone(), shared, weight_meta);
            grads.register::<MxBackend<B>>(node.id, gradient_of::<B>(meta, db));
        }
        if let (Some(node), Some(x)) = (weight_node, x) {
            let mask = mask_of_weight;
            let dw =
                linear::weight_backward::<B>(x, mask, grad.clone(), shared, weight_meta, columns);
            grads.register::<MxBackend<B>>(node.id, gradient_of::<B>(weight_meta, dw));
        }
        if let (Some(node), Some(weight)) = (x_node, weight) {
            let dx = linear::x_backward::<B>(mask_of_x, weight, grad, shared, x_meta, columns);
            grads.register::<MxBackend<B>>(node.id, gradient_of::<B>(x_meta, dx));
        }
    }
}

/// `x · w + b` of a packed weight that is not emulated. burn-autodiff's step would save the values.
#[derive(Debug)]
struct PackedLinear;

/// As burn-autodiff's `linear`; the backward pass unpacks the weight again.
pub(crate) fn packed<B: MxKernels, C: CheckpointStrategy>(
    x: Tracked<B>,
    weight: Tracked<B>,
    bias: Option<Tracked<B>>,
    packed: FrozenWeight,
) -> Tracked<B> {
    let saved = Saved::packed(&weight, packed);
    // The frozen weight takes the place of a missing bias.
    let parent = bias.as_ref().unwrap_or(&weight).node.clone();
    let bias = bias.map(|bias| bias.primitive);
    let output = MxBackend::<B>::linear(x.primitive, weight.primitive, bias);
    match Backward::<MxBackend<B>, 2>::prepare::<C>(PackedLinear, [x.node, parent])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => prep.finish(saved, output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}

impl<B: MxKernels> Backward<MxBackend<B>, 2> for PackedLinear {
    type State = Saved<B>;

    fn backward(
        self,
        ops: Ops<Saved<B>, 2>,
        grads: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let [x, bias] = ops.parents;
        let grad = grads.consume::<MxBackend<B>>(&ops.node);
        if let Some(node) = bias {
            let db = MxBackend::<B>::linear_bias_backward(grad.clone());
            grads.register::<MxBackend<B>>(node.id, db);
        }
        if let Some(node) = x {
            let weight = ops.state.retrieve(checkpointer);
            let dx = MxBackend::<B>::linear_x_backward(weight, grad);
            grads.register::<MxBackend<B>>(node.id, dx);
        }
    }
}
