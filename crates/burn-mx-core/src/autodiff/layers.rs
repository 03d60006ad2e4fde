//! Module ops and activations: burn-autodiff's, and this crate's backward ops for products and formulas.

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::ops::attention::attention_fallback;
use burn_backend::ops::{
    ActivationOps, AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConv2dBackward,
    DeformConvOptions, InterpolateOptions, MaxPool1dBackward, MaxPool1dWithIndices,
    MaxPool2dBackward, MaxPool2dWithIndices, ModuleOps, UnfoldOptions,
};
use burn_backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn_backend::{Scalar, TensorMetadata};

use super::backward::edge::{Edge, delegate_used};
use super::backward::elementwise::{BinaryRule, UnaryRule};
use super::backward::{
    Tracked, apart, as_activation, boundary, elementwise, linear, metas, named, norm, softmax,
};
use super::{Ad, MxAutodiff, backward};
use crate::backend::delegate::delegate;
use crate::backend::delegate::tables::{
    averaging_gradient_ops, averaging_ops, indexed_pool_ops, max_pool_ops, struct_gradient_ops,
};
use crate::backend::ops::activation::Composition;
use crate::hooks;
use crate::semantics::attention::scope::softmax_in_scope;
use crate::semantics::{self, activation, attention};
use crate::specs::ProductOp;
use crate::tensor::OpContext;
use crate::tensor::frozen_weight::FrozenWeight;
use burn_mx_kernels::Function;
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::Norm;

/// The context of a layer's op. The argument's place makes a tensor the weight, and `x` has the role of an activation.
fn join_of_layer<B: MxKernels>(
    x: &Tracked<B>,
    weight: &Tracked<B>,
    bias: Option<&Tracked<B>>,
) -> OpContext {
    let bias = bias.map(|bias| &bias.primitive);
    semantics::linear::context::<B>(&x.primitive, &weight.primitive, bias)
}

/// The op of a layer by burn-autodiff's step; `x` is in the role of an activation.
fn layer<B: MxKernels, C: CheckpointStrategy>(
    x: Tracked<B>,
    weight: Tracked<B>,
    bias: Option<Tracked<B>>,
    op: impl FnOnce(Tracked<B>, Tracked<B>, Option<Tracked<B>>) -> Tracked<B> + Send,
) -> Tracked<B> {
    let context = join_of_layer::<B>(&x, &weight, bias.as_ref());
    let weight = named_if_emulated::<B>(&context, weight);
    let edge = Edge::new(&context);
    let [x, weight] = [x, weight].map(|tensor| edge.enter::<B, C>(tensor));
    let bias = bias.map(|bias| edge.enter::<B, C>(bias));
    edge.leave::<B, C>(hooks::tracked(|| op(x, weight, bias)))
}

/// The linear layer of a packed weight.
pub(super) fn linear_packed<B: MxKernels, C: CheckpointStrategy>(
    x: Tracked<B>,
    weight: Tracked<B>,
    bias: Option<Tracked<B>>,
    packed: FrozenWeight,
) -> Tracked<B> {
    let x = as_activation::<B, C>(x);
    match join_of_layer::<B>(&x, &weight, bias.as_ref()).emulation() {
        Some(shared) => linear::forward::<B, C>(x, weight, bias, Some(packed), shared),
        None => layer::<B, C>(x, weight, bias, |x, weight, bias| {
            linear::packed::<B, C>(x, weight, bias, packed)
        }),
    }
}

/// The weight of a convolution, which has a product to be named if it is emulated.
fn named_if_emulated<B: MxKernels>(context: &OpContext, weight: Tracked<B>) -> Tracked<B> {
    match context.emulation() {
        Some(_) => named::<B>(ProductOp::Convolution, weight),
        None => weight,
    }
}

/// Convolutions, transposed or not.
macro_rules! convolutions {
    ($($options:ty: $name:ident)*) => { $(
        fn $name(
            x: FloatTensor<Self>,
            weight: FloatTensor<Self>,
            bias: Option<FloatTensor<Self>>,
            options: $options,
        ) -> FloatTensor<Self> {
            layer::<B, C>(as_activation::<B, C>(x), weight, bias, |x, weight, bias| {
                Ad::<B, C>::$name(x, weight, bias, options)
            })
        }
    )* };
}

impl<B: MxKernels, C: CheckpointStrategy> ModuleOps<Self> for MxAutodiff<B, C> {
    // Own steps

    fn linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let x = as_activation::<B, C>(x);
        match join_of_layer::<B>(&x, &weight, bias.as_ref()).emulation() {
            Some(shared) => linear::forward::<B, C>(x, weight, bias, None, shared),
            None => layer::<B, C>(x, weight, bias, Ad::<B, C>::linear),
        }
    }

    fn layer_norm(
        tensor: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: Option<FloatTensor<Self>>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        norm::forward_or::<B, C>(
            Norm::Layer,
            tensor,
            gamma,
            beta,
            epsilon,
            |x, gamma, beta| Ad::<B, C>::layer_norm(x, gamma, beta, epsilon),
        )
    }

    // Composed

    /// Composed of this crate's ops; the operands are activations by their place.
    fn attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        mask: Option<BoolTensor<Self>>,
        attn_bias: Option<FloatTensor<Self>>,
        options: AttentionModuleOptions,
    ) -> FloatTensor<Self> {
        let context = OpContext::of_product(metas::<B, 3>([&query, &key, &value]));
        if let Some(specs) = context.attention() {
            let operands = [query, key, value].map(as_activation::<B, C>);
            return backward::attention::forward::<B, C>(specs, operands, mask, attn_bias, options);
        }
        if context.emulation().is_none() {
            return attention_fallback::<Self>(query, key, value, mask, attn_bias, options);
        }
        let [query, key, value] = [query, key, value].map(as_activation::<B, C>);
        attention::composed::<Self>(query, key, value, mask, attn_bias, options)
    }

    /// Burn's composition for autodiff may be a convolution with ones and zeros, which is data movement and not a
    /// product.
    fn unfold4d(
        x: FloatTensor<Self>,
        kernel_size: [usize; 2],
        options: UnfoldOptions,
    ) -> FloatTensor<Self> {
        if OpContext::of_product(metas::<B, 1>([&x]))
            .emulation()
            .is_none()
        {
            return Ad::<B, C>::unfold4d(x, kernel_size, options);
        }
        let x = match activation::is_composed::<B>(&x.primitive) {
            true => elementwise::unary::<B, C>(x, UnaryRule::RoundGradient),
            false => x,
        };
        boundary::full_precision::<B, C>(x, |x| Ad::<B, C>::unfold4d(x, kernel_size, options))
    }

    // burn-autodiff's

    convolutions! {
        ConvOptions<1>: conv1d
        ConvOptions<2>: conv2d
        ConvOptions<3>: conv3d
        ConvTransposeOptions<1>: conv_transpose1d
        ConvTransposeOptions<2>: conv_transpose2d
        ConvTransposeOptions<3>: conv_transpose3d
    }

    fn deform_conv2d(
        x: FloatTensor<Self>,
        offset: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        mask: Option<FloatTensor<Self>>,
        bias: Option<FloatTensor<Self>>,
        options: DeformConvOptions<2>,
    ) -> FloatTensor<Self> {
        let x = as_activation::<B, C>(x);
        let mut context = join_of_layer::<B>(&x, &weight, bias.as_ref());
        let of_mask = mask.as_ref().map(|mask| mask.primitive.meta);
        context.result = (context.result).in_piece_of([Some(offset.primitive.meta), of_mask]);
        let weight = named_if_emulated::<B>(&context, weight);
        let edge = Edge::new(&context);
        let [x, offset, weight] = [x, offset, weight].map(|tensor| edge.enter::<B, C>(tensor));
        let [mask, bias] = [mask, bias].map(|t| t.map(|tensor| edge.enter::<B, C>(tensor)));
        edge.leave::<B, C>(hooks::tracked(|| {
            Ad::<B, C>::deform_conv2d(x, offset, weight, mask, bias, options)
        }))
    }

    fn embedding(weights: FloatTensor<Self>, indices: IntTensor<Self>) -> FloatTensor<Self> {
        let context = OpContext::of([Some(weights.primitive.meta), Some(indices.meta)]);
        let edge = Edge::new(&context);
        let weights = edge.enter::<B, C>(weights);
        edge.leave::<B, C>(Ad::<B, C>::embedding(weights, indices))
    }

    averaging_ops!(delegate_used! Ad<B, C>:);
    averaging_gradient_ops!(delegate! Ad<B, C>:);
    max_pool_ops!(delegate_used! Ad<B, C>:);
    indexed_pool_ops!(delegate_used! structs Ad<B, C>:);
    struct_gradient_ops!(delegate! structs Ad<B, C>:);

    delegate! { Ad<B, C>:
        fn linear_x_backward(weight: FloatTensor<Self>, output_grad: FloatTensor<Self>) -> FloatTensor<Self>;
        fn linear_weight_backward(x: FloatTensor<Self>, output_grad: FloatTensor<Self>) -> FloatTensor<Self>;
        fn linear_bias_backward(output_grad: FloatTensor<Self>) -> FloatTensor<Self>;
        fn embedding_backward(
            weights: FloatTensor<Self>, output_grad: FloatTensor<Self>, indices: IntTensor<Self>,
        ) -> FloatTensor<Self>;
    }

    delegate_used! { Ad<B, C>:
        fn ctc_loss(
            log_probs: FloatTensor<Self>, targets: IntTensor<Self>, input_lengths: IntTensor<Self>,
            target_lengths: IntTensor<Self>, blank: usize,
        ) -> FloatTensor<Self>;
        fn rfft(
            signal: FloatTensor<Self>, dim: usize, n: Option<usize>,
        ) -> (FloatTensor<Self>, FloatTensor<Self>);
        fn irfft(
            spectrum_re: FloatTensor<Self>, spectrum_im: FloatTensor<Self>, dim: usize, n: Option<usize>,
        ) -> FloatTensor<Self>;
    }
}

impl<B: MxKernels, C: CheckpointStrategy> ActivationOps<Self> for MxAutodiff<B, C> {
    // Own steps

    fn softmax(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        let meta = tensor.primitive.meta;
        if let Some(specs) = softmax_in_scope(meta, dim, tensor.primitive.rank()) {
            return apart::softmax::<B, C>(specs, tensor);
        }
        match meta.emulation() {
            Some(_) => softmax::forward::<B, C>(tensor, dim),
            None => Ad::<B, C>::softmax(tensor, dim),
        }
    }

    fn log_softmax(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        if semantics::softmax::log_begins_loss::<B>(&tensor.primitive) {
            return Ad::<B, C>::log_softmax(boundary::begin_loss::<B, C>(tensor), dim);
        }
        match semantics::softmax::log_in_one_pass::<B>(&tensor.primitive, dim) {
            true => elementwise::unary::<B, C>(tensor, UnaryRule::LogSoftmax),
            false => <Composition as ActivationOps<Self>>::log_softmax(tensor, dim),
        }
    }

    fn relu(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        match activation::is_composed::<B>(&tensor.primitive) {
            true => elementwise::unary::<B, C>(tensor, UnaryRule::Relu),
            false => Ad::<B, C>::relu(tensor),
        }
    }

    fn gelu(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        match activation::is_composed::<B>(&tensor.primitive) {
            true => elementwise::unary::<B, C>(tensor, UnaryRule::Function(Function::Gelu)),
            false => Ad::<B, C>::gelu(tensor),
        }
    }

    fn log_sigmoid(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        match activation::is_composed::<B>(&tensor.primitive) {
            true => elementwise::unary::<B, C>(tensor, UnaryRule::LogSigmoid),
            false => Ad::<B, C>::log_sigmoid(tensor),
        }
    }

    fn sigmoid(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        match activation::is_composed::<B>(&tensor.primitive) {
            true => elementwise::unary::<B, C>(tensor, UnaryRule::Function(Function::Sigmoid)),
            false => Ad::<B, C>::sigmoid(tensor),
        }
    }

    fn prelu(tensor: FloatTensor<Self>, alpha: FloatTensor<Self>) -> FloatTensor<Self> {
        let tensor = as_activation::<B, C>(tensor);
        elementwise::binary_or::<B, C>(tensor, alpha, BinaryRule::PRelu, Ad::<B, C>::prelu)
    }

    fn leaky_relu(tensor: FloatTensor<Self>, negative_slope: Scalar) -> FloatTensor<Self> {
        match activation::is_composed::<B>(&tensor.primitive) {
            true => {
                let slope = negative_slope;
                elementwise::unary::<B, C>(tensor, UnaryRule::LeakyRelu { slope })
            }
            false => Ad::<B, C>::leaky_relu(tensor, negative_slope),
        }
    }
}
