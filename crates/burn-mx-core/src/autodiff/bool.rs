//! Bool ops, by `MxBackend`.

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::ops::BoolTensorOps;
use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IntTensor};
use burn_backend::{
    BoolDType, ExecutionError, FloatDType, IntDType, Scalar, Shape, Slice, TensorData,
};

use super::{MxAutodiff, tracked};
use crate::backend::MxBackend;
use crate::backend::delegate::delegate;
use crate::backend::delegate::tables::bool_ops;
use burn_mx_kernels::MxKernels;

impl<B: MxKernels, C: CheckpointStrategy> BoolTensorOps<Self> for MxAutodiff<B, C> {
    async fn bool_into_data(tensor: BoolTensor<Self>) -> Result<TensorData, ExecutionError> {
        MxBackend::<B>::bool_into_data(tensor).await
    }

    fn bool_into_float(tensor: BoolTensor<Self>, out_dtype: FloatDType) -> FloatTensor<Self> {
        tracked::<B>(MxBackend::<B>::bool_into_float(tensor, out_dtype))
    }

    async fn bool_argwhere(tensor: BoolTensor<Self>, out_dtype: IntDType) -> IntTensor<Self> {
        MxBackend::<B>::bool_argwhere(tensor, out_dtype).await
    }

    bool_ops!(delegate! MxBackend<B>:);

    delegate! { MxBackend<B>:
        fn bool_from_data(data: TensorData, device: &Device<Self>) -> BoolTensor<Self>;
        fn bool_device(tensor: &BoolTensor<Self>) -> Device<Self>;
        fn bool_to_device(tensor: BoolTensor<Self>, device: &Device<Self>) -> BoolTensor<Self>;
    }
}
