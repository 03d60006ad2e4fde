//! A complete backend that burn-mx does not know: Flex under another name, and without native kernels.
//!
//! The backend passes every required op, and every float op that Flex overrides, on to Flex. So the values are Flex's, and
//! only the path of the MX kernels differs.

use burn_backend::ops::*;
use burn_backend::quantization::{QuantScheme, QuantizationParametersPrimitive};
use burn_backend::tensor::IndexingUpdateOp;
use burn_backend::{
    Backend, BackendTypes, BoolDType, DType, DTypeUsageSet, Distribution, ExecutionError,
    FloatDType, IntDType, Scalar, Shape, Slice, TensorData,
};
use burn_flex::{Flex, FlexDevice as Cpu, FlexQTensor as Q, FlexTensor as T};
use burn_mx::MxKernels;

/// Flex under another name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MyBackend;

/// burn-mx needs no more than this line.
impl MxKernels for MyBackend {}

impl BackendTypes for MyBackend {
    type Device = Cpu;
    type FloatTensorPrimitive = T;
    type FloatElem = f32;
    type IntTensorPrimitive = T;
    type IntElem = i32;
    type BoolTensorPrimitive = T;
    type BoolElem = bool;
    type QuantizedTensorPrimitive = Q;
}

impl Backend for MyBackend {
    fn name(_: &Cpu) -> String {
        "mine".into()
    }

    fn seed(device: &Cpu, seed: u64) {
        Flex::seed(device, seed)
    }

    fn device_count(type_id: u16) -> usize {
        Flex::device_count(type_id)
    }

    fn dtype_usage(device: &Cpu, dtype: DType) -> DTypeUsageSet {
        Flex::dtype_usage(device, dtype)
    }
}

impl TransactionOps<Self> for MyBackend {}

/// Methods that call Flex's of the same name, listed by signature.
macro_rules! forward {
    (@ $name:ident ($($arg:ident: $ty:ty),*) $ret:ty) => {
        fn $name($($arg: $ty),*) -> $ret {
            Flex::$name($($arg),*)
        }
    };
    ($($args:tt -> $ret:ty: $($name:ident)*;)*) => { $($( forward!(@ $name $args $ret); )*)* };
}

impl FloatTensorOps<Self> for MyBackend {
    forward! {
        (a: TensorData, b: &Cpu) -> T: float_from_data;
        (a: Shape, b: Distribution, c: &Cpu, d: FloatDType) -> T: float_random;
        (a: Shape, b: &Cpu, c: FloatDType) -> T: float_zeros float_ones float_empty;
        (a: Shape, b: Scalar, c: &Cpu, d: FloatDType) -> T: float_full;
        (a: &T) -> Cpu: float_device;
        (a: T, b: &Cpu) -> T: float_to_device;
        (a: T, b: IntDType) -> T: float_into_int;
        (a: T, b: usize, c: usize) -> T: float_repeat_dim float_swap_dims;
        (a: T, b: T) -> T: float_add float_sub float_mul float_div float_remainder float_matmul float_gather_nd
            float_powf float_powi float_atan2;
        (a: T, b: Scalar) -> T: float_add_scalar float_clamp_min float_clamp_max float_sub_scalar
            float_mul_scalar float_div_scalar float_remainder_scalar float_powi_scalar float_powf_scalar
            float_powf_scalar_impl;
        (a: T, b: Scalar, c: Scalar) -> T: float_clamp;
        (a: T, b: T, c: usize) -> T: float_cross;
        (a: T) -> T: float_neg float_recip float_transpose float_detach float_sum float_prod float_mean
            float_exp float_log float_log1p float_sqrt float_abs float_cos float_sin float_tan float_cosh
            float_sinh float_tanh float_acos float_acosh float_asin float_asinh float_atan float_atanh
            float_round float_floor float_ceil float_trunc float_erf float_max float_min float_max_abs
            float_sign;
        (a: T, b: &[usize]) -> T: float_permute float_flip;
        (a: T, b: Shape) -> T: float_reshape float_expand;
        (a: usize, b: T, c: T) -> T: float_gather;
        (a: usize, b: T, c: T, d: T) -> T: float_scatter_add;
        (a: T, b: T, c: T, d: IndexingUpdateOp) -> T: float_scatter_nd;
        (a: T, b: usize, c: T) -> T: float_select;
        (a: T, b: usize, c: T, d: T) -> T: float_select_add;
        (a: T, b: &[Slice]) -> T: float_slice;
        (a: T, b: &[Slice], c: T) -> T: float_slice_assign;
        (a: T, b: T, c: T) -> T: float_mask_where;
        (a: T, b: T, c: Scalar) -> T: float_mask_fill;
        (a: T, b: T, c: BoolDType) -> T: float_equal float_not_equal float_greater float_greater_equal
            float_lower float_lower_equal;
        (a: T, b: Scalar, c: BoolDType) -> T: float_equal_elem float_not_equal_elem float_greater_elem
            float_greater_equal_elem float_lower_elem float_lower_equal_elem;
        (a: T, b: usize) -> T: float_sum_dim float_prod_dim float_mean_dim float_cumsum float_cumprod
            float_cummin float_cummax float_max_dim float_min_dim float_max_abs_dim;
        (a: T, b: FloatDType) -> T: float_cast;
        (a: Vec<T>, b: usize) -> T: float_cat;
        (a: T, b: usize, c: IntDType) -> T: float_argmax float_argmin;
        (a: T, b: usize, c: usize, d: IntDType) -> T: float_argtopk;
        (a: T, b: usize, c: IntDType) -> (T, T): float_max_dim_with_indices float_min_dim_with_indices;
        (a: T, b: BoolDType) -> T: float_any float_all float_is_nan float_is_inf;
        (a: T, b: usize, c: BoolDType) -> T: float_any_dim float_all_dim;
        (a: T, b: usize, c: bool) -> T: float_sort;
        (a: T, b: usize, c: bool, d: IntDType) -> (T, T): float_sort_with_indices;
        (a: T, b: usize, c: bool, d: IntDType) -> T: float_argsort;
        (a: T, b: T, c: GridSampleOptions) -> T: float_grid_sample_2d;
        (a: T, b: usize, c: usize, d: usize) -> T: float_unfold;
    }

    async fn float_into_data(tensor: T) -> Result<TensorData, ExecutionError> {
        Flex::float_into_data(tensor).await
    }
}

impl BoolTensorOps<Self> for MyBackend {
    forward! {
        (a: Shape, b: &Cpu, c: BoolDType) -> T: bool_empty bool_zeros bool_ones;
        (a: TensorData, b: &Cpu) -> T: bool_from_data;
        (a: T, b: IntDType) -> T: bool_into_int;
        (a: T, b: FloatDType) -> T: bool_into_float;
        (a: &T) -> Cpu: bool_device;
        (a: T, b: &Cpu) -> T: bool_to_device;
        (a: T, b: Shape) -> T: bool_reshape bool_expand;
        (a: T, b: &[Slice]) -> T: bool_slice;
        (a: T, b: &[Slice], c: T) -> T: bool_slice_assign;
        (a: T, b: T, c: T) -> T: bool_mask_where;
        (a: T, b: T, c: Scalar) -> T: bool_mask_fill;
        (a: usize, b: T, c: T) -> T: bool_gather;
        (a: usize, b: T, c: T, d: T) -> T: bool_scatter_or;
        (a: T, b: usize, c: T) -> T: bool_select;
        (a: T, b: usize, c: T, d: T) -> T: bool_select_or;
        (a: T, b: T) -> T: bool_equal bool_and bool_or;
        (a: T, b: Scalar) -> T: bool_equal_elem;
        (a: T) -> T: bool_not;
        (a: T, b: usize, c: usize) -> T: bool_swap_dims;
        (a: T, b: &[usize]) -> T: bool_permute bool_flip;
        (a: T, b: usize, c: usize, d: usize) -> T: bool_unfold;
    }

    async fn bool_into_data(tensor: T) -> Result<TensorData, ExecutionError> {
        Flex::bool_into_data(tensor).await
    }
}

impl IntTensorOps<Self> for MyBackend {
    forward! {
        (a: Shape, b: &Cpu, c: IntDType) -> T: int_empty;
        (a: TensorData, b: &Cpu) -> T: int_from_data;
        (a: &T) -> Cpu: int_device;
        (a: T, b: &Cpu) -> T: int_to_device;
        (a: T, b: Shape) -> T: int_reshape int_expand;
        (a: T, b: &[Slice]) -> T: int_slice;
        (a: T, b: &[Slice], c: T) -> T: int_slice_assign;
        (a: T, b: FloatDType) -> T: int_into_float;
        (a: T, b: T, c: T) -> T: int_mask_where;
        (a: T, b: T, c: Scalar) -> T: int_mask_fill;
        (a: usize, b: T, c: T) -> T: int_gather;
        (a: usize, b: T, c: T, d: T) -> T: int_scatter_add;
        (a: T, b: usize, c: T) -> T: int_select;
        (a: T, b: usize, c: T, d: T) -> T: int_select_add;
        (a: T, b: T, c: BoolDType) -> T: int_equal int_greater int_greater_equal int_lower int_lower_equal;
        (a: T, b: Scalar, c: BoolDType) -> T: int_equal_elem int_greater_elem int_greater_equal_elem
            int_lower_elem int_lower_equal_elem;
        (a: T, b: T) -> T: int_add int_sub int_mul int_div int_remainder int_matmul bitwise_and bitwise_or
            bitwise_xor bitwise_left_shift bitwise_right_shift;
        (a: T, b: Scalar) -> T: int_add_scalar int_sub_scalar int_mul_scalar int_div_scalar int_remainder_scalar
            bitwise_and_scalar bitwise_or_scalar bitwise_xor_scalar bitwise_left_shift_scalar
            bitwise_right_shift_scalar;
        (a: T) -> T: int_sum int_prod int_abs bitwise_not;
        (a: T, b: usize) -> T: int_sum_dim int_prod_dim int_mean_dim int_cumsum int_cumprod int_cummin
            int_cummax int_argmax int_argmin;
        (a: T, b: usize, c: usize) -> T: int_argtopk int_swap_dims;
        (a: T, b: &[usize]) -> T: int_permute int_flip;
        (a: Shape, b: Distribution, c: &Cpu, d: IntDType) -> T: int_random;
        (a: T, b: IntDType) -> T: int_cast;
        (a: T, b: usize, c: usize, d: usize) -> T: int_unfold;
    }

    async fn int_into_data(tensor: T) -> Result<TensorData, ExecutionError> {
        Flex::int_into_data(tensor).await
    }
}

impl QTensorOps<Self> for MyBackend {
    forward! {
        (a: TensorData, b: &Cpu) -> Q: q_from_data;
        (a: Q, b: FloatDType) -> T: dequantize;
        (a: &Q) -> Cpu: q_device;
        (a: Q, b: &Cpu) -> Q: q_to_device;
        (a: Q, b: Shape) -> Q: q_reshape q_expand;
        (a: Q, b: usize, c: usize) -> Q: q_swap_dims;
        (a: Q, b: &[usize]) -> Q: q_permute q_flip;
        (a: Q, b: usize, c: T) -> Q: q_select;
        (a: Q, b: &[Slice]) -> Q: q_slice;
    }

    async fn q_into_data(tensor: Q) -> Result<TensorData, ExecutionError> {
        Flex::q_into_data(tensor).await
    }

    fn quantize(
        tensor: T,
        scheme: &QuantScheme,
        params: QuantizationParametersPrimitive<Self>,
    ) -> Q {
        let params = QuantizationParametersPrimitive {
            scales: params.scales,
        };
        Flex::quantize(tensor, scheme, params)
    }
}

impl ModuleOps<Self> for MyBackend {
    forward! {
        (a: T, b: T) -> T: embedding adaptive_avg_pool2d_backward;
        (a: T, b: T, c: T) -> T: embedding_backward;
        (a: T, b: T, c: Option<T>, d: ConvOptions<1>) -> T: conv1d;
        (a: T, b: T, c: Option<T>, d: ConvOptions<2>) -> T: conv2d;
        (a: T, b: T, c: T, d: Option<T>, e: Option<T>, f: DeformConvOptions<2>) -> T: deform_conv2d;
        (a: T, b: T, c: Option<T>, d: ConvOptions<3>) -> T: conv3d;
        (a: T, b: T, c: Option<T>, d: ConvTransposeOptions<1>) -> T: conv_transpose1d;
        (a: T, b: T, c: Option<T>, d: ConvTransposeOptions<2>) -> T: conv_transpose2d;
        (a: T, b: T, c: Option<T>, d: ConvTransposeOptions<3>) -> T: conv_transpose3d;
        (a: T, b: [usize; 2], c: [usize; 2], d: [usize; 2], e: bool, f: bool) -> T: avg_pool2d;
        (a: T, b: T, c: [usize; 2], d: [usize; 2], e: [usize; 2], f: bool, g: bool) -> T: avg_pool2d_backward;
        (a: T, b: [usize; 2]) -> T: adaptive_avg_pool2d;
        (a: T, b: [usize; 2], c: [usize; 2], d: [usize; 2], e: [usize; 2], f: bool) -> T: max_pool2d;
        (a: T, b: [usize; 2], c: InterpolateOptions) -> T: interpolate;
        (a: T, b: T, c: [usize; 2], d: InterpolateOptions) -> T: interpolate_backward;
        (a: T, b: T, c: T, d: Option<T>, e: Option<T>, f: AttentionModuleOptions) -> T: attention;
        (a: T, b: T, c: Option<T>, d: f64) -> T: layer_norm;
        (a: T, b: usize, c: Option<usize>) -> (T, T): rfft;
        (a: T, b: T, c: usize, d: Option<usize>) -> T: irfft;
    }

    fn deform_conv2d_backward(
        x: T,
        offset: T,
        weight: T,
        mask: Option<T>,
        bias: Option<T>,
        grad: T,
        options: DeformConvOptions<2>,
    ) -> DeformConv2dBackward<Self> {
        let grads = Flex::deform_conv2d_backward(x, offset, weight, mask, bias, grad, options);
        DeformConv2dBackward::new(
            grads.x_grad,
            grads.offset_grad,
            grads.weight_grad,
            grads.mask_grad,
            grads.bias_grad,
        )
    }

    fn max_pool2d_with_indices(
        x: T,
        size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil: bool,
    ) -> MaxPool2dWithIndices<Self> {
        let pooled = Flex::max_pool2d_with_indices(x, size, stride, padding, dilation, ceil);
        MaxPool2dWithIndices::new(pooled.output, pooled.indices)
    }

    fn max_pool2d_with_indices_backward(
        x: T,
        size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil: bool,
        grad: T,
        indices: T,
    ) -> MaxPool2dBackward<Self> {
        let grads = Flex::max_pool2d_with_indices_backward(
            x, size, stride, padding, dilation, ceil, grad, indices,
        );
        MaxPool2dBackward::new(grads.x_grad)
    }
}

impl ActivationOps<Self> for MyBackend {
    forward! {
        (a: T, b: Scalar) -> T: leaky_relu;
        (a: T) -> T: relu gelu sigmoid log_sigmoid;
        (a: T, b: T) -> T: relu_backward prelu gelu_backward sigmoid_backward log_sigmoid_backward;
        (a: T, b: Scalar, c: Scalar) -> T: hard_sigmoid;
        (a: T, b: usize) -> T: softmax;
    }
}
