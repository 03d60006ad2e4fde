//! What the ops with meaning mean: the products and recipes of the MX training literature, in terms of the
//! wrapped backend's ops and the kernels.
//!
//! Everything here works on decorated tensors of `MxBackend<B>`; `MxAutodiff` calls the same functions from
//! its backward steps, so that training and inference agree bit for bit.

pub(crate) mod activation;
pub(crate) mod arithmetic;
pub(crate) mod conv;
pub(crate) mod elementwise;
pub(crate) mod linear;
pub(crate) mod matmul;
pub(crate) mod norm;
pub(crate) mod product;
pub(crate) mod softmax;

use burn_backend::tensor::FloatTensor;

use crate::tensor::MxTensor;

/// A float tensor of `MxBackend<B>`.
pub(crate) type Float<B> = MxTensor<FloatTensor<B>>;
