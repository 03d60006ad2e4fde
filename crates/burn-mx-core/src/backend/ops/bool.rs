//! Bool ops: nothing is emulated. Tensors carry their specs on to the float tensors that they are converted to.

use burn_backend::ops::BoolTensorOps;
use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IntTensor};
use burn_backend::{
    BoolDType, ExecutionError, FloatDType, IntDType, Scalar, Shape, Slice, TensorData,
};

use crate::backend::MxBackend;
use crate::backend::delegate::delegate;
use crate::backend::delegate::tables::bool_ops;
use crate::tensor::MxTensor;
use burn_mx_kernels::MxKernels;

impl<B: MxKernels> BoolTensorOps<Self> for MxBackend<B> {
    // Delegated

    fn bool_from_data(data: TensorData, device: &Device<Self>) -> BoolTensor<Self> {
        let meta = device.meta_of_created();
        MxTensor::new(B::bool_from_data(data, &device.inner), meta)
    }

    async fn bool_into_data(tensor: BoolTensor<Self>) -> Result<TensorData, ExecutionError> {
        B::bool_into_data(tensor.inner).await
    }

    fn bool_device(tensor: &BoolTensor<Self>) -> Device<Self> {
        tensor.device_from(B::bool_device(&tensor.inner))
    }

    fn bool_to_device(tensor: BoolTensor<Self>, device: &Device<Self>) -> BoolTensor<Self> {
        let meta = tensor.meta.on_device(device.meta);
        MxTensor::new(B::bool_to_device(tensor.inner, &device.inner), meta)
    }

    async fn bool_argwhere(tensor: BoolTensor<Self>, out_dtype: IntDType) -> IntTensor<Self> {
        let meta = tensor.meta;
        MxTensor::new(B::bool_argwhere(tensor.inner, out_dtype).await, meta)
    }

    bool_ops!(delegate! unwrapped, computed:);

    delegate! { unwrapped, computed:
        fn bool_into_float(tensor: BoolTensor<Self>, out_dtype: FloatDType) -> FloatTensor<Self>;
    }
}
