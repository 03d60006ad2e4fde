//! A backend's functions beside Burn's ops: to read and change the meta of tensors, and to compute functions that Burn has no op
//! for. The helpers for modules call them.

use std::sync::Arc;

use burn_backend::TensorMetadata;
use burn_backend::ops::ModuleOps;
use burn_backend::tensor::FloatTensor;
use microscaling::{
    BlockFormat, FloatFormat, PackError, Packed, PackedView, RandomStream, Rounding,
};

use crate::backend::MxBackend;
use crate::semantics::{activation, norm};
use crate::specs::ResolvedSpecs;
use crate::tensor::frozen_weight::FrozenWeight;
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::weight_cache::{CopyKey, Unpacked};
use crate::tensor::{Meta, MxTensor, OpContext, Rule};
use burn_mx_kernels::ModelOps;
use burn_mx_kernels::internal::{AdamWStep, Norm};
use burn_mx_kernels::{Function, MxKernels, to_f32};

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// Backends on which the code of a model and of a loss runs: the two that emulate, [`MxBackend`] and
/// [`MxAutodiff`](crate::MxAutodiff), and plain backends. A plain backend is any backend that burn-mx wraps, and burn's
/// `Autodiff` of one. Its tensors carry no specs, so the defaults of this trait, plain arithmetic, are its methods. A router or a
/// remote session counts as plain, too: these functions do not reach a backend behind it that emulates.
///
/// `burn_mx::module` has the same for tensors and modules.
pub trait MxModelOps: ModelOps<TensorChange> {}

impl<B: ModelOps<TensorChange>> MxModelOps for B {}

/// The two backends whose tensors carry specs, [`MxBackend`] and [`MxAutodiff`](crate::MxAutodiff), and their functions
/// beside Burn's ops. `burn_mx::module` has the same for tensors and modules.
pub trait MxTensorOps: MxModelOps + sealed::Sealed {
    /// The specs that the tensor carries.
    fn specs_of(tensor: &FloatTensor<Self>) -> Option<&'static ResolvedSpecs>;

    /// The label of the parameter that the tensor is.
    fn label_of(tensor: &FloatTensor<Self>) -> Option<&'static str>;

    /// Whether the tensor is a weight.
    fn is_weight(tensor: &FloatTensor<Self>) -> bool;

    /// The packed weight that the tensor was loaded from, if products that sum over this axis use the packed values
    /// unchanged.
    fn packed_of(tensor: &FloatTensor<Self>, axis: usize) -> Option<&Packed>;

    /// The tensor, quantized in blocks along `axis` and packed.
    ///
    /// # Errors
    ///
    /// The errors of [`Packed::encode`].
    fn pack(tensor: FloatTensor<Self>, axis: usize, packing: Packing) -> Result<Packed, PackError>;

    /// The tensor that a packed one is.
    fn unpack(packed: &PackedView<'_>, device: &Self::Device) -> FloatTensor<Self>;

    /// The weight `[in, out]` of a packed one, with the device, specs, marks and label of `like`. Forward products take the values
    /// unchanged.
    ///
    /// # Panics
    ///
    /// With [`FrozenWeightError::Specs`](crate::FrozenWeightError::Specs).
    fn unpack_weight(packed: &FrozenWeight, like: &FloatTensor<Self>) -> FloatTensor<Self>;

    /// The linear layer `x · w + b` of the [unpacked](Self::unpack_weight) weight. The weight gets no gradient, and its values live
    /// during a product alone: the backward pass unpacks the bytes again.
    ///
    /// # Panics
    ///
    /// As [`unpack_weight`](Self::unpack_weight), and as the linear layer.
    fn linear_packed(
        x: FloatTensor<Self>,
        packed: &FrozenWeight,
        like: &FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self>;
}

/// How a tensor is packed.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    /// The format to which elements are rounded before, not stochastically.
    pub elementwise: Option<(FloatFormat, Rounding)>,
    /// The format.
    pub format: BlockFormat,
    /// How elements are rounded to it.
    pub rounding: Rounding,
    /// Random numbers, if that is stochastic.
    pub stream: RandomStream,
}

/// A change of a tensor's role or exemption in the emulation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TensorChange {
    /// Specs set by name, for a parameter; `None` takes them back.
    Pin(Option<&'static SharedSpecs>),
    /// The path of a parameter.
    Label(&'static str),
    /// Specs that are not its device's.
    Specs(&'static SharedSpecs),
    /// Whether the tensor and its results are computed at full precision from here on.
    FullPrecision(bool),
    /// Arithmetic on it is an optimizer's.
    Master,
    /// Whether it is a weight.
    Weight(bool),
    /// The unpacked values of a weight.
    Unpacked(Arc<Unpacked>),
}

impl TensorChange {
    pub(crate) fn meta(&self, mut meta: Meta) -> Meta {
        match *self {
            Self::Unpacked(_) => {}
            Self::Pin(Some(specs)) => meta = meta.pin(specs),
            Self::Pin(None) => meta = meta.unpin(),
            Self::Label(label) => meta.label = Some(label),
            Self::Specs(specs) => meta = meta.with_chosen_specs(specs),
            Self::FullPrecision(true) => meta = meta.after(Rule::FULL_PRECISION),
            Self::FullPrecision(false) => meta = meta.after(Rule::EMULATED),
            Self::Master => meta = meta.after(Rule::OPTIMIZER_GRADIENT),
            Self::Weight(true) => meta = meta.after(Rule::LEAF),
            Self::Weight(false) => meta = meta.after(Rule::ACTIVATION).after(Rule::NO_PARAMETER),
        }
        meta
    }

    /// The unpacked values, which stay when other properties change.
    fn unpacked<P>(&self, tensor: &MxTensor<P>) -> Option<Arc<Unpacked>> {
        match self {
            Self::Unpacked(unpacked) => Some(Arc::clone(unpacked)),
            _ => tensor.unpacked(),
        }
    }

    /// A weight's kept copies stay with the other owners; this tensor makes new copies.
    pub(crate) fn apply_to<P: TensorMetadata>(self, tensor: MxTensor<P>) -> MxTensor<P> {
        let meta = self.meta(tensor.meta);
        let unpacked = self.unpacked(&tensor);
        let tensor = MxTensor::new(tensor.inner, meta);
        match meta.is_weight() {
            true => tensor.into_weight_of(unpacked),
            false => tensor,
        }
    }
}

impl<B: MxKernels> sealed::Sealed for MxBackend<B> {}

impl<B: MxKernels> ModelOps<TensorChange> for MxBackend<B> {
    fn change(tensor: FloatTensor<Self>, change: TensorChange) -> FloatTensor<Self> {
        change.apply_to(tensor)
    }

    fn apply(tensor: FloatTensor<Self>, function: Function) -> FloatTensor<Self> {
        activation::function::<B>(function, None, tensor)
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
            ..target.meta.after(Rule::ENTERS_AUTODIFF)
        };
        let values = MxTensor::new(B::float_add(kept, new), meta);
        match meta.is_weight() {
            true => values.into_weight(),
            false => values,
        }
    }

    fn adamw(
        step: AdamWStep,
        tensors: [FloatTensor<Self>; 4],
    ) -> Result<[FloatTensor<Self>; 3], [FloatTensor<Self>; 4]> {
        let metas = tensors.each_ref().map(|tensor| tensor.meta);
        let Some(results) = metas_of_adamw(metas) else {
            return Err(tensors);
        };
        let step = <B as ModelOps<TensorChange>>::adamw(step, tensors.map(MxTensor::into_inner));
        step.map(|inner| with_metas(inner, results))
            .map_err(|inner| with_metas(inner, metas))
    }
}

/// Each tensor with the meta in its place.
fn with_metas<P: TensorMetadata, const N: usize>(
    tensors: [P; N],
    metas: [Meta; N],
) -> [MxTensor<P>; N] {
    let mut metas = metas.into_iter();
    tensors.map(|inner| MxTensor::new(inner, metas.next().expect("as many as tensors")))
}

/// The metas that Burn's ops give the new parameter and the new moments in a step of AdamW; `None` if an op is emulated.
fn metas_of_adamw([parameter, gradient, first, second]: [Meta; 4]) -> Option<[Meta; 3]> {
    let of = |operands: [Meta; 2]| {
        let context = OpContext::of(operands.map(Some));
        let is_plain = context.emulation().is_none();
        is_plain.then_some(context.result)
    };
    let alone = |meta| of([meta, meta]);
    let gradient = alone(gradient)?;
    let [first, second] = [
        of([alone(first)?, gradient])?,
        of([alone(second)?, gradient])?,
    ];
    let delta = of([first, second])?;
    Some([of([alone(parameter)?, delta])?, first, second])
}

impl<B: MxKernels> MxTensorOps for MxBackend<B> {
    fn specs_of(tensor: &FloatTensor<Self>) -> Option<&'static ResolvedSpecs> {
        tensor.meta.specs.map(|shared| &shared.specs)
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
        B::kernels().pack(tensor, axis, format, rounding, stream)
    }

    fn unpack(packed: &PackedView<'_>, device: &Self::Device) -> FloatTensor<Self> {
        MxTensor::new(
            B::kernels().unpack(packed, &device.inner),
            device.meta_of_created(),
        )
    }

    fn unpack_weight(packed: &FrozenWeight, like: &FloatTensor<Self>) -> FloatTensor<Self> {
        packed.tensor::<B>(&B::float_device(&like.inner), like.meta)
    }

    fn linear_packed(
        x: FloatTensor<Self>,
        packed: &FrozenWeight,
        like: &FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        Self::linear(x, Self::unpack_weight(packed, like), bias)
    }
}
