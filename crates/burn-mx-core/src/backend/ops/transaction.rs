//! Reading several tensors at once.

use burn_backend::ExecutionError;
use burn_backend::ops::{TransactionOps, TransactionPrimitive, TransactionPrimitiveData};

use crate::backend::MxBackend;
use crate::tensor::MxTensor;
use burn_mx_kernels::MxKernels;

impl<B: MxKernels> TransactionOps<Self> for MxBackend<B> {
    // Delegated

    async fn tr_execute(
        transaction: TransactionPrimitive<Self>,
    ) -> Result<TransactionPrimitiveData, ExecutionError> {
        B::tr_execute(TransactionPrimitive::new(
            into_inner(transaction.read_floats),
            into_inner(transaction.read_qfloats),
            into_inner(transaction.read_ints),
            into_inner(transaction.read_bools),
        ))
        .await
    }
}

fn into_inner<P>(tensors: Vec<MxTensor<P>>) -> Vec<P> {
    tensors.into_iter().map(MxTensor::into_inner).collect()
}
