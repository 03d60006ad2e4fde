//! Linear layers with hot columns: the columns' ranking, the product in two parts, and the product of residuals.

use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{IntDType, Shape, TensorData, TensorMetadata, get_device_settings, read_sync};

use super::forward_operands;
use crate::hooks;
use crate::semantics::product::{ForwardOperand, Product};
use crate::specs::{ColumnChoice, ColumnRanking, ColumnScore, GradientOperands, ProductOp, Slot};
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::{Float, Meta, MxTensor};
use burn_mx_kernels::internal::OperandLayout;
use burn_mx_kernels::{MxKernels, to_f32};

/// The columns of a linear layer's operands, ranked.
#[derive(Clone, Debug)]
pub(crate) struct LayerColumns {
    ranking: ColumnRanking,
    /// How many of the first ones are hot.
    hot: usize,
}

impl LayerColumns {
    /// The columns of the layer `x · w`; `None` if it has no hot ones. Observers see the scores of columns that a ranking fixes.
    pub(crate) fn of<B: MxKernels>(
        shared: &'static SharedSpecs,
        x: &Float<B>,
        weight: &Float<B>,
    ) -> Option<Self> {
        let hot = shared.specs.specs().hot_columns.as_ref()?;
        let scores = || scores::<B>(shared, hot.score, x, weight);
        if hot.chosen == ColumnChoice::Fixed {
            hooks::columns(weight.meta.label, scores);
        }
        let columns = weight.shape()[0];
        let count = hot.count(columns);
        if shared.specs.hot_columns().is_none() || count == 0 {
            return None;
        }
        let ranking = match &hot.ranking {
            Some(ranking) => ranking.clone(),
            None => {
                ColumnRanking::of_scores(&scores()).expect("a layer with hot columns has columns")
            }
        };
        let ranked = ranking.order().len();
        assert!(
            ranked == columns,
            "burn-mx: `hot_columns.ranking` has {ranked} columns, and {} has {columns}; allowed: a ranking for each layer, set by \
             its path",
            weight.meta.label.unwrap_or("a linear layer"),
        );
        Some(Self {
            ranking,
            hot: count,
        })
    }

    /// The columns, if they form products of their own by the specs of this product.
    pub(super) fn in_parts<'a, B: MxKernels>(
        columns: &'a Option<Self>,
        product: &Product<B>,
    ) -> Option<&'a Self> {
        columns.as_ref().filter(|_| product.has_parts())
    }

    /// The hot columns of a tensor with columns along this axis, and the others.
    fn split<B: MxKernels>(&self, tensor: FloatTensor<B>, axis: usize) -> [FloatTensor<B>; 2] {
        let (hot, others) = self.ranking.order().split_at(self.hot);
        [hot, others].map(|columns| {
            let columns = indices::<B>(columns.iter().copied(), &tensor);
            B::float_select(tensor.clone(), axis, columns)
        })
    }

    /// The inverse of [`split`](Self::split).
    fn merged<B: MxKernels>(&self, parts: [FloatTensor<B>; 2], axis: usize) -> FloatTensor<B> {
        let merged = B::float_cat(parts.into(), axis);
        let order = self.ranking.order();
        let mut places = vec![0; order.len()];
        for (place, column) in order.iter().enumerate() {
            places[*column as usize] = place as u32;
        }
        let places = indices::<B>(places.into_iter(), &merged);
        B::float_select(merged, axis, places)
    }

    /// `x · w + b` of a product with hot columns, rounded.
    pub(super) fn forward<B: MxKernels>(
        &self,
        product: &Product<B>,
        x: Float<B>,
        weight: Float<B>,
        bias: Option<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        product.refuse_static_input();
        let metas = [x.meta, weight.meta];
        let axes = [x.rank() - 1, 0];
        let x = product.elementwise_operand(Slot::A, x);
        let weight = product.elementwise_operand(Slot::W, weight);
        let whole = [
            (Slot::A, rounded(product, x.clone(), metas[0]), LHS),
            (Slot::W, rounded(product, weight.clone(), metas[1]), RHS),
        ];
        let of_others = |x, weight| {
            let x = product.operand(Slot::A, rounded(product, x, metas[0]), LHS);
            let weight = product.operand(Slot::W, rounded(product, weight, metas[1]), RHS);
            product.multiply(x, weight)
        };
        let result = product.in_parts(whole, || match product.has_parts() {
            true => {
                let [hot_x, x] = self.split::<B>(x, axes[0]);
                let [hot_weight, weight] = self.split::<B>(weight, axes[1]);
                let others = of_others(x, weight);
                let hot = [(Slot::A, hot_x, LHS), (Slot::W, hot_weight, RHS)];
                B::float_add(others, product.multiply_hot(hot))
            }
            false => {
                let patch = self.patch(product, [x.clone(), weight.clone()], metas);
                B::float_sub(of_others(x, weight), patch)
            }
        });
        product.round_with_bias(result, bias)
    }

    /// Δx·w̃ + x̃·Δw over the hot columns of rounded operands, as one product.
    fn patch<B: MxKernels>(
        &self,
        product: &Product<B>,
        operands: [FloatTensor<B>; 2],
        metas: [Meta; 2],
    ) -> FloatTensor<B> {
        let ranks = [operands[0].rank(), 2];
        let places = forward_operands(ranks[0], ranks[1]);
        let mut sides = Vec::new();
        for ((exact, meta), ForwardOperand { slot, along }) in
            operands.into_iter().zip(metas).zip(places)
        {
            let q = product.values(slot, rounded(product, exact.clone(), meta), along);
            let [q, exact] = [q, exact].map(|tensor| {
                let [hot, _] = self.split::<B>(tensor, along.axis);
                hot
            });
            let residual = B::float_sub(q.clone(), exact);
            sides.push((product.in_hot_format(residual, along.axis), q, along.axis));
        }
        let [(dx, x, x_axis), (dw, weight, w_axis)]: [_; 2] =
            sides.try_into().expect("there are two operands");
        let lhs = B::float_cat(vec![dx, x], x_axis);
        let rhs = B::float_cat(vec![weight, dw], w_axis);
        product.multiply_exact([(lhs, LHS), (rhs, RHS)])
    }

    /// An operand of the forward product as a gradient product reads it before quantization, see [`Product::saved`].
    pub(super) fn saved<B: MxKernels>(
        &self,
        product: &Product<B>,
        operand: ForwardOperand,
        tensor: Float<B>,
    ) -> Float<B> {
        if product.gradient_operands() == GradientOperands::Original {
            return tensor;
        }
        let (axis, meta) = (operand.along.axis, tensor.meta);
        let values = product.elementwise_operand(operand.slot, tensor);
        let [hot, others] = self.split::<B>(values, axis);
        let others = product.saved(operand, rounded(product, others, meta));
        let hot = product.in_hot_format(hot, axis);
        rounded(product, self.merged::<B>([hot, others.inner], axis), meta)
    }

    /// `xᵀ · g`, rounded to nothing yet: the hot rows by a product of their own.
    pub(super) fn weight_gradient<B: MxKernels>(
        &self,
        product: &Product<B>,
        x: Float<B>,
        grad: Float<B>,
    ) -> FloatTensor<B> {
        let (x_meta, grad_meta) = (x.meta, grad.meta);
        let axis = x.rank() - 1;
        let x = product.elementwise_operand(Slot::ABp, x);
        let grad = product.elementwise_operand(Slot::ABpEx, grad);
        let [lhs, rhs] = [
            OperandLayout::LHS.transposed().flat(),
            OperandLayout::RHS.flat(),
        ];
        let whole = [
            (Slot::ABp, rounded(product, x.clone(), x_meta), lhs),
            (Slot::ABpEx, rounded(product, grad.clone(), grad_meta), rhs),
        ];
        product.in_parts(whole, || {
            let [hot_x, x] = self.split::<B>(x, axis);
            let hot = [(Slot::ABp, hot_x, lhs), (Slot::ABpEx, grad.clone(), rhs)];
            let hot = product.multiply_hot(hot);
            let x = product.operand(Slot::ABp, rounded(product, x, x_meta), lhs);
            let grad = product.operand(Slot::ABpEx, rounded(product, grad, grad_meta), rhs);
            let others = product.multiply(x, grad);
            self.merged::<B>([hot, others], 0)
        })
    }
}

const LHS: OperandLayout = OperandLayout::LHS.flat();
const RHS: OperandLayout = OperandLayout::RHS;

/// Values that are rounded to the elementwise format, as a tensor with this meta.
fn rounded<B: MxKernels>(product: &Product<B>, values: FloatTensor<B>, mut meta: Meta) -> Float<B> {
    meta.rounded = product.float_format();
    MxTensor::new(values, meta)
}

/// Indices on the device of this tensor.
fn indices<B: MxKernels>(
    columns: impl Iterator<Item = u32>,
    tensor: &FloatTensor<B>,
) -> IntTensor<B> {
    let device = B::float_device(tensor);
    let columns: Vec<i32> = columns.map(|column| column as i32).collect();
    let shape = Shape::new([columns.len()]);
    let data = TensorData::new(columns, shape);
    let dtype: IntDType = get_device_settings::<B>(&device).int_dtype;
    B::int_from_data(data.convert_dtype(dtype.into()), &device)
}

/// The scores of the columns of `x · w`.
fn scores<B: MxKernels>(
    shared: &'static SharedSpecs,
    score: ColumnScore,
    x: &Float<B>,
    weight: &Float<B>,
) -> Vec<f32> {
    match score {
        ColumnScore::Input => {
            let x = to_f32::<B>(x.inner.clone());
            let squares = sums::<B>(B::float_mul(x.clone(), x), 1);
            squares.into_iter().map(f32::sqrt).collect()
        }
        ColumnScore::Error => {
            let product = Product::<B>::unobserved(ProductOp::Linear, shared);
            let [of_x, of_weight] = forward_operands(x.rank(), 2);
            let error = |operand: ForwardOperand, tensor: &Float<B>| {
                let meta = tensor.meta;
                let exact = product.elementwise_operand(operand.slot, tensor.clone());
                let q = rounded(&product, exact.clone(), meta);
                let q = product.values(operand.slot, q, operand.along);
                B::float_abs(B::float_sub(q, exact))
            };
            let of_x = sums::<B>(error(of_x, x), 1);
            let of_weight = sums::<B>(error(of_weight, weight), 0);
            let rows = x.shape().num_elements() / of_x.len();
            let outputs = weight.shape()[1];
            let means = |(x, weight)| x / rows as f32 + weight / outputs as f32;
            of_x.into_iter().zip(of_weight).map(means).collect()
        }
    }
}

/// The sums of a tensor's columns, which lie along the last axis (1) or the first one of two (0).
fn sums<B: MxKernels>(tensor: FloatTensor<B>, columns: usize) -> Vec<f32> {
    let shape = tensor.shape();
    let last = shape[shape.num_dims() - 1];
    let rows = shape.num_elements() / last.max(1);
    let tensor = B::float_reshape(tensor, Shape::new([rows, last]));
    let sums = B::float_sum_dim(tensor, 1 - columns);
    let data = read_sync(B::float_into_data(sums));
    let data = data.unwrap_or_else(|error| panic!("burn-mx: the scores of columns: {error}"));
    data.iter::<f32>().collect()
}
