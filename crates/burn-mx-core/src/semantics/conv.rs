//! Convolutions, as products that sum over channels and window.
//!
//! x [B, C, ..], weight [O, C / groups, ..] (transposed convolution: [C, O / groups, ..]); blocks run along
//! the channels that the product sums over, and along the batch in the weight's gradient.

pub(crate) mod deform_conv;
mod geometry;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::linear::sum_of_gradient;
use super::product::{Along, Operands, Product, quantize_backward};
use crate::hooks;
use crate::specs::{ProductKind, ProductOp, Slot};
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::{Float, Meta, MxTensor, OpContext, Rule};
use crate::warnings;
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::{ConvolutionProduct, OpRounding, are_float32, same_type};
pub(crate) use geometry::{Direction, Geometry};

pub(super) const BATCH: usize = 0;
pub(super) const CHANNELS: usize = 1;

pub(super) fn context<B: MxKernels>(
    others: [Option<&Float<B>>; 2],
    weight: &Float<B>,
    bias: Option<&Float<B>>,
) -> OpContext {
    // A convolution's place names the weight: a tensor that autodiff saved may have another role in another op.
    let as_weight = |tensor: &Float<B>| tensor.meta.after(Rule::PLACE_OF_WEIGHT);
    let as_activation = |tensor: &Float<B>| tensor.meta.after(Rule::OTHER_PLACE);
    OpContext::of_product([
        others[0].map(as_activation),
        others[1].map(as_activation),
        Some(as_weight(weight)),
        bias.map(as_weight),
    ])
}

/// The convolution `op(x, weight, bias)`; the bias is part of the product and there is one rounding.
pub(crate) fn forward<B: MxKernels>(
    x: Float<B>,
    weight: Float<B>,
    bias: Option<Float<B>>,
    (direction, groups, geometry): (Direction, usize, Option<Geometry>),
    op: impl Fn(FloatTensor<B>, FloatTensor<B>, Option<FloatTensor<B>>) -> FloatTensor<B>,
) -> Float<B> {
    let x = x.into_activation();
    hooks::weight_used(weight.meta);
    let context = context::<B>([Some(&x), None], &weight, bias.as_ref());
    let Some(shared) = context.quantization() else {
        context.warn_if_unset("conv");
        let product = op(x.inner, weight.inner, bias.map(|bias| bias.inner));
        return MxTensor::new(product, context.result);
    };
    let product = Product::<B>::new(
        ProductOp::Convolution,
        ProductKind::Forward,
        shared,
        weight.meta.label,
    )
    .of_weight(weight.meta);
    let bias = bias.map(|bias| product.elementwise_operand(Slot::W, bias));
    let [of_x, of_weight] = direction.forward_operands(groups);
    if geometry.is_none() {
        product.refuse_accumulator();
    }
    let shapes = [x.shape(), weight.shape()];
    let x = product.convolution_operand(of_x.slot, x, of_x.along);
    let weight = product.convolution_operand(of_weight.slot, weight, of_weight.along);
    let accumulated = geometry.as_ref().and_then(|way| {
        let of_shapes = || way.output_product(&shapes[0], &shapes[1]);
        product.convolve(&way.convolution, of_shapes, [&x, &weight])
    });
    let convolve = |x, weight, bits| {
        let way = geometry.as_ref();
        let own = way.and_then(|way| way.output::<B>(&x, &weight, bias.as_ref(), bits));
        own.unwrap_or_else(|| op(x, weight, bias.clone()))
    };
    let bits = significant_bits(&product, [Slot::A, Slot::W]);
    let output = match accumulated {
        Some(output) => with_bias::<B>(output, bias.clone()),
        None => convolve(x.into_values(), weight.into_values(), bits),
    };
    let macs = direction.macs([&shapes[0], &output.shape()], &shapes[1]);
    product.observe_result(&output, macs, convolve);
    product.finish(output, context.result)
}

/// Adds a number to all elements of each channel, in float32.
fn with_bias<B: MxKernels>(output: FloatTensor<B>, bias: Option<FloatTensor<B>>) -> FloatTensor<B> {
    let Some(bias) = bias else { return output };
    let mut shape = vec![1; output.shape().num_dims()];
    shape[CHANNELS] = bias.shape()[0];
    B::float_add(output, B::float_reshape(bias, Shape::from(shape)))
}

/// How many significant bits the quantized values of two slots have at most.
fn significant_bits<B: MxKernels>(product: &Product<B>, slots: [Slot; 2]) -> u32 {
    let bits = slots.map(|slot| product.significant_bits_of_values(slot));
    bits[0].max(bits[1])
}

/// The gradient of the input, `op(weight, grad)`, of a convolution; `x`, if Burn hands it over, only
/// lends its specs, its shape and its mask.
pub(crate) fn x_backward<B: MxKernels>(
    x: Option<&Float<B>>,
    weight: Float<B>,
    grad: Float<B>,
    geometry: Geometry,
    op: impl Fn(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let context = context::<B>([x, Some(&grad)], &weight, None);
    let emulation = context.emulation();
    let Some(shared) = emulation else {
        return MxTensor::new(op(weight.inner, grad.inner), context.result);
    };
    let [of_x, of_weight] = geometry.forward_operands();
    if x.is_none() && shared.specs.mask_clipped() {
        warnings::warn_unmasked();
    }
    if !quantize_backward(shared, "conv_x_backward") {
        let product = in_float32::<B>(ProductKind::InputGradient, shared);
        let weight = product.float_operand(product.saved(of_weight, weight));
        let grad = product.float_operand(grad);
        let own = are_float32::<B>([&weight, &grad]).then(|| {
            let x = x.map(|x| x.shape());
            geometry.input_gradient::<B>(x, &weight, &grad, f32::MANTISSA_DIGITS)
        });
        let gradient = own.flatten().unwrap_or_else(|| op(weight, grad));
        return product.finish_float(of_x, x.cloned(), gradient, context.result);
    }
    let product = input_gradient::<B>(shared, weight.meta);
    let weight = product.saved(of_weight, weight);
    let groups = geometry.convolution.groups;
    let weight_groups = match geometry.direction {
        Direction::Normal => groups,
        // A filter has the output channels of one group only.
        Direction::Transposed => 1,
    };
    let axis = geometry.direction.weight_output_axis();
    let shapes = [weight.shape(), grad.shape()];
    let weight = product.convolution_operand(Slot::WBp, weight, Along::axis(axis, weight_groups));
    let grad = product.convolution_operand(Slot::ABpOs, grad, Along::axis(CHANNELS, groups));
    let x_shape = x.map(|x| x.shape());
    let of_shapes = || {
        let x = x_shape.as_ref().map(|x| x.as_slice());
        geometry.input_gradient_product(x, &shapes[0], &shapes[1])
    };
    let accumulated = product.convolve(&geometry.convolution, of_shapes, [&grad, &weight]);
    let convolve = |weight, grad, bits| {
        let own = geometry.input_gradient::<B>(x_shape.clone(), &weight, &grad, bits);
        own.unwrap_or_else(|| op(weight, grad))
    };
    let bits = significant_bits(&product, [Slot::WBp, Slot::ABpOs]);
    let gradient =
        accumulated.unwrap_or_else(|| convolve(weight.into_values(), grad.into_values(), bits));
    let gradient = product.without_margins(gradient);
    let macs = geometry
        .direction
        .macs([&gradient.shape(), &shapes[1]], &shapes[0]);
    product.observe_result(&gradient, macs, convolve);
    let gradient = product.straight_through(of_x, x.cloned(), gradient);
    product.finish(gradient, context.result)
}

/// The product of a layer in a backward pass that is not quantized.
pub(super) fn in_float32<B: MxKernels>(
    kind: ProductKind,
    shared: &'static SharedSpecs,
) -> Product<B> {
    Product::in_float32(ProductOp::Convolution, kind, shared, Operands::WithWeight)
}

/// The product for the gradient of the input of a layer whose weight has this meta.
pub(super) fn input_gradient<B: MxKernels>(
    shared: &'static SharedSpecs,
    weight: Meta,
) -> Product<B> {
    Product::<B>::new(
        ProductOp::Convolution,
        ProductKind::InputGradient,
        shared,
        weight.label,
    )
}

/// The product for the gradient of a weight with this meta.
pub(super) fn weight_gradient<B: MxKernels>(
    shared: &'static SharedSpecs,
    weight: Meta,
) -> Product<B> {
    Product::new(
        ProductOp::Convolution,
        ProductKind::WeightGradient,
        shared,
        weight.label,
    )
}

/// The gradient of the weight, `op(x, grad)`; `weight` only lends its specs, its shape and its mask.
pub(crate) fn weight_backward<B: MxKernels>(
    x: Float<B>,
    weight: &Float<B>,
    grad: Float<B>,
    geometry: Geometry,
    op: impl Fn(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let context = context::<B>([Some(&x), Some(&grad)], weight, None);
    let emulation = context.emulation();
    let Some(shared) = emulation else {
        return MxTensor::new(op(x.inner, grad.inner), context.result);
    };
    let [of_x, of_weight] = geometry.forward_operands();
    if !quantize_backward(shared, "conv_weight_backward") {
        let product = in_float32::<B>(ProductKind::WeightGradient, shared);
        let x = product.float_operand(product.saved(of_x, x));
        let grad = product.float_operand(grad);
        let own = are_float32::<B>([&x, &grad]).then(|| {
            geometry.weight_gradient::<B>(&x, weight.shape(), &grad, f32::MANTISSA_DIGITS)
        });
        let gradient = own.flatten().unwrap_or_else(|| op(x, grad));
        return product.finish_float(of_weight, Some(weight.clone()), gradient, context.result);
    }
    let product = weight_gradient::<B>(shared, weight.meta);
    let shapes = [x.shape(), grad.shape()];
    let x = product.saved(of_x, x);
    let x = product.convolution_operand(Slot::ABp, x, Along::axis(BATCH, 1));
    let grad = product.convolution_operand(Slot::ABpEx, grad, Along::axis(BATCH, 1));
    let accumulated = product.convolve(
        &geometry.convolution,
        || Some(ConvolutionProduct::WeightGradient(weight.shape().to_vec())),
        geometry.of_weight_gradient(&x, &grad),
    );
    let convolve = |x, grad, bits| {
        let own = geometry.weight_gradient::<B>(&x, weight.shape(), &grad, bits);
        let own = own.or_else(|| {
            let weight = same_type::<B>(weight.inner.clone(), &grad);
            geometry.weight_gradient_in_a_plane::<B>(&x, &weight, &grad)
        });
        own.unwrap_or_else(|| op(x, grad))
    };
    let bits = significant_bits(&product, [Slot::ABp, Slot::ABpEx]);
    let gradient =
        accumulated.unwrap_or_else(|| convolve(x.into_values(), grad.into_values(), bits));
    let gradient = product.without_margins(gradient);
    let macs = geometry.direction.macs(shapes.each_ref(), &weight.shape());
    product.observe_result(&gradient, macs, convolve);
    let gradient = product.straight_through(of_weight, Some(weight.clone()), gradient);
    product.finish(gradient, context.result)
}

/// The gradient of the bias, `op(grad)`; `x` and `bias` only lend their specs.
pub(crate) fn bias_backward<B: MxKernels>(
    x: &Float<B>,
    bias: &Float<B>,
    grad: Float<B>,
    op: impl Fn(FloatTensor<B>) -> FloatTensor<B>,
) -> Float<B> {
    let context = context::<B>([Some(x), Some(&grad)], bias, None);
    match context.emulation() {
        Some(shared) => {
            quantize_backward(shared, "conv_bias_backward");
            let rounded = |grad, rounding: OpRounding| rounding.round::<B>(op(grad));
            sum_of_gradient::<B>(grad, shared, context.result, &op, rounded)
        }
        None => MxTensor::new(op(grad.inner), context.result),
    }
}
