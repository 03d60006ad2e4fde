//! The meaning of the emulated ops: the products and functions of the MX training literature, in terms of the wrapped
//! backend's ops and the kernels.
//!
//! Everything here works on decorated tensors of `MxBackend<B>`; `MxAutodiff` calls the same functions from
//! its backward steps, so that training and inference agree bit for bit.

pub(crate) mod activation;
pub(crate) mod attention;
pub(crate) mod conv;
pub(crate) mod elementwise;
mod emulation;
mod layer;
pub(crate) mod linear;
pub(crate) mod matmul;
pub(crate) mod norm;
pub(crate) mod product;
mod rows;
mod shapes;
pub(crate) mod softmax;

use burn_backend::FloatDType;
use burn_backend::tensor::FloatTensor;

use crate::tensor::{Float, Meta, MxTensor};
use burn_mx_kernels::{MxKernels, from_f32};

/// The result of an emulated op, which is computed in `f32`, as a tensor of the operands' type.
pub(crate) fn stored<B: MxKernels>(inner: FloatTensor<B>, mut meta: Meta) -> Float<B> {
    if !matches!(meta.storage, None | Some(FloatDType::F64)) {
        // A narrower type may hold other values than the format.
        meta.rounded = None;
    }
    MxTensor::new(from_f32::<B>(inner, meta.storage), meta)
}
