//! The functions beside Burn's ops, in training.

use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::FloatTensor;
use microscaling::{PackError, Packed, PackedView};

use super::backward::elementwise::UnaryRule;
use super::backward::{self, Tracked, boundary, elementwise};
use super::{MxAutodiff, layers, tracked};
use crate::backend::MxBackend;
use crate::backend::tensor_ops::{MxTensorOps, Packing, TensorChange, sealed};
use crate::semantics::activation;
use crate::specs::ResolvedSpecs;
use crate::tensor::frozen_weight::FrozenWeight;
use burn_mx_kernels::ModelOps;
use burn_mx_kernels::internal::Norm;
use burn_mx_kernels::internal::formulas::{plain_function, plain_rms_norm};
use burn_mx_kernels::{Function, MxKernels};

impl<B: MxKernels, C: CheckpointStrategy> sealed::Sealed for MxAutodiff<B, C> {}

impl<B: MxKernels, C: CheckpointStrategy> ModelOps<TensorChange> for MxAutodiff<B, C> {
    fn change(mut tensor: FloatTensor<Self>, change: TensorChange) -> FloatTensor<Self> {
        match change {
            // Gradients go back by the rules from before the change.
            TensorChange::Specs(_) | TensorChange::FullPrecision(_) => {
                boundary::cross::<B, C>(tensor, |meta| change.meta(meta))
            }
            TensorChange::Master => Tracked::<B>::new(change.apply_to(tensor.primitive)),
            // A leaf stays a leaf.
            _ => {
                tensor.primitive = change.apply_to(tensor.primitive);
                tensor
            }
        }
    }

    fn apply(tensor: FloatTensor<Self>, function: Function) -> FloatTensor<Self> {
        match activation::is_composed::<B>(&tensor.primitive) {
            true => elementwise::unary::<B, C>(tensor, UnaryRule::Function(function)),
            false => plain_function::<Self>(function, tensor),
        }
    }

    fn rms_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: Option<FloatTensor<Self>>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        backward::norm::forward_or::<B, C>(Norm::Rms, x, gamma, beta, epsilon, |x, gamma, beta| {
            plain_rms_norm::<Self>(x, gamma, beta, epsilon)
        })
    }

    fn lerp(
        target: FloatTensor<Self>,
        online: FloatTensor<Self>,
        weight: f64,
    ) -> FloatTensor<Self> {
        let require_grad = Self::float_is_require_grad(&target);
        let values = MxBackend::<B>::lerp(target.primitive, online.primitive, weight);
        Self::float_set_require_grad(tracked::<B>(values), require_grad)
    }
}

impl<B: MxKernels, C: CheckpointStrategy> MxTensorOps for MxAutodiff<B, C> {
    fn specs_of(tensor: &FloatTensor<Self>) -> Option<&'static ResolvedSpecs> {
        MxBackend::<B>::specs_of(&tensor.primitive)
    }

    fn label_of(tensor: &FloatTensor<Self>) -> Option<&'static str> {
        tensor.primitive.meta.label
    }

    fn is_weight(tensor: &FloatTensor<Self>) -> bool {
        tensor.primitive.meta.is_weight()
    }

    fn packed_of(tensor: &FloatTensor<Self>, axis: usize) -> Option<&Packed> {
        MxBackend::<B>::packed_of(&tensor.primitive, axis)
    }

    fn pack(tensor: FloatTensor<Self>, axis: usize, packing: Packing) -> Result<Packed, PackError> {
        MxBackend::<B>::pack(tensor.primitive, axis, packing)
    }

    fn unpack(packed: &PackedView<'_>, device: &Self::Device) -> FloatTensor<Self> {
        tracked::<B>(MxBackend::<B>::unpack(packed, device))
    }

    fn unpack_weight(packed: &FrozenWeight, like: &FloatTensor<Self>) -> FloatTensor<Self> {
        Tracked::<B>::new(MxBackend::<B>::unpack_weight(packed, &like.primitive))
    }

    fn linear_packed(
        x: FloatTensor<Self>,
        packed: &FrozenWeight,
        like: &FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let weight = Self::unpack_weight(packed, like);
        layers::linear_packed::<B, C>(x, weight, bias, packed.clone())
    }
}
