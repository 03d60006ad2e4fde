//! Matrix product of two tensors, either of which may be a weight.
//!
//! `a` [.., M, K] times `b` [.., K, N]; the leading axes broadcast.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::Float;
use super::elementwise::{broadcast_dims, sum_dims};
use super::product::{Operand, finish};
use crate::kernels::MxKernels;
use crate::registry::Interned;
use crate::specs::Slot;
use crate::tensor::{Join, Meta, MxTensor};

/// `a · b`
pub(crate) fn forward<B: MxKernels>(a: Float<B>, b: Float<B>) -> Float<B> {
    let join = Join::of([Some(a.meta), Some(b.meta)]);
    let Some(interned) = join.quantization() else {
        join.warn_if_unset("float_matmul");
        return MxTensor::new(B::float_matmul(a.inner, b.inner), join.result);
    };
    let rank = a.rank();
    let a_operand = forward_operand::<B>(&a, rank - 1, interned);
    let b_operand = forward_operand::<B>(&b, rank - 2, interned);
    let product = B::float_matmul(
        a_operand.quantize::<B>(a, interned),
        b_operand.quantize::<B>(b, interned),
    );
    finish::<B>(
        product,
        interned,
        interned.specs.round_output(),
        join.result,
    )
}

fn forward_operand<B: MxKernels>(
    tensor: &Float<B>,
    axis: usize,
    interned: &'static Interned,
) -> Operand {
    let specs = &interned.specs;
    let (slot, elementwise) = match tensor.meta.is_weight() {
        true => (Slot::W, specs.round_weight()),
        false => (Slot::A, specs.round_output()),
    };
    Operand {
        axis,
        slot,
        elementwise,
        mx: specs.round_mx_output(),
    }
}

/// `da = g · bᵀ`, summed to the shape of `a` (given by `shape_of`), with the specs of `a`.
pub(crate) fn lhs_backward<B: MxKernels>(
    b: Float<B>,
    grad: Float<B>,
    shape: &Shape,
    interned: &'static Interned,
    meta: Meta,
) -> Float<B> {
    let last = grad.rank() - 1;
    let (b, grad) = backward_operands::<B>(b, grad, last, interned);
    gradient::<B>(
        B::float_matmul(grad, B::float_transpose(b)),
        shape,
        interned,
        meta,
    )
}

/// `db = aᵀ · g`, summed to the shape of `b`, with the specs of `b`.
pub(crate) fn rhs_backward<B: MxKernels>(
    a: Float<B>,
    grad: Float<B>,
    shape: &Shape,
    interned: &'static Interned,
    meta: Meta,
) -> Float<B> {
    let rows = grad.rank() - 2;
    let (a, grad) = backward_operands::<B>(a, grad, rows, interned);
    gradient::<B>(
        B::float_matmul(B::float_transpose(a), grad),
        shape,
        interned,
        meta,
    )
}

/// The saved operand and the output's gradient, quantized along `axis`; both untouched where the backward
/// pass is not to be quantized.
fn backward_operands<B: MxKernels>(
    saved: Float<B>,
    grad: Float<B>,
    axis: usize,
    interned: &'static Interned,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let specs = &interned.specs;
    if !specs.quantize_backprop() {
        return (saved.inner, grad.inner);
    }
    let (slot, elementwise) = match saved.meta.is_weight() {
        true => (Slot::WBp, specs.round_weight()),
        false => (Slot::ABp, specs.round_output()),
    };
    let saved_operand = Operand {
        axis,
        slot,
        elementwise,
        mx: specs.round_mx_input_grad_input(),
    };
    let grad_operand = Operand {
        axis,
        slot: Slot::ABpOs,
        elementwise: specs.round_grad_input(),
        mx: specs.round_mx_grad_output_grad_input(),
    };
    (
        saved_operand.quantize::<B>(saved, interned),
        grad_operand.quantize::<B>(grad, interned),
    )
}

/// The gradient of an operand of shape `shape`: the product summed over the axes that were broadcast, then
/// rounded once.
fn gradient<B: MxKernels>(
    product: FloatTensor<B>,
    shape: &Shape,
    interned: &'static Interned,
    meta: Meta,
) -> Float<B> {
    let broadcast = broadcast_dims(shape, &product.shape());
    let product = sum_dims::<B>(product, broadcast);
    let specs = &interned.specs;
    let meta = Meta::computed([Some(meta)]);
    if !specs.quantize_backprop() {
        return MxTensor::new(product, meta);
    }
    finish::<B>(product, interned, specs.round_grad_input(), meta)
}
