//! Burn's own quantized tensors: those of `MxBackend`; there are no gradients through them.

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::ops::QTensorOps;
use burn_backend::tensor::quantization::QuantizationParametersPrimitive;
use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IntTensor, QuantizedTensor};
use burn_backend::{
    AutodiffBackend, BoolDType, ExecutionError, FloatDType, IntDType, Scalar, Shape, Slice,
    TensorData, TensorPrimitive, quantization::QuantScheme,
};

use super::MxAutodiff;
use crate::backend::MxBackend;
use crate::forward::delegate;
use crate::kernels::MxKernels;

/// Ops whose result may be a float tensor.
macro_rules! delegate_lifting {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> TensorPrimitive<Self>;)*) => { $(
        fn $name($($arg: $ty),*) -> TensorPrimitive<Self> {
            lift::<B, C>(MxBackend::<B>::$name($($arg),*))
        }
    )* };
}

fn lift<B: MxKernels, C: CheckpointStrategy>(
    tensor: TensorPrimitive<MxBackend<B>>,
) -> TensorPrimitive<MxAutodiff<B, C>> {
    match tensor {
        TensorPrimitive::Float(tensor) => {
            TensorPrimitive::Float(MxAutodiff::<B, C>::from_inner(tensor))
        }
        TensorPrimitive::QFloat(tensor) => TensorPrimitive::QFloat(tensor),
    }
}

fn lower<B: MxKernels, C: CheckpointStrategy>(
    tensor: TensorPrimitive<MxAutodiff<B, C>>,
) -> TensorPrimitive<MxBackend<B>> {
    match tensor {
        TensorPrimitive::Float(tensor) => TensorPrimitive::Float(tensor.primitive),
        TensorPrimitive::QFloat(tensor) => TensorPrimitive::QFloat(tensor),
    }
}

impl<B: MxKernels, C: CheckpointStrategy> QTensorOps<Self> for MxAutodiff<B, C> {
    fn quantize(
        tensor: FloatTensor<Self>,
        scheme: &QuantScheme,
        qparams: QuantizationParametersPrimitive<Self>,
    ) -> QuantizedTensor<Self> {
        let qparams = QuantizationParametersPrimitive {
            scales: qparams.scales.primitive,
        };
        MxBackend::<B>::quantize(tensor.primitive, scheme, qparams)
    }

    fn quantize_dynamic(tensor: FloatTensor<Self>, scheme: &QuantScheme) -> QuantizedTensor<Self> {
        MxBackend::<B>::quantize_dynamic(tensor.primitive, scheme)
    }

    fn dequantize(tensor: QuantizedTensor<Self>, dtype: FloatDType) -> FloatTensor<Self> {
        Self::from_inner(MxBackend::<B>::dequantize(tensor, dtype))
    }

    async fn q_into_data(tensor: QuantizedTensor<Self>) -> Result<TensorData, ExecutionError> {
        MxBackend::<B>::q_into_data(tensor).await
    }

    fn q_matmul(lhs: TensorPrimitive<Self>, rhs: TensorPrimitive<Self>) -> TensorPrimitive<Self> {
        lift(MxBackend::<B>::q_matmul(
            lower::<B, C>(lhs),
            lower::<B, C>(rhs),
        ))
    }

    delegate_lifting! {
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

    delegate! { MxBackend<B>:
        fn q_from_data(data: TensorData, device: &Device<Self>) -> QuantizedTensor<Self>;
        fn q_device(tensor: &QuantizedTensor<Self>) -> Device<Self>;
        fn q_to_device(tensor: QuantizedTensor<Self>, device: &Device<Self>) -> QuantizedTensor<Self>;
        fn q_reshape(tensor: QuantizedTensor<Self>, shape: Shape) -> QuantizedTensor<Self>;
        fn q_detach(tensor: QuantizedTensor<Self>) -> QuantizedTensor<Self>;
        fn q_set_require_grad(tensor: QuantizedTensor<Self>, _require_grad: bool) -> QuantizedTensor<Self>;
        fn q_is_require_grad(_tensor: &QuantizedTensor<Self>) -> bool;
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
}
