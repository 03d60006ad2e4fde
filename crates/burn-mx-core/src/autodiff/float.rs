//! Float ops: burn-autodiff's, and this crate's backward ops where the emulation has other gradients.
//!
//! Ops that burn-autodiff leaves to Burn's defaults stay Burn's defaults here. So they are composed of this crate's
//! backward ops.

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::ops::{FloatTensorOps, GridSampleOptions};
use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IndexingUpdateOp, IntTensor};
use burn_backend::{
    BoolDType, Distribution, ExecutionError, FloatDType, IntDType, Scalar, Shape, Slice, TensorData,
};

use super::backward::edge::{Edge, delegate_used, reduced, reduced_along_axis, used};
use super::backward::elementwise::{BinaryRule, UnaryRule};
use super::backward::{
    apart, boundary, check_recorded_by_autodiff, edge, elementwise, matmul, metas,
};
use super::{Ad, MxAutodiff, tracked};
use crate::backend::MxBackend;
use crate::backend::delegate::delegate;
use crate::backend::delegate::tables::{
    float_creation_ops, float_kernel_ops, float_move_ops, float_new_ops, float_view_ops,
};
use crate::hooks;
use crate::semantics::activation;
use crate::semantics::attention::scope::matmul_in_scope;
use crate::semantics::elementwise::{emulation, powi_scalar};
use crate::tensor::{OpContext, Rule};
use burn_mx_kernels::Function;
use burn_mx_kernels::MxKernels;

/// Ops on one tensor with a step of our own. A reduction says how it takes the tensor.
macro_rules! unary_backward {
    ($(fn $name:ident($tensor:ident: FloatTensor<Self> $(, $arg:ident: $ty:ty)*) -> FloatTensor<Self> = $rule:expr $(, $reduced:ident)?;)*) => { $(
        fn $name($tensor: FloatTensor<Self> $(, $arg: $ty)*) -> FloatTensor<Self> {
            $(let $tensor = $reduced::<B, C>($tensor);)?
            match emulation(&OpContext::of(metas::<B, 1>([&$tensor]))) {
                Some(_) => elementwise::unary::<B, C>($tensor, $rule),
                None => Ad::<B, C>::$name($tensor $(, $arg)*),
            }
        }
    )* };
}

/// Ops on two tensors with a step of our own.
macro_rules! binary_backward {
    ($($name:ident = $rule:expr;)*) => { $(
        fn $name(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
            elementwise::binary_or::<B, C>(lhs, rhs, $rule, Ad::<B, C>::$name)
        }
    )* };
}

/// Ops on two tensors with burn-autodiff's step.
macro_rules! binary_of_autodiff {
    ($(fn $name:ident($lhs:ident: FloatTensor<Self>, $rhs:ident: FloatTensor<Self> $(, $arg:ident: $ty:ty)*) -> FloatTensor<Self>;)*) => { $(
        fn $name($lhs: FloatTensor<Self>, $rhs: FloatTensor<Self> $(, $arg: $ty)*) -> FloatTensor<Self> {
            check_recorded_by_autodiff::<B, C, 2>([&$lhs, &$rhs]);
            edge::exempt_or_not::<B, C>($lhs, $rhs, |lhs, rhs| {
                hooks::tracked(|| Ad::<B, C>::$name(lhs, rhs $(, $arg)*))
            })
        }
    )* };
}

/// Ops that create a tensor on a device. A device may carry an optimizer's mark, and tensors in autodiff must not: the op
/// removes the mark.
macro_rules! unmarked {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> FloatTensor<Self>;)*) => { $(
        fn $name($($arg: $ty),*) -> FloatTensor<Self> {
            let mut tensor = Ad::<B, C>::$name($($arg),*);
            tensor.primitive.meta = tensor.primitive.meta.after(Rule::ENTERS_AUTODIFF);
            tensor
        }
    )* };
}

impl<B: MxKernels, C: CheckpointStrategy> FloatTensorOps<Self> for MxAutodiff<B, C> {
    // Own steps

    fn float_matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        let metas = [lhs.primitive.meta, rhs.primitive.meta];
        if let Some(of_attention) = matmul_in_scope(metas) {
            return apart::matmul::<B, C>(of_attention, [lhs, rhs]);
        }
        match OpContext::of_matmul(metas).emulation() {
            Some(shared) => matmul::forward::<B, C>(lhs, rhs, shared),
            None => edge::exempt_or_not::<B, C>(lhs, rhs, Ad::<B, C>::float_matmul),
        }
    }

    unary_backward! {
        fn float_exp(tensor: FloatTensor<Self>) -> FloatTensor<Self> = UnaryRule::Function(Function::Exp);
        fn float_log(tensor: FloatTensor<Self>) -> FloatTensor<Self> = UnaryRule::Log;
        fn float_tanh(tensor: FloatTensor<Self>) -> FloatTensor<Self> = UnaryRule::Tanh;
        fn float_tan(tensor: FloatTensor<Self>) -> FloatTensor<Self> = UnaryRule::Tan;
        fn float_sqrt(tensor: FloatTensor<Self>) -> FloatTensor<Self> = UnaryRule::Sqrt;
        fn float_cumprod(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> = UnaryRule::CumProd { dim };
        fn float_prod(tensor: FloatTensor<Self>) -> FloatTensor<Self> = UnaryRule::Prod { dim: None }, reduced;
        fn float_prod_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> =
            UnaryRule::Prod { dim: Some(dim) }, reduced_along_axis;
        fn float_mean(tensor: FloatTensor<Self>) -> FloatTensor<Self> = UnaryRule::Mean { dim: None }, reduced;
        fn float_mean_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> =
            UnaryRule::Mean { dim: Some(dim) }, reduced_along_axis;
    }

    binary_backward! {
        float_add = BinaryRule::Add;
        float_sub = BinaryRule::Sub;
        float_mul = BinaryRule::Mul;
        float_div = BinaryRule::Div;
    }

    /// A square is a separate op with its own gradient; a tensor times itself stays a product.
    fn float_powi_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self> {
        powi_scalar::<Self>(lhs, rhs, |x| {
            match emulation(&OpContext::of(metas::<B, 1>([&x]))) {
                Some(_) => elementwise::unary::<B, C>(x, UnaryRule::Square),
                None => Self::float_mul(x.clone(), x),
            }
        })
    }

    /// Burn composes the sampling for autodiff: as a whole it is one rounded op, and positions are not rounded.
    fn float_grid_sample_2d(
        tensor: FloatTensor<Self>,
        grid: FloatTensor<Self>,
        options: GridSampleOptions,
    ) -> FloatTensor<Self> {
        let context = OpContext::of(metas::<B, 2>([&tensor, &grid]));
        if emulation(&context).is_none() {
            let edge = Edge::of_moved(&context);
            let [tensor, grid] = [tensor, grid].map(|tensor| edge.enter::<B, C>(tensor));
            return Ad::<B, C>::float_grid_sample_2d(tensor, grid, options);
        }
        // Numbers that activations place are an activation, too.
        let positions = grid.primitive.meta;
        let tensor = boundary::cross::<B, C>(tensor, |meta| meta.indexed_by(positions));
        let tensor = elementwise::unary::<B, C>(tensor, UnaryRule::Round);
        let grid = match activation::is_composed::<B>(&grid.primitive) {
            true => elementwise::unary::<B, C>(grid, UnaryRule::RoundGradient),
            false => grid,
        };
        let grid = boundary::enter::<B, C>(grid);
        let sampled = boundary::full_precision::<B, C>(tensor, |tensor| {
            Ad::<B, C>::float_grid_sample_2d(tensor, grid, options)
        });
        elementwise::unary::<B, C>(sampled, UnaryRule::Round)
    }

    fn float_set_require_grad(
        mut tensor: FloatTensor<Self>,
        require_grad: bool,
    ) -> FloatTensor<Self> {
        let meta = &mut tensor.primitive.meta;
        *meta = meta.after(Rule::ENTERS_AUTODIFF);
        tensor.primitive = tensor.primitive.with_require_grad(require_grad);
        Ad::<B, C>::float_set_require_grad(tensor, require_grad)
    }

    // burn-autodiff's

    async fn float_into_data(tensor: FloatTensor<Self>) -> Result<TensorData, ExecutionError> {
        MxBackend::<B>::float_into_data(tensor.primitive).await
    }

    binary_of_autodiff! {
        fn float_remainder(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_powf(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_atan2(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_cross(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
    }

    float_view_ops!(delegate_used! Ad<B, C>:);
    float_kernel_ops!(delegate_used! Ad<B, C>:);
    float_move_ops!(delegate_used! Ad<B, C>:);
    float_new_ops!(delegate_used! Ad<B, C>:);
    float_creation_ops!(unmarked!);

    /// burn-autodiff creates the tensor from data, like an input.
    fn float_full(
        shape: Shape,
        fill_value: Scalar,
        device: &Device<Self>,
        dtype: FloatDType,
    ) -> FloatTensor<Self> {
        tracked::<B>(MxBackend::<B>::float_full(shape, fill_value, device, dtype))
    }

    unmarked! {
        fn float_from_data(data: TensorData, device: &Device<Self>) -> FloatTensor<Self>;
    }

    fn float_to_device(tensor: FloatTensor<Self>, device: &Device<Self>) -> FloatTensor<Self> {
        let mut tensor = Ad::<B, C>::float_to_device(used::<B, C>(tensor), device);
        tensor.primitive.meta = tensor.primitive.meta.after(Rule::ENTERS_AUTODIFF);
        tensor
    }

    recorded! {
        fn float_add_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self>;
        fn float_sub_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self>;
        fn float_mul_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self>;
        fn float_div_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self>;
        fn float_remainder_scalar(lhs: FloatTensor<Self>, rhs: Scalar) -> FloatTensor<Self>;
        fn float_recip(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_log1p(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_powf_scalar_impl(tensor: FloatTensor<Self>, value: Scalar) -> FloatTensor<Self>;
        fn float_cos(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_sin(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_cosh(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_sinh(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_acos(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_acosh(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_asin(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_asinh(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_atan(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_atanh(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_round(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_floor(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_ceil(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_trunc(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
        fn float_erf(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
    }

    fn float_select_add(
        tensor: FloatTensor<Self>,
        dim: usize,
        indices: IntTensor<Self>,
        value: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        check_recorded_by_autodiff::<B, C, 2>([&tensor, &value]);
        let metas = [tensor.primitive.meta, indices.meta, value.primitive.meta];
        let edge = Edge::of_moved(&OpContext::of(metas.map(Some)));
        let [tensor, value] = [tensor, value].map(|tensor| edge.enter::<B, C>(tensor));
        hooks::tracked(|| Ad::<B, C>::float_select_add(tensor, dim, indices, value))
    }

    fn float_sum(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        let tensor = used::<B, C>(reduced::<B, C>(tensor));
        hooks::tracked(|| Ad::<B, C>::float_sum(tensor))
    }

    fn float_sum_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self> {
        let tensor = used::<B, C>(reduced_along_axis::<B, C>(tensor));
        hooks::tracked(|| Ad::<B, C>::float_sum_dim(tensor, dim))
    }

    delegate_used! { Ad<B, C>:
        fn float_cumsum(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
        fn float_cast(tensor: FloatTensor<Self>, dtype: FloatDType) -> FloatTensor<Self>;
        fn float_scatter_add(
            dim: usize, tensor: FloatTensor<Self>, indices: IntTensor<Self>, value: FloatTensor<Self>,
        ) -> FloatTensor<Self>;
        fn float_scatter_nd(
            data: FloatTensor<Self>, indices: IntTensor<Self>, values: FloatTensor<Self>,
            reduction: IndexingUpdateOp,
        ) -> FloatTensor<Self>;
    }

    /// A detached activation is data; a detached leaf is the leaf.
    fn float_detach(mut tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        tensor.primitive = tensor.primitive.reduced();
        Ad::<B, C>::float_detach(tensor)
    }

    // A leaf that is asked about is to be the leaf itself.
    delegate! { Ad<B, C>:
        fn float_device(tensor: &FloatTensor<Self>) -> Device<Self>;
        fn float_is_require_grad(_tensor: &FloatTensor<Self>) -> bool;
    }
}
