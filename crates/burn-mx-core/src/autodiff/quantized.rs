//! Burn's own quantized tensors, by `MxBackend`. Autodiff computes no gradients through these tensors.

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::ops::QTensorOps;
use burn_backend::tensor::quantization::QuantizationParametersPrimitive;
use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IntTensor, QuantizedTensor};
use burn_backend::{
    BoolDType, ExecutionError, FloatDType, IntDType, Scalar, Shape, Slice, TensorData,
    TensorPrimitive, quantization::QuantScheme,
};

use super::{MxAutodiff, tracked};
use crate::backend::MxBackend;
use crate::backend::delegate::delegate;
use crate::backend::delegate::tables::{quantized_ops, quantized_to_float_ops};
use burn_mx_kernels::MxKernels;

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
        TensorPrimitive::Float(tensor) => TensorPrimitive::Float(tracked::<B>(tensor)),
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
        tracked::<B>(MxBackend::<B>::dequantize(tensor, dtype))
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

    quantized_to_float_ops!(delegate_lifting!);

    quantized_ops!(delegate! MxBackend<B>:);

    delegate! { MxBackend<B>:
        fn q_from_data(data: TensorData, device: &Device<Self>) -> QuantizedTensor<Self>;
        fn q_device(tensor: &QuantizedTensor<Self>) -> Device<Self>;
        fn q_to_device(tensor: QuantizedTensor<Self>, device: &Device<Self>) -> QuantizedTensor<Self>;
        fn q_set_require_grad(tensor: QuantizedTensor<Self>, _require_grad: bool) -> QuantizedTensor<Self>;
        fn q_is_require_grad(_tensor: &QuantizedTensor<Self>) -> bool;
    }
}
