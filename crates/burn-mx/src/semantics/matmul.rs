//! Matrix product of two tensors, either of which may be a weight.
//!
//! `a` [.., M, K] times `b` [.., K, N]; the leading axes broadcast.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::Float;
use super::elementwise::{broadcast_dims, sum_dims};
use super::product::{Kind, Op, Product};
use crate::kernels::{MxKernels, Place};
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
    let label = label_of([a.meta, b.meta]);
    let product = Product::<B>::new(Op::Matmul, Kind::Forward, interned, label);
    let [a_slot, b_slot] = [&a, &b].map(|tensor| match tensor.meta.is_weight() {
        true => Slot::W,
        false => Slot::A,
    });
    let a = product.operand(a_slot, a, Place::LHS);
    let b = product.operand(b_slot, b, Place::RHS);
    let output = product.multiply(a, b);
    product.finish(output, join.result)
}

/// The label of the layer that a product of operands with these metas belongs to: the weight's, or what activations were
/// given as one for this product.
pub(crate) fn label_of(metas: [Meta; 2]) -> Option<&'static str> {
    let label = |weight| {
        let metas = metas.iter().filter(move |meta| meta.is_weight() == weight);
        metas.filter_map(|meta| meta.label).next()
    };
    label(true).or_else(|| label(false))
}

/// The operand whose gradient is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    /// `a`: its gradient is `g · bᵀ`.
    Lhs,
    /// `b`: its gradient is `aᵀ · g`.
    Rhs,
}

impl Side {
    /// The gradient's product, of what was saved, transposed, and the output's gradient, by the wrapped backend.
    fn multiply<B: MxKernels>(self, saved: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
        let saved = B::float_transpose(saved);
        match self {
            Self::Lhs => B::float_matmul(grad, saved),
            Self::Rhs => B::float_matmul(saved, grad),
        }
    }
}

/// The gradient of the operand at `side`, which has the meta `own`, summed to its shape; `saved` is the other operand.
/// The product is summed over the axes that were broadcast, then rounded once.
pub(crate) fn backward<B: MxKernels>(
    side: Side,
    saved: Float<B>,
    grad: Float<B>,
    shape: &Shape,
    interned: &'static Interned,
    own: Meta,
) -> Float<B> {
    let meta = Meta::computed([Some(own)]);
    let summed = |product: FloatTensor<B>| {
        let broadcast = broadcast_dims(shape, &product.shape());
        sum_dims::<B>(product, broadcast)
    };
    if !interned.specs.quantize_backprop() {
        return MxTensor::new(summed(side.multiply::<B>(saved.inner, grad.inner)), meta);
    }
    let kind = match own.is_weight() {
        true => Kind::WeightGradient,
        false => Kind::InputGradient,
    };
    let product = Product::<B>::new(Op::Matmul, kind, interned, label_of([own, saved.meta]));
    let slot = match saved.meta.is_weight() {
        true => Slot::WBp,
        false => Slot::ABp,
    };
    let operand = |slot, tensor, place| product.operand(slot, tensor, place);
    let (lhs, rhs) = match side {
        Side::Lhs => (
            operand(Slot::ABpOs, grad, Place::LHS),
            operand(slot, saved, Place::RHS.transposed()),
        ),
        Side::Rhs => (
            operand(slot, saved, Place::LHS.transposed()),
            operand(Slot::ABpOs, grad, Place::RHS),
        ),
    };
    let gradient = summed(product.multiply(lhs, rhs));
    product.finish(gradient, meta)
}
