//! Linear layer: `y = x · w + b` with x [.., M, K], w [K, N], b [N].

mod hot_columns;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::elementwise::{OpRounder, Rounder};
use super::product::{Along, ForwardOperand, Operands, Product};
use super::shapes::check_summed;
use super::stored;
use crate::hooks;
use crate::specs::{ProductKind, ProductOp, Slot};
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::weight_cache::WeightCache;
use crate::tensor::{Float, Meta, MxTensor, OpContext, Rule};
use burn_mx_kernels::internal::{OpRounding, Operand, OperandLayout, in_float32};
use burn_mx_kernels::{MxKernels, to_f32};
pub(crate) use hot_columns::LayerColumns;

/// `x · w`, rounded, plus `b`, rounded again.
pub(crate) fn forward<B: MxKernels>(
    x: Float<B>,
    weight: Float<B>,
    bias: Option<Float<B>>,
) -> Float<B> {
    forward_in_columns::<B>(x, weight, bias, LayerColumns::of::<B>)
}

/// [`forward`], whose hot columns are `columns` of specs, x and w.
pub(crate) fn forward_in_columns<B: MxKernels>(
    x: Float<B>,
    weight: Float<B>,
    bias: Option<Float<B>>,
    columns: impl FnOnce(&'static SharedSpecs, &Float<B>, &Float<B>) -> Option<LayerColumns>,
) -> Float<B> {
    check_summed(
        ProductOp::Linear,
        weight.meta.label,
        ("input", x.shape()),
        ("weight", weight.shape()),
    );
    let x = x.into_activation();
    hooks::weight_used(weight.meta);
    let context = context::<B>(&x, &weight, bias.as_ref());
    let Some(shared) = context.quantization() else {
        context.warn_if_unset("linear");
        let bias = bias.map(|bias| bias.inner);
        return MxTensor::new(B::linear(x.inner, weight.inner, bias), context.result);
    };
    let product = Product::<B>::new(
        ProductOp::Linear,
        ProductKind::Forward,
        shared,
        weight.meta.label,
    )
    .of_weight(weight.meta);
    let shape = x.shape();
    let bias_of_product = |bias: Option<Float<B>>| bias.map(|bias| product.bias(bias));
    let output = match columns(shared, &x, &weight).filter(|_| product.has_hot_columns()) {
        Some(columns) => columns.forward(&product, x, weight, bias_of_product(bias)),
        None => {
            let x = product.operand(Slot::A, x, OperandLayout::LHS.flat());
            let weight = product.operand(Slot::W, weight, OperandLayout::RHS);
            product.multiply_rounded(x, weight, bias_of_product(bias))
        }
    };
    product.finish_rounded(with_leading_axes::<B>(output, shape), context.result)
}

/// The specs of the layer; `x` is in the role of an activation.
pub(crate) fn context<B: MxKernels>(
    x: &Float<B>,
    weight: &Float<B>,
    bias: Option<&Float<B>>,
) -> OpContext {
    // The weight's specs count, also without the mark of a weight: the place in the layer is enough.
    let as_weight = |tensor: &Float<B>| tensor.meta.after(Rule::PLACE_OF_WEIGHT);
    OpContext::of_product([Some(x.meta), Some(as_weight(weight)), bias.map(as_weight)])
}

/// x of the forward product, and w.
pub(crate) fn forward_operands(x_rank: usize, weight_rank: usize) -> [ForwardOperand; 2] {
    let x = ForwardOperand {
        slot: Slot::A,
        along: Along::of(OperandLayout::LHS.flat(), x_rank),
    };
    let weight = ForwardOperand {
        slot: Slot::W,
        along: Along::of(OperandLayout::RHS, weight_rank),
    };
    [x, weight]
}

/// A saved operand of the forward product, which may have been in parts.
fn saved<B: MxKernels>(
    product: &Product<B>,
    operand: ForwardOperand,
    tensor: Float<B>,
    columns: &Option<LayerColumns>,
) -> Float<B> {
    match LayerColumns::in_parts(columns, product) {
        Some(columns) => columns.saved(product, operand, tensor),
        None => product.saved(operand, tensor),
    }
}

/// `dx = g · wᵀ`, with the specs `meta`; `x` is for a mask. `columns` are the forward product's.
pub(crate) fn x_backward<B: MxKernels>(
    x: Option<Float<B>>,
    weight: Float<B>,
    grad: Float<B>,
    shared: &'static SharedSpecs,
    meta: Meta,
    columns: &Option<LayerColumns>,
) -> Float<B> {
    let meta = Meta::computed([Some(meta)]);
    let (op, kind) = (ProductOp::Linear, ProductKind::InputGradient);
    let shape = grad.shape();
    let [of_x, of_weight] = forward_operands(grad.rank(), weight.rank());
    if !shared.specs.quantize_backprop() {
        let product = Product::<B>::in_float32(op, kind, shared, Operands::WithWeight);
        let weight = product.float_operand(saved(&product, of_weight, weight, columns));
        let grad = product.float_operand(grad);
        let places = [OperandLayout::LHS.flat(), OperandLayout::RHS.transposed()];
        let dx = match in_float32::<B>([&grad, &weight], places) {
            Some(dx) => with_leading_axes::<B>(dx, shape),
            None => B::linear_x_backward(weight, grad),
        };
        return product.finish_float(of_x, x, dx, meta);
    }
    let product = Product::<B>::new(op, kind, shared, weight.meta.label);
    let weight = saved(&product, of_weight, weight, columns);
    let grad = product.operand(Slot::ABpOs, grad, OperandLayout::LHS.flat());
    let weight = product.operand(Slot::WBp, weight, OperandLayout::RHS.transposed());
    if !product.has_straight_through() {
        let dx = product.multiply_rounded(grad, weight, None);
        return product.finish_rounded(with_leading_axes::<B>(dx, shape), meta);
    }
    let dx = product.multiply(grad, weight);
    let dx = with_leading_axes::<B>(dx, shape);
    product.finish(product.straight_through(of_x, x, dx), meta)
}

/// `dw = xᵀ · g`, summed over the leading axes as part of the product, with the meta of `w`.
///
/// Blocks run along M inside each batch entry, so the operands are quantized as they are and flattened to
/// one product after that. `w` is for a mask. `columns` are the forward product's.
pub(crate) fn weight_backward<B: MxKernels>(
    x: Float<B>,
    w: Option<Float<B>>,
    grad: Float<B>,
    shared: &'static SharedSpecs,
    weight: Meta,
    columns: &Option<LayerColumns>,
) -> Float<B> {
    let meta = Meta::computed([Some(weight)]);
    let (op, kind) = (ProductOp::Linear, ProductKind::WeightGradient);
    let [of_x, of_weight] = forward_operands(x.rank(), 2);
    if !shared.specs.quantize_backprop() {
        let product = Product::<B>::in_float32(op, kind, shared, Operands::WithWeight);
        let x = product.float_operand(saved(&product, of_x, x, columns));
        let grad = product.float_operand(grad);
        let places = [
            OperandLayout::LHS.transposed().flat(),
            OperandLayout::RHS.flat(),
        ];
        let dw = in_float32::<B>([&x, &grad], places)
            .unwrap_or_else(|| B::linear_weight_backward(x, grad));
        return product.finish_float(of_weight, w, dw, meta);
    }
    let product = Product::<B>::new(op, kind, shared, weight.label);
    let x = saved(&product, of_x, x, columns);
    if let Some(columns) = LayerColumns::in_parts(columns, &product) {
        return product.finish(columns.weight_gradient(&product, x, grad), meta);
    }
    let x = product.operand(Slot::ABp, x, OperandLayout::LHS.transposed().flat());
    let grad = product.operand(Slot::ABpEx, grad, OperandLayout::RHS.flat());
    if !product.has_straight_through() {
        return product.finish_rounded(product.multiply_rounded(x, grad, None), meta);
    }
    let dw = product.multiply(x, grad);
    product.finish(product.straight_through(of_weight, w, dw), meta)
}

/// The output's gradient as both gradient products take the tensor, if the backend makes both operands in one reading.
pub(crate) fn read_once<B: MxKernels>(
    grad: &Float<B>,
    shared: &'static SharedSpecs,
) -> Option<WeightCache<Operand<FloatTensor<B>>>> {
    let [of_weight, of_x] = [OperandLayout::RHS.flat(), OperandLayout::LHS.flat()];
    let uses = [
        (ProductKind::WeightGradient, Slot::ABpEx, of_weight),
        (ProductKind::InputGradient, Slot::ABpOs, of_x),
    ];
    Product::<B>::read_once(ProductOp::Linear, shared, Operands::WithWeight, grad, uses)
}

/// `db = Σ g` over all axes but the last, with the specs `meta`: a sum, no product.
pub(crate) fn bias_backward<B: MxKernels>(
    grad: Float<B>,
    shared: &'static SharedSpecs,
    meta: Meta,
) -> Float<B> {
    let meta = Meta::computed([Some(meta)]);
    let sum = B::linear_bias_backward;
    let rounded_sum = |grad, rounding| B::kernels().column_sums(grad, rounding);
    sum_of_gradient::<B>(grad, shared, meta, sum, rounded_sum)
}

/// The gradient of a bias, `sum(grad)`: rounded before and after, unless the backward pass is not to be quantized. `rounded_sum` computes sum and
/// rounding as one.
pub(super) fn sum_of_gradient<B: MxKernels>(
    grad: Float<B>,
    shared: &'static SharedSpecs,
    meta: Meta,
    sum: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
    rounded_sum: impl FnOnce(FloatTensor<B>, OpRounding) -> FloatTensor<B>,
) -> Float<B> {
    let specs = &shared.specs;
    if !specs.quantize_backprop() {
        return MxTensor::new(sum(grad.inner), meta);
    }
    let before = Rounder::new(shared, specs.round_grad_input());
    let after = Rounder::new(shared, specs.round_grad_weight());
    match before.zip(after) {
        Some((before, after)) => {
            let draws = shared.draws();
            let op = OpRounder::of("bias", meta.label, before, draws);
            let grad = op.operand::<B>("output gradient", grad);
            let in_one_pass = after.in_one_pass(false).filter(|_| !op.is_observed());
            let sum = match in_one_pass {
                Some(rounding) => rounded_sum(grad, rounding),
                None => op.round_by::<B>(after, "bias gradient", sum(grad)),
            };
            let rounded = specs.float_format();
            stored::<B>(sum, Meta { rounded, ..meta })
        }
        None => stored::<B>(sum(to_f32::<B>(grad.inner)), meta),
    }
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
