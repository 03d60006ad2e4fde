//! The table: every method of Burn's op traits with the arguments to call it with.

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::ops::{
    AttentionModuleOptions, GridSampleOptions, InterpolateMode, InterpolateOptions, UnfoldOptions,
};
use burn_backend::ops::TransactionPrimitive;
use burn_backend::quantization::QuantizationParametersPrimitive;
use burn_backend::tensor::{
    BoolTensor, Device, FloatTensor, IndexingUpdateOp, IntTensor, QuantizedTensor,
};
use burn_backend::{
    Backend, Device as _, ExecutionError, FloatDType, IntDType, TensorData, TensorMetadata,
    TensorPrimitive, read_sync,
};

use super::generate::Arguments;
use super::run::Part;

/// A method of the backend and how it is called.
pub(crate) struct Call<B: Backend> {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&mut Arguments<B>) -> Vec<Part<B>>,
}

/// `result(arguments) { methods }`: methods that take the same arguments and have the same kind of result.
macro_rules! calls {
    ($g:ident: $($result:ident $arguments:tt { $($name:ident)* })*) => { vec![$($(
        Call { name: stringify!($name), run: |$g| $result::<B>(B::$name $arguments) },
    )*)*] };
}

/// Methods whose arguments take more than an expression each.
macro_rules! special_calls {
    ($g:ident: $($name:ident $body:block)*) => { vec![$(
        Call { name: stringify!($name), run: |$g| $body },
    )*] };
}

// Kinds of results

fn float<B: Backend>(tensor: FloatTensor<B>) -> Vec<Part<B>> {
    vec![Part::Float(tensor)]
}

fn int<B: Backend>(tensor: IntTensor<B>) -> Vec<Part<B>> {
    vec![Part::Int(tensor)]
}

fn boolean<B: Backend>(tensor: BoolTensor<B>) -> Vec<Part<B>> {
    vec![Part::Bool(tensor)]
}

fn quantized<B: Backend>(tensor: QuantizedTensor<B>) -> Vec<Part<B>> {
    vec![Part::Quantized(tensor)]
}

fn primitive<B: Backend>(tensor: TensorPrimitive<B>) -> Vec<Part<B>> {
    vec![tensor.into()]
}

fn float_and_int<B: Backend>((float, int): (FloatTensor<B>, IntTensor<B>)) -> Vec<Part<B>> {
    vec![Part::Float(float), Part::Int(int)]
}

fn floats<B: Backend>((first, second): (FloatTensor<B>, FloatTensor<B>)) -> Vec<Part<B>> {
    vec![Part::Float(first), Part::Float(second)]
}

fn ints<B: Backend>((first, second): (IntTensor<B>, IntTensor<B>)) -> Vec<Part<B>> {
    vec![Part::Int(first), Part::Int(second)]
}

fn quantized_and_int<B: Backend>(
    (tensor, int): (QuantizedTensor<B>, IntTensor<B>),
) -> Vec<Part<B>> {
    vec![Part::Quantized(tensor), Part::Int(int)]
}

fn data<B: Backend>(
    read: impl Future<Output = Result<TensorData, ExecutionError>>,
) -> Vec<Part<B>> {
    match read_sync(read) {
        Ok(data) => vec![Part::Data(data)],
        Err(error) => vec![Part::Text(error.to_string())],
    }
}

fn text<B: Backend>(value: impl core::fmt::Debug) -> Vec<Part<B>> {
    vec![Part::Text(format!("{value:?}"))]
}

fn device<B: Backend>(device: Device<B>) -> Vec<Part<B>> {
    text(device.to_id())
}

/// The shape of memory that may hold anything.
fn shape_of<B: Backend>(tensor: impl TensorMetadata) -> Vec<Part<B>> {
    text((tensor.shape(), tensor.dtype()))
}

/// Holds off others that draw from the backend's random numbers.
fn drawing() -> MutexGuard<'static, ()> {
    static DRAWING: Mutex<()> = Mutex::new(());
    DRAWING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All calls.
pub(crate) fn backend_calls<B: Backend>() -> Vec<Call<B>> {
    let mut calls = differentiable_calls();
    calls.extend(int_calls());
    calls.extend(bool_calls());
    calls.extend(quantized_calls());
    calls
}

/// The calls of the traits whose ops burn-autodiff differentiates.
pub(crate) fn differentiable_calls<B: Backend>() -> Vec<Call<B>> {
    let mut calls = float_calls();
    calls.extend(special_float_calls());
    calls.extend(module_calls());
    calls.extend(special_module_calls());
    calls.extend(activation_calls());
    calls
}

fn float_calls<B: Backend>() -> Vec<Call<B>> {
    calls! { g:
        float(g.float_data(), &g.device()) { float_from_data }
        float(g.shape(), &g.device(), g.float_type()) { float_zeros float_ones }
        float(g.shape(), g.scalar(), &g.device(), g.float_type()) { float_full }
        shape_of(g.shape(), &g.device(), g.float_type()) { float_empty }
        data(g.x()) { float_into_data }
        device(&g.x()) { float_device }
        float(g.x(), &g.device()) { float_to_device }
        int(g.x(), g.int_type()) { float_into_int }
        float(g.x(), g.float_type()) { float_cast }
        float(g.x(), g.any_dim(), g.count()) { float_repeat_dim }
        float(g.x()) {
            float_neg float_recip float_exp float_log float_log1p float_sqrt float_abs float_cos float_sin float_tan
            float_cosh float_sinh float_tanh float_acos float_acosh float_asin float_asinh float_atan float_atanh
            float_round float_floor float_ceil float_trunc float_erf float_sign float_detach
            float_sum float_prod float_mean float_max float_min float_max_abs
        }
        float(g.x(), g.y()) {
            float_add float_sub float_mul float_div float_remainder float_powf float_atan2
        }
        float(g.x(), g.scalar()) {
            float_add_scalar float_sub_scalar float_mul_scalar float_div_scalar float_remainder_scalar
            float_clamp_min float_clamp_max float_powf_scalar float_powf_scalar_impl
        }
        float(g.x(), g.int_scalar()) { float_powi_scalar float_powi_scalar_impl }
        float(g.x(), (-0.5).into(), 0.75.into()) { float_clamp }
        float(g.x(), g.small()) { float_powi }
        float(g.lhs(), g.rhs()) { float_matmul }
        float(g.x(), g.any_dim(), g.any_dim()) { float_swap_dims }
        float(g.x()) { float_transpose }
        float(g.x(), &g.axes()) { float_permute }
        float(g.x(), &g.some_axes()) { float_flip }
        float(g.x(), g.new_shape()) { float_reshape }
        float(g.dim(), g.x(), g.positions()) { float_gather }
        float(g.dim(), g.x(), g.positions(), g.x()) { float_scatter_add }
        float(g.x(), g.leading_indices(), g.float_of(g.leading_shape()), IndexingUpdateOp::Add) {
            float_scatter_nd
        }
        float(g.x(), g.leading_indices()) { float_gather_nd }
        float(g.x(), g.dim(), g.indices()) { float_select }
        float(g.x(), g.dim(), g.indices(), g.float_of(g.selected_shape())) { float_select_add }
        float(g.x(), &g.slices()) { float_slice }
        float(g.x(), g.b(), g.x()) { float_mask_where }
        float(g.x(), g.b(), g.scalar()) { float_mask_fill }
        boolean(g.x(), g.y(), g.bool_type()) {
            float_equal float_not_equal float_greater float_greater_equal float_lower float_lower_equal
        }
        boolean(g.x(), g.int_scalar(), g.bool_type()) {
            float_equal_elem float_not_equal_elem float_greater_elem float_greater_equal_elem float_lower_elem
            float_lower_equal_elem
        }
        boolean(g.x(), g.bool_type()) { float_any float_all float_is_nan float_is_inf }
        boolean(g.x(), g.dim(), g.bool_type()) { float_any_dim float_all_dim }
        text(&g.x()) { float_is_require_grad }
        float(g.x(), g.dim()) {
            float_sum_dim float_prod_dim float_mean_dim float_cumsum float_cumprod float_cummin float_cummax
            float_max_dim float_min_dim float_max_abs_dim
        }
        float(g.float_list(), g.dim()) { float_cat }
        int(g.x(), g.dim(), g.int_type()) { float_argmax float_argmin }
        int(g.x(), g.dim(), g.count(), g.int_type()) { float_argtopk }
        float(g.x(), g.dim(), g.count()) { float_topk }
        float_and_int(g.x(), g.dim(), g.int_type()) {
            float_max_dim_with_indices float_min_dim_with_indices
        }
        float(g.x(), g.dim(), g.flip()) { float_sort }
        float_and_int(g.x(), g.dim(), g.flip(), g.int_type()) { float_sort_with_indices }
        int(g.x(), g.dim(), g.flip(), g.int_type()) { float_argsort }
        float(g.x(), g.dim(), g.count(), g.count()) { float_unfold }
    }
}

fn special_float_calls<B: Backend>() -> Vec<Call<B>> {
    special_calls! { g:
        float_random {
            let (seed, shape, wide) = (g.seed(), g.shape(), g.flip());
            // A panic would leave the backend's generator locked.
            let dtype = if wide { FloatDType::F64 } else { FloatDType::F32 };
            let _drawing = drawing();
            B::seed(&g.device, seed);
            float::<B>(B::float_random(shape, g.distribution(), &g.device, dtype))
        }
        float_cross {
            let mut shape = g.shape().to_vec();
            let dim = g.dim();
            shape[dim] = 3;
            float::<B>(B::float_cross(g.float_of(shape.clone()), g.float_of(shape), dim))
        }
        float_slice_assign {
            let slices = g.slices();
            let value = g.float_of(g.sliced_shape(&slices));
            float::<B>(B::float_slice_assign(g.x(), &slices, value))
        }
        float_set_require_grad {
            let tensor = B::float_set_require_grad(g.x(), g.flip());
            let tracked = B::float_is_require_grad(&tensor);
            vec![Part::Float(tensor), Part::Text(tracked.to_string())]
        }
        float_expand {
            let flat = g.flat();
            float::<B>(B::float_expand(g.float_of(flat), g.shape()))
        }
        float_grid_sample_2d {
            let image = g.image::<2>();
            let batch = image.shape()[0];
            let grid = g.float_of([batch, 3, 2, 2]);
            float::<B>(B::float_grid_sample_2d(image, grid, GridSampleOptions::default()))
        }
    }
}

fn int_calls<B: Backend>() -> Vec<Call<B>> {
    let mut calls: Vec<Call<B>> = calls! { g:
        shape_of(g.shape(), &g.device(), g.int_type()) { int_empty }
        data(g.i()) { int_into_data }
        int(g.int_data(), &g.device()) { int_from_data }
        device(&g.i()) { int_device }
        int(g.i(), &g.device()) { int_to_device }
        int(g.i(), g.new_shape()) { int_reshape }
        int(g.i(), &g.slices()) { int_slice }
        float(g.i(), g.float_type()) { int_into_float }
        int(g.i(), g.b(), g.i()) { int_mask_where }
        int(g.i(), g.b(), g.int_scalar()) { int_mask_fill }
        int(g.dim(), g.i(), g.positions()) { int_gather }
        int(g.dim(), g.i(), g.positions(), g.i()) { int_scatter_add }
        int(g.i(), g.leading_indices(), g.int_of(g.leading_shape(), 0..5), IndexingUpdateOp::Add) {
            int_scatter_nd
        }
        int(g.i(), g.leading_indices()) { int_gather_nd }
        int(g.i(), g.dim(), g.indices()) { int_select }
        int(g.i(), g.dim(), g.indices(), g.int_of(g.selected_shape(), 0..5)) { int_select_add }
        int(g.i(), g.any_dim(), g.count()) { int_repeat_dim }
        int(g.int_list(), g.dim()) { int_cat }
        boolean(g.i(), g.j(), g.bool_type()) {
            int_equal int_not_equal int_greater int_greater_equal int_lower int_lower_equal
        }
        boolean(g.i(), g.int_scalar(), g.bool_type()) {
            int_equal_elem int_not_equal_elem int_greater_elem int_greater_equal_elem int_lower_elem
            int_lower_equal_elem
        }
        int(g.i(), g.j()) {
            int_add int_sub int_mul int_div int_remainder bitwise_and bitwise_or bitwise_xor
        }
        int(g.i(), g.small()) { int_powi bitwise_left_shift bitwise_right_shift }
        int(g.i(), g.int_scalar()) {
            int_add_scalar int_sub_scalar int_mul_scalar int_div_scalar int_remainder_scalar int_powi_scalar
            int_powi_scalar_impl int_clamp_min int_clamp_max bitwise_and_scalar bitwise_or_scalar
            bitwise_xor_scalar bitwise_left_shift_scalar bitwise_right_shift_scalar
        }
        int(g.i(), 1.into(), 4.into()) { int_clamp }
        int(g.int_of(g.lhs_shape(), 0..5), g.int_of(g.rhs_shape(), 0..5)) { int_matmul }
        int(g.i()) {
            int_neg int_abs int_sign int_transpose bitwise_not int_sum int_prod int_mean int_max int_min int_max_abs
        }
        int(g.shape(), &g.device(), g.int_type()) { int_zeros int_ones }
        int(g.shape(), g.int_scalar(), &g.device(), g.int_type()) { int_full }
        int(g.i(), g.dim()) {
            int_sum_dim int_prod_dim int_mean_dim int_cumsum int_cumprod int_cummin int_cummax int_argmax int_argmin
            int_max_dim int_min_dim int_max_abs_dim
        }
        int(g.i(), g.dim(), g.count()) { int_argtopk int_topk }
        ints(g.i(), g.dim()) { int_max_dim_with_indices int_min_dim_with_indices }
        int(g.i(), g.any_dim(), g.any_dim()) { int_swap_dims }
        int(g.i(), &g.axes()) { int_permute }
        int(g.i(), &g.some_axes()) { int_flip }
        int(-3..g.count() as i64, g.count(), &g.device(), g.int_type()) { int_arange_step }
        int(-3..g.count() as i64, &g.device(), g.int_type()) { int_arange }
        boolean(g.i(), g.bool_type()) { int_any int_all }
        boolean(g.i(), g.dim(), g.bool_type()) { int_any_dim int_all_dim }
        int(g.i(), g.dim(), g.flip()) { int_sort int_argsort }
        ints(g.i(), g.dim(), g.flip()) { int_sort_with_indices }
        int(g.i(), g.int_type()) { int_cast }
        int(g.i(), g.dim(), g.count(), g.count()) { int_unfold }
    };
    calls.extend::<Vec<Call<B>>>(special_calls! { g:
        int_slice_assign {
            let slices = g.slices();
            let value = g.int_of(g.sliced_shape(&slices), 0..5);
            int::<B>(B::int_slice_assign(g.i(), &slices, value))
        }
        int_random {
            let (seed, shape, wide) = (g.seed(), g.shape(), g.flip());
            let dtype = if wide { IntDType::I64 } else { IntDType::I32 };
            let _drawing = drawing();
            B::seed(&g.device, seed);
            int::<B>(B::int_random(shape, g.distribution(), &g.device, dtype))
        }
        int_expand {
            let flat = g.flat();
            int::<B>(B::int_expand(g.int_of(flat, 0..9), g.shape()))
        }
    });
    calls
}

fn bool_calls<B: Backend>() -> Vec<Call<B>> {
    let mut calls: Vec<Call<B>> = calls! { g:
        shape_of(g.shape(), &g.device(), g.bool_type()) { bool_empty }
        boolean(g.shape(), &g.device(), g.bool_type()) { bool_zeros bool_ones }
        data(g.b()) { bool_into_data }
        boolean(g.bool_data(), &g.device()) { bool_from_data }
        int(g.b(), g.int_type()) { bool_into_int }
        float(g.b(), g.float_type()) { bool_into_float }
        device(&g.b()) { bool_device }
        boolean(g.b(), &g.device()) { bool_to_device }
        boolean(g.b(), g.new_shape()) { bool_reshape }
        boolean(g.b(), &g.slices()) { bool_slice }
        boolean(g.b(), g.b(), g.b()) { bool_mask_where }
        boolean(g.b(), g.b(), g.bool_scalar()) { bool_mask_fill }
        boolean(g.dim(), g.b(), g.positions()) { bool_gather }
        boolean(g.dim(), g.b(), g.positions(), g.b()) { bool_scatter_or }
        boolean(g.b(), g.dim(), g.indices()) { bool_select }
        boolean(g.b(), g.dim(), g.indices(), g.bool_of(g.selected_shape())) { bool_select_or }
        boolean(g.b(), g.any_dim(), g.count()) { bool_repeat_dim }
        boolean(g.bool_list(), g.dim()) { bool_cat }
        boolean(g.b(), g.b()) { bool_equal bool_not_equal bool_and bool_or bool_xor }
        boolean(g.b(), g.bool_scalar()) { bool_equal_elem bool_not_equal_elem }
        boolean(g.b()) { bool_not bool_transpose bool_any bool_all }
        boolean(g.b(), g.any_dim(), g.any_dim()) { bool_swap_dims }
        boolean(g.b(), &g.axes()) { bool_permute }
        boolean(g.b(), &g.some_axes()) { bool_flip }
        boolean(g.b(), g.dim()) { bool_any_dim bool_all_dim }
        boolean(g.b(), g.dim(), g.count(), g.count()) { bool_unfold }
    };
    calls.extend::<Vec<Call<B>>>(special_calls! { g:
        bool_slice_assign {
            let slices = g.slices();
            let value = g.bool_of(g.sliced_shape(&slices));
            boolean::<B>(B::bool_slice_assign(g.b(), &slices, value))
        }
        bool_argwhere {
            int::<B>(read_sync(B::bool_argwhere(g.b(), g.int_type())))
        }
        bool_expand {
            let flat = g.flat();
            boolean::<B>(B::bool_expand(g.bool_of(flat), g.shape()))
        }
    });
    calls
}

fn module_calls<B: Backend>() -> Vec<Call<B>> {
    calls! { g:
        float(g.weight(), g.int_of([2, 3], 0..1)) { embedding }
        float(g.lhs(), g.weight(), g.bias()) { linear }
        float(g.weight(), g.linear_grad()) { linear_x_backward }
        float(g.lhs(), g.linear_grad()) { linear_weight_backward }
        float(g.linear_grad()) { linear_bias_backward }
        float(g.image::<1>(), g.kernel::<1>(), g.maybe_channel_bias(), g.conv()) { conv1d }
        float(g.image::<1>(), g.kernel::<1>(), g.image_grad::<1>(), g.conv()) {
            conv1d_x_backward conv1d_weight_backward
        }
        float(g.image::<1>(), g.channel_bias(), g.image_grad::<1>()) { conv1d_bias_backward }
        float(g.image::<2>(), g.kernel::<2>(), g.maybe_channel_bias(), g.conv()) { conv2d }
        float(g.image::<2>(), g.kernel::<2>(), g.image_grad::<2>(), g.conv()) {
            conv2d_x_backward conv2d_weight_backward
        }
        float(g.image::<2>(), g.channel_bias(), g.image_grad::<2>()) { conv2d_bias_backward }
        float(g.image::<3>(), g.kernel::<3>(), g.maybe_channel_bias(), g.conv()) { conv3d }
        float(g.image::<3>(), g.kernel::<3>(), g.image_grad::<3>(), g.conv()) {
            conv3d_x_backward conv3d_weight_backward
        }
        float(g.image::<3>(), g.channel_bias(), g.image_grad::<3>()) { conv3d_bias_backward }
        float(g.image::<1>(), g.transposed_kernel::<1>(), g.maybe_channel_bias(), g.conv_transpose()) {
            conv_transpose1d
        }
        float(g.transposed_kernel::<1>(), g.transposed_grad::<1>(), g.conv_transpose()) {
            conv_transpose1d_x_backward
        }
        float(g.image::<1>(), g.transposed_kernel::<1>(), g.transposed_grad::<1>(), g.conv_transpose()) {
            conv_transpose1d_weight_backward
        }
        float(g.image::<1>(), g.channel_bias(), g.transposed_grad::<1>()) { conv_transpose1d_bias_backward }
        float(g.image::<2>(), g.transposed_kernel::<2>(), g.maybe_channel_bias(), g.conv_transpose()) {
            conv_transpose2d
        }
        float(g.transposed_kernel::<2>(), g.transposed_grad::<2>(), g.conv_transpose()) {
            conv_transpose2d_x_backward
        }
        float(g.image::<2>(), g.transposed_kernel::<2>(), g.transposed_grad::<2>(), g.conv_transpose()) {
            conv_transpose2d_weight_backward
        }
        float(g.image::<2>(), g.channel_bias(), g.transposed_grad::<2>()) { conv_transpose2d_bias_backward }
        float(g.image::<3>(), g.transposed_kernel::<3>(), g.maybe_channel_bias(), g.conv_transpose()) {
            conv_transpose3d
        }
        float(g.transposed_kernel::<3>(), g.transposed_grad::<3>(), g.conv_transpose()) {
            conv_transpose3d_x_backward
        }
        float(g.image::<3>(), g.transposed_kernel::<3>(), g.transposed_grad::<3>(), g.conv_transpose()) {
            conv_transpose3d_weight_backward
        }
        float(g.image::<3>(), g.channel_bias(), g.transposed_grad::<3>()) { conv_transpose3d_bias_backward }
        float(
            g.image::<2>(), g.offsets(2), g.kernel::<2>(), Some(g.offsets(1)), g.maybe_channel_bias(), g.deform(),
        ) { deform_conv2d }
        float(g.image::<1>(), g.count()) { adaptive_avg_pool1d }
        float(g.image::<2>(), [g.count(), g.count()]) { adaptive_avg_pool2d }
        float(g.image::<2>(), [g.count() + 1, g.count() + 2], g.interpolation()) { interpolate }
        float(g.x(), g.row(), Some(g.row()), 1e-5) { layer_norm }
        floats(g.x(), g.dim(), None) { rfft }
    }
}

fn special_module_calls<B: Backend>() -> Vec<Call<B>> {
    special_calls! { g:
        embedding_backward {
            let (weights, indices) = (g.weight(), g.int_of([2, 3], 0..1));
            let grad = g.float_of([2, 3, weights.shape()[1]]);
            float::<B>(B::embedding_backward(weights, grad, indices))
        }
        deform_conv2d_backward {
            let (x, weight) = (g.image::<2>(), g.kernel::<2>());
            let (offset, mask) = (g.offsets(2), Some(g.offsets(1)));
            let (bias, grad) = (g.maybe_channel_bias(), g.image_grad::<2>());
            let grads = B::deform_conv2d_backward(x, offset, weight, mask, bias, grad, g.deform());
            let all = [Some(grads.x_grad), Some(grads.offset_grad), Some(grads.weight_grad)];
            let all = all.into_iter().chain([grads.mask_grad, grads.bias_grad]);
            all.flatten().map(Part::Float).collect()
        }
        unfold4d {
            let w = &g.window;
            let options = UnfoldOptions::new(w.strides(), w.paddings(), w.dilations());
            let kernel = w.kernels();
            float::<B>(B::unfold4d(g.image::<2>(), kernel, options))
        }
        avg_pool1d {
            let x = g.image::<1>();
            let w = &g.window;
            let ([k], [s], [p]) = (w.kernels(), w.strides(), w.paddings());
            float::<B>(B::avg_pool1d(x, k, s, p, w.flag, w.other_flag))
        }
        avg_pool1d_backward {
            let x = g.image::<1>();
            let w = &g.window;
            let ([k], [s], [p], flags) = (w.kernels(), w.strides(), w.paddings(), [w.flag, w.other_flag]);
            let output = B::avg_pool1d(x.clone(), k, s, p, flags[0], flags[1]);
            let grad = g.like(&output);
            float::<B>(B::avg_pool1d_backward(x, grad, k, s, p, flags[0], flags[1]))
        }
        avg_pool2d {
            let x = g.image::<2>();
            let w = &g.window;
            let pool = (w.kernels(), w.strides(), w.paddings());
            float::<B>(B::avg_pool2d(x, pool.0, pool.1, pool.2, w.flag, w.other_flag))
        }
        avg_pool2d_backward {
            let x = g.image::<2>();
            let w = &g.window;
            let (k, s, p, flags) = (w.kernels(), w.strides(), w.paddings(), [w.flag, w.other_flag]);
            let output = B::avg_pool2d(x.clone(), k, s, p, flags[0], flags[1]);
            let grad = g.like(&output);
            float::<B>(B::avg_pool2d_backward(x, grad, k, s, p, flags[0], flags[1]))
        }
        adaptive_avg_pool1d_backward {
            let x = g.image::<1>();
            let output = B::adaptive_avg_pool1d(x.clone(), g.count());
            let grad = g.like(&output);
            float::<B>(B::adaptive_avg_pool1d_backward(x, grad))
        }
        adaptive_avg_pool2d_backward {
            let x = g.image::<2>();
            let output = B::adaptive_avg_pool2d(x.clone(), [g.count(), g.count()]);
            let grad = g.like(&output);
            float::<B>(B::adaptive_avg_pool2d_backward(x, grad))
        }
        max_pool1d {
            let x = g.image::<1>();
            let w = &g.window;
            let ([k], [s], [p], [d]) = (w.kernels(), w.strides(), w.paddings(), w.dilations());
            float::<B>(B::max_pool1d(x, k, s, p, d, w.flag))
        }
        max_pool1d_with_indices {
            let x = g.image::<1>();
            let w = &g.window;
            let ([k], [s], [p], [d]) = (w.kernels(), w.strides(), w.paddings(), w.dilations());
            let pooled = B::max_pool1d_with_indices(x, k, s, p, d, w.flag);
            vec![Part::Float(pooled.output), Part::Int(pooled.indices)]
        }
        max_pool1d_with_indices_backward {
            let x = g.image::<1>();
            let w = &g.window;
            let ([k], [s], [p], [d], ceil) =
                (w.kernels(), w.strides(), w.paddings(), w.dilations(), w.flag);
            let pooled = B::max_pool1d_with_indices(x.clone(), k, s, p, d, ceil);
            let grad = g.like(&pooled.output);
            let indices = pooled.indices;
            float::<B>(
                B::max_pool1d_with_indices_backward(x, k, s, p, d, ceil, grad, indices).x_grad,
            )
        }
        max_pool2d {
            let x = g.image::<2>();
            let w = &g.window;
            let (s, p) = (w.strides(), w.paddings());
            float::<B>(B::max_pool2d(x, w.kernels(), s, p, w.dilations(), w.flag))
        }
        max_pool2d_with_indices {
            let x = g.image::<2>();
            let w = &g.window;
            let (k, s, p) = (w.kernels(), w.strides(), w.paddings());
            let pooled = B::max_pool2d_with_indices(x, k, s, p, w.dilations(), w.flag);
            vec![Part::Float(pooled.output), Part::Int(pooled.indices)]
        }
        max_pool2d_with_indices_backward {
            let x = g.image::<2>();
            let w = &g.window;
            let (k, s, p, d, ceil) =
                (w.kernels(), w.strides(), w.paddings(), w.dilations(), w.flag);
            let pooled = B::max_pool2d_with_indices(x.clone(), k, s, p, d, ceil);
            let grad = g.like(&pooled.output);
            let indices = pooled.indices;
            float::<B>(
                B::max_pool2d_with_indices_backward(x, k, s, p, d, ceil, grad, indices).x_grad,
            )
        }
        interpolate_backward {
            let (x, size, options) = (g.image::<2>(), [g.count() + 1, g.count() + 2], g.interpolation());
            let output = B::interpolate(x.clone(), size, options.clone());
            let grad = g.like(&output);
            float::<B>(B::interpolate_backward(x, grad, size, options))
        }
        attention {
            let [batch, heads, from, to] = [(); 4].map(|()| g.count());
            let query = g.float_of([batch, heads, from, 4]);
            let key = g.float_of([batch, heads, to, 4]);
            let value = g.float_of([batch, heads, to, 5]);
            let mask = g.flip().then(|| g.bool_of([batch, heads, from, to]));
            let options = AttentionModuleOptions { is_causal: g.flip(), ..Default::default() };
            float::<B>(B::attention(query, key, value, mask, None, options))
        }
        ctc_loss {
            let (targets, lengths) = (g.int_of([2, 2], 1..4), g.int_of([2], 5..6));
            let target_lengths = g.int_of([2], 1..3);
            float::<B>(B::ctc_loss(g.float_of([5, 2, 4]), targets, lengths, target_lengths, 0))
        }
        has_ctc_loss_backward {
            let _ = g;
            text(B::has_ctc_loss_backward())
        }
        ctc_loss_backward {
            let (targets, lengths) = (g.int_of([2, 2], 1..4), g.int_of([2], 5..6));
            let (target_lengths, grad) = (g.int_of([2], 1..3), g.float_of([2]));
            let log_probs = g.float_of([5, 2, 4]);
            float::<B>(B::ctc_loss_backward(log_probs, targets, lengths, target_lengths, grad, 0))
        }
        irfft {
            let dim = g.dim();
            let (re, im) = B::rfft(g.x(), dim, None);
            float::<B>(B::irfft(re, im, dim, None))
        }
    }
}

fn activation_calls<B: Backend>() -> Vec<Call<B>> {
    calls! { g:
        float(g.x()) { relu gelu sigmoid log_sigmoid }
        float(g.x(), g.x()) {
            relu_backward gelu_backward sigmoid_backward log_sigmoid_backward prelu
        }
        float(g.x(), g.scalar()) { leaky_relu }
        float(g.x(), 0.2.into(), 0.5.into()) { hard_sigmoid }
        float(g.x(), g.dim()) { softmax log_softmax softmin }
    }
}

fn quantized_calls<B: Backend>() -> Vec<Call<B>> {
    let mut calls: Vec<Call<B>> = calls! { g:
        quantized(g.x(), &g.scheme()) { quantize_dynamic }
        float(g.q(), g.float_type()) { dequantize }
        device(&g.q()) { q_device }
        quantized(g.q(), &g.device()) { q_to_device }
        quantized(g.q(), g.new_shape()) { q_reshape }
        data(g.q()) { q_into_data }
        quantized(g.q()) { q_detach q_transpose q_abs q_max q_min q_max_abs }
        quantized(g.q(), g.flip()) { q_set_require_grad }
        text(&g.q()) { q_is_require_grad }
        quantized(g.q(), g.any_dim(), g.any_dim()) { q_swap_dims }
        quantized(g.q(), &g.axes()) { q_permute }
        quantized(g.q(), &g.some_axes()) { q_flip }
        quantized(g.q(), g.dim(), g.indices()) { q_select }
        quantized(g.q(), &g.slices()) { q_slice }
        quantized(g.dim(), g.q(), g.positions()) { q_gather }
        quantized(g.q(), g.any_dim(), g.count()) { q_repeat_dim }
        quantized(g.q_list(), g.dim()) { q_cat }
        quantized(g.q(), g.dim(), g.count()) { q_topk }
        quantized(g.q(), g.dim()) { q_max_dim q_min_dim q_max_abs_dim }
        quantized(g.q(), g.dim(), g.flip()) { q_sort }
        quantized_and_int(g.q(), g.dim(), g.int_type()) { q_max_dim_with_indices q_min_dim_with_indices }
        quantized_and_int(g.q(), g.dim(), g.flip(), g.int_type()) { q_sort_with_indices }
        int(g.q(), g.dim(), g.int_type()) { q_argmax q_argmin }
        int(g.q(), g.dim(), g.count(), g.int_type()) { q_argtopk }
        int(g.q(), g.dim(), g.flip(), g.int_type()) { q_argsort }
        boolean(g.q(), g.bool_type()) { q_any q_all }
        boolean(g.q(), g.dim(), g.bool_type()) { q_any_dim q_all_dim }
        primitive(g.q(), g.q()) { q_add q_sub q_mul q_div q_powf }
        primitive(g.q(), g.small()) { q_powi }
        primitive(g.q(), g.scalar()) {
            q_add_scalar q_sub_scalar q_mul_scalar q_div_scalar q_clamp_min q_clamp_max q_powf_scalar
        }
        primitive(g.q(), g.int_scalar()) { q_powi_scalar }
        primitive(g.q(), (-0.5).into(), 0.75.into()) { q_clamp }
        primitive(g.q()) {
            q_neg q_recip q_sum q_prod q_mean q_exp q_log q_log1p q_sqrt q_cos q_sin q_tan q_cosh q_sinh q_tanh q_erf
        }
        primitive(g.q(), g.dim()) {
            q_sum_dim q_prod_dim q_mean_dim q_cumsum q_cumprod q_cummin q_cummax
        }
    };
    calls.extend::<Vec<Call<B>>>(special_calls! { g:
        q_from_data {
            match read_sync(B::q_into_data(g.q())) {
                Ok(data) => quantized::<B>(B::q_from_data(data, &g.device)),
                Err(error) => text(error.to_string()),
            }
        }
        quantize {
            let scheme = g.scheme();
            let scales = B::float_from_data(TensorData::from([0.25f32]), &g.device);
            let parameters = QuantizationParametersPrimitive { scales };
            quantized::<B>(B::quantize(g.x(), &scheme, parameters))
        }
        q_expand {
            let flat = g.flat();
            quantized::<B>(B::q_expand(g.q_of(flat), g.shape()))
        }
        q_matmul {
            let (lhs, rhs) = (g.q_of(g.lhs_shape()), g.q_of(g.rhs_shape()));
            let lhs = match g.flip() {
                true => TensorPrimitive::QFloat(lhs),
                false => TensorPrimitive::Float(B::dequantize(lhs, FloatDType::F32)),
            };
            primitive::<B>(B::q_matmul(lhs, TensorPrimitive::QFloat(rhs)))
        }
        tr_execute {
            let transaction = TransactionPrimitive::new(
                vec![g.x(), g.y()],
                vec![g.q()],
                vec![g.i()],
                vec![g.b(), g.b()],
            );
            match read_sync(B::tr_execute(transaction)) {
                Ok(read) => {
                    let read = [read.read_floats, read.read_qfloats, read.read_ints, read.read_bools];
                    read.into_iter().flatten().map(Part::Data).collect()
                }
                Err(error) => text(error.to_string()),
            }
        }
    });
    calls
}

impl<B: Backend> Arguments<B> {
    fn device(&self) -> Device<B> {
        self.device.clone()
    }

    fn interpolation(&mut self) -> InterpolateOptions {
        let modes = [
            InterpolateMode::Nearest,
            InterpolateMode::Bilinear,
            InterpolateMode::Bicubic,
        ];
        let mode = modes[self.count() - 1].clone();
        InterpolateOptions::new(mode).with_align_corners(self.flip())
    }
}
