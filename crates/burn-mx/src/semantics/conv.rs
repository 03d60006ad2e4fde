//! Convolutions, as products that sum over channels and window.
//!
//! x [B, C, ..], weight [O, C / groups, ..] (transposed convolution: [C, O / groups, ..]); blocks run along
//! the channels that the product sums over, and along the batch in the weight's gradient.

use burn_backend::tensor::FloatTensor;

use super::Float;
use super::elementwise::Rounder;
use super::product::{Operand, finish, quantize_backward};
use crate::kernels::{MxKernels, to_f32};
use crate::specs::{ResolvedSpecs, Slot};
use crate::tensor::{Flags, Join, MxTensor};

const BATCH: usize = 0;
const CHANNELS: usize = 1;

/// Which way a convolution goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Normal,
    Transposed,
}

impl Direction {
    /// The axis of the weight along which the forward product sums.
    fn weight_input_axis(self) -> usize {
        match self {
            Self::Normal => 1,
            Self::Transposed => 0,
        }
    }

    /// The axis of the weight along which the product for the input's gradient sums.
    fn weight_output_axis(self) -> usize {
        1 - self.weight_input_axis()
    }
}

/// The operands x and weight of the forward product.
fn forward_operands(direction: Direction, specs: &ResolvedSpecs) -> [Operand; 2] {
    let x = Operand {
        axis: CHANNELS,
        slot: Slot::A,
        elementwise: specs.round_output(),
        mx: specs.round_mx_output(),
    };
    let weight = Operand {
        axis: direction.weight_input_axis(),
        slot: Slot::W,
        elementwise: specs.round_weight(),
        mx: specs.round_mx_output(),
    };
    [x, weight]
}

/// The operands weight and output gradient of the product for the input's gradient.
pub(super) fn x_backward_operands(direction: Direction, specs: &ResolvedSpecs) -> [Operand; 2] {
    let weight = Operand {
        axis: direction.weight_output_axis(),
        slot: Slot::WBp,
        elementwise: specs.round_weight(),
        mx: specs.round_mx_weight_grad_input(),
    };
    let grad = Operand {
        axis: CHANNELS,
        slot: Slot::ABpOs,
        elementwise: specs.round_grad_input(),
        mx: specs.round_mx_grad_output_grad_input(),
    };
    [weight, grad]
}

/// The operands x and output gradient of the product for the weight's gradient.
pub(super) fn weight_backward_operands(specs: &ResolvedSpecs) -> [Operand; 2] {
    let x = Operand {
        axis: BATCH,
        slot: Slot::ABp,
        elementwise: specs.round_output(),
        mx: specs.round_mx_input_grad_weight(),
    };
    let grad = Operand {
        axis: BATCH,
        slot: Slot::ABpEx,
        elementwise: specs.round_grad_input(),
        mx: specs.round_mx_grad_output_grad_weight(),
    };
    [x, grad]
}

pub(super) fn join<B: MxKernels>(
    others: [Option<&Float<B>>; 2],
    weight: &Float<B>,
    bias: Option<&Float<B>>,
) -> Join {
    // A convolution's weight is one by its place.
    let as_weight = |tensor: &Float<B>| {
        let mut meta = tensor.meta;
        meta.flags.insert(Flags::WEIGHT);
        meta
    };
    Join::of([
        others[0].map(|tensor| tensor.meta),
        others[1].map(|tensor| tensor.meta),
        Some(as_weight(weight)),
        bias.map(as_weight),
    ])
}

/// The convolution `op(x, weight, bias)`; the bias is part of the product and there is one rounding.
pub(crate) fn forward<B: MxKernels>(
    x: Float<B>,
    weight: Float<B>,
    bias: Option<Float<B>>,
    direction: Direction,
    op: impl FnOnce(FloatTensor<B>, FloatTensor<B>, Option<FloatTensor<B>>) -> FloatTensor<B>,
) -> Float<B> {
    let x = x.into_activation();
    let join = join::<B>([Some(&x), None], &weight, bias.as_ref());
    let Some(interned) = join.quantization() else {
        join.warn_if_unset("conv");
        let product = op(x.inner, weight.inner, bias.map(|bias| bias.inner));
        return MxTensor::new(product, join.result);
    };
    let specs = &interned.specs;
    let [x_operand, weight_operand] = forward_operands(direction, specs);
    let bias = bias.map(|bias| match Rounder::new(interned, specs.round_weight()) {
        Some(rounder) => rounder.operand::<B>(bias),
        None => to_f32::<B>(bias.inner),
    });
    let product = op(
        x_operand.quantize::<B>(x, interned),
        weight_operand.quantize::<B>(weight, interned),
        bias,
    );
    finish::<B>(product, interned, specs.round_output(), join.result)
}

/// The gradient of the input, `op(weight, grad)`, of a convolution in `groups`; `x`, if Burn hands it over, only
/// lends its specs.
pub(crate) fn x_backward<B: MxKernels>(
    x: Option<&Float<B>>,
    weight: Float<B>,
    grad: Float<B>,
    (direction, groups): (Direction, usize),
    op: impl FnOnce(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let join = join::<B>([x, Some(&grad)], &weight, None);
    let Some(interned) = join
        .emulation()
        .filter(|interned| quantize_backward(interned, "conv_x_backward"))
    else {
        return MxTensor::new(op(weight.inner, grad.inner), join.result);
    };
    let specs = &interned.specs;
    let [weight_operand, grad_operand] = x_backward_operands(direction, specs);
    let weight_groups = match direction {
        Direction::Normal => groups,
        // A filter has the output channels of its own group only.
        Direction::Transposed => 1,
    };
    let product = op(
        weight_operand.quantize_groups::<B>(weight, weight_groups, interned),
        grad_operand.quantize_groups::<B>(grad, groups, interned),
    );
    finish::<B>(product, interned, specs.round_grad_input(), join.result)
}

/// The gradient of the weight, `op(x, grad)`; `weight` only lends its specs.
pub(crate) fn weight_backward<B: MxKernels>(
    x: Float<B>,
    weight: &Float<B>,
    grad: Float<B>,
    op: impl FnOnce(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let join = join::<B>([Some(&x), Some(&grad)], weight, None);
    let Some(interned) = join
        .emulation()
        .filter(|interned| quantize_backward(interned, "conv_weight_backward"))
    else {
        return MxTensor::new(op(x.inner, grad.inner), join.result);
    };
    let specs = &interned.specs;
    let [x_operand, grad_operand] = weight_backward_operands(specs);
    let product = op(
        x_operand.quantize::<B>(x, interned),
        grad_operand.quantize::<B>(grad, interned),
    );
    finish::<B>(product, interned, specs.round_grad_weight(), join.result)
}

/// The gradient of the bias, `op(grad)`; `x` and `bias` only lend their specs.
pub(crate) fn bias_backward<B: MxKernels>(
    x: &Float<B>,
    bias: &Float<B>,
    grad: Float<B>,
    op: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let join = join::<B>([Some(x), Some(&grad)], bias, None);
    let Some(interned) = join
        .emulation()
        .filter(|interned| quantize_backward(interned, "conv_bias_backward"))
    else {
        return MxTensor::new(op(grad.inner), join.result);
    };
    let specs = &interned.specs;
    let grad = match Rounder::new(interned, specs.round_grad_input()) {
        Some(rounder) => rounder.operand::<B>(grad),
        None => to_f32::<B>(grad.inner),
    };
    finish::<B>(op(grad), interned, specs.round_grad_weight(), join.result)
}
