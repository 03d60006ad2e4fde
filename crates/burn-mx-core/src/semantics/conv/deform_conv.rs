//! Deformable convolution: a product that sums over channels and window, of values that are first read between the
//! pixels of x and weighed by a mask.
//!
//! x [B, C, H, W], weight [O, C / groups, ..], offset and mask [B, .., H', W']. Burn hands the op over whole, so x
//! itself is quantized, not the values read at the offsets. With no offset and a mask of ones the op is the convolution
//! of the same operands. The offset holds positions, which are not rounded; the mask is an elementwise operand.

use burn_backend::TensorMetadata;
use burn_backend::ops::DeformConvOptions;
use burn_backend::tensor::FloatTensor;

use super::{BATCH, CHANNELS, Direction};
use crate::semantics::conv;
use crate::semantics::elementwise::Rounder;
use crate::semantics::product::{Along, Product, quantize_backward};
use crate::semantics::stored;
use crate::specs::{ProductKind, Slot};
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::{Float, Meta, MxTensor, OpContext};
use burn_mx_kernels::internal::same_type;
use burn_mx_kernels::{MxKernels, to_f32};

/// The inputs of a deformable convolution, or their gradients.
pub(crate) struct Inputs<B: MxKernels> {
    pub(crate) x: Float<B>,
    pub(crate) offset: Float<B>,
    pub(crate) weight: Float<B>,
    pub(crate) mask: Option<Float<B>>,
    pub(crate) bias: Option<Float<B>>,
}

impl<B: MxKernels> Inputs<B> {
    fn context(&self, grad: Option<&Float<B>>) -> OpContext {
        conv::context::<B>([Some(&self.x), grad], &self.weight, self.bias.as_ref())
    }
}

/// The convolution; the bias is part of the product and there is one rounding.
pub(crate) fn forward<B: MxKernels>(
    mut inputs: Inputs<B>,
    options: DeformConvOptions<2>,
) -> Float<B> {
    inputs.x = inputs.x.into_activation();
    let of_mask = inputs.mask.as_ref().map(|mask| mask.meta);
    inputs.x.meta = (inputs.x.meta).in_piece_of([Some(inputs.offset.meta), of_mask]);
    let shared = inputs.context(None).quantization();
    let Inputs {
        x,
        offset,
        weight,
        mask,
        bias,
    } = inputs;
    let mask = mask.map(|mask| match shared {
        Some(shared) => as_activation::<B>(mask, shared),
        None => mask.inner,
    });
    conv::forward::<B>(
        x,
        weight,
        bias,
        (Direction::Normal, options.weight_groups, None),
        |x, weight, bias| {
            let offset = same_type::<B>(offset.inner.clone(), &x);
            B::deform_conv2d(x, offset, weight, mask.clone(), bias, options.clone())
        },
    )
}

/// The tensor rounded as an activation is.
fn as_activation<B: MxKernels>(tensor: Float<B>, shared: &'static SharedSpecs) -> FloatTensor<B> {
    match Rounder::new(shared, shared.specs.round_output()) {
        Some(rounder) => rounder.operand::<B>(tensor, &shared.draws()),
        None => to_f32::<B>(tensor.inner),
    }
}

/// The gradients of all inputs.
pub(crate) fn backward<B: MxKernels>(
    inputs: Inputs<B>,
    grad: Float<B>,
    options: DeformConvOptions<2>,
) -> Inputs<B> {
    let context = inputs.context(Some(&grad));
    let emulation = context.emulation();
    let shared = emulation.filter(|shared| quantize_backward(shared, "deform_conv2d_backward"));
    if let (Some(emulation), None) = (emulation, shared) {
        let product = conv::in_float32::<B>(ProductKind::InputGradient, emulation);
        if product.has_straight_through() {
            return straight_through::<B>(&product, inputs, grad, options, context.result);
        }
    }
    match shared {
        Some(shared) => quantized(shared, inputs, grad, options, context.result),
        None => unquantized(inputs, grad, options, context.result),
    }
}

/// The gradients of all inputs without emulation.
fn unquantized<B: MxKernels>(
    inputs: Inputs<B>,
    grad: Float<B>,
    options: DeformConvOptions<2>,
    meta: Meta,
) -> Inputs<B> {
    let grads = B::deform_conv2d_backward(
        inputs.x.inner,
        inputs.offset.inner,
        inputs.weight.inner,
        inputs.mask.map(|mask| mask.inner),
        inputs.bias.map(|bias| bias.inner),
        grad.inner,
        options,
    );
    let wrap = |inner| MxTensor::new(inner, meta);
    Inputs {
        x: wrap(grads.x_grad),
        offset: wrap(grads.offset_grad),
        weight: wrap(grads.weight_grad),
        mask: grads.mask_grad.map(wrap),
        bias: grads.bias_grad.map(wrap),
    }
}

/// The gradients of all inputs in a quantized backward pass.
///
/// The gradients of x, offset and mask come from the product of weight and output gradient, along O. The weight's gradient is a product of
/// other operands, along B. Burn's op computes all gradients at once, so it is called once for each kind.
fn quantized<B: MxKernels>(
    shared: &'static SharedSpecs,
    inputs: Inputs<B>,
    grad: Float<B>,
    options: DeformConvOptions<2>,
    meta: Meta,
) -> Inputs<B> {
    let Inputs { x, weight, .. } = inputs;
    let bias = inputs.bias.map(|bias| {
        conv::bias_backward::<B>(&x, &bias, grad.clone(), |grad| {
            let like = |tensor: &Float<B>| same_type::<B>(tensor.inner.clone(), &grad);
            B::conv2d_bias_backward(like(&x), like(&bias), grad)
        })
    });
    let backward = Backward::<B> {
        shared,
        macs: Direction::Normal.macs([&x.shape(), &grad.shape()], &weight.shape()),
        offset: to_f32::<B>(inputs.offset.inner),
        mask: (inputs.mask).map(|mask| as_activation::<B>(mask, shared)),
        x,
        weight,
        grad,
        options,
        meta,
    };
    let (x, offset, mask) = backward.input_gradients();
    Inputs {
        x,
        offset,
        weight: backward.weight_gradient(),
        mask,
        bias,
    }
}

/// The operands of a quantized backward pass.
struct Backward<B: MxKernels> {
    shared: &'static SharedSpecs,
    x: Float<B>,
    weight: Float<B>,
    grad: Float<B>,
    /// In float32.
    offset: FloatTensor<B>,
    /// Rounded as an activation is.
    mask: Option<FloatTensor<B>>,
    options: DeformConvOptions<2>,
    /// Multiply-accumulates of each product.
    macs: usize,
    /// For the gradients.
    meta: Meta,
}

impl<B: MxKernels> Backward<B> {
    /// The gradients of x, offset and mask.
    ///
    /// The gradients of offset and mask multiply the product elementwise by the values that were read. For this multiplication x is
    /// rounded but not quantized, unless gradients read the operands of the forward product.
    fn input_gradients(&self) -> (Float<B>, Float<B>, Option<Float<B>>) {
        let (x, weight, options) = (&self.x, &self.weight, &self.options);
        let groups = options.weight_groups;
        let product = conv::input_gradient::<B>(self.shared, weight.meta);
        let axis = Direction::Normal.weight_output_axis();
        let [of_x, of_weight] = Direction::Normal.forward_operands(groups);
        let read = product.elementwise_operand(Slot::A, product.saved(of_x, x.clone()));
        let saved = product.saved(of_weight, weight.clone());
        let gradients = |weight, grad| {
            let (x, offset, mask) = (read.clone(), self.offset.clone(), self.mask.clone());
            B::deform_conv2d_backward(x, offset, weight, mask, None, grad, options.clone())
        };
        let of_inputs = gradients(
            product.tensor_operand(Slot::WBp, saved, Along::axis(axis, groups)),
            product.tensor_operand(
                Slot::ABpOs,
                self.grad.clone(),
                Along::axis(CHANNELS, groups),
            ),
        );
        let x_grad = product.without_margins(of_inputs.x_grad);
        // The gradients of offset and mask come from the same product, so x's gradient stands for all.
        product.observe_result(&x_grad, self.macs, |weight, grad, _| {
            gradients(weight, grad).x_grad
        });
        let x_grad = product.straight_through(of_x, Some(x.clone()), x_grad);
        let x_grad = product.finish(x_grad, self.meta);
        let of_input = |gradient| product.finish(product.without_margins(gradient), self.meta);
        let offset_grad = of_input(of_inputs.offset_grad);
        (x_grad, offset_grad, of_inputs.mask_grad.map(of_input))
    }

    fn weight_gradient(self) -> Float<B> {
        let (x, weight, options) = (self.x, self.weight, self.options);
        // Every image is read at its own positions, so no two images may be transformed together.
        let of_batch = Along::axis(BATCH, x.shape()[0]);
        let product = conv::weight_gradient::<B>(self.shared, weight.meta);
        let [of_x, of_weight] = Direction::Normal.forward_operands(options.weight_groups);
        let like = to_f32::<B>(weight.inner.clone());
        let gradient = |x, grad| {
            let (offset, weight, mask) = (self.offset.clone(), like.clone(), self.mask.clone());
            B::deform_conv2d_backward(x, offset, weight, mask, None, grad, options.clone())
                .weight_grad
        };
        let weight_grad = gradient(
            product.tensor_operand(Slot::ABp, product.saved(of_x, x), of_batch),
            product.tensor_operand(Slot::ABpEx, self.grad, of_batch),
        );
        let weight_grad = product.without_margins(weight_grad);
        product.observe_result(&weight_grad, self.macs, |x, grad, _| gradient(x, grad));
        let weight_grad = product.straight_through(of_weight, Some(weight), weight_grad);
        product.finish(weight_grad, self.meta)
    }
}

/// The gradients of all inputs in a backward pass that is not quantized, where the forward product's quantization plays a part.
fn straight_through<B: MxKernels>(
    product: &Product<B>,
    inputs: Inputs<B>,
    grad: Float<B>,
    options: DeformConvOptions<2>,
    meta: Meta,
) -> Inputs<B> {
    let [of_x, of_weight] = Direction::Normal.forward_operands(options.weight_groups);
    let Inputs { x, weight, .. } = inputs;
    let grads = B::deform_conv2d_backward(
        product.float_operand(product.saved(of_x, x.clone())),
        to_f32::<B>(inputs.offset.inner),
        product.float_operand(product.saved(of_weight, weight.clone())),
        inputs.mask.map(|mask| to_f32::<B>(mask.inner)),
        inputs.bias.map(|bias| to_f32::<B>(bias.inner)),
        product.float_operand(grad),
        options,
    );
    let stored = |gradient| stored::<B>(gradient, meta);
    Inputs {
        x: product.finish_float(of_x, Some(x), grads.x_grad, meta),
        offset: stored(grads.offset_grad),
        weight: product.finish_float(of_weight, Some(weight), grads.weight_grad, meta),
        mask: grads.mask_grad.map(stored),
        bias: grads.bias_grad.map(stored),
    }
}
