//! Linear layer: `y = x · w + b` with x [.., M, K], w [K, N], b [N].

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::elementwise::Rounder;
use super::product::{Operand, finish, round_result};
use super::{Float, stored};
use crate::kernels::{BinaryOp, MxKernels, to_f32};
use crate::registry::Interned;
use crate::specs::Slot;
use crate::tensor::{Join, Meta, MxTensor};

/// `x · w`, rounded, plus `b`, rounded again.
pub(crate) fn forward<B: MxKernels>(
    x: Float<B>,
    weight: Float<B>,
    bias: Option<Float<B>>,
) -> Float<B> {
    let x = x.into_activation();
    let join = join::<B>(&x, &weight, bias.as_ref());
    let Some(interned) = join.quantization() else {
        join.warn_if_unset("linear");
        let bias = bias.map(|bias| bias.inner);
        return MxTensor::new(B::linear(x.inner, weight.inner, bias), join.result);
    };
    let specs = &interned.specs;
    let x_operand = Operand {
        axis: x.rank() - 1,
        slot: Slot::A,
        elementwise: specs.round_output(),
        mx: specs.round_mx_output(),
    };
    let weight_operand = Operand {
        axis: 0,
        slot: Slot::W,
        elementwise: specs.round_weight(),
        mx: specs.round_mx_output(),
    };
    let shape = x.shape();
    let x = as_matrix::<B>(x_operand.quantize::<B>(x, interned));
    let weight = weight_operand.quantize::<B>(weight, interned);
    let output = match (bias, Rounder::new(interned, specs.round_weight())) {
        (Some(bias), Some(rounder)) => {
            let product = B::linear(x, weight, None);
            let columns = bias.shape()[0];
            let bias = B::float_reshape(rounder.operand::<B>(bias), Shape::new([1, columns]));
            add_rounded::<B>(product, bias, interned)
        }
        (bias, _) => {
            let output = B::linear(x, weight, bias.map(|bias| to_f32::<B>(bias.inner)));
            round_result::<B>(output, interned, specs.round_output())
        }
    };
    let mut meta = join.result;
    meta.rounded = specs.float_format();
    stored::<B>(with_leading_axes::<B>(output, shape), meta)
}

/// A product, rounded, plus a bias that is rounded already, rounded again.
fn add_rounded<B: MxKernels>(
    product: FloatTensor<B>,
    bias: FloatTensor<B>,
    interned: &'static Interned,
) -> FloatTensor<B> {
    let rounding = interned.specs.round_output();
    let one_pass = Rounder::new(interned, rounding).and_then(|rounder| rounder.in_one_pass(true));
    match one_pass {
        // To round the bias once more changes nothing.
        Some(rounding) => B::binary_op(BinaryOp::Add, product, bias, rounding),
        None => {
            let product = round_result::<B>(product, interned, rounding);
            round_result::<B>(B::float_add(product, bias), interned, rounding)
        }
    }
}

/// The specs of the layer; `x` is in the role of an activation.
pub(crate) fn join<B: MxKernels>(x: &Float<B>, weight: &Float<B>, bias: Option<&Float<B>>) -> Join {
    // The weight's specs count, whether or not it is marked as one: here its place says so.
    let mut weight_meta = weight.meta;
    weight_meta.flags.insert(crate::tensor::Flags::WEIGHT);
    let bias_meta = bias.map(|bias| {
        let mut meta = bias.meta;
        meta.flags.insert(crate::tensor::Flags::WEIGHT);
        meta
    });
    Join::of([Some(x.meta), Some(weight_meta), bias_meta])
}

/// `dx = g · wᵀ`, with the specs `meta`.
pub(crate) fn x_backward<B: MxKernels>(
    weight: Float<B>,
    grad: Float<B>,
    interned: &'static Interned,
    meta: Meta,
) -> Float<B> {
    let specs = &interned.specs;
    let meta = Meta::computed([Some(meta)]);
    if !specs.quantize_backprop() {
        return MxTensor::new(B::linear_x_backward(weight.inner, grad.inner), meta);
    }
    let weight_operand = Operand {
        axis: 1,
        slot: Slot::WBp,
        elementwise: specs.round_weight(),
        mx: specs.round_mx_weight_grad_input(),
    };
    let grad_operand = Operand {
        axis: grad.rank() - 1,
        slot: Slot::ABpOs,
        elementwise: specs.round_grad_input(),
        mx: specs.round_mx_grad_output_grad_input(),
    };
    let shape = grad.shape();
    let grad = as_matrix::<B>(grad_operand.quantize::<B>(grad, interned));
    let weight = weight_operand.quantize::<B>(weight, interned);
    let product = B::float_matmul(grad, B::float_transpose(weight));
    let product = with_leading_axes::<B>(product, shape);
    finish::<B>(product, interned, specs.round_grad_input(), meta)
}

/// `dw = xᵀ · g`, summed over the leading axes as part of the product, with the specs `meta`.
///
/// Blocks run along M inside each batch entry, so the operands are quantized as they are and flattened to
/// one product after that.
pub(crate) fn weight_backward<B: MxKernels>(
    x: Float<B>,
    grad: Float<B>,
    interned: &'static Interned,
    meta: Meta,
) -> Float<B> {
    let specs = &interned.specs;
    let meta = Meta::computed([Some(meta)]);
    if !specs.quantize_backprop() {
        return MxTensor::new(B::linear_weight_backward(x.inner, grad.inner), meta);
    }
    let rows = x.rank() - 2;
    let x_operand = Operand {
        axis: rows,
        slot: Slot::ABp,
        elementwise: specs.round_output(),
        mx: specs.round_mx_input_grad_weight(),
    };
    let grad_operand = Operand {
        axis: rows,
        slot: Slot::ABpEx,
        elementwise: specs.round_grad_input(),
        mx: specs.round_mx_grad_output_grad_weight(),
    };
    let x = as_matrix::<B>(x_operand.quantize::<B>(x, interned));
    let grad = as_matrix::<B>(grad_operand.quantize::<B>(grad, interned));
    let product = B::float_matmul(B::float_transpose(x), grad);
    finish::<B>(product, interned, specs.round_grad_weight(), meta)
}

/// `db = Σ g` over all axes but the last, with the specs `meta`.
pub(crate) fn bias_backward<B: MxKernels>(
    grad: Float<B>,
    interned: &'static Interned,
    meta: Meta,
) -> Float<B> {
    let specs = &interned.specs;
    let meta = Meta::computed([Some(meta)]);
    if !specs.quantize_backprop() {
        return MxTensor::new(B::linear_bias_backward(grad.inner), meta);
    }
    let grad = match Rounder::new(interned, specs.round_grad_input()) {
        Some(rounder) => rounder.operand::<B>(grad),
        None => to_f32::<B>(grad.inner),
    };
    let sum = B::linear_bias_backward(grad);
    finish::<B>(sum, interned, specs.round_grad_weight(), meta)
}

/// [.., M, K] as [.. · M, K], so that the product is one.
fn as_matrix<B: MxKernels>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    let shape = tensor.shape();
    let rank = shape.num_dims();
    if rank == 2 {
        return tensor;
    }
    let columns = shape[rank - 1];
    let rows = (0..rank - 1).map(|axis| shape[axis]).product();
    B::float_reshape(tensor, Shape::new([rows, columns]))
}

/// A matrix [.. · M, N] with the leading axes of `shape`.
fn with_leading_axes<B: MxKernels>(matrix: FloatTensor<B>, mut shape: Shape) -> FloatTensor<B> {
    let rank = shape.num_dims();
    if rank == 2 {
        return matrix;
    }
    shape[rank - 1] = matrix.shape()[1];
    B::float_reshape(matrix, shape)
}
