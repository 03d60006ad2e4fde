//! The context of an op, from its operands: the specs of its emulation, and the meta of its result.

use burn_backend::FloatDType;

use super::shared_specs::{self, SharedSpecs};
use super::{Flags, Meta, Rule};
use crate::warnings;

/// The context that several operands give their op.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpContext {
    /// The specs that the op is computed with: a weight's specs win over an activation's, else the first specs that are
    /// set win.
    pub(crate) specs: Option<&'static SharedSpecs>,
    /// Meta of the result: it carries the activations' specs on, so that the specs of one layer do not
    /// leak into the next.
    pub(crate) result: Meta,
    /// The float type of another operand, if it differs from the first operand's.
    pub(crate) mixed_with: Option<Option<FloatDType>>,
    /// Whether an operand has specs that emulate something.
    pub(crate) any_emulated: bool,
    /// Whether an operand has no specs, and takes the process-wide default.
    pub(crate) any_unset: bool,
    /// Whether the op is a product, which is quantized for operands of any origin.
    pub(crate) is_product: bool,
}

/// Whether elementwise ops with these specs, or the process-wide default, are emulated on activations alone.
fn is_scoped(specs: Option<&'static SharedSpecs>) -> bool {
    specs
        .or_else(shared_specs::installed_default)
        .is_some_and(SharedSpecs::is_scoped)
}

/// The first specs that came by a device, and the last others.
fn differing<'a>(
    operands: impl Iterator<Item = &'a Meta> + Clone,
) -> Option<[&'static SharedSpecs; 2]> {
    let mut by_device = operands.filter_map(Meta::specs_of_device);
    let first = by_device.next()?;
    let other = by_device
        .filter(|specs| !core::ptr::eq(*specs, first))
        .last()?;
    Some([first, other])
}

impl Meta {
    /// Carries on what an op's result has of its operands beside marks: the specs, with the marks of how they were set, and the
    /// label. `weight` and `activation` are the first ones that have specs.
    fn carry<'a>(
        &mut self,
        operands: impl Iterator<Item = &'a Meta> + Clone,
        [weight, activation]: [Option<&Meta>; 2],
    ) {
        let any_weight = operands.clone().any(|meta| meta.is_weight());
        let by_optimizer = self.flags.intersects(Flags::OPTIMIZER);
        let left_autodiff =
            |meta: &&Meta| (meta.flags & Flags::OPTIMIZER) == Flags::OPTIMIZER_PARAMETER;
        let source = match (any_weight, by_optimizer) {
            // The tensor that an optimizer computes from a parameter is the parameter's next value; its gradient may come from a fork on a
            // device with other specs.
            (true, true) => weight,
            (false, true) => operands.clone().find(left_autodiff).or(activation),
            _ => activation.or(weight),
        };
        // The parameter itself knows its name and its specs. A tensor that was computed from it may know old specs.
        let mut knowing = operands
            .clone()
            .filter(|meta| meta.is_weight() == any_weight);
        let is_pinned = |meta: &Meta| meta.flags.contains(Flags::PINNED);
        if by_optimizer {
            self.label = knowing.clone().find_map(|meta| meta.label);
            if let Some(parameter) = knowing.find(|meta| is_pinned(meta)) {
                *self = self.after(Rule::PINNED);
                (self.specs, self.unpinned) = (parameter.specs, parameter.unpinned);
                return;
            }
        }
        // Specs that were set for a parameter by name do not pass to activations, with or without specs. A tensor that is computed from the
        // parameter alone keeps them.
        let Some(source) = source else { return };
        let mut activations = operands.filter(|meta| !meta.is_weight());
        if is_pinned(source) && activations.any(|meta| meta.specs.is_none()) {
            self.specs = source.unpinned;
            return;
        }
        self.specs = source.specs;
        if source.specs_of_device().is_none() {
            *self = self.after(Rule::CHOSEN);
        }
    }
}

impl OpContext {
    pub(crate) fn of<const N: usize>(operands: [Option<Meta>; N]) -> Self {
        let all = operands.iter().flatten();
        let storage = all.clone().next().and_then(|meta| meta.storage);
        let of_other_type = |meta: &&Meta| meta.storage != storage;
        let mixed_with = all.clone().rfind(of_other_type).map(|meta| meta.storage);
        // The other tensors say how an op with a constant is computed.
        let constants_alone = all.clone().all(|meta| meta.is_constant());
        let counting = all
            .clone()
            .filter(|meta| constants_alone || !meta.is_constant());

        let with_specs =
            |is_weight| move |meta: &&Meta| meta.specs.is_some() && meta.is_weight() == is_weight;
        let weight = counting.clone().find(with_specs(true));
        let activation = counting.clone().find(with_specs(false));
        let specs = weight.or(activation).and_then(|meta| meta.specs);
        let scope = match is_scoped(specs) {
            true => Flags::SCOPED,
            false => Flags::empty(),
        };
        let mut result = Meta {
            flags: Flags::of_result(all.clone().map(|meta| meta.flags | scope)),
            storage,
            attention: all.clone().filter_map(|meta| meta.attention).max(),
            ..Meta::default()
        };
        if let Some([first, second]) = differing(counting.clone())
            && !result.flags.intersects(Flags::PLAIN)
        {
            warnings::warn_mixed(&first.specs, &second.specs);
        }
        result.carry(counting.clone(), [weight, activation]);
        Self {
            specs,
            result,
            mixed_with,
            any_emulated: counting
                .clone()
                .any(|meta| meta.specs.is_some_and(|shared| !shared.specs.is_none())),
            any_unset: counting.clone().any(|meta| meta.specs.is_none()),
            is_product: false,
        }
    }

    /// Whether elementwise ops with the op's specs are emulated on activations alone.
    pub(crate) fn is_scoped(&self) -> bool {
        is_scoped(self.specs)
    }

    /// The context of a product. A constant is an activation there, and a loss that is computed in full precision ends
    /// where a layer begins.
    pub(crate) fn of_product<const N: usize>(operands: [Option<Meta>; N]) -> Self {
        let any_weight = operands.into_iter().flatten().any(Meta::is_weight);
        let mut context = Self::of(operands.map(|meta| {
            let factor = meta?.after(Rule::FACTOR);
            Some(match any_weight {
                true => factor.after(Rule::FACTOR_BESIDE_WEIGHT),
                false => factor,
            })
        }));
        context.result.attention = None;
        Self {
            is_product: true,
            ..context
        }
    }

    /// The context of a matrix product. Two constants count as two activations if neither was computed, as with synthetic
    /// inputs. Otherwise two constants stay constants.
    pub(crate) fn of_matmul([lhs, rhs]: [Meta; 2]) -> Self {
        let constants = lhs.is_constant() && rhs.is_constant();
        let computed = !(lhs.flags & rhs.flags).contains(Flags::LITERAL);
        match constants && computed {
            true => Self {
                is_product: true,
                ..Self::of([Some(lhs), Some(rhs)])
            },
            false => Self::of_product([Some(lhs), Some(rhs)]),
        }
    }
}
