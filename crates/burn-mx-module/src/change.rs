//! Changes of a tensor's role, specs or marks.

use burn_core::tensor::{Tensor, TensorPrimitive};
use burn_mx_core::{MxModelOps, TensorChange};

/// The tensor with this change.
pub fn change<B: MxModelOps, const D: usize>(
    tensor: Tensor<B, D>,
    change: TensorChange,
) -> Tensor<B, D> {
    let primitive = B::change(tensor.into_primitive().tensor(), change);
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}
