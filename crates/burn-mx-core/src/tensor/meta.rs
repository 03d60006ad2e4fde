//! The data that the emulation keeps of a tensor: specs, role, marks.

use super::marks::{Flags, Rule};
use super::op_context::OpContext;
use super::shared_specs::SharedSpecs;
use crate::phase;
use crate::warnings;
use burn_backend::{DType, FloatDType};
use microscaling::FloatFormat;

/// Specs and flags of a tensor or device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meta {
    /// Unset, or the interned specs.
    pub(crate) specs: Option<&'static SharedSpecs>,
    pub(crate) flags: Flags,
    /// For a parameter whose specs were set by name: the specs that it would have otherwise. Its device passes these
    /// specs on.
    pub(crate) unpinned: Option<&'static SharedSpecs>,
    /// For a parameter: its path in the module, if it is labelled. Its products have this name.
    pub(crate) label: Option<&'static str>,
    /// The values are known to be representable in this format, so that rounding to it does nothing.
    pub(crate) rounded: Option<FloatFormat>,
    /// The float type of the tensor, where that is not `f32`.
    pub(crate) storage: Option<FloatDType>,
    /// For a tensor that was created on the device of a weight: the weight's shape, as a hash. Loading a record creates
    /// the new value of a weight there. Programs that ask a model for its device create inputs there, too.
    pub(crate) replaces: Option<u64>,
    /// The part of attention that the tensor is, or follows from by ops other than products, where a scope for attention computed that part.
    pub(crate) attention: Option<AttentionPart>,
}

/// A part of attention, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AttentionPart {
    /// The product of query and key.
    Scores,
    /// The softmax of scores.
    Probabilities,
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

    /// The meta after a rule about the tensor's marks.
    pub(crate) fn after(mut self, rule: Rule) -> Self {
        self.flags = self.flags.after(rule);
        self
    }

    /// The meta after a rule about the marks of this tensor and of another tensor or a device.
    pub(crate) fn after_with(mut self, rule: Rule, other: Self) -> Self {
        self.flags = self.flags.after_with(rule, other.flags);
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

    /// Whether the tensor is a constant as the operand of a product with an activation.
    pub(crate) fn is_constant_factor(self) -> bool {
        self.flags.intersects(Flags::CONSTANT | Flags::LITERAL)
    }

    /// Meta of integers or booleans. They have no label: they are not a parameter's values.
    pub(super) fn of_indices(mut self) -> Self {
        (self.label, self.attention) = (None, None);
        self.unpin().after(Rule::INDICES)
    }

    /// Meta of a tensor that is computed at full precision if one of these tensors is.
    pub(crate) fn in_piece_of<const N: usize>(self, operands: [Option<Meta>; N]) -> Self {
        let operands = operands.into_iter().flatten();
        operands.fold(self, |meta, operand| {
            meta.after_with(Rule::IN_PIECE_OF, operand)
        })
    }

    pub(crate) fn is_parameter(self) -> bool {
        self.flags.contains(Flags::PARAMETER)
    }

    /// Meta of the sum of two gradients of one parameter; `None` if they are something else.
    pub(crate) fn of_parameter_gradients(self, other: Self) -> Option<Self> {
        (self.flags & other.flags)
            .contains(Flags::PARAMETER_GRADIENT)
            .then(|| {
                let sum = Self::computed([Some(self), Some(other)]);
                sum.after(Rule::SUM_OF_GRADIENTS)
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
            result = result.after_with(Rule::VIEW, first);
            result.unpinned = first.unpinned;
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
                result = result.unpin();
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
            self.unpinned = self.specs;
        }
        self.specs = Some(specs);
        self.after(Rule::PINNED)
    }

    /// Takes back what [`pin`](Self::pin) did.
    pub(crate) fn unpin(mut self) -> Self {
        if self.flags.contains(Flags::PINNED) {
            self.specs = self.unpinned.take();
        }
        self.after(Rule::UNPINNED)
    }

    /// The meta that a tensor's device passes on to tensors that are created there or moved there: the specs, and marks by
    /// [`Rule::DEVICE`].
    pub(crate) fn for_device(self) -> Self {
        let pinned = self.flags.contains(Flags::PINNED);
        Self {
            specs: if pinned { self.unpinned } else { self.specs },
            flags: self.flags.after(Rule::DEVICE),
            ..Self::default()
        }
    }

    /// Meta of a tensor that is created from given numbers on a device with this meta.
    pub(crate) fn created(self) -> Self {
        match phase::is_backward() {
            true => self.after(Rule::CREATED_IN_BACKWARD),
            false => self.after(Rule::CREATED),
        }
    }

    /// As [`created`](Self::created), of no numbers but the op's own: a constant, but for burn-autodiff's gradients.
    pub(crate) fn created_constant(mut self) -> Self {
        self.replaces = None;
        match phase::is_backward() {
            true => self.after(Rule::CREATED_CONSTANT_IN_BACKWARD),
            false => self.after(Rule::CREATED_CONSTANT),
        }
    }

    /// Meta after a move to a device with meta `device`: marks by [`Rule::MOVED`]. The device's specs, if set, replace specs that
    /// were not set for this tensor by name.
    ///
    /// An optimizer's state keeps neither specs nor a label. Weight decay adds the parameter to its gradient, so the state
    /// has what the parameter had in the last step. Burn moves the state before each step.
    pub(crate) fn on_device(self, device: Meta) -> Self {
        let mut moved = self.after_with(Rule::MOVED, device);
        if moved.flags.contains(Flags::OPTIMIZER_GRADIENT) && !moved.is_weight() {
            (moved.specs, moved.unpinned, moved.label) = (None, None, None);
        }
        if moved.flags.contains(Flags::PINNED) {
            moved.unpinned = device.specs.or(moved.unpinned);
        } else if device.specs.is_some() {
            moved.specs = device.specs;
            moved = moved.after_with(Rule::SPECS_OF_DEVICE, device);
        }
        moved
    }

    /// With specs that are not its device's.
    pub(crate) fn with_chosen_specs(mut self, specs: &'static SharedSpecs) -> Self {
        self.specs = Some(specs);
        self.after(Rule::CHOSEN)
    }

    /// The specs, where they came by the device.
    pub(super) fn specs_of_device(&self) -> Option<&'static SharedSpecs> {
        let own = Flags::PINNED | Flags::CHOSEN;
        self.specs.filter(|_| !self.flags.intersects(own))
    }
}
