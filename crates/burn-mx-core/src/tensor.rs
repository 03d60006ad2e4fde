//! The tensor of the decorated backend: the inner tensor and what the emulation has to know of it.

mod op_context;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bitflags::bitflags;
use burn_backend::quantization::{QuantPropagation, QuantScheme};
use burn_backend::{DType, FloatDType, QTensorPrimitive, Shape, TensorMetadata};
use burn_std::quantization::QuantAcc;
use microscaling::FloatFormat;

use crate::kernels::Operand;
use crate::phase;
use crate::shared_specs::{self, SharedSpecs};
use crate::weight_cache::{Unpacked, WeightCache};
pub(crate) use op_context::OpContext;

/// A tensor of an [`MxBackend`](crate::MxBackend): the wrapped backend's tensor with the specs it is to be
/// computed with.
#[derive(Clone, Debug)]
pub struct MxTensor<P> {
    pub(crate) inner: P,
    pub(crate) meta: Meta,
    /// Of a weight: its quantized copies. No op passes it on but those that leave values and axes alone.
    pub(crate) kept: Option<WeightCache<Operand<P>>>,
}

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

    /// The tensor after `set_require_grad`: a leaf that requires gradients is a weight, and so is the new value of a
    /// weight that does not, as a frozen one or one of an inference. Whatever else does not require gradients is what it
    /// was.
    pub(crate) fn with_require_grad(self, require_grad: bool) -> Self {
        let replaces = || self.meta.replaces == Some(hash_of(&self.shape()));
        match require_grad || replaces() {
            true => self.into_weight(),
            false => self,
        }
    }

    /// What the tensor's device passes on: [`Meta::for_device`], and which shape a new value of a weight has.
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

    /// [`into_weight`](Self::into_weight), of values that are this by themselves, unless it is known what they are.
    pub(crate) fn into_weight_of(mut self, unpacked: Option<Arc<Unpacked>>) -> Self {
        self.meta.flags.insert(Flags::WEIGHT | Flags::PARAMETER);
        self.meta
            .flags
            .remove(Flags::CONSTANT | Flags::LITERAL | Flags::LOSS);
        self.meta.replaces = None;
        self.kept.get_or_insert_with(|| WeightCache::new(unpacked));
        self
    }

    /// What the values of a weight are by themselves, if that is known.
    pub(crate) fn unpacked(&self) -> Option<Arc<Unpacked>> {
        self.kept.as_ref()?.unpacked().cloned()
    }

    /// The tensor with what is known of its values, which it has from another one.
    pub(crate) fn with_values_of(mut self, unpacked: Option<Arc<Unpacked>>) -> Self {
        if unpacked.is_some() {
            self.kept = Some(WeightCache::new(unpacked));
        }
        self
    }

    /// The tensor in the role of an activation, which its place in a product may say; a parameter stays one.
    pub(crate) fn into_activation(mut self) -> Self {
        self.meta
            .flags
            .remove(Flags::WEIGHT | Flags::CONSTANT | Flags::LITERAL);
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

bitflags! {
    /// What a tensor is to the emulation, beyond its values.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Flags: u16 {
        /// A gradient that left autodiff: every op that it takes part in is an optimizer's.
        const OPTIMIZER_GRADIENT = 1;
        /// A parameter that left autodiff: an op all of whose tensors are such is an optimizer's.
        const OPTIMIZER_PARAMETER = 1 << 1;
        /// A leaf that requires gradients, or did: products use the weight formats for it.
        const WEIGHT = 1 << 2;
        /// The specs were set for this parameter by name; moving it to a device keeps them.
        const PINNED = 1 << 3;
        /// Computed at full precision whatever the specs say, and so is all that follows from it.
        const FULL_PRECISION = 1 << 4;
        /// The specs were chosen for this tensor, or by name for a parameter that it comes from: they are not its
        /// device's.
        const CHOSEN = 1 << 5;
        /// A leaf that requires gradients, or did, whatever its role in a product: what it gets from several uses is
        /// summed without rounding.
        const PARAMETER = 1 << 7;
        /// The gradient of one use of a parameter, or of several.
        const PARAMETER_GRADIENT = 1 << 8;
        /// Neither an input nor a parameter has taken part in it. What is computed of constants alone is computed at full
        /// precision.
        const CONSTANT = 1 << 9;
        /// Follows from the logarithm of a softmax, at full precision as all that follows from it does, up to the next layer.
        const LOSS = 1 << 10;
        /// Not computed. Of a constant: made by an op that creates tensors. Of an input: numbers that a model has made on the
        /// device of an activation, such as a matrix of signs, which are a constant in a product with an activation. Of a
        /// device: that of an activation.
        const LITERAL = 1 << 11;
    }
}

impl Flags {
    const OPTIMIZER: Self = Self::OPTIMIZER_GRADIENT.union(Self::OPTIMIZER_PARAMETER);
    /// Computed at full precision, and so is what follows.
    pub(crate) const EXEMPT: Self = Self::FULL_PRECISION.union(Self::LOSS);
    /// Ops with such a result are the wrapped backend's.
    const PLAIN: Self = Self::OPTIMIZER.union(Self::EXEMPT).union(Self::CONSTANT);
    /// What a view of a tensor has of it, and so the gradient of a tensor of that of its view.
    const OF_A_VIEW: Self = Self::WEIGHT
        .union(Self::PARAMETER)
        .union(Self::PARAMETER_GRADIENT)
        .union(Self::PINNED)
        .union(Self::LITERAL);
}

/// Specs and flags of a tensor or device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meta {
    /// Unset, or the interned specs.
    pub(crate) specs: Option<&'static SharedSpecs>,
    pub(crate) flags: Flags,
    /// Of a parameter whose specs were set by name: the specs that it would have otherwise, which is what its
    /// device passes on.
    pub(crate) home: Option<&'static SharedSpecs>,
    /// Of a parameter: its path in the module, where that was made known. Products of it go by that name.
    pub(crate) label: Option<&'static str>,
    /// The values are known to be representable in this format, so that rounding to it does nothing.
    pub(crate) rounded: Option<FloatFormat>,
    /// The float type of the tensor, where that is not `f32`.
    pub(crate) storage: Option<FloatDType>,
    /// Of what was created on the device of a weight: the weight's shape, as a hash. What loads the new value of that weight
    /// creates it there. So do programs that ask a model for its device, and make inputs on that.
    pub(crate) replaces: Option<u64>,
}

/// [`Meta::storage`] of a tensor of this type.
fn storage_of(dtype: DType) -> Option<FloatDType> {
    match dtype {
        DType::F64 => Some(FloatDType::F64),
        DType::Flex32 => Some(FloatDType::Flex32),
        DType::F16 => Some(FloatDType::F16),
        DType::BF16 => Some(FloatDType::BF16),
        _ => None,
    }
}

impl Meta {
    pub(crate) fn with_specs(specs: Option<&'static SharedSpecs>) -> Self {
        Self {
            specs,
            ..Self::default()
        }
    }

    pub(crate) fn is_weight(self) -> bool {
        self.flags.contains(Flags::WEIGHT)
    }

    pub(crate) fn is_constant(self) -> bool {
        self.flags.contains(Flags::CONSTANT)
    }

    /// Meta of a constant that has this meta otherwise.
    pub(crate) fn constant(mut self) -> Self {
        self.flags.insert(Flags::CONSTANT);
        self
    }

    /// Whether the tensor is a constant as the operand of a product with an activation.
    pub(crate) fn is_constant_factor(self) -> bool {
        self.flags.intersects(Flags::CONSTANT | Flags::LITERAL)
    }

    /// Meta of integers or booleans. They are exact, so that no exemption from the emulation passes through them to what
    /// they index, count or mask; the mark of an optimizer's tensor comes out weak, as that of its device.
    fn of_indices(mut self) -> Self {
        let of_optimizer = self.flags.intersects(Flags::OPTIMIZER);
        self.flags.remove(Flags::EXEMPT | Flags::OPTIMIZER_GRADIENT);
        self.flags.set(Flags::OPTIMIZER_PARAMETER, of_optimizer);
        self
    }

    pub(crate) fn is_parameter(self) -> bool {
        self.flags.contains(Flags::PARAMETER)
    }

    /// Meta of the sum of two gradients of one parameter; `None` if they are something else.
    pub(crate) fn of_parameter_gradients(self, other: Self) -> Option<Self> {
        (self.flags & other.flags)
            .contains(Flags::PARAMETER_GRADIENT)
            .then(|| {
                let mut sum = Self::computed([Some(self), Some(other)]);
                sum.flags.insert(Flags::PARAMETER_GRADIENT);
                sum
            })
    }

    /// Meta of the result of an op that computes new values from operands with these metas.
    pub(crate) fn computed<const N: usize>(operands: [Option<Meta>; N]) -> Self {
        OpContext::of(operands).result
    }

    /// Meta of the result of an op all of whose values are values of the first operand: as
    /// [`Meta::computed`], but what was rounded still is.
    pub(crate) fn moved<const N: usize>(operands: [Option<Meta>; N]) -> Self {
        let mut result = Self::computed(operands);
        result.rounded = operands
            .into_iter()
            .flatten()
            .next()
            .and_then(|meta| meta.rounded);
        result
    }

    /// Meta of the result of an op that shows the same tensor in another shape or order: as
    /// [`Meta::moved`], and the role stays.
    pub(crate) fn viewed<const N: usize>(operands: [Option<Meta>; N]) -> Self {
        let mut result = Self::moved(operands);
        if let Some(first) = operands.into_iter().flatten().next() {
            result.flags |= first.flags & Flags::OF_A_VIEW;
            result.home = first.home;
            result.label = first.label;
            result.replaces = first.replaces;
        }
        result
    }

    /// Meta of several tensors taken together, as by a concatenation.
    pub(crate) fn merged(self, other: Self) -> Self {
        let mut result = Self::computed([Some(self), Some(other)]);
        let pinned = (self.flags | other.flags).contains(Flags::PINNED);
        if pinned && result.flags.intersects(Flags::OPTIMIZER) && !self.same_specs(&other) {
            // One vector of parameters with different specs, which are lost when it is cut up again.
            shared_specs::warn_merged();
            if result.flags.contains(Flags::PINNED) {
                result.flags.remove(Flags::PINNED);
                result.specs = result.home.take();
            }
        }
        result.label = result.label.filter(|_| self.label == other.label);
        result.rounded = self.rounded.filter(|format| other.rounded == Some(*format));
        result
    }

    fn same_specs(&self, other: &Self) -> bool {
        match (self.specs, other.specs) {
            (Some(own), Some(others)) => core::ptr::eq(own, others),
            (own, others) => own.is_none() && others.is_none(),
        }
    }

    /// Sets the specs of a parameter by name.
    pub(crate) fn pin(mut self, specs: &'static SharedSpecs) -> Self {
        if !self.flags.contains(Flags::PINNED) {
            self.home = self.specs;
        }
        self.specs = Some(specs);
        self.flags.insert(Flags::PINNED);
        self
    }

    /// Takes back what [`pin`](Self::pin) did.
    pub(crate) fn unpin(mut self) -> Self {
        if self.flags.contains(Flags::PINNED) {
            self.specs = self.home.take();
            self.flags.remove(Flags::PINNED);
        }
        self
    }

    /// What a tensor's device passes on to the tensors that are created on it or moved to it: the specs. The role
    /// stays with the tensor, and so does its exemption from the emulation, but for two parties who create tensors
    /// on devices of others: optimizers, whose state it is, and burn-autodiff in a backward pass.
    ///
    /// The mark of an optimizer's tensor comes out weak. That is enough for its arithmetic, which mixes with nothing
    /// else, and an input that was created on the device of a gradient is computed as any other as soon as it meets a
    /// parameter.
    pub(crate) fn for_device(self) -> Self {
        let has = |flags| self.flags.intersects(flags);
        let mut flags = self.flags & (Flags::EXEMPT | Flags::CHOSEN);
        flags.set(Flags::OPTIMIZER_PARAMETER, has(Flags::OPTIMIZER));
        let of_model = Flags::OPTIMIZER | Flags::WEIGHT | Flags::PARAMETER;
        flags.set(Flags::LITERAL, !has(of_model));
        Self {
            specs: if has(Flags::PINNED) {
                self.home
            } else {
                self.specs
            },
            flags,
            ..Self::default()
        }
    }

    /// Meta of a tensor that is created of given numbers on a device with this meta. A full-precision piece creates nothing:
    /// what is meant to stay, such as the next batch, would never be emulated. Its backward pass does, by burn-autodiff,
    /// and there everything ends with the gradients.
    pub(crate) fn created(mut self) -> Self {
        if !phase::is_backward() {
            self.flags.remove(Flags::EXEMPT);
        }
        self
    }

    /// As [`created`](Self::created), of no numbers but the op's own: a constant, but for burn-autodiff's gradients.
    pub(crate) fn created_constant(self) -> Self {
        let mut meta = self.created();
        let constant = Flags::CONSTANT | Flags::LITERAL;
        meta.flags.set(constant, !phase::is_backward());
        meta.replaces = None;
        meta
    }

    /// Meta after a move to a device with meta `device`: its specs, if set, replace those that were not
    /// set for this tensor by name. On the device of an activation a tensor is exempt from the emulation only if that is,
    /// too: batch norm moves its statistics to the device of its input, so that a norm that was trained at full precision
    /// does not carry that into inference. An optimizer's state that was loaded from a record comes by here to be moved to its
    /// gradient's device, so the weak mark of that goes on to it; it does to no parameter. Other devices take the weak mark
    /// away: batch norm moves its statistics so before it computes with them, which may have come out of autodiff as
    /// parameters do.
    pub(crate) fn on_device(mut self, device: Meta) -> Self {
        let marked = device.flags.contains(Flags::OPTIMIZER_PARAMETER);
        let takes_mark = !self.is_weight() || self.flags.contains(Flags::OPTIMIZER_PARAMETER);
        self.flags
            .set(Flags::OPTIMIZER_PARAMETER, marked && takes_mark);
        if device.flags.contains(Flags::LITERAL) {
            self.flags &= device.flags | !Flags::EXEMPT;
        }
        if self.flags.contains(Flags::PINNED) {
            self.home = device.specs.or(self.home);
        } else if device.specs.is_some() {
            self.specs = device.specs;
            let chosen = device.flags.contains(Flags::CHOSEN);
            self.flags.set(Flags::CHOSEN, chosen);
        }
        self
    }

    /// Without the marks that the optimizer's arithmetic goes by.
    pub(crate) fn without_optimizer_marks(mut self) -> Self {
        self.flags.remove(Flags::OPTIMIZER);
        self
    }

    /// With specs that are not its device's.
    pub(crate) fn with_chosen_specs(mut self, specs: &'static SharedSpecs) -> Self {
        self.specs = Some(specs);
        self.flags.insert(Flags::CHOSEN);
        self
    }

    /// The specs, where they came by the device.
    fn specs_of_device(&self) -> Option<&'static SharedSpecs> {
        let own = Flags::PINNED | Flags::CHOSEN;
        self.specs.filter(|_| !self.flags.intersects(own))
    }

    /// The specs by which an op on this tensor alone is emulated.
    pub(crate) fn emulation(self) -> Option<&'static SharedSpecs> {
        OpContext::of([Some(self)]).emulation()
    }
}
