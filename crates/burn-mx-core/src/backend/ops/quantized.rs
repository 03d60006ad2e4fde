//! Burn's own quantized tensors: their arithmetic is the wrapped backend's, outside of the MX emulation.

use burn_backend::ops::QTensorOps;
use burn_backend::tensor::quantization::QuantizationParametersPrimitive;
use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IntTensor, QuantizedTensor};
use burn_backend::{
    BoolDType, ExecutionError, FloatDType, IntDType, Scalar, Shape, Slice, TensorData,
    TensorPrimitive, quantization::QuantScheme,
};

use crate::backend::MxBackend;
use crate::backend::delegate::delegate;
use crate::backend::delegate::tables::{quantized_ops, quantized_to_float_ops};
use crate::tensor::{Meta, MxTensor};
use burn_mx_kernels::MxKernels;

impl<B: MxKernels> QTensorOps<Self> for MxBackend<B> {
    // Delegated

    fn q_from_data(data: TensorData, device: &Device<Self>) -> QuantizedTensor<Self> {
        let meta = device.meta_of_created();
        MxTensor::new(B::q_from_data(data, &device.inner), meta)
    }

    async fn q_into_data(tensor: QuantizedTensor<Self>) -> Result<TensorData, ExecutionError> {
        B::q_into_data(tensor.inner).await
    }

    fn q_device(tensor: &QuantizedTensor<Self>) -> Device<Self> {
        tensor.device_from(B::q_device(&tensor.inner))
    }

    fn q_to_device(tensor: QuantizedTensor<Self>, device: &Device<Self>) -> QuantizedTensor<Self> {
        let meta = tensor.meta.on_device(device.meta);
        MxTensor::new(B::q_to_device(tensor.inner, &device.inner), meta)
    }

    fn quantize(
        tensor: FloatTensor<Self>,
        scheme: &QuantScheme,
        qparams: QuantizationParametersPrimitive<Self>,
    ) -> QuantizedTensor<Self> {
        let meta = Meta::computed([Some(tensor.meta)]);
        let qparams = QuantizationParametersPrimitive {
            scales: qparams.scales.inner,
        };
        MxTensor::new(B::quantize(tensor.inner, scheme, qparams), meta)
    }

    fn q_set_require_grad(
        tensor: QuantizedTensor<Self>,
        require_grad: bool,
    ) -> QuantizedTensor<Self> {
        MxTensor::new(
            B::q_set_require_grad(tensor.inner, require_grad),
            tensor.meta,
        )
    }

    fn q_is_require_grad(tensor: &QuantizedTensor<Self>) -> bool {
        B::q_is_require_grad(&tensor.inner)
    }

    quantized_ops!(delegate! unwrapped, computed:);
    quantized_to_float_ops!(delegate! unwrapped, computed:);

    delegate! { unwrapped, computed:
        fn quantize_dynamic(tensor: FloatTensor<Self>, scheme: &QuantScheme) -> QuantizedTensor<Self>;
        fn dequantize(tensor: QuantizedTensor<Self>, dtype: FloatDType) -> FloatTensor<Self>;
        fn q_matmul(lhs: TensorPrimitive<Self>, rhs: TensorPrimitive<Self>) -> TensorPrimitive<Self>;
    }
}
