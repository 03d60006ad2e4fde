//! Matrix product of two tensors, either of which may be a weight.
//!
//! `a` [.., M, K] times `b` [.., K, N]; the leading axes broadcast.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::elementwise::{broadcast_dims, sum_dims};
use super::product::{Along, ForwardOperand, Operands, Product};
use super::shapes::check_summed;
use crate::hooks;
use crate::specs::{ProductKind, ProductOp, Slot};
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::weight_cache::WeightCache;
use crate::tensor::{Float, Meta, MxTensor, OpContext};
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::{Operand, OperandLayout, in_float32};

/// `a · b`
pub(crate) fn forward<B: MxKernels>(a: Float<B>, b: Float<B>) -> Float<B> {
    check_summed(
        ProductOp::Matmul,
        label_of([a.meta, b.meta]),
        ("left operand", a.shape()),
        ("right operand", b.shape()),
    );
    for meta in [a.meta, b.meta].into_iter().filter(|meta| meta.is_weight()) {
        hooks::weight_used(meta);
    }
    let context = OpContext::of_matmul([a.meta, b.meta]);
    let Some(shared) = context.quantization() else {
        context.warn_if_unset("float_matmul");
        let places = [OperandLayout::LHS, OperandLayout::RHS];
        // In a backward pass that is not quantized.
        let of_tensors =
            (context.emulation()).and_then(|_| in_float32::<B>([&a.inner, &b.inner], places));
        let output = of_tensors.unwrap_or_else(|| B::float_matmul(a.inner, b.inner));
        return MxTensor::new(output, context.result);
    };
    let label = label_of([a.meta, b.meta]);
    let operands = operands_of([a.meta, b.meta]);
    let (op, kind) = (ProductOp::Matmul, ProductKind::Forward);
    let product = Product::<B>::of(op, kind, shared, label, operands);
    let [a_slot, b_slot] = [a.meta, b.meta].map(forward_slot);
    let a = product.operand(a_slot, a, OperandLayout::LHS);
    let b = product.operand(b_slot, b, OperandLayout::RHS);
    let output = product.multiply_rounded(a, b, None);
    product.finish_rounded(output, context.result)
}

/// The kinds of the operands with these metas.
fn operands_of(metas: [Meta; 2]) -> Operands {
    if metas.into_iter().any(Meta::is_weight) {
        return Operands::WithWeight;
    }
    let [a, b] = metas.map(Meta::is_constant_factor);
    match a != b {
        true => Operands::WithConstant,
        false => Operands::Activations,
    }
}

/// The slot of the forward product that an operand with this meta reads.
fn forward_slot(meta: Meta) -> Slot {
    match meta.is_weight() {
        true => Slot::W,
        false => Slot::A,
    }
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
    /// Where the operand stands in the forward product.
    fn place(self) -> OperandLayout {
        match self {
            Self::Lhs => OperandLayout::LHS,
            Self::Rhs => OperandLayout::RHS,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Lhs => Self::Rhs,
            Self::Rhs => Self::Lhs,
        }
    }

    /// The place of the operand with this meta and rank in the forward product.
    fn in_forward(self, meta: Meta, rank: usize) -> ForwardOperand {
        ForwardOperand {
            slot: forward_slot(meta),
            along: Along::of(self.place(), rank),
        }
    }

    /// The gradient's product of the saved operand, transposed, and the output's gradient, in float32.
    fn multiply<B: MxKernels>(self, saved: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
        let saved = B::float_transpose(saved);
        let [a, b] = match self {
            Self::Lhs => [grad, saved],
            Self::Rhs => [saved, grad],
        };
        let places = [OperandLayout::LHS, OperandLayout::RHS];
        in_float32::<B>([&a, &b], places).unwrap_or_else(|| B::float_matmul(a, b))
    }
}

/// The output's gradient as both gradient products take the tensor, for two operands with these metas, if the backend makes both
/// operands in one reading.
pub(crate) fn read_once<B: MxKernels>(
    grad: &Float<B>,
    metas: [Meta; 2],
    shared: &'static SharedSpecs,
) -> Option<WeightCache<Operand<FloatTensor<B>>>> {
    let of = |side: Side, own: Meta| (kind_of(own), Slot::ABpOs, side.place());
    let uses = [of(Side::Lhs, metas[0]), of(Side::Rhs, metas[1])];
    let (op, operands) = (ProductOp::Matmul, operands_of(metas));
    Product::<B>::read_once(op, shared, operands, grad, uses)
}

/// The gradient product of an operand with this meta.
fn kind_of(own: Meta) -> ProductKind {
    match own.is_weight() {
        true => ProductKind::WeightGradient,
        false => ProductKind::InputGradient,
    }
}

/// The gradient of the operand at `side`, which has the meta `own`, summed to its shape; `saved` is the other operand, and
/// `masked` the operand itself, for a mask. The product is summed over the axes that were broadcast, then rounded once.
pub(crate) fn backward<B: MxKernels>(
    side: Side,
    saved: Float<B>,
    masked: Option<Float<B>>,
    grad: Float<B>,
    shape: &Shape,
    shared: &'static SharedSpecs,
    own: Meta,
) -> Float<B> {
    let meta = Meta::computed([Some(own)]);
    let summed = |product: FloatTensor<B>| {
        let broadcast = broadcast_dims(shape, &product.shape());
        sum_dims::<B>(product, broadcast)
    };
    let kind = kind_of(own);
    let metas = [own, saved.meta];
    let (op, operands) = (ProductOp::Matmul, operands_of(metas));
    let of_saved = side.other().in_forward(saved.meta, saved.rank());
    let of_own = side.in_forward(own, shape.num_dims());
    if !shared.specs.quantize_backprop() {
        let product = Product::<B>::in_float32(op, kind, shared, operands);
        let saved = product.float_operand(product.saved(of_saved, saved));
        let gradient = summed(side.multiply::<B>(saved, product.float_operand(grad)));
        return product.finish_float(of_own, masked, gradient, meta);
    }
    let product = Product::<B>::of(op, kind, shared, label_of(metas), operands);
    let saved = product.saved(of_saved, saved);
    let leading = ..shape.num_dims() - 2;
    let is_whole = grad.shape()[leading] == shape[leading];
    let slot = match saved.meta.is_weight() {
        true => Slot::WBp,
        false => Slot::ABp,
    };
    let operand = |slot, tensor, place| product.operand(slot, tensor, place);
    let (lhs, rhs) = match side {
        Side::Lhs => (
            operand(Slot::ABpOs, grad, OperandLayout::LHS),
            operand(slot, saved, OperandLayout::RHS.transposed()),
        ),
        Side::Rhs => (
            operand(slot, saved, OperandLayout::LHS.transposed()),
            operand(Slot::ABpOs, grad, OperandLayout::RHS),
        ),
    };
    if is_whole && !product.has_straight_through() {
        return product.finish_rounded(product.multiply_rounded(lhs, rhs, None), meta);
    }
    let gradient = summed(product.multiply(lhs, rhs));
    product.finish(product.straight_through(of_own, masked, gradient), meta)
}
