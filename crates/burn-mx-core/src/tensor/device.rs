//! The device of the decorated backend.

use core::fmt::{self, Debug};

use burn_backend::{Device, DeviceId, DeviceOps, TensorMetadata};

use super::shared_specs::SharedSpecs;
use crate::specs::{ResolvedSpecs, SpecsError, ToResolvedSpecs};
use crate::tensor::{Meta, MxTensor};

/// A device of the wrapped backend together with the specs that tensors created on it are computed with.
///
/// Two devices are equal if the wrapped devices are: the specs say how to compute, not where. A device made by
/// `Default` or from an id has no specs. The process-wide default
/// ([`process::install_default`](crate::process::install_default)) applies to its tensors. Without a default, results
/// equal the wrapped backend's.
///
/// The device of a tensor has the tensor's specs, also if the tensor itself is exempt from the emulation. If the
/// tensor's specs were set by path, its device has the specs that the tensor would have otherwise. `to_device` gives a
/// tensor the specs of the target device. If the target has no specs, the tensor keeps its own.
///
/// `{:?}` is one short line, because Burn prints a tensor with its device: the wrapped device, and the specs' preset or
/// summary. `{:#?}` has every field of the specs.
#[derive(Clone, Default)]
pub struct MxDevice<D> {
    pub(crate) inner: D,
    pub(crate) meta: Meta,
}

impl<D> MxDevice<D> {
    /// The device `inner`, with `specs` for all tensors that are created on it or moved to it: [`MxSpecs`](crate::MxSpecs), the
    /// name of a preset, or resolved specs.
    ///
    /// # Errors
    ///
    /// The errors of [`MxSpecs::resolve`](crate::MxSpecs::resolve), or of [`MxSpecs::preset`](crate::MxSpecs::preset) for a
    /// name.
    pub fn new(inner: D, specs: impl ToResolvedSpecs) -> Result<Self, SpecsError> {
        let specs = specs.to_resolved()?;
        Ok(Self {
            inner,
            meta: Meta::with_specs(Some(SharedSpecs::of(&specs))),
        })
    }

    /// The device of the wrapped backend.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The specs, if set.
    pub fn specs(&self) -> Option<&ResolvedSpecs> {
        self.meta.specs.map(|shared| &shared.specs)
    }

    /// The meta of a tensor that is created from given numbers on this device.
    pub(crate) fn meta_of_created(&self) -> Meta {
        self.meta.created()
    }

    /// The device `inner` of this tensor.
    pub(crate) fn of_tensor<P: TensorMetadata>(inner: D, tensor: &MxTensor<P>) -> Self {
        let meta = tensor.meta_for_device();
        Self { inner, meta }
    }
}

impl<D: Debug> Debug for MxDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let specs = self.specs();
        if f.alternate() {
            let mut device = f.debug_struct("MxDevice");
            device.field("inner", &self.inner).field("specs", &specs);
            return device.finish();
        }
        write!(f, "MxDevice({:?}, ", self.inner)?;
        match specs {
            None => f.write_str("no specs)"),
            Some(specs) => match specs.preset() {
                Some(preset) => write!(f, "{preset})"),
                None => write!(f, "{specs})"),
            },
        }
    }
}

impl<D> From<D> for MxDevice<D> {
    /// The device without specs.
    fn from(inner: D) -> Self {
        Self {
            inner,
            meta: Meta::default(),
        }
    }
}

impl<D: PartialEq> PartialEq for MxDevice<D> {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl<D: Eq> Eq for MxDevice<D> {}

impl<D: Device> Device for MxDevice<D> {
    fn from_id(device_id: DeviceId) -> Self {
        D::from_id(device_id).into()
    }

    fn to_id(&self) -> DeviceId {
        self.inner.to_id()
    }
}

impl<D: DeviceOps> DeviceOps for MxDevice<D> {}
