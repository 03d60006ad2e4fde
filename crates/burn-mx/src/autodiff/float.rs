//! Float ops: burn-autodiff's, and own steps where its gradients are not the emulation's.
//!
//! What burn-autodiff itself leaves to Burn's defaults is left to them here too, so that it is composed of
//! our own steps.

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::ops::{FloatTensorOps, GridSampleOptions};
use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IndexingUpdateOp, IntTensor};
use burn_backend::{
    BoolDType, Distribution, ExecutionError, FloatDType, IntDType, Scalar, Shape, Slice, TensorData,
};

use super::{Ad, MxAutodiff};
use crate::backend::MxBackend;
use crate::forward::delegate;
use crate::kernels::MxKernels;
use crate::semantics::activation;
use crate::semantics::elementwise::Vector;
use crate::steps::{boundary, elementwise, matmul, metas};
use crate::tensor::Join;

/// Ops on one tensor with a step of our own.
macro_rules! unary_steps {
    ($(fn $name:ident($tensor:ident: FloatTensor<Self> $(, $arg:ident: $ty:ty)*) -> FloatTensor<Self> = $rule:expr;)*) => { $(
        fn $name($tensor: FloatTensor<Self> $(, $arg: $ty)*) -> FloatTensor<Self> {
            match Vector::<B>::recipe(&Join::of(metas::<B, 1>([&$tensor]))) {
                Some(_) => elementwise::unary::<B, C, _>($tensor, $rule),
                None => Ad::<B, C>::$name($tensor $(, $arg)*),
            }
        }
    )* };
}

/// Ops on two tensors with a step of our own.
macro_rules! binary_steps {
    ($($name:ident = $rule:ty;)*) => { $(
        fn $name(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
            match Vector::<B>::recipe(&Join::of(metas::<B, 2>([&lhs, &rhs]))) {
                Some(_) => elementwise::binary::<B, C, $rule>(lhs, rhs),
                None => Ad::<B, C>::$name(lhs, rhs),
            }
        }
    )* };
}

impl<B: MxKernels, C: CheckpointStrategy> FloatTensorOps<Self> for MxAutodiff<B, C> {
    // Own steps

    fn float_matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        let join = Join::of(metas::<B, 2>([&lhs, &rhs]));
        let exempt = || {
            let exempt = join.exempt(lhs.primitive.meta);
            exempt.or_else(|| join.exempt(rhs.primitive.meta))
        };
        match join.emulation().or_else(exempt) {
            Some(interned) => matmul::forward::<B, C>(lhs, rhs, interned),
            None => Ad::<B, C>::float_matmul(lhs, rhs),
        }
    }

    unary_steps! {
        fn float_exp(tensor: FloatTensor<Self>) -> FloatTensor<Self> = elementwise::Exp;
        fn float_log(tensor: FloatTensor<Self>) -> FloatTensor<Self> = elementwise::Log;
        fn float_tanh(tensor: FloatTensor<Self>) -> FloatTensor<Self> = elementwise::Tanh;
        fn float_sqrt(tensor: FloatTensor<Self>) -> FloatTensor<Self> = elementwise::Sqrt;
        fn float_prod(tensor: FloatTensor<Self>) -> FloatTensor<Self> = elementwise::Prod { dim: None };
        fn float_prod_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> = elementwise::Prod { dim: Some(dim) };
        fn float_mean(tensor: FloatTensor<Self>) -> FloatTensor<Self> = elementwise::Mean { dim: None };
        fn float_mean_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> = elementwise::Mean { dim: Some(dim) };
    }

    binary_steps! {
        float_add = elementwise::Add;
        float_sub = elementwise::Sub;
        float_mul = elementwise::Mul;
        float_div = elementwise::Div;
    }

    /// Burn composes the sampling for autodiff: as a whole it is one rounded op, and positions are not rounded.
    fn float_grid_sample_2d(
        tensor: FloatTensor<Self>,
        grid: FloatTensor<Self>,
        options: GridSampleOptions,
    ) -> FloatTensor<Self> {
        if !activation::is_composed::<B>(&tensor.primitive) {
            return Ad::<B, C>::float_grid_sample_2d(tensor, grid, options);
        }
        let tensor = elementwise::unary::<B, C, _>(tensor, elementwise::Round);
        let grid = match activation::is_composed::<B>(&grid.primitive) {
            true => elementwise::unary::<B, C, _>(grid, elementwise::RoundGradient),
            false => grid,
        };
        let grid = boundary::enter::<B, C>(grid);
        let sampled = boundary::full_precision::<B, C>(tensor, |tensor| {
            Ad::<B, C>::float_grid_sample_2d(tensor, grid, options)
        });
        elementwise::unary::<B, C, _>(sampled, elementwise::Round)
    }

    /// A leaf that requires gradients is a weight.
    fn float_set_require_grad(
        mut tensor: FloatTensor<Self>,
        require_grad: bool,
    ) -> FloatTensor<Self> {
        if require_grad {
            tensor.primitive = tensor.primitive.into_weight();
        }
        Ad::<B, C>::float_set_require_grad(tensor, require_grad)
    }

    // burn-autodiff's

    async fn float_into_data(tensor: FloatTensor<Self>) -> Result<TensorData, ExecutionError> {
        MxBackend::<B>::float_into_data(tensor.primitive).await
    }

    delegate! { Ad<B, C>:
        fn float_from_data(data: TensorData, device: &Device<Self>) -> FloatTensor<Self>;
        fn float_random(
            shape: Shape, distribution: Distribution, device: &Device<Self>, dtype: FloatDType,
        ) -> FloatTensor<Self>;
        fn float_zeros(shape: Shape, device: &Device<Self>, dtype: FloatDType) -> FloatTensor<Self>;
        fn float_ones(shape: Shape, device: &Device<Self>, dtype: FloatDType) -> FloatTensor<Self>;
        fn float_device(tensor: &FloatTensor<Self>) -> Device<Self>;
        fn float_to_device(tensor: FloatTensor<Self>, device: &Device<Self>) -> FloatTensor<Self>;
        fn float_into_int(tensor: FloatTensor<Self>, out_dtype: IntDType) -> IntTensor<Self>;
        fn float_empty(shape: Shape, device: &Device<Self>, dtype: FloatDType) -> FloatTensor<Self>;
        fn float_repeat_dim(tensor: FloatTensor<Self>, dim: usize, times: usize) -> FloatTensor<Self>;
        fn float_add_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self>;
        fn float_sub_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self>;
        fn float_mul_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self>;
        fn float_div_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self>;
        fn float_remainder(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_remainder_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self>;
        fn float_cross(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
        fn float_neg(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_recip(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_swap_dims(tensor: FloatTensor<Self>, dim1: usize, dim2: usize) -> FloatTensor<Self>;
        fn float_permute(tensor: FloatTensor<Self>, axes: &[usize]) -> FloatTensor<Self>;
        fn float_flip(tensor: FloatTensor<Self>, axes: &[usize]) -> FloatTensor<Self>;
        fn float_reshape(tensor: FloatTensor<Self>, shape: Shape) -> FloatTensor<Self>;
        fn float_gather(dim: usize, tensor: FloatTensor<Self>, indices: IntTensor<Self>) -> FloatTensor<Self>;
        fn float_scatter_add(
            dim: usize, tensor: FloatTensor<Self>, indices: IntTensor<Self>, value: FloatTensor<Self>,
        ) -> FloatTensor<Self>;
        fn float_scatter_nd(
            data: FloatTensor<Self>, indices: IntTensor<Self>, values: FloatTensor<Self>,
            reduction: IndexingUpdateOp,
        ) -> FloatTensor<Self>;
        fn float_gather_nd(data: FloatTensor<Self>, indices: IntTensor<Self>) -> FloatTensor<Self>;
        fn float_select(tensor: FloatTensor<Self>, dim: usize, indices: IntTensor<Self>) -> FloatTensor<Self>;
        fn float_select_add(
            tensor: FloatTensor<Self>, dim: usize, indices: IntTensor<Self>, value: FloatTensor<Self>,
        ) -> FloatTensor<Self>;
        fn float_slice(tensor: FloatTensor<Self>, slices: &[Slice]) -> FloatTensor<Self>;
        fn float_slice_assign(
            tensor: FloatTensor<Self>, slices: &[Slice], value: FloatTensor<Self>,
        ) -> FloatTensor<Self>;
        fn float_mask_where(
            tensor: FloatTensor<Self>, mask: BoolTensor<Self>, value: FloatTensor<Self>,
        ) -> FloatTensor<Self>;
        fn float_mask_fill(
            tensor: FloatTensor<Self>, mask: BoolTensor<Self>, value: Scalar,
        ) -> FloatTensor<Self>;
        fn float_equal(
            lhs: FloatTensor<Self>, rhs: FloatTensor<Self>, out_dtype: BoolDType,
        ) -> BoolTensor<Self>;
        fn float_equal_elem(lhs: FloatTensor<Self>, rhs: Scalar, out_dtype: BoolDType) -> BoolTensor<Self>;
        fn float_greater(
            lhs: FloatTensor<Self>, rhs: FloatTensor<Self>, out_dtype: BoolDType,
        ) -> BoolTensor<Self>;
        fn float_greater_elem(lhs: FloatTensor<Self>, rhs: Scalar, out_dtype: BoolDType) -> BoolTensor<Self>;
        fn float_greater_equal(
            lhs: FloatTensor<Self>, rhs: FloatTensor<Self>, out_dtype: BoolDType,
        ) -> BoolTensor<Self>;
        fn float_greater_equal_elem(
            lhs: FloatTensor<Self>, rhs: Scalar, out_dtype: BoolDType,
        ) -> BoolTensor<Self>;
        fn float_lower(
            lhs: FloatTensor<Self>, rhs: FloatTensor<Self>, out_dtype: BoolDType,
        ) -> BoolTensor<Self>;
        fn float_lower_elem(lhs: FloatTensor<Self>, rhs: Scalar, out_dtype: BoolDType) -> BoolTensor<Self>;
        fn float_lower_equal(
            lhs: FloatTensor<Self>, rhs: FloatTensor<Self>, out_dtype: BoolDType,
        ) -> BoolTensor<Self>;
        fn float_lower_equal_elem(
            lhs: FloatTensor<Self>, rhs: Scalar, out_dtype: BoolDType,
        ) -> BoolTensor<Self>;
        fn float_detach(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_is_require_grad(_tensor: &FloatTensor<Self>) -> bool;
        fn float_sum(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_sum_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
        fn float_cumsum(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
        fn float_cumprod(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
        fn float_cummin(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
        fn float_cummax(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
        fn float_cast(tensor: FloatTensor<Self>, dtype: FloatDType) -> FloatTensor<Self>;
        fn float_log1p(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_powf(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_powf_scalar_impl(tensor: FloatTensor<Self>, value: Scalar) -> FloatTensor<Self>;
        fn float_abs(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_cos(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_sin(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_tan(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_cosh(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_sinh(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_acos(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_acosh(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_asin(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_asinh(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_atan(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_atanh(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_atan2(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_round(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_floor(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_ceil(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_trunc(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_erf(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_cat(tensors: Vec<FloatTensor<Self>>, dim: usize) -> FloatTensor<Self>;
        fn float_argmax(tensor: FloatTensor<Self>, dim: usize, out_dtype: IntDType) -> IntTensor<Self>;
        fn float_argtopk(
            tensor: FloatTensor<Self>, dim: usize, k: usize, out_dtype: IntDType,
        ) -> IntTensor<Self>;
        fn float_topk(tensor: FloatTensor<Self>, dim: usize, k: usize) -> FloatTensor<Self>;
        fn float_argmin(tensor: FloatTensor<Self>, dim: usize, out_dtype: IntDType) -> IntTensor<Self>;
        fn float_max_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
        fn float_max_dim_with_indices(
            tensor: FloatTensor<Self>, dim: usize, indices_dtype: IntDType,
        ) -> (FloatTensor<Self>, IntTensor<Self>);
        fn float_min_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
        fn float_min_dim_with_indices(
            tensor: FloatTensor<Self>, dim: usize, indices_dtype: IntDType,
        ) -> (FloatTensor<Self>, IntTensor<Self>);
        fn float_sign(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_expand(tensor: FloatTensor<Self>, shape: Shape) -> FloatTensor<Self>;
        fn float_sort(tensor: FloatTensor<Self>, dim: usize, descending: bool) -> FloatTensor<Self>;
        fn float_sort_with_indices(
            tensor: FloatTensor<Self>, dim: usize, descending: bool, indices_dtype: IntDType,
        ) -> (FloatTensor<Self>, IntTensor<Self>);
        fn float_argsort(
            tensor: FloatTensor<Self>, dim: usize, descending: bool, out_dtype: IntDType,
        ) -> IntTensor<Self>;
        fn float_unfold(tensor: FloatTensor<Self>, dim: usize, size: usize, step: usize) -> FloatTensor<Self>;
        fn float_is_nan(tensor: FloatTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self>;
        fn float_is_inf(tensor: FloatTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self>;
    }
}
