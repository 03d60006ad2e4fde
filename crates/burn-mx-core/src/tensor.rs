//! The tensor of the decorated backend: the inner tensor and the emulation's data about it.

pub(super) mod device;
pub(super) mod frozen_weight;
mod marks;
mod meta;
mod op_context;
pub(super) mod random_streams;
pub(super) mod shared_specs;
pub(super) mod weight_cache;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use burn_backend::quantization::{QuantPropagation, QuantScheme};
use burn_backend::tensor::FloatTensor;
use burn_backend::{DType, FloatDType, QTensorPrimitive, Shape, TensorMetadata};
use burn_std::quantization::QuantAcc;

use burn_mx_kernels::internal::Operand;
pub(crate) use marks::{Flags, Rule};
use meta::storage_of;
pub(crate) use meta::{AttentionPart, Meta};
pub(crate) use op_context::OpContext;
use weight_cache::{Unpacked, WeightCache};

/// A tensor of an [`MxBackend`](crate::MxBackend): the wrapped backend's tensor with the specs of its computations.
#[derive(Clone, Debug)]
pub struct MxTensor<P> {
    pub(crate) inner: P,
    pub(crate) meta: Meta,
    /// The quantized copies of a weight. Only ops that leave values and axes alone pass them on.
    pub(crate) kept: Option<WeightCache<Operand<P>>>,
}

/// A float tensor of `MxBackend<B>`.
pub(crate) type Float<B> = MxTensor<FloatTensor<B>>;

impl<P: TensorMetadata> MxTensor<P> {
    pub(crate) fn new(inner: P, mut meta: Meta) -> Self {
        let dtype = inner.dtype();
        meta.storage = storage_of(dtype);
        if dtype.is_int() || dtype.is_uint() || dtype.is_bool() {
            meta = meta.of_indices();
        }
        Self {
            inner,
            meta,
            kept: None,
        }
    }

    /// The tensor after `set_require_grad`: a leaf that requires gradients is a weight. The new value of a weight is a
    /// weight, too, if it requires no gradients because it is frozen or for inference. Any other tensor keeps its role.
    pub(crate) fn with_require_grad(self, require_grad: bool) -> Self {
        let replaces = || self.meta.replaces == Some(hash_of(&self.shape()));
        match require_grad || self.meta.is_weight() || replaces() {
            true => self.into_weight(),
            false => self,
        }
    }

    /// The tensor as a reduction along one axis takes it: the reduction leaves one element of a vector.
    pub(crate) fn reduced_along_axis(self) -> Self {
        match self.rank() {
            1 => self.reduced(),
            _ => self,
        }
    }

    /// The meta that the tensor's device passes on: [`Meta::for_device`], and the shape of a new value of a weight.
    pub(crate) fn meta_for_device(&self) -> Meta {
        let mut meta = self.meta.for_device();
        meta.replaces = self.meta.is_weight().then(|| hash_of(&self.shape()));
        meta
    }
}

/// Tells shapes apart.
fn hash_of(shape: &[usize]) -> u64 {
    let mut hasher = DefaultHasher::new();
    shape.hash(&mut hasher);
    hasher.finish()
}

impl<P> MxTensor<P> {
    /// The tensor of the wrapped backend.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// Unwraps the tensor of the wrapped backend; its specs are dropped.
    pub fn into_inner(self) -> P {
        self.inner
    }

    /// The float type of the tensor, where that is not `f32`.
    pub fn float_type(&self) -> Option<FloatDType> {
        self.meta.storage
    }

    /// Marks the tensor as a weight, which may keep quantized copies, and as a parameter.
    pub(crate) fn into_weight(self) -> Self {
        self.into_weight_of(None)
    }

    /// [`into_weight`](Self::into_weight), with these unpacked values unless the tensor has its own.
    pub(crate) fn into_weight_of(mut self, unpacked: Option<Arc<Unpacked>>) -> Self {
        self.meta = self.meta.after(Rule::LEAF);
        self.meta.replaces = None;
        self.kept.get_or_insert_with(|| WeightCache::new(unpacked));
        self
    }

    /// The unpacked values of a weight, if they are known.
    pub(crate) fn unpacked(&self) -> Option<Arc<Unpacked>> {
        self.kept.as_ref()?.unpacked().cloned()
    }

    /// The tensor with another tensor's unpacked values, which are the same.
    pub(crate) fn with_values_of(mut self, unpacked: Option<Arc<Unpacked>>) -> Self {
        if unpacked.is_some() {
            self.kept = Some(WeightCache::new(unpacked));
        }
        self
    }

    /// The tensor as a reduction to one element takes it.
    pub(crate) fn reduced(mut self) -> Self {
        self.meta = self.meta.after(Rule::REDUCED);
        self
    }

    /// The tensor whose elements these positions select, place or raise: [`Meta::indexed_by`].
    pub(crate) fn indexed_by(mut self, positions: Meta) -> Self {
        self.meta = self.meta.indexed_by(positions);
        self
    }

    /// The tensor in the role of an activation, which its place in a layer may say; a parameter stays one.
    pub(crate) fn into_activation(mut self) -> Self {
        self.meta = self.meta.after(Rule::ACTIVATION);
        self
    }
}

impl<P: TensorMetadata> From<P> for MxTensor<P> {
    /// Wraps a tensor of the wrapped backend; its specs are unset.
    fn from(inner: P) -> Self {
        Self::new(inner, Meta::default())
    }
}

impl<P: TensorMetadata> TensorMetadata for MxTensor<P> {
    fn dtype(&self) -> DType {
        self.inner.dtype()
    }

    fn shape(&self) -> Shape {
        self.inner.shape()
    }

    fn rank(&self) -> usize {
        self.inner.rank()
    }
}

impl<P: QTensorPrimitive> QTensorPrimitive for MxTensor<P> {
    fn scheme(&self) -> &QuantScheme {
        self.inner.scheme()
    }

    fn acc_precision(&self) -> QuantAcc {
        self.inner.acc_precision()
    }

    fn propagation(&self) -> QuantPropagation {
        self.inner.propagation()
    }

    fn default_scheme() -> QuantScheme {
        P::default_scheme()
    }
}
