//! The data that the emulation keeps of a tensor: specs, role, marks.

use super::op_context::OpContext;
use super::shared_specs::SharedSpecs;
use crate::phase;
use crate::warnings;
use bitflags::bitflags;
use burn_backend::{DType, FloatDType};
use microscaling::FloatFormat;

bitflags! {
    /// Properties of a tensor in the emulation, beyond its values.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Flags: u16 {
        /// A gradient that left autodiff: every op that it takes part in is an optimizer's.
        const OPTIMIZER_GRADIENT = 1;
        /// A parameter that left autodiff: an op on such parameters alone is an optimizer's.
        const OPTIMIZER_PARAMETER = 1 << 1;
        /// A leaf that requires gradients, or did: products use the weight formats for it.
        const WEIGHT = 1 << 2;
        /// The specs were set for this parameter by name; moving it to a device keeps them.
        const PINNED = 1 << 3;
        /// Computed at full precision in spite of the specs, like every result that follows from the tensor.
        const FULL_PRECISION = 1 << 4;
        /// The specs were chosen for this tensor, or by name for a parameter that it comes from: they are not its
        /// device's.
        const CHOSEN = 1 << 5;
        /// A leaf that requires gradients, or did, in any role: the gradients of several uses are summed without
        /// rounding.
        const PARAMETER = 1 << 7;
        /// The gradient of one use of a parameter, or of several.
        const PARAMETER_GRADIENT = 1 << 8;
        /// Neither an input nor a parameter has taken part. Ops on constants alone are computed at full precision.
        const CONSTANT = 1 << 9;
        /// Follows from the logarithm of a softmax: computed at full precision, like every later result up to the next
        /// layer.
        const LOSS = 1 << 10;
        /// Not computed. A constant with this flag was made by an op that creates tensors. An input with this flag has
        /// numbers that a model made on the device of an activation, such as a matrix of signs. Such numbers are a constant
        /// in a product with an activation. A device with this flag is an activation's.
        const LITERAL = 1 << 11;
        /// Follows from data and from a parameter.
        const ACTIVATION = 1 << 12;
        /// Follows from parameters, and otherwise from constants and literals alone.
        const OF_PARAMETERS = 1 << 13;
    }
}

impl Flags {
    pub(super) const OPTIMIZER: Self = Self::OPTIMIZER_GRADIENT.union(Self::OPTIMIZER_PARAMETER);
    /// Computed at full precision, like every later result.
    pub(crate) const EXEMPT: Self = Self::FULL_PRECISION.union(Self::LOSS);
    /// The origin of a tensor, if that is not data alone. A gradient has its tensor's origin.
    pub(crate) const ORIGIN: Self = Self::ACTIVATION.union(Self::OF_PARAMETERS);
    /// Ops with such a result are the wrapped backend's.
    pub(crate) const PLAIN: Self = Self::OPTIMIZER.union(Self::EXEMPT).union(Self::CONSTANT);
    /// The flags that a view shares with its tensor, and that a tensor's gradient shares with its view's gradient.
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
    /// For a parameter whose specs were set by name: the specs that it would have otherwise. Its device passes these
    /// specs on.
    pub(crate) home: Option<&'static SharedSpecs>,
    /// For a parameter: its path in the module, if it is labelled. Its products have this name.
    pub(crate) label: Option<&'static str>,
    /// The values are known to be representable in this format, so that rounding to it does nothing.
    pub(crate) rounded: Option<FloatFormat>,
    /// The float type of the tensor, where that is not `f32`.
    pub(crate) storage: Option<FloatDType>,
    /// For a tensor that was created on the device of a weight: the weight's shape, as a hash. Loading a record creates
    /// the new value of a weight there. Programs that ask a model for its device create inputs there, too.
    pub(crate) replaces: Option<u64>,
}

/// [`Meta::storage`] of a tensor of this type.
pub(super) fn storage_of(dtype: DType) -> Option<FloatDType> {
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

    /// Whether elementwise ops with this result are in scope of specs for activations.
    pub(crate) fn is_activation(self) -> bool {
        self.flags.contains(Flags::ACTIVATION)
    }

    /// The tensor's origin: [`Flags::ORIGIN`].
    pub(crate) fn origin(self) -> Flags {
        self.flags & Flags::ORIGIN
    }

    /// Meta of the tensor in the role of an activation.
    pub(crate) fn in_role_of_activation(mut self) -> Self {
        let others = Flags::WEIGHT | Flags::CONSTANT | Flags::LITERAL | Flags::OF_PARAMETERS;
        self.flags.remove(others);
        self.flags.insert(Flags::ACTIVATION);
        self
    }

    /// Meta of an activation that counts as data from here on: a number about the model. Either the activation was reduced
    /// to one element, such as a loss, or detached, such as a target or a batch's statistics.
    pub(crate) fn reduced(mut self) -> Self {
        self.flags.remove(Flags::ACTIVATION);
        self
    }

    /// Meta of an operand whose values these positions select, place or raise: it follows from both.
    pub(crate) fn indexed_by(self, positions: Self) -> Self {
        Self::viewed([Some(self), Some(positions)])
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

    /// Meta of integers or booleans. They are exact, so no exemption from the emulation passes through them to the
    /// tensors that they index, count or mask. Nor are they a parameter's values, which alone keep its label and the specs set
    /// for it by name. The mark of an optimizer's tensor comes out weak, like the mark of its device.
    pub(super) fn of_indices(mut self) -> Self {
        let of_optimizer = self.flags.intersects(Flags::OPTIMIZER);
        self.flags
            .remove(Flags::EXEMPT | Flags::OPTIMIZER_GRADIENT | Flags::WEIGHT);
        self.flags.set(Flags::OPTIMIZER_PARAMETER, of_optimizer);
        self.label = None;
        self.unpin()
    }

    /// Meta of a tensor that is computed at full precision if one of these tensors is.
    pub(crate) fn in_piece_of<const N: usize>(mut self, operands: [Option<Meta>; N]) -> Self {
        for operand in operands.into_iter().flatten() {
            self.flags.insert(operand.flags & Flags::FULL_PRECISION);
        }
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

    /// Meta of the result of an op all of whose values are values of the first operand: as [`Meta::computed`], but
    /// rounded values stay known as rounded.
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
            warnings::warn_merged();
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

    /// The meta that a tensor's device passes on to tensors that are created there or moved there: the specs. Role and
    /// exemption stay with the tensor, with two exceptions: optimizers create their state on devices of other tensors,
    /// and so does burn-autodiff in a backward pass.
    ///
    /// The mark of an optimizer's tensor comes out weak. A weak mark is enough for the optimizer's arithmetic, which
    /// mixes with nothing else. An input that was created on the device of a gradient is an ordinary input as soon as
    /// it meets a parameter.
    pub(crate) fn for_device(self) -> Self {
        let has = |flags| self.flags.intersects(flags);
        let passed_on = Flags::EXEMPT | Flags::CHOSEN | Flags::ORIGIN | Flags::CONSTANT;
        let mut flags = self.flags & passed_on;
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

    /// Meta of a tensor that is created from given numbers on a device with this meta. A full-precision piece does not
    /// exempt the tensors that it creates: a tensor that lives on, such as the next batch, would never be emulated. Its
    /// backward pass does exempt them: burn-autodiff creates them, and they end with the gradients. For the same reason, a
    /// tensor that is created there has the device's origin. Elsewhere the tensor is data.
    pub(crate) fn created(mut self) -> Self {
        self.flags.remove(Flags::CONSTANT);
        if !phase::is_backward() {
            self.flags.remove(Flags::EXEMPT | Flags::ORIGIN);
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

    /// Meta after a move to a device with meta `device`: its specs, if set, replace specs that were not set for this tensor by
    /// name. On the device of an activation a tensor is exempt from the emulation only if the activation is, too. Batch norm
    /// moves its statistics to the device of its input, so a norm that was trained at full precision does not carry its
    /// exemption into inference. An optimizer's state from a record is moved to its gradient's device, so it takes the
    /// device's weak mark; a parameter does not. Other devices remove the weak mark. Batch norm's statistics may have left
    /// autodiff as parameters do, and batch norm moves them before it computes with them.
    ///
    /// On the device of a constant a tensor is data. Burn loads batch norm's statistics as if they were parameters, and moves
    /// them to the device of the statistics that they replace.
    ///
    /// An optimizer's state keeps neither specs nor a label. Weight decay adds the parameter to its gradient, so the state
    /// has what the parameter had in the last step. Burn moves the state before each step.
    pub(crate) fn on_device(mut self, device: Meta) -> Self {
        if device.flags.contains(Flags::CONSTANT) {
            let of_parameter = Flags::WEIGHT | Flags::PARAMETER | Flags::OF_PARAMETERS;
            self.flags.remove(of_parameter);
        }
        let marked = device.flags.contains(Flags::OPTIMIZER_PARAMETER);
        let takes_mark = !self.is_weight() || self.flags.contains(Flags::OPTIMIZER_PARAMETER);
        self.flags
            .set(Flags::OPTIMIZER_PARAMETER, marked && takes_mark);
        if self.flags.contains(Flags::OPTIMIZER_GRADIENT) && !self.is_weight() {
            self.flags.remove(Flags::PINNED | Flags::CHOSEN);
            (self.specs, self.home, self.label) = (None, None, None);
        }
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

    /// Without the marks of the optimizer's arithmetic.
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
    pub(super) fn specs_of_device(&self) -> Option<&'static SharedSpecs> {
        let own = Flags::PINNED | Flags::CHOSEN;
        self.specs.filter(|_| !self.flags.intersects(own))
    }
}
