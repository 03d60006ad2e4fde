//! Integer ops, by `MxBackend`.

use core::ops::Range;

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::ops::IntTensorOps;
use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IndexingUpdateOp, IntTensor};
use burn_backend::{
    BoolDType, Distribution, ExecutionError, FloatDType, IntDType, Scalar, Shape, Slice, TensorData,
};

use super::{MxAutodiff, tracked};
use crate::backend::MxBackend;
use crate::backend::delegate::delegate;
use crate::backend::delegate::tables::int_ops;
use burn_mx_kernels::MxKernels;

impl<B: MxKernels, C: CheckpointStrategy> IntTensorOps<Self> for MxAutodiff<B, C> {
    async fn int_into_data(tensor: IntTensor<Self>) -> Result<TensorData, ExecutionError> {
        MxBackend::<B>::int_into_data(tensor).await
    }

    fn int_into_float(tensor: IntTensor<Self>, out_dtype: FloatDType) -> FloatTensor<Self> {
        tracked::<B>(MxBackend::<B>::int_into_float(tensor, out_dtype))
    }

    int_ops!(delegate! MxBackend<B>:);

    delegate! { MxBackend<B>:
        fn int_from_data(data: TensorData, device: &Device<Self>) -> IntTensor<Self>;
        fn int_device(tensor: &IntTensor<Self>) -> Device<Self>;
        fn int_to_device(tensor: IntTensor<Self>, device: &Device<Self>) -> IntTensor<Self>;
    }
}
