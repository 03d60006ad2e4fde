//! Module ops: products, norms, attention, pools.

mod convolutions;

use burn_backend::ops::ctc::ctc_loss_default;
use burn_backend::ops::{
    AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConv2dBackward,
    DeformConvOptions, InterpolateOptions, MaxPool1dBackward, MaxPool1dWithIndices,
    MaxPool2dBackward, MaxPool2dWithIndices, ModuleOps, UnfoldOptions,
};
use burn_backend::tensor::{BoolTensor, FloatTensor, IntTensor};

use crate::backend::MxBackend;
use crate::backend::delegate::tables::{
    averaging_gradient_ops, averaging_ops, indexed_pool_ops, max_pool_ops,
};
use crate::backend::delegate::{Unwrap, delegate};
use crate::hooks::{self, LayerOp};
use crate::semantics::attention::formatted::Attention;
use crate::semantics::conv::{self, Geometry, deform_conv};
use crate::semantics::product::quantize_backward;
use crate::semantics::{activation, attention, elementwise, linear, norm};
use crate::tensor::{Meta, MxTensor, OpContext};
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::{Norm, same_type};
use convolutions::{convolutions, transposed_x_gradients, x_gradients};

/// Ops that compute new values of their first tensor: round, compute by `B`, round.
macro_rules! unary {
    ($(fn $name:ident($tensor:ident: FloatTensor<Self> $(, $arg:ident: $ty:ty)* $(,)?) -> FloatTensor<Self>;)*) => { $(
        fn $name($tensor: FloatTensor<Self> $(, $arg: $ty)*) -> FloatTensor<Self> {
            elementwise::unary::<B>(stringify!($name), None, $tensor, |tensor| B::$name(tensor $(, Unwrap::unwrap($arg))*))
        }
    )* };
}

/// Gradients of ops that read `x` only for its shape: round the gradient, compute by `B`, round.
macro_rules! backward {
    ($(fn $name:ident($x:ident: FloatTensor<Self>, $grad:ident: FloatTensor<Self> $(, $arg:ident: $ty:ty)* $(,)?) -> FloatTensor<Self>;)*) => { $(
        fn $name($x: FloatTensor<Self>, $grad: FloatTensor<Self> $(, $arg: $ty)*) -> FloatTensor<Self> {
            elementwise::unary::<B>(stringify!($name), None, $grad, |grad| {
                B::$name(same_type::<B>($x.inner, &grad), grad $(, Unwrap::unwrap($arg))*)
            })
        }
    )* };
}

impl<B: MxKernels> ModuleOps<Self> for MxBackend<B> {
    // Emulated

    fn linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        hooks::layer::<B>(|| LayerOp::Linear, x, weight, bias, linear::forward::<B>)
    }

    fn linear_x_backward(
        weight: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let context = OpContext::of_product([Some(weight.meta), Some(output_grad.meta)]);
        match context.emulation() {
            Some(shared) => {
                quantize_backward(shared, "linear_x_backward");
                linear::x_backward::<B>(None, weight, output_grad, shared, context.result, &None)
            }
            None => MxTensor::new(
                B::linear_x_backward(weight.inner, output_grad.inner),
                context.result,
            ),
        }
    }

    fn linear_weight_backward(
        x: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let context = OpContext::of_product([Some(x.meta), Some(output_grad.meta)]);
        match context.emulation() {
            Some(shared) => {
                quantize_backward(shared, "linear_weight_backward");
                linear::weight_backward::<B>(x, None, output_grad, shared, context.result, &None)
            }
            None => MxTensor::new(
                B::linear_weight_backward(x.inner, output_grad.inner),
                context.result,
            ),
        }
    }

    fn linear_bias_backward(output_grad: FloatTensor<Self>) -> FloatTensor<Self> {
        let context = OpContext::of_product([Some(output_grad.meta)]);
        match context.emulation() {
            Some(shared) => {
                quantize_backward(shared, "linear_bias_backward");
                linear::bias_backward::<B>(output_grad, shared, context.result)
            }
            None => MxTensor::new(B::linear_bias_backward(output_grad.inner), context.result),
        }
    }

    convolutions! {
        ConvOptions<1>: conv1d conv1d_weight_backward conv1d_bias_backward
        ConvOptions<2>: conv2d conv2d_weight_backward conv2d_bias_backward
        ConvOptions<3>: conv3d conv3d_weight_backward conv3d_bias_backward
    }

    x_gradients! {
        ConvOptions<1>: conv1d_x_backward
        ConvOptions<2>: conv2d_x_backward
        ConvOptions<3>: conv3d_x_backward
    }

    convolutions! {
        ConvTransposeOptions<1>: conv_transpose1d conv_transpose1d_weight_backward conv_transpose1d_bias_backward
        ConvTransposeOptions<2>: conv_transpose2d conv_transpose2d_weight_backward conv_transpose2d_bias_backward
        ConvTransposeOptions<3>: conv_transpose3d conv_transpose3d_weight_backward conv_transpose3d_bias_backward
    }

    transposed_x_gradients! {
        ConvTransposeOptions<1>: conv_transpose1d_x_backward
        ConvTransposeOptions<2>: conv_transpose2d_x_backward
        ConvTransposeOptions<3>: conv_transpose3d_x_backward
    }

    fn deform_conv2d(
        x: FloatTensor<Self>,
        offset: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        mask: Option<FloatTensor<Self>>,
        bias: Option<FloatTensor<Self>>,
        options: DeformConvOptions<2>,
    ) -> FloatTensor<Self> {
        let inputs = deform_conv::Inputs {
            x,
            offset,
            weight,
            mask,
            bias,
        };
        deform_conv::forward::<B>(inputs, options)
    }

    fn deform_conv2d_backward(
        x: FloatTensor<Self>,
        offset: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        mask: Option<FloatTensor<Self>>,
        bias: Option<FloatTensor<Self>>,
        output_grad: FloatTensor<Self>,
        options: DeformConvOptions<2>,
    ) -> DeformConv2dBackward<Self> {
        let inputs = deform_conv::Inputs {
            x,
            offset,
            weight,
            mask,
            bias,
        };
        let grads = deform_conv::backward::<B>(inputs, output_grad, options);
        DeformConv2dBackward::new(grads.x, grads.offset, grads.weight, grads.mask, grads.bias)
    }

    fn layer_norm(
        tensor: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: Option<FloatTensor<Self>>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        norm::forward::<B>(None, Norm::Layer, tensor, gamma, beta, epsilon)
    }

    fn embedding_backward(
        weights: FloatTensor<Self>,
        output_grad: FloatTensor<Self>,
        indices: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        elementwise::unary::<B>("embedding", None, output_grad, |grad| {
            let weights = same_type::<B>(weights.inner, &grad);
            B::embedding_backward(weights, grad, indices.inner)
        })
    }

    fn max_pool1d_with_indices_backward(
        x: FloatTensor<Self>,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
        output_grad: FloatTensor<Self>,
        indices: IntTensor<Self>,
    ) -> MaxPool1dBackward<Self> {
        let (x, indices) = (x.inner, indices.inner);
        MaxPool1dBackward::new(elementwise::unary::<B>(
            "max_pool1d",
            None,
            output_grad,
            |grad| {
                B::max_pool1d_with_indices_backward(
                    same_type::<B>(x, &grad),
                    kernel_size,
                    stride,
                    padding,
                    dilation,
                    ceil_mode,
                    grad,
                    indices,
                )
                .x_grad
            },
        ))
    }

    fn max_pool2d_with_indices_backward(
        x: FloatTensor<Self>,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
        output_grad: FloatTensor<Self>,
        indices: IntTensor<Self>,
    ) -> MaxPool2dBackward<Self> {
        let (x, indices) = (x.inner, indices.inner);
        MaxPool2dBackward::new(elementwise::unary::<B>(
            "max_pool2d",
            None,
            output_grad,
            |grad| {
                B::max_pool2d_with_indices_backward(
                    same_type::<B>(x, &grad),
                    kernel_size,
                    stride,
                    padding,
                    dilation,
                    ceil_mode,
                    grad,
                    indices,
                )
                .x_grad
            },
        ))
    }

    fn ctc_loss_backward(
        log_probs: FloatTensor<Self>,
        targets: IntTensor<Self>,
        input_lengths: IntTensor<Self>,
        target_lengths: IntTensor<Self>,
        grad_loss: FloatTensor<Self>,
        blank: usize,
    ) -> FloatTensor<Self> {
        let lengths = (input_lengths.inner, target_lengths.inner);
        elementwise::binary::<B>("ctc_loss", None, log_probs, grad_loss, |log_probs, grad| {
            B::ctc_loss_backward(log_probs, targets.inner, lengths.0, lengths.1, grad, blank)
        })
    }

    fn rfft(
        signal: FloatTensor<Self>,
        dim: usize,
        n: Option<usize>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        elementwise::complex::<B>("rfft", signal, |signal| B::rfft(signal, dim, n))
    }

    fn irfft(
        spectrum_re: FloatTensor<Self>,
        spectrum_im: FloatTensor<Self>,
        dim: usize,
        n: Option<usize>,
    ) -> FloatTensor<Self> {
        elementwise::binary::<B>("irfft", None, spectrum_re, spectrum_im, |re, im| {
            B::irfft(re, im, dim, n)
        })
    }

    averaging_ops!(unary!);
    averaging_gradient_ops!(backward!);

    backward! {
        fn avg_pool1d_backward(
            x: FloatTensor<Self>, grad: FloatTensor<Self>, kernel_size: usize, stride: usize, padding: usize,
            count_include_pad: bool, ceil_mode: bool,
        ) -> FloatTensor<Self>;
        fn adaptive_avg_pool1d_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self>;
    }

    // Composed

    /// Composed of our own ops where something is emulated, since it holds two products. Its operands are activations
    /// by their place.
    fn attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        mask: Option<BoolTensor<Self>>,
        attn_bias: Option<FloatTensor<Self>>,
        options: AttentionModuleOptions,
    ) -> FloatTensor<Self> {
        let context = OpContext::of_product([Some(query.meta), Some(key.meta), Some(value.meta)]);
        if let Some(specs) = context.attention() {
            let operands = [query, key, value].map(MxTensor::into_activation);
            let mask = Unwrap::unwrap(mask);
            let attention = Attention::<B>::new(specs, options, mask, attn_bias);
            return attention.forward(operands).output;
        }
        if context.emulation().is_some() {
            let [query, key, value] = [query, key, value].map(MxTensor::into_activation);
            return attention::composed::<Self>(query, key, value, mask, attn_bias, options);
        }
        context.warn_if_unset("attention");
        let (mask, attn_bias) = (Unwrap::unwrap(mask), Unwrap::unwrap(attn_bias));
        let inner = B::attention(
            query.inner,
            key.inner,
            value.inner,
            mask,
            attn_bias,
            options,
        );
        MxTensor::new(inner, context.result)
    }

    /// Composed as autodiff does it, unless `B` has the gradient too.
    fn ctc_loss(
        log_probs: FloatTensor<Self>,
        targets: IntTensor<Self>,
        input_lengths: IntTensor<Self>,
        target_lengths: IntTensor<Self>,
        blank: usize,
    ) -> FloatTensor<Self> {
        if activation::is_composed::<B>(&log_probs) && !B::has_ctc_loss_backward() {
            return ctc_loss_default::<Self>(
                log_probs,
                targets,
                input_lengths,
                target_lengths,
                blank,
            );
        }
        let lengths = (input_lengths.inner, target_lengths.inner);
        elementwise::unary::<B>("ctc_loss", None, log_probs, |log_probs| {
            B::ctc_loss(log_probs, targets.inner, lengths.0, lengths.1, blank)
        })
    }

    // Delegated

    fn unfold4d(
        x: FloatTensor<Self>,
        kernel_size: [usize; 2],
        options: UnfoldOptions,
    ) -> FloatTensor<Self> {
        let meta = Meta::moved([Some(x.meta)]);
        MxTensor::new(B::unfold4d(x.inner, kernel_size, options), meta)
    }

    fn has_ctc_loss_backward() -> bool {
        B::has_ctc_loss_backward()
    }

    max_pool_ops!(delegate! unwrapped, moved:);
    indexed_pool_ops!(delegate! unwrapped, moved:);

    delegate! { unwrapped, moved:
        fn embedding(weights: FloatTensor<Self>, indices: IntTensor<Self>) -> FloatTensor<Self>;
    }
}
