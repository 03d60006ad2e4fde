//! Float ops.

use burn_backend::ops::{FloatTensorOps, GridSampleOptions};
use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IndexingUpdateOp, IntTensor};
use burn_backend::{
    BoolDType, Distribution, ExecutionError, FloatDType, IntDType, Scalar, Shape, Slice,
    TensorData, TensorMetadata,
};

use crate::backend::MxBackend;
use crate::backend::delegate::tables::{
    float_creation_ops, float_move_ops, float_new_ops, float_view_ops,
};
use crate::backend::delegate::{Unwrap, delegate};
use crate::semantics::attention::formatted::Attention;
use crate::semantics::attention::scope::matmul_in_scope;
use crate::semantics::{activation, elementwise, matmul};
use crate::tensor::{Meta, MxTensor, Rule};
use burn_mx_kernels::Function;
use burn_mx_kernels::MxKernels;
use burn_mx_kernels::internal::{BinaryOp, UnaryOp, same_type};

/// Ops on one tensor: round, compute by `B`, round. A reduction says how it takes the tensor.
macro_rules! unary {
    ($(fn $name:ident($tensor:ident: FloatTensor<Self> $(, $arg:ident: $ty:ty)*) -> FloatTensor<Self> $(= $reduced:ident)?;)*) => { $(
        fn $name($tensor: FloatTensor<Self> $(, $arg: $ty)*) -> FloatTensor<Self> {
            let tensor = $tensor$(.$reduced())?;
            elementwise::unary::<B>(stringify!($name), None, tensor, |tensor| B::$name(tensor $(, $arg)*))
        }
    )* };
}

/// Functions of each number: round, compute by `B`, round.
macro_rules! function {
    ($(fn $name:ident($tensor:ident: FloatTensor<Self>) -> FloatTensor<Self>;)*) => { $(
        fn $name($tensor: FloatTensor<Self>) -> FloatTensor<Self> {
            elementwise::function::<B>(stringify!($name), None, $tensor, B::$name)
        }
    )* };
}

/// Ops on two tensors: round both, compute by `B`, round.
macro_rules! binary {
    ($(fn $name:ident($lhs:ident: FloatTensor<Self>, $rhs:ident: FloatTensor<Self>) -> FloatTensor<Self>;)*) => { $(
        fn $name($lhs: FloatTensor<Self>, $rhs: FloatTensor<Self>) -> FloatTensor<Self> {
            elementwise::binary::<B>(stringify!($name), None, $lhs, $rhs, B::$name)
        }
    )* };
}

impl<B: MxKernels> FloatTensorOps<Self> for MxBackend<B> {
    // Emulated

    fn float_matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        match matmul_in_scope([lhs.meta, rhs.meta]) {
            Some((which, specs)) => {
                let operands = [lhs, rhs].map(MxTensor::into_activation);
                Attention::<B>::apart(specs).matmul(which, operands)
            }
            None => matmul::forward::<B>(lhs, rhs),
        }
    }

    /// burn-autodiff adds up by this op what a tensor gets from several uses: for an activation that is an emulated
    /// addition, for a parameter a plain one.
    fn float_add(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        if let Some(meta) = lhs.meta.of_parameter_gradients(rhs.meta) {
            return MxTensor::new(B::float_add(lhs.inner, rhs.inner), meta);
        }
        elementwise::binary_op::<B>(None, BinaryOp::Add, lhs, rhs)
    }

    fn float_sub(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        elementwise::binary_op::<B>(None, BinaryOp::Sub, lhs, rhs)
    }

    fn float_mul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        elementwise::binary_op::<B>(None, BinaryOp::Mul, lhs, rhs)
    }

    fn float_add_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self> {
        elementwise::unary_op::<B>(None, UnaryOp::AddScalar(rhs.elem()), lhs, |lhs| {
            B::float_add_scalar(lhs, rhs)
        })
    }

    fn float_sub_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self> {
        elementwise::unary_op::<B>(None, UnaryOp::SubScalar(rhs.elem()), lhs, |lhs| {
            B::float_sub_scalar(lhs, rhs)
        })
    }

    fn float_mul_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self> {
        elementwise::unary_op::<B>(None, UnaryOp::MulScalar(rhs.elem()), lhs, |lhs| {
            B::float_mul_scalar(lhs, rhs)
        })
    }

    fn float_div_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self> {
        elementwise::unary_op::<B>(None, UnaryOp::DivScalar(rhs.elem()), lhs, |lhs| {
            B::float_div_scalar(lhs, rhs)
        })
    }

    fn float_sqrt(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        elementwise::unary_op::<B>(None, UnaryOp::Sqrt, tensor, B::float_sqrt)
    }

    fn float_exp(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        activation::function::<B>(Function::Exp, None, tensor)
    }

    fn float_div(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        elementwise::div::<B>(None, lhs, rhs)
    }

    fn float_recip(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        elementwise::recip::<B>(tensor)
    }

    fn float_mean(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        elementwise::mean::<B>(None, tensor.reduced())
    }

    fn float_mean_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        elementwise::mean_dim::<B>(None, tensor.reduced_along_axis(), dim)
    }

    fn float_cross(
        lhs: FloatTensor<Self>,
        rhs: FloatTensor<Self>,
        dim: usize,
    ) -> FloatTensor<Self> {
        elementwise::binary::<B>("cross", None, lhs, rhs, |lhs, rhs| {
            B::float_cross(lhs, rhs, dim)
        })
    }

    fn float_powi(lhs: FloatTensor<Self>, rhs: IntTensor<Self>) -> FloatTensor<Self> {
        let lhs = lhs.indexed_by(rhs.meta);
        elementwise::unary::<B>("powi", None, lhs, |lhs| B::float_powi(lhs, rhs.inner))
    }

    fn float_grid_sample_2d(
        tensor: FloatTensor<Self>,
        grid: FloatTensor<Self>,
        options: GridSampleOptions,
    ) -> FloatTensor<Self> {
        // The grid says where to read: positions, which are not rounded.
        let tensor = tensor.indexed_by(grid.meta);
        elementwise::unary::<B>("grid_sample_2d", None, tensor, |tensor| {
            let grid = same_type::<B>(grid.inner, &tensor);
            B::float_grid_sample_2d(tensor, grid, options)
        })
    }

    fn float_scatter_add(
        dim: usize,
        tensor: FloatTensor<Self>,
        indices: IntTensor<Self>,
        value: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let tensor = tensor.indexed_by(indices.meta);
        elementwise::binary::<B>("scatter_add", None, tensor, value, |tensor, value| {
            B::float_scatter_add(dim, tensor, indices.inner, value)
        })
    }

    fn float_select_add(
        tensor: FloatTensor<Self>,
        dim: usize,
        indices: IntTensor<Self>,
        value: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let tensor = tensor.indexed_by(indices.meta);
        elementwise::binary::<B>("select_add", None, tensor, value, |tensor, value| {
            B::float_select_add(tensor, dim, indices.inner, value)
        })
    }

    fn float_scatter_nd(
        data: FloatTensor<Self>,
        indices: IntTensor<Self>,
        values: FloatTensor<Self>,
        reduction: IndexingUpdateOp,
    ) -> FloatTensor<Self> {
        let data = data.indexed_by(indices.meta);
        if matches!(reduction, IndexingUpdateOp::Add | IndexingUpdateOp::Mul) {
            return elementwise::binary::<B>("scatter_nd", None, data, values, |data, values| {
                B::float_scatter_nd(data, indices.inner, values, reduction)
            });
        }
        let meta = Meta::computed([Some(data.meta), Some(values.meta)]);
        MxTensor::new(
            B::float_scatter_nd(data.inner, indices.inner, values.inner, reduction),
            meta,
        )
    }

    function! {
        fn float_log(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_log1p(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_cos(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_sin(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_tan(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_cosh(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_sinh(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_tanh(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_acos(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_acosh(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_asin(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_asinh(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_atan(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_atanh(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_erf(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
    }

    unary! {
        fn float_round(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_floor(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_ceil(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_trunc(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
    }

    unary! {
        fn float_sum(tensor: FloatTensor<Self>) -> FloatTensor<Self> = reduced;
        fn float_prod(tensor: FloatTensor<Self>) -> FloatTensor<Self> = reduced;
        fn float_sum_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> = reduced_along_axis;
        fn float_prod_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> = reduced_along_axis;
    }

    unary! {
        fn float_remainder_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self>;
        fn float_powi_scalar_impl(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self>;
        fn float_powf_scalar_impl(tensor: FloatTensor<Self>, value: Scalar) -> FloatTensor<Self>;
        fn float_cumsum(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
        fn float_cumprod(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
    }

    /// A single exponent is a scalar, which does not count as an input of its base.
    fn float_powf(lhs: FloatTensor<Self>, mut rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        if lhs.meta.is_constant() && !rhs.meta.is_weight() && rhs.shape().num_elements() == 1 {
            rhs.meta = rhs.meta.after(Rule::CONSTANT);
        }
        elementwise::binary::<B>("float_powf", None, lhs, rhs, B::float_powf)
    }

    binary! {
        fn float_remainder(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_atan2(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self>;
    }

    // Composed: float_powf_scalar by Burn's default, which makes a float_powi_scalar of an integer.

    /// By squares and reciprocals for small integers, as Burn does it.
    fn float_powi_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self> {
        elementwise::powi_scalar::<Self>(lhs, rhs, |x| elementwise::square::<B>(None, x))
    }

    // Delegated

    fn float_from_data(data: TensorData, device: &Device<Self>) -> FloatTensor<Self> {
        let meta = device.meta_of_created();
        MxTensor::new(B::float_from_data(data, &device.inner), meta)
    }

    async fn float_into_data(tensor: FloatTensor<Self>) -> Result<TensorData, ExecutionError> {
        B::float_into_data(tensor.inner).await
    }

    fn float_device(tensor: &FloatTensor<Self>) -> Device<Self> {
        tensor.device_from(B::float_device(&tensor.inner))
    }

    fn float_to_device(tensor: FloatTensor<Self>, device: &Device<Self>) -> FloatTensor<Self> {
        let meta = tensor.meta.on_device(device.meta);
        let unpacked = tensor.unpacked();
        let moved = MxTensor::new(B::float_to_device(tensor.inner, &device.inner), meta);
        match meta.is_weight() {
            // The copies stay; the marks of the values go along.
            true => moved.into_weight_of(unpacked),
            false => moved,
        }
    }

    fn float_cast(tensor: FloatTensor<Self>, dtype: FloatDType) -> FloatTensor<Self> {
        let mut meta = Meta::viewed([Some(tensor.meta)]);
        let before = tensor.dtype();
        let mut unpacked = tensor.unpacked();
        let inner = B::float_cast(tensor.inner, dtype);
        if inner.dtype() != before {
            // A narrower type may hold other values than the format.
            meta.rounded = None;
            unpacked = None;
        }
        MxTensor::new(inner, meta).with_values_of(unpacked)
    }

    /// The tensor stops being an optimizer's: `Module::valid` calls this method, optimizers do not.
    fn float_set_require_grad(tensor: FloatTensor<Self>, require_grad: bool) -> FloatTensor<Self> {
        MxTensor {
            inner: B::float_set_require_grad(tensor.inner, require_grad),
            meta: tensor.meta.after(Rule::ENTERS_AUTODIFF),
            kept: tensor.kept,
        }
        .with_require_grad(require_grad)
    }

    fn float_detach(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        let meta = Meta::viewed([Some(tensor.meta.after(Rule::REDUCED))]);
        MxTensor {
            kept: tensor.kept,
            ..MxTensor::new(B::float_detach(tensor.inner), meta)
        }
    }

    fn float_is_require_grad(tensor: &FloatTensor<Self>) -> bool {
        B::float_is_require_grad(&tensor.inner)
    }

    fn float_reshape(tensor: FloatTensor<Self>, shape: Shape) -> FloatTensor<Self> {
        let meta = Meta::viewed([Some(tensor.meta)]);
        MxTensor::new(B::kernels().reshape(tensor.inner, shape), meta)
    }

    fn float_cat(tensors: Vec<FloatTensor<Self>>, dim: usize) -> FloatTensor<Self> {
        let meta = Meta::moved([tensors.meta()]);
        MxTensor::new(B::kernels().cat(tensors.unwrap(), dim), meta)
    }

    fn float_mask_fill(
        tensor: FloatTensor<Self>,
        mask: BoolTensor<Self>,
        value: Scalar,
    ) -> FloatTensor<Self> {
        let meta = Meta::computed([Some(tensor.meta), Some(mask.meta)]);
        MxTensor::new(
            B::kernels().mask_fill(tensor.inner, mask.inner, value),
            meta,
        )
    }

    float_view_ops!(delegate! unwrapped, viewed:);
    float_move_ops!(delegate! unwrapped, moved:);
    float_creation_ops!(delegate! unwrapped, viewed:);
    float_new_ops!(delegate! unwrapped, computed:);

    delegate! { unwrapped, viewed:
        fn float_transpose(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
    }

    delegate! { unwrapped, moved:
        fn float_max(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_min(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_max_abs(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_max_abs_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
    }

    delegate! { unwrapped, viewed:
        fn float_full(
            shape: Shape, fill_value: Scalar, device: &Device<Self>, dtype: FloatDType,
        ) -> FloatTensor<Self>;
    }

    delegate! { unwrapped, computed:
        fn float_clamp_min(tensor: FloatTensor<Self>, min: Scalar) -> FloatTensor<Self>;
        fn float_clamp_max(tensor: FloatTensor<Self>, max: Scalar) -> FloatTensor<Self>;
        fn float_clamp(tensor: FloatTensor<Self>, min: Scalar, max: Scalar) -> FloatTensor<Self>;
        fn float_not_equal(
            lhs: FloatTensor<Self>, rhs: FloatTensor<Self>, out_dtype: BoolDType,
        ) -> BoolTensor<Self>;
        fn float_not_equal_elem(
            lhs: FloatTensor<Self>, rhs: Scalar, out_dtype: BoolDType,
        ) -> BoolTensor<Self>;
        fn float_any(tensor: FloatTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self>;
        fn float_any_dim(tensor: FloatTensor<Self>, dim: usize, out_dtype: BoolDType) -> BoolTensor<Self>;
        fn float_all(tensor: FloatTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self>;
        fn float_all_dim(tensor: FloatTensor<Self>, dim: usize, out_dtype: BoolDType) -> BoolTensor<Self>;
    }
}
