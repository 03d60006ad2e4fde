//! Tensors of other float types than `f32`.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, DType, FloatDType, TensorMetadata};
use microscaling::{FloatFormat, RandomStream, Rounding};

use super::{MxKernels, portable};

/// The values of a tensor of any float type, in row-major order; waits for the device.
pub fn read_values<B: Backend>(tensor: FloatTensor<B>) -> Vec<f32> {
    portable::values::<B>(to_f32::<B>(tensor))
}

/// A tensor of any float type as `f32`: of `f16` and `bf16` exactly, of `f64` rounded to nearest, ties to even.
pub fn to_f32<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    match tensor.dtype() {
        DType::F32 => tensor,
        _ => B::float_cast(tensor, FloatDType::F32),
    }
}

/// An `f32` tensor as the float type `storage`, rounded to nearest, ties to even; `None` is `f32`.
pub fn from_f32<B: MxKernels>(
    tensor: FloatTensor<B>,
    storage: Option<FloatDType>,
) -> FloatTensor<B> {
    let Some(dtype) = storage else { return tensor };
    // Rounded here, the cast is exact: backends that cast by way of `f64` would round ties wrongly.
    let format = match dtype {
        FloatDType::F16 => FloatFormat::fp(16),
        FloatDType::BF16 => FloatFormat::bfloat(16),
        _ => return B::float_cast(tensor, dtype),
    };
    let format = format.expect("16 bits are enough for either format");
    let stream = RandomStream::new(0, 0);
    B::float_cast(
        B::float_round_to(tensor, format, Rounding::NearestEven, stream),
        dtype,
    )
}

/// A tensor that an op reads beside `like`, in the float type of that.
pub fn same_type<B: Backend>(tensor: FloatTensor<B>, like: &FloatTensor<B>) -> FloatTensor<B> {
    match tensor.dtype() == like.dtype() {
        true => tensor,
        false => B::float_cast(tensor, like.dtype().into()),
    }
}
