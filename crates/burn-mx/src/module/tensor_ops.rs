//! What the helpers need of a backend: to see and to change what its tensors carry, and the functions that Burn has no op
//! for.

use std::sync::Arc;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_core::tensor::{Tensor, TensorPrimitive};
use microscaling::{
    BlockFormat, FloatFormat, PackError, Packed, PackedView, RandomStream, Rounding,
};

use crate::backend::MxBackend;
use crate::kernels::{MxKernels, Norm, to_f32};
use crate::semantics::{activation, norm};
use crate::shared_specs::SharedSpecs;
use crate::specs::ResolvedSpecs;
use crate::tensor::{Flags, Meta, MxTensor};
use crate::weight_cache::{CopyKey, Unpacked};

mod sealed {
    pub trait Sealed {}
}

/// The two backends whose tensors carry specs.
pub trait MxTensorOps: Backend + sealed::Sealed {
    #[doc(hidden)]
    fn change_meta(tensor: FloatTensor<Self>, change: MetaChange) -> FloatTensor<Self>;
    #[doc(hidden)]
    fn apply(tensor: FloatTensor<Self>, function: Function) -> FloatTensor<Self>;
    #[doc(hidden)]
    fn rms_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: Option<FloatTensor<Self>>,
        epsilon: f64,
    ) -> FloatTensor<Self>;
    #[doc(hidden)]
    fn lerp(target: FloatTensor<Self>, online: FloatTensor<Self>, weight: f64)
    -> FloatTensor<Self>;
    #[doc(hidden)]
    fn specs_of(tensor: &FloatTensor<Self>) -> Option<&'static ResolvedSpecs>;
    #[doc(hidden)]
    fn label_of(tensor: &FloatTensor<Self>) -> Option<&'static str>;
    #[doc(hidden)]
    fn is_weight(tensor: &FloatTensor<Self>) -> bool;
    #[doc(hidden)]
    fn packed_of(tensor: &FloatTensor<Self>, axis: usize) -> Option<&Packed>;
    #[doc(hidden)]
    fn pack(tensor: FloatTensor<Self>, axis: usize, packing: Packing) -> Result<Packed, PackError>;
    #[doc(hidden)]
    fn unpack(packed: &PackedView<'_>, device: &Self::Device) -> FloatTensor<Self>;
}

/// How a tensor is packed.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    /// What the elements are rounded to before, not stochastically.
    pub(crate) elementwise: Option<(FloatFormat, Rounding)>,
    pub(crate) format: BlockFormat,
    pub(crate) rounding: Rounding,
    pub(crate) stream: RandomStream,
}

/// A change of what a tensor is to the emulation.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct MetaChange(Change);

#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Specs set by name, for a parameter; `None` takes them back.
    Pin(Option<&'static SharedSpecs>),
    /// The path of a parameter.
    Label(&'static str),
    Specs(&'static SharedSpecs),
    FullPrecision(bool),
    /// Arithmetic on it is an optimizer's.
    Master,
    Weight(bool),
    /// What the values of a weight are by themselves.
    #[cfg(feature = "checkpoint")]
    Unpacked(Arc<Unpacked>),
}

impl MetaChange {
    fn apply(&self, mut meta: Meta) -> Meta {
        match self.0 {
            #[cfg(feature = "checkpoint")]
            Change::Unpacked(_) => {}
            Change::Pin(Some(specs)) => meta = meta.pin(specs),
            Change::Pin(None) => meta = meta.unpin(),
            Change::Label(label) => meta.label = Some(label),
            Change::Specs(specs) => meta = meta.with_chosen_specs(specs),
            Change::FullPrecision(true) => meta.flags.insert(Flags::FULL_PRECISION),
            Change::FullPrecision(false) => {
                meta.flags
                    .remove(Flags::EXEMPT | Flags::CONSTANT | Flags::LITERAL);
            }
            Change::Master => meta.flags.insert(Flags::MASTER),
            Change::Weight(on) => meta.flags.set(Flags::WEIGHT | Flags::PARAMETER, on),
        }
        meta
    }

    /// What the values are by themselves, which no change of anything else takes back.
    fn unpacked<P>(&self, tensor: &MxTensor<P>) -> Option<Arc<Unpacked>> {
        match &self.0 {
            #[cfg(feature = "checkpoint")]
            Change::Unpacked(unpacked) => Some(Arc::clone(unpacked)),
            _ => tensor.unpacked(),
        }
    }

    /// Copies that a weight keeps are left to those who share them: there will be others now.
    fn apply_to<P: TensorMetadata>(self, tensor: MxTensor<P>) -> MxTensor<P> {
        let meta = self.apply(tensor.meta);
        let unpacked = self.unpacked(&tensor);
        let tensor = MxTensor::new(tensor.inner, meta);
        match meta.is_weight() {
            true => tensor.into_weight_of(unpacked),
            false => tensor,
        }
    }
}

/// A function that Burn composes and the reference has as one.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum Function {
    GeluFirstOrder,
    Silu,
}

impl<B: MxKernels> sealed::Sealed for MxBackend<B> {}

impl<B: MxKernels> MxTensorOps for MxBackend<B> {
    fn change_meta(tensor: FloatTensor<Self>, change: MetaChange) -> FloatTensor<Self> {
        change.apply_to(tensor)
    }

    fn apply(tensor: FloatTensor<Self>, function: Function) -> FloatTensor<Self> {
        match function {
            Function::GeluFirstOrder => activation::gelu_first_order::<B>(None, tensor),
            Function::Silu => activation::silu::<B>(None, tensor),
        }
    }

    fn rms_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: Option<FloatTensor<Self>>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        norm::forward::<B>(None, Norm::Rms, x, gamma, beta, epsilon)
    }

    fn lerp(
        target: FloatTensor<Self>,
        online: FloatTensor<Self>,
        weight: f64,
    ) -> FloatTensor<Self> {
        let kept = B::float_mul_scalar(target.inner, (1.0 - weight).into());
        let new = B::float_mul_scalar(online.inner, weight.into());
        let meta = Meta {
            rounded: None,
            ..target.meta.without_optimizer_marks()
        };
        let values = MxTensor::new(B::float_add(kept, new), meta);
        match meta.is_weight() {
            true => values.into_weight(),
            false => values,
        }
    }

    fn specs_of(tensor: &FloatTensor<Self>) -> Option<&'static ResolvedSpecs> {
        tensor.meta.specs.map(|interned| &interned.specs)
    }

    fn label_of(tensor: &FloatTensor<Self>) -> Option<&'static str> {
        tensor.meta.label
    }

    fn is_weight(tensor: &FloatTensor<Self>) -> bool {
        tensor.meta.is_weight()
    }

    fn packed_of(tensor: &FloatTensor<Self>, axis: usize) -> Option<&Packed> {
        let key = CopyKey::of_weight(&tensor.meta.specs?.specs, axis)?;
        let unpacked = tensor.kept.as_ref()?.unpacked_by(key)?;
        Some(&unpacked.packed)
    }

    fn pack(tensor: FloatTensor<Self>, axis: usize, packing: Packing) -> Result<Packed, PackError> {
        let Packing {
            elementwise,
            format,
            rounding,
            stream,
        } = packing;
        let mut tensor = to_f32::<B>(tensor.inner);
        if let Some((format, rounding)) = elementwise {
            tensor = B::float_round_to(tensor, format, rounding, RandomStream::new(0, 0));
        }
        B::pack(tensor, axis, format, rounding, stream)
    }

    fn unpack(packed: &PackedView<'_>, device: &Self::Device) -> FloatTensor<Self> {
        MxTensor::new(B::unpack(packed, &device.inner), device.meta_of_created())
    }
}

#[cfg(feature = "autodiff")]
mod autodiff {
    use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
    use burn_backend::ops::{ActivationOps, FloatTensorOps};

    use super::*;
    use crate::autodiff::{MxAutodiff, tracked};
    use crate::backward::{self, Tracked, boundary, elementwise};

    impl<B: MxKernels, C: CheckpointStrategy> sealed::Sealed for MxAutodiff<B, C> {}

    impl<B: MxKernels, C: CheckpointStrategy> MxTensorOps for MxAutodiff<B, C> {
        fn change_meta(mut tensor: FloatTensor<Self>, change: MetaChange) -> FloatTensor<Self> {
            match change.0 {
                // Gradients go back by the rules from before the change.
                Change::Specs(_) | Change::FullPrecision(_) => {
                    boundary::cross::<B, C>(tensor, |meta| change.apply(meta))
                }
                Change::Master => Tracked::<B>::new(change.apply_to(tensor.primitive)),
                // A leaf stays a leaf.
                _ => {
                    tensor.primitive = change.apply_to(tensor.primitive);
                    tensor
                }
            }
        }

        fn apply(tensor: FloatTensor<Self>, function: Function) -> FloatTensor<Self> {
            let emulated = activation::is_composed::<B>(&tensor.primitive);
            match (function, emulated) {
                (Function::GeluFirstOrder, true) => {
                    elementwise::unary::<B, C, _>(tensor, elementwise::GeluFirstOrder)
                }
                (Function::Silu, true) => elementwise::unary::<B, C, _>(tensor, elementwise::Silu),
                (Function::GeluFirstOrder, false) => {
                    let slope = activation::GELU_SLOPE.into();
                    let gate = Self::sigmoid(Self::float_mul_scalar(tensor.clone(), slope));
                    Self::float_mul(tensor, gate)
                }
                (Function::Silu, false) => Self::float_mul(tensor.clone(), Self::sigmoid(tensor)),
            }
        }

        fn rms_norm(
            x: FloatTensor<Self>,
            gamma: FloatTensor<Self>,
            beta: Option<FloatTensor<Self>>,
            epsilon: f64,
        ) -> FloatTensor<Self> {
            backward::norm::forward_or::<B, C>(
                Norm::Rms,
                x,
                gamma,
                beta,
                epsilon,
                |x, gamma, beta| norm::plain_rms_norm::<Self>(x, gamma, beta, epsilon),
            )
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

        fn pack(
            tensor: FloatTensor<Self>,
            axis: usize,
            packing: Packing,
        ) -> Result<Packed, PackError> {
            MxBackend::<B>::pack(tensor.primitive, axis, packing)
        }

        fn unpack(packed: &PackedView<'_>, device: &Self::Device) -> FloatTensor<Self> {
            tracked::<B>(MxBackend::<B>::unpack(packed, device))
        }
    }
}

/// The tensor with this change.
pub(crate) fn change<B: MxTensorOps, const D: usize>(
    tensor: Tensor<B, D>,
    change: Change,
) -> Tensor<B, D> {
    let primitive = B::change_meta(tensor.into_primitive().tensor(), MetaChange(change));
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}
