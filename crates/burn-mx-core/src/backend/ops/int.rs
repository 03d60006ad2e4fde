//! Integer ops: nothing is emulated. Tensors carry their specs on to the float tensors that they are converted to.

use core::ops::Range;

use burn_backend::ops::IntTensorOps;
use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IndexingUpdateOp, IntTensor};
use burn_backend::{
    BoolDType, Distribution, ExecutionError, FloatDType, IntDType, Scalar, Shape, Slice, TensorData,
};

use crate::backend::MxBackend;
use crate::backend::delegate::delegate;
use crate::backend::delegate::tables::int_ops;
use crate::tensor::MxTensor;
use burn_mx_kernels::MxKernels;

impl<B: MxKernels> IntTensorOps<Self> for MxBackend<B> {
    // Delegated

    fn int_from_data(data: TensorData, device: &Device<Self>) -> IntTensor<Self> {
        let meta = device.meta_of_created();
        MxTensor::new(B::int_from_data(data, &device.inner), meta)
    }

    async fn int_into_data(tensor: IntTensor<Self>) -> Result<TensorData, ExecutionError> {
        B::int_into_data(tensor.inner).await
    }

    fn int_device(tensor: &IntTensor<Self>) -> Device<Self> {
        tensor.device_from(B::int_device(&tensor.inner))
    }

    fn int_to_device(tensor: IntTensor<Self>, device: &Device<Self>) -> IntTensor<Self> {
        let meta = tensor.meta.on_device(device.meta);
        MxTensor::new(B::int_to_device(tensor.inner, &device.inner), meta)
    }

    int_ops!(delegate! unwrapped, computed:);

    delegate! { unwrapped, computed:
        fn int_into_float(tensor: IntTensor<Self>, out_dtype: FloatDType) -> FloatTensor<Self>;
    }
}
