//! Signatures that both sides of the decorator delegate unchanged: `MxBackend` to the wrapped backend, `MxAutodiff` to
//! `MxBackend`, or for floats to burn-autodiff. Each table hands its lines to a macro, after the macro's own arguments.

/// The same values in another shape or order.
macro_rules! float_view_ops {
    ($to:ident! $($before:tt)*) => {
        $to! { $($before)*
            fn float_swap_dims(tensor: FloatTensor<Self>, dim1: usize, dim2: usize) -> FloatTensor<Self>;
            fn float_permute(tensor: FloatTensor<Self>, axes: &[usize]) -> FloatTensor<Self>;
            fn float_flip(tensor: FloatTensor<Self>, axes: &[usize]) -> FloatTensor<Self>;
            fn float_slice(tensor: FloatTensor<Self>, slices: &[Slice]) -> FloatTensor<Self>;
            fn float_expand(tensor: FloatTensor<Self>, shape: Shape) -> FloatTensor<Self>;
            fn float_unfold(tensor: FloatTensor<Self>, dim: usize, size: usize, step: usize) -> FloatTensor<Self>;
        }
    };
}
pub(crate) use float_view_ops;

/// Ops that kernels may compute in fewer passes than the wrapped backend.
macro_rules! float_kernel_ops {
    ($to:ident! $($before:tt)*) => {
        $to! { $($before)*
            fn float_reshape(tensor: FloatTensor<Self>, shape: Shape) -> FloatTensor<Self>;
            fn float_cat(tensors: Vec<FloatTensor<Self>>, dim: usize) -> FloatTensor<Self>;
            fn float_mask_fill(
                tensor: FloatTensor<Self>, mask: BoolTensor<Self>, value: Scalar,
            ) -> FloatTensor<Self>;
        }
    };
}
pub(crate) use float_kernel_ops;

/// Values of the first tensor at other places.
macro_rules! float_move_ops {
    ($to:ident! $($before:tt)*) => {
        $to! { $($before)*
            fn float_gather(dim: usize, tensor: FloatTensor<Self>, indices: IntTensor<Self>) -> FloatTensor<Self>;
            fn float_gather_nd(data: FloatTensor<Self>, indices: IntTensor<Self>) -> FloatTensor<Self>;
            fn float_select(tensor: FloatTensor<Self>, dim: usize, indices: IntTensor<Self>) -> FloatTensor<Self>;
            fn float_repeat_dim(tensor: FloatTensor<Self>, dim: usize, times: usize) -> FloatTensor<Self>;
            fn float_neg(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
            fn float_abs(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
            fn float_cummin(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
            fn float_cummax(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
            fn float_topk(tensor: FloatTensor<Self>, dim: usize, k: usize) -> FloatTensor<Self>;
            fn float_max_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
            fn float_max_dim_with_indices(
                tensor: FloatTensor<Self>, dim: usize, indices_dtype: IntDType,
            ) -> (FloatTensor<Self>, IntTensor<Self>);
            fn float_min_dim(tensor: FloatTensor<Self>, dim: usize) -> FloatTensor<Self>;
            fn float_min_dim_with_indices(
                tensor: FloatTensor<Self>, dim: usize, indices_dtype: IntDType,
            ) -> (FloatTensor<Self>, IntTensor<Self>);
            fn float_sort(tensor: FloatTensor<Self>, dim: usize, descending: bool) -> FloatTensor<Self>;
            fn float_sort_with_indices(
                tensor: FloatTensor<Self>, dim: usize, descending: bool, indices_dtype: IntDType,
            ) -> (FloatTensor<Self>, IntTensor<Self>);
        }
    };
}
pub(crate) use float_move_ops;

/// Tensors that are created on a device.
macro_rules! float_creation_ops {
    ($to:ident! $($before:tt)*) => {
        $to! { $($before)*
            fn float_random(
                shape: Shape, distribution: Distribution, device: &Device<Self>, dtype: FloatDType,
            ) -> FloatTensor<Self>;
            fn float_zeros(shape: Shape, device: &Device<Self>, dtype: FloatDType) -> FloatTensor<Self>;
            fn float_ones(shape: Shape, device: &Device<Self>, dtype: FloatDType) -> FloatTensor<Self>;
            fn float_empty(shape: Shape, device: &Device<Self>, dtype: FloatDType) -> FloatTensor<Self>;
        }
    };
}
pub(crate) use float_creation_ops;

/// New values that are not rounded, or values of several tensors.
macro_rules! float_new_ops {
    ($to:ident! $($before:tt)*) => {
        $to! { $($before)*
            fn float_into_int(tensor: FloatTensor<Self>, out_dtype: IntDType) -> IntTensor<Self>;
            fn float_slice_assign(
                tensor: FloatTensor<Self>, slices: &[Slice], value: FloatTensor<Self>,
            ) -> FloatTensor<Self>;
            fn float_mask_where(
                tensor: FloatTensor<Self>, mask: BoolTensor<Self>, value: FloatTensor<Self>,
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
            fn float_argmax(tensor: FloatTensor<Self>, dim: usize, out_dtype: IntDType) -> IntTensor<Self>;
            fn float_argtopk(
                tensor: FloatTensor<Self>, dim: usize, k: usize, out_dtype: IntDType,
            ) -> IntTensor<Self>;
            fn float_argmin(tensor: FloatTensor<Self>, dim: usize, out_dtype: IntDType) -> IntTensor<Self>;
            fn float_sign(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
            fn float_argsort(
                tensor: FloatTensor<Self>, dim: usize, descending: bool, out_dtype: IntDType,
            ) -> IntTensor<Self>;
            fn float_is_nan(tensor: FloatTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn float_is_inf(tensor: FloatTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self>;
        }
    };
}
pub(crate) use float_new_ops;

/// Pools and the like, which compute new values of their tensor.
macro_rules! averaging_ops {
    ($to:ident! $($before:tt)*) => {
        $to! { $($before)*
            fn avg_pool1d(
                x: FloatTensor<Self>, kernel_size: usize, stride: usize, padding: usize, count_include_pad: bool,
                ceil_mode: bool,
            ) -> FloatTensor<Self>;
            fn avg_pool2d(
                x: FloatTensor<Self>, kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2],
                count_include_pad: bool, ceil_mode: bool,
            ) -> FloatTensor<Self>;
            fn adaptive_avg_pool1d(x: FloatTensor<Self>, output_size: usize) -> FloatTensor<Self>;
            fn adaptive_avg_pool2d(x: FloatTensor<Self>, output_size: [usize; 2]) -> FloatTensor<Self>;
            fn interpolate(
                x: FloatTensor<Self>, output_size: [usize; 2], options: InterpolateOptions,
            ) -> FloatTensor<Self>;
        }
    };
}
pub(crate) use averaging_ops;

/// Those gradients of [`averaging_ops`] that burn-autodiff has as ops, too.
macro_rules! averaging_gradient_ops {
    ($to:ident! $($before:tt)*) => {
        $to! { $($before)*
            fn avg_pool2d_backward(
                x: FloatTensor<Self>, grad: FloatTensor<Self>, kernel_size: [usize; 2], stride: [usize; 2],
                padding: [usize; 2], count_include_pad: bool, ceil_mode: bool,
            ) -> FloatTensor<Self>;
            fn adaptive_avg_pool2d_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self>;
            fn interpolate_backward(
                x: FloatTensor<Self>, grad: FloatTensor<Self>, output_size: [usize; 2],
                options: InterpolateOptions,
            ) -> FloatTensor<Self>;
        }
    };
}
pub(crate) use averaging_gradient_ops;

/// Pools that pass values on.
macro_rules! max_pool_ops {
    ($to:ident! $($before:tt)*) => {
        $to! { $($before)*
            fn max_pool1d(
                x: FloatTensor<Self>, kernel_size: usize, stride: usize, padding: usize, dilation: usize,
                ceil_mode: bool,
            ) -> FloatTensor<Self>;
            fn max_pool2d(
                x: FloatTensor<Self>, kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2],
                dilation: [usize; 2], ceil_mode: bool,
            ) -> FloatTensor<Self>;
        }
    };
}
pub(crate) use max_pool_ops;

/// [`max_pool_ops`] that return the places of the values, too.
macro_rules! indexed_pool_ops {
    ($to:ident! $($before:tt)*) => {
        $to! { $($before)*
            fn max_pool1d_with_indices(
                x: FloatTensor<Self>, kernel_size: usize, stride: usize, padding: usize, dilation: usize,
                ceil_mode: bool,
            ) -> MaxPool1dWithIndices<Self>;
            fn max_pool2d_with_indices(
                x: FloatTensor<Self>, kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2],
                dilation: [usize; 2], ceil_mode: bool,
            ) -> MaxPool2dWithIndices<Self>;
        }
    };
}
pub(crate) use indexed_pool_ops;

/// Gradients that are structs.
macro_rules! struct_gradient_ops {
    ($to:ident! $($before:tt)*) => {
        $to! { $($before)*
            fn max_pool1d_with_indices_backward(
                x: FloatTensor<Self>, kernel_size: usize, stride: usize, padding: usize, dilation: usize,
                ceil_mode: bool, output_grad: FloatTensor<Self>, indices: IntTensor<Self>,
            ) -> MaxPool1dBackward<Self>;
            fn max_pool2d_with_indices_backward(
                x: FloatTensor<Self>, kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2],
                dilation: [usize; 2], ceil_mode: bool, output_grad: FloatTensor<Self>, indices: IntTensor<Self>,
            ) -> MaxPool2dBackward<Self>;
            fn deform_conv2d_backward(
                x: FloatTensor<Self>, offset: FloatTensor<Self>, weight: FloatTensor<Self>,
                mask: Option<FloatTensor<Self>>, bias: Option<FloatTensor<Self>>, output_grad: FloatTensor<Self>,
                options: DeformConvOptions<2>,
            ) -> DeformConv2dBackward<Self>;
        }
    };
}
pub(crate) use struct_gradient_ops;

macro_rules! int_ops {
    ($to:ident! $($before:tt)*) => {
        $to! { $($before)*
            fn int_empty(shape: Shape, device: &Device<Self>, dtype: IntDType) -> IntTensor<Self>;
            fn int_reshape(tensor: IntTensor<Self>, shape: Shape) -> IntTensor<Self>;
            fn int_slice(tensor: IntTensor<Self>, slices: &[Slice]) -> IntTensor<Self>;
            fn int_slice_assign(
                tensor: IntTensor<Self>, slices: &[Slice], value: IntTensor<Self>,
            ) -> IntTensor<Self>;
            fn int_mask_where(
                tensor: IntTensor<Self>, mask: BoolTensor<Self>, value: IntTensor<Self>,
            ) -> IntTensor<Self>;
            fn int_mask_fill(tensor: IntTensor<Self>, mask: BoolTensor<Self>, value: Scalar) -> IntTensor<Self>;
            fn int_gather(dim: usize, tensor: IntTensor<Self>, indices: IntTensor<Self>) -> IntTensor<Self>;
            fn int_scatter_add(
                dim: usize, tensor: IntTensor<Self>, indices: IntTensor<Self>, value: IntTensor<Self>,
            ) -> IntTensor<Self>;
            fn int_scatter_nd(
                data: IntTensor<Self>, indices: IntTensor<Self>, values: IntTensor<Self>,
                reduction: IndexingUpdateOp,
            ) -> IntTensor<Self>;
            fn int_gather_nd(data: IntTensor<Self>, indices: IntTensor<Self>) -> IntTensor<Self>;
            fn int_select(tensor: IntTensor<Self>, dim: usize, indices: IntTensor<Self>) -> IntTensor<Self>;
            fn int_select_add(
                tensor: IntTensor<Self>, dim: usize, indices: IntTensor<Self>, value: IntTensor<Self>,
            ) -> IntTensor<Self>;
            fn int_repeat_dim(tensor: IntTensor<Self>, dim: usize, times: usize) -> IntTensor<Self>;
            fn int_cat(tensors: Vec<IntTensor<Self>>, dim: usize) -> IntTensor<Self>;
            fn int_equal(lhs: IntTensor<Self>, rhs: IntTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn int_not_equal(
                lhs: IntTensor<Self>, rhs: IntTensor<Self>, out_dtype: BoolDType,
            ) -> BoolTensor<Self>;
            fn int_equal_elem(lhs: IntTensor<Self>, rhs: Scalar, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn int_not_equal_elem(lhs: IntTensor<Self>, rhs: Scalar, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn int_greater(lhs: IntTensor<Self>, rhs: IntTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn int_greater_elem(lhs: IntTensor<Self>, rhs: Scalar, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn int_greater_equal(
                lhs: IntTensor<Self>, rhs: IntTensor<Self>, out_dtype: BoolDType,
            ) -> BoolTensor<Self>;
            fn int_greater_equal_elem(
                lhs: IntTensor<Self>, rhs: Scalar, out_dtype: BoolDType,
            ) -> BoolTensor<Self>;
            fn int_lower(lhs: IntTensor<Self>, rhs: IntTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn int_lower_elem(lhs: IntTensor<Self>, rhs: Scalar, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn int_lower_equal(
                lhs: IntTensor<Self>, rhs: IntTensor<Self>, out_dtype: BoolDType,
            ) -> BoolTensor<Self>;
            fn int_lower_equal_elem(lhs: IntTensor<Self>, rhs: Scalar, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn int_add(lhs: IntTensor<Self>, rhs: IntTensor<Self>) -> IntTensor<Self>;
            fn int_add_scalar(lhs: IntTensor<Self>, rhs: Scalar) -> IntTensor<Self>;
            fn int_powi(lhs: IntTensor<Self>, rhs: IntTensor<Self>) -> IntTensor<Self>;
            fn int_powi_scalar(lhs: IntTensor<Self>, rhs: Scalar) -> IntTensor<Self>;
            fn int_powi_scalar_impl(lhs: IntTensor<Self>, rhs: Scalar) -> IntTensor<Self>;
            fn int_clamp_min(tensor: IntTensor<Self>, min: Scalar) -> IntTensor<Self>;
            fn int_clamp_max(tensor: IntTensor<Self>, max: Scalar) -> IntTensor<Self>;
            fn int_clamp(tensor: IntTensor<Self>, min: Scalar, max: Scalar) -> IntTensor<Self>;
            fn int_sub(lhs: IntTensor<Self>, rhs: IntTensor<Self>) -> IntTensor<Self>;
            fn int_sub_scalar(lhs: IntTensor<Self>, rhs: Scalar) -> IntTensor<Self>;
            fn int_mul(lhs: IntTensor<Self>, rhs: IntTensor<Self>) -> IntTensor<Self>;
            fn int_mul_scalar(lhs: IntTensor<Self>, rhs: Scalar) -> IntTensor<Self>;
            fn int_div(lhs: IntTensor<Self>, rhs: IntTensor<Self>) -> IntTensor<Self>;
            fn int_div_scalar(lhs: IntTensor<Self>, rhs: Scalar) -> IntTensor<Self>;
            fn int_remainder(lhs: IntTensor<Self>, rhs: IntTensor<Self>) -> IntTensor<Self>;
            fn int_remainder_scalar(lhs: IntTensor<Self>, rhs: Scalar) -> IntTensor<Self>;
            fn int_matmul(lhs: IntTensor<Self>, rhs: IntTensor<Self>) -> IntTensor<Self>;
            fn int_neg(tensor: IntTensor<Self>) -> IntTensor<Self>;
            fn int_zeros(shape: Shape, device: &Device<Self>, dtype: IntDType) -> IntTensor<Self>;
            fn int_ones(shape: Shape, device: &Device<Self>, dtype: IntDType) -> IntTensor<Self>;
            fn int_full(
                shape: Shape, fill_value: Scalar, device: &Device<Self>, dtype: IntDType,
            ) -> IntTensor<Self>;
            fn int_sum(tensor: IntTensor<Self>) -> IntTensor<Self>;
            fn int_sum_dim(tensor: IntTensor<Self>, dim: usize) -> IntTensor<Self>;
            fn int_prod(tensor: IntTensor<Self>) -> IntTensor<Self>;
            fn int_prod_dim(tensor: IntTensor<Self>, dim: usize) -> IntTensor<Self>;
            fn int_mean(tensor: IntTensor<Self>) -> IntTensor<Self>;
            fn int_mean_dim(tensor: IntTensor<Self>, dim: usize) -> IntTensor<Self>;
            fn int_cumsum(tensor: IntTensor<Self>, dim: usize) -> IntTensor<Self>;
            fn int_cumprod(tensor: IntTensor<Self>, dim: usize) -> IntTensor<Self>;
            fn int_cummin(tensor: IntTensor<Self>, dim: usize) -> IntTensor<Self>;
            fn int_cummax(tensor: IntTensor<Self>, dim: usize) -> IntTensor<Self>;
            fn int_argmax(tensor: IntTensor<Self>, dim: usize) -> IntTensor<Self>;
            fn int_argtopk(tensor: IntTensor<Self>, dim: usize, k: usize) -> IntTensor<Self>;
            fn int_topk(tensor: IntTensor<Self>, dim: usize, k: usize) -> IntTensor<Self>;
            fn int_argmin(tensor: IntTensor<Self>, dim: usize) -> IntTensor<Self>;
            fn int_max(tensor: IntTensor<Self>) -> IntTensor<Self>;
            fn int_max_dim(tensor: IntTensor<Self>, dim: usize) -> IntTensor<Self>;
            fn int_max_dim_with_indices(
                tensor: IntTensor<Self>, dim: usize,
            ) -> (IntTensor<Self>, IntTensor<Self>);
            fn int_max_abs(tensor: IntTensor<Self>) -> IntTensor<Self>;
            fn int_max_abs_dim(tensor: IntTensor<Self>, dim: usize) -> IntTensor<Self>;
            fn int_min(tensor: IntTensor<Self>) -> IntTensor<Self>;
            fn int_min_dim(tensor: IntTensor<Self>, dim: usize) -> IntTensor<Self>;
            fn int_min_dim_with_indices(
                tensor: IntTensor<Self>, dim: usize,
            ) -> (IntTensor<Self>, IntTensor<Self>);
            fn int_abs(tensor: IntTensor<Self>) -> IntTensor<Self>;
            fn int_transpose(tensor: IntTensor<Self>) -> IntTensor<Self>;
            fn int_swap_dims(tensor: IntTensor<Self>, dim1: usize, dim2: usize) -> IntTensor<Self>;
            fn int_permute(tensor: IntTensor<Self>, axes: &[usize]) -> IntTensor<Self>;
            fn int_flip(tensor: IntTensor<Self>, axes: &[usize]) -> IntTensor<Self>;
            fn int_random(
                shape: Shape, distribution: Distribution, device: &Device<Self>, dtype: IntDType,
            ) -> IntTensor<Self>;
            fn int_arange_step(
                range: Range<i64>, step: usize, device: &Device<Self>, dtype: IntDType,
            ) -> IntTensor<Self>;
            fn int_arange(range: Range<i64>, device: &Device<Self>, dtype: IntDType) -> IntTensor<Self>;
            fn int_any(tensor: IntTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn int_any_dim(tensor: IntTensor<Self>, dim: usize, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn int_all(tensor: IntTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn int_all_dim(tensor: IntTensor<Self>, dim: usize, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn int_sign(tensor: IntTensor<Self>) -> IntTensor<Self>;
            fn int_expand(tensor: IntTensor<Self>, shape: Shape) -> IntTensor<Self>;
            fn int_sort(tensor: IntTensor<Self>, dim: usize, descending: bool) -> IntTensor<Self>;
            fn int_sort_with_indices(
                tensor: IntTensor<Self>, dim: usize, descending: bool,
            ) -> (IntTensor<Self>, IntTensor<Self>);
            fn int_argsort(tensor: IntTensor<Self>, dim: usize, descending: bool) -> IntTensor<Self>;
            fn bitwise_and(lhs: IntTensor<Self>, rhs: IntTensor<Self>) -> IntTensor<Self>;
            fn bitwise_and_scalar(lhs: IntTensor<Self>, rhs: Scalar) -> IntTensor<Self>;
            fn bitwise_or(lhs: IntTensor<Self>, rhs: IntTensor<Self>) -> IntTensor<Self>;
            fn bitwise_or_scalar(lhs: IntTensor<Self>, rhs: Scalar) -> IntTensor<Self>;
            fn bitwise_xor(lhs: IntTensor<Self>, rhs: IntTensor<Self>) -> IntTensor<Self>;
            fn bitwise_xor_scalar(lhs: IntTensor<Self>, rhs: Scalar) -> IntTensor<Self>;
            fn bitwise_not(tensor: IntTensor<Self>) -> IntTensor<Self>;
            fn bitwise_left_shift(lhs: IntTensor<Self>, rhs: IntTensor<Self>) -> IntTensor<Self>;
            fn bitwise_left_shift_scalar(lhs: IntTensor<Self>, rhs: Scalar) -> IntTensor<Self>;
            fn bitwise_right_shift(lhs: IntTensor<Self>, rhs: IntTensor<Self>) -> IntTensor<Self>;
            fn bitwise_right_shift_scalar(lhs: IntTensor<Self>, rhs: Scalar) -> IntTensor<Self>;
            fn int_cast(tensor: IntTensor<Self>, dtype: IntDType) -> IntTensor<Self>;
            fn int_unfold(tensor: IntTensor<Self>, dim: usize, size: usize, step: usize) -> IntTensor<Self>;
        }
    };
}
pub(crate) use int_ops;

macro_rules! bool_ops {
    ($to:ident! $($before:tt)*) => {
        $to! { $($before)*
            fn bool_empty(shape: Shape, device: &Device<Self>, dtype: BoolDType) -> BoolTensor<Self>;
            fn bool_zeros(shape: Shape, device: &Device<Self>, dtype: BoolDType) -> BoolTensor<Self>;
            fn bool_ones(shape: Shape, device: &Device<Self>, dtype: BoolDType) -> BoolTensor<Self>;
            fn bool_into_int(tensor: BoolTensor<Self>, out_dtype: IntDType) -> IntTensor<Self>;
            fn bool_reshape(tensor: BoolTensor<Self>, shape: Shape) -> BoolTensor<Self>;
            fn bool_slice(tensor: BoolTensor<Self>, slices: &[Slice]) -> BoolTensor<Self>;
            fn bool_slice_assign(
                tensor: BoolTensor<Self>, slices: &[Slice], value: BoolTensor<Self>,
            ) -> BoolTensor<Self>;
            fn bool_mask_where(
                tensor: BoolTensor<Self>, mask: BoolTensor<Self>, value: BoolTensor<Self>,
            ) -> BoolTensor<Self>;
            fn bool_mask_fill(
                tensor: BoolTensor<Self>, mask: BoolTensor<Self>, value: Scalar,
            ) -> BoolTensor<Self>;
            fn bool_gather(dim: usize, tensor: BoolTensor<Self>, indices: IntTensor<Self>) -> BoolTensor<Self>;
            fn bool_scatter_or(
                dim: usize, tensor: BoolTensor<Self>, indices: IntTensor<Self>, value: BoolTensor<Self>,
            ) -> BoolTensor<Self>;
            fn bool_select(tensor: BoolTensor<Self>, dim: usize, indices: IntTensor<Self>) -> BoolTensor<Self>;
            fn bool_select_or(
                tensor: BoolTensor<Self>, dim: usize, indices: IntTensor<Self>, value: BoolTensor<Self>,
            ) -> BoolTensor<Self>;
            fn bool_repeat_dim(tensor: BoolTensor<Self>, dim: usize, times: usize) -> BoolTensor<Self>;
            fn bool_cat(tensors: Vec<BoolTensor<Self>>, dim: usize) -> BoolTensor<Self>;
            fn bool_equal(lhs: BoolTensor<Self>, rhs: BoolTensor<Self>) -> BoolTensor<Self>;
            fn bool_not_equal(lhs: BoolTensor<Self>, rhs: BoolTensor<Self>) -> BoolTensor<Self>;
            fn bool_equal_elem(lhs: BoolTensor<Self>, rhs: Scalar) -> BoolTensor<Self>;
            fn bool_not_equal_elem(lhs: BoolTensor<Self>, rhs: Scalar) -> BoolTensor<Self>;
            fn bool_not(tensor: BoolTensor<Self>) -> BoolTensor<Self>;
            fn bool_and(lhs: BoolTensor<Self>, rhs: BoolTensor<Self>) -> BoolTensor<Self>;
            fn bool_or(lhs: BoolTensor<Self>, rhs: BoolTensor<Self>) -> BoolTensor<Self>;
            fn bool_xor(lhs: BoolTensor<Self>, rhs: BoolTensor<Self>) -> BoolTensor<Self>;
            fn bool_transpose(tensor: BoolTensor<Self>) -> BoolTensor<Self>;
            fn bool_swap_dims(tensor: BoolTensor<Self>, dim1: usize, dim2: usize) -> BoolTensor<Self>;
            fn bool_permute(tensor: BoolTensor<Self>, axes: &[usize]) -> BoolTensor<Self>;
            fn bool_flip(tensor: BoolTensor<Self>, axes: &[usize]) -> BoolTensor<Self>;
            fn bool_any(tensor: BoolTensor<Self>) -> BoolTensor<Self>;
            fn bool_any_dim(tensor: BoolTensor<Self>, dim: usize) -> BoolTensor<Self>;
            fn bool_all(tensor: BoolTensor<Self>) -> BoolTensor<Self>;
            fn bool_all_dim(tensor: BoolTensor<Self>, dim: usize) -> BoolTensor<Self>;
            fn bool_expand(tensor: BoolTensor<Self>, shape: Shape) -> BoolTensor<Self>;
            fn bool_unfold(tensor: BoolTensor<Self>, dim: usize, size: usize, step: usize) -> BoolTensor<Self>;
        }
    };
}
pub(crate) use bool_ops;

macro_rules! quantized_ops {
    ($to:ident! $($before:tt)*) => {
        $to! { $($before)*
            fn q_reshape(tensor: QuantizedTensor<Self>, shape: Shape) -> QuantizedTensor<Self>;
            fn q_detach(tensor: QuantizedTensor<Self>) -> QuantizedTensor<Self>;
            fn q_expand(tensor: QuantizedTensor<Self>, shape: Shape) -> QuantizedTensor<Self>;
            fn q_transpose(tensor: QuantizedTensor<Self>) -> QuantizedTensor<Self>;
            fn q_swap_dims(tensor: QuantizedTensor<Self>, dim1: usize, dim2: usize) -> QuantizedTensor<Self>;
            fn q_permute(tensor: QuantizedTensor<Self>, axes: &[usize]) -> QuantizedTensor<Self>;
            fn q_flip(tensor: QuantizedTensor<Self>, axes: &[usize]) -> QuantizedTensor<Self>;
            fn q_select(
                tensor: QuantizedTensor<Self>, dim: usize, indices: IntTensor<Self>,
            ) -> QuantizedTensor<Self>;
            fn q_slice(tensor: QuantizedTensor<Self>, slices: &[Slice]) -> QuantizedTensor<Self>;
            fn q_gather(
                dim: usize, tensor: QuantizedTensor<Self>, indices: IntTensor<Self>,
            ) -> QuantizedTensor<Self>;
            fn q_repeat_dim(tensor: QuantizedTensor<Self>, dim: usize, times: usize) -> QuantizedTensor<Self>;
            fn q_abs(tensor: QuantizedTensor<Self>) -> QuantizedTensor<Self>;
            fn q_cat(tensors: Vec<QuantizedTensor<Self>>, dim: usize) -> QuantizedTensor<Self>;
            fn q_argmax(tensor: QuantizedTensor<Self>, dim: usize, out_dtype: IntDType) -> IntTensor<Self>;
            fn q_argtopk(
                tensor: QuantizedTensor<Self>, dim: usize, k: usize, out_dtype: IntDType,
            ) -> IntTensor<Self>;
            fn q_topk(tensor: QuantizedTensor<Self>, dim: usize, k: usize) -> QuantizedTensor<Self>;
            fn q_argmin(tensor: QuantizedTensor<Self>, dim: usize, out_dtype: IntDType) -> IntTensor<Self>;
            fn q_max(tensor: QuantizedTensor<Self>) -> QuantizedTensor<Self>;
            fn q_max_dim(tensor: QuantizedTensor<Self>, dim: usize) -> QuantizedTensor<Self>;
            fn q_max_dim_with_indices(
                tensor: QuantizedTensor<Self>, dim: usize, out_dtype: IntDType,
            ) -> (QuantizedTensor<Self>, IntTensor<Self>);
            fn q_min(tensor: QuantizedTensor<Self>) -> QuantizedTensor<Self>;
            fn q_min_dim(tensor: QuantizedTensor<Self>, dim: usize) -> QuantizedTensor<Self>;
            fn q_min_dim_with_indices(
                tensor: QuantizedTensor<Self>, dim: usize, out_dtype: IntDType,
            ) -> (QuantizedTensor<Self>, IntTensor<Self>);
            fn q_max_abs(tensor: QuantizedTensor<Self>) -> QuantizedTensor<Self>;
            fn q_max_abs_dim(tensor: QuantizedTensor<Self>, dim: usize) -> QuantizedTensor<Self>;
            fn q_any(tensor: QuantizedTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn q_any_dim(tensor: QuantizedTensor<Self>, dim: usize, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn q_all(tensor: QuantizedTensor<Self>, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn q_all_dim(tensor: QuantizedTensor<Self>, dim: usize, out_dtype: BoolDType) -> BoolTensor<Self>;
            fn q_sort(tensor: QuantizedTensor<Self>, dim: usize, descending: bool) -> QuantizedTensor<Self>;
            fn q_sort_with_indices(
                tensor: QuantizedTensor<Self>, dim: usize, descending: bool, out_dtype: IntDType,
            ) -> (QuantizedTensor<Self>, IntTensor<Self>);
            fn q_argsort(
                tensor: QuantizedTensor<Self>, dim: usize, descending: bool, out_dtype: IntDType,
            ) -> IntTensor<Self>;
        }
    };
}
pub(crate) use quantized_ops;

macro_rules! quantized_to_float_ops {
    ($to:ident! $($before:tt)*) => {
        $to! { $($before)*
            fn q_add(lhs: QuantizedTensor<Self>, rhs: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_add_scalar(lhs: QuantizedTensor<Self>, rhs: Scalar) -> TensorPrimitive<Self>;
            fn q_clamp_min(tensor: QuantizedTensor<Self>, min: Scalar) -> TensorPrimitive<Self>;
            fn q_clamp_max(tensor: QuantizedTensor<Self>, max: Scalar) -> TensorPrimitive<Self>;
            fn q_clamp(tensor: QuantizedTensor<Self>, min: Scalar, max: Scalar) -> TensorPrimitive<Self>;
            fn q_sub(lhs: QuantizedTensor<Self>, rhs: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_sub_scalar(lhs: QuantizedTensor<Self>, rhs: Scalar) -> TensorPrimitive<Self>;
            fn q_mul(lhs: QuantizedTensor<Self>, rhs: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_mul_scalar(lhs: QuantizedTensor<Self>, rhs: Scalar) -> TensorPrimitive<Self>;
            fn q_div(lhs: QuantizedTensor<Self>, rhs: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_div_scalar(lhs: QuantizedTensor<Self>, rhs: Scalar) -> TensorPrimitive<Self>;
            fn q_neg(tensor: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_recip(tensor: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_sum(tensor: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_sum_dim(tensor: QuantizedTensor<Self>, dim: usize) -> TensorPrimitive<Self>;
            fn q_prod(tensor: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_prod_dim(tensor: QuantizedTensor<Self>, dim: usize) -> TensorPrimitive<Self>;
            fn q_mean(tensor: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_mean_dim(tensor: QuantizedTensor<Self>, dim: usize) -> TensorPrimitive<Self>;
            fn q_cumsum(tensor: QuantizedTensor<Self>, dim: usize) -> TensorPrimitive<Self>;
            fn q_cumprod(tensor: QuantizedTensor<Self>, dim: usize) -> TensorPrimitive<Self>;
            fn q_cummin(tensor: QuantizedTensor<Self>, dim: usize) -> TensorPrimitive<Self>;
            fn q_cummax(tensor: QuantizedTensor<Self>, dim: usize) -> TensorPrimitive<Self>;
            fn q_exp(tensor: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_log(tensor: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_log1p(tensor: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_powf(lhs: QuantizedTensor<Self>, rhs: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_powi(lhs: QuantizedTensor<Self>, rhs: IntTensor<Self>) -> TensorPrimitive<Self>;
            fn q_powi_scalar(lhs: QuantizedTensor<Self>, rhs: Scalar) -> TensorPrimitive<Self>;
            fn q_powf_scalar(tensor: QuantizedTensor<Self>, value: Scalar) -> TensorPrimitive<Self>;
            fn q_sqrt(tensor: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_cos(tensor: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_sin(tensor: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_tan(tensor: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_cosh(tensor: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_sinh(tensor: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_tanh(tensor: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
            fn q_erf(tensor: QuantizedTensor<Self>) -> TensorPrimitive<Self>;
        }
    };
}
pub(crate) use quantized_to_float_ops;
