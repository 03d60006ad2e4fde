//! The context of an op, from its operands: the specs of its emulation, and the meta of its result.

use burn_backend::FloatDType;

use super::shared_specs::{self, SharedSpecs};
use super::{Flags, Meta};
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

impl OpContext {
    pub(crate) fn of<const N: usize>(operands: [Option<Meta>; N]) -> Self {
        let mut flags = Flags::empty();
        let metas = operands.into_iter().flatten();
        let all_constant =
            operands.iter().flatten().next().is_some() && metas.clone().all(Meta::is_constant);
        // A weight that no optimizer touches says that the op is none of an optimizer's.
        let is_of_model = |meta: Meta| meta.is_weight() && !meta.flags.intersects(Flags::OPTIMIZER);
        let of_model = metas.clone().any(is_of_model);
        let mut all_inner = true;
        let mut any = false;
        let (mut weight, mut activation) = (None::<Meta>, None::<Meta>);
        let (mut pinned, mut label) = (None, None);
        let mut of_parameter = None::<Meta>;
        let (mut by_device, mut differing) = (None::<&SharedSpecs>, None);
        let (mut storage, mut mixed_with) = (None, None);
        let (mut any_emulated, mut any_unset, mut any_weight) = (false, false, false);
        let mut bare_activation = false;
        let (mut of_data, mut of_parameters) = (false, false);
        for meta in metas {
            if !any {
                storage = meta.storage;
            } else if meta.storage != storage {
                mixed_with = Some(meta.storage);
            }
            any = true;
            flags |= meta.flags & (Flags::OPTIMIZER_GRADIENT | Flags::EXEMPT);
            if meta.is_constant() && !all_constant {
                // What the op is computed by, the others say.
                continue;
            }
            let is_activation = meta.is_activation();
            let is_of_parameters = meta.flags.contains(Flags::OF_PARAMETERS);
            of_data |= is_activation || !is_of_parameters && !meta.is_constant();
            of_parameters |= is_activation || is_of_parameters;
            all_inner &= meta.flags.intersects(Flags::OPTIMIZER);
            match meta.specs {
                Some(interned) => any_emulated |= !interned.specs.is_none(),
                None => any_unset = true,
            }
            let is_first_weight = meta.is_weight() && !any_weight;
            any_weight |= meta.is_weight();
            bare_activation |= !meta.is_weight() && meta.specs.is_none();
            if (meta.flags & Flags::OPTIMIZER) == Flags::OPTIMIZER_PARAMETER {
                of_parameter = of_parameter.or(Some(meta));
            }
            let role = if meta.is_weight() {
                &mut weight
            } else {
                &mut activation
            };
            if role.is_none() && meta.specs.is_some() {
                *role = Some(meta);
            }
            if is_first_weight {
                // The parameter itself knows its name and its specs. What was computed from it may know old ones.
                (pinned, label) = (None, None);
            }
            if meta.is_weight() || !any_weight {
                label = label.or(meta.label);
                if meta.flags.contains(Flags::PINNED) {
                    pinned = pinned.or(Some(meta));
                }
            }
            if let Some(specs) = meta.specs_of_device() {
                let first = *by_device.get_or_insert(specs);
                if !core::ptr::eq(first, specs) {
                    differing = Some([first, specs]);
                }
            }
        }
        if any && all_inner && !flags.contains(Flags::OPTIMIZER_GRADIENT) {
            flags |= Flags::OPTIMIZER_PARAMETER;
        }
        if of_model {
            flags.remove(Flags::OPTIMIZER);
        }
        flags.set(Flags::CONSTANT, all_constant);
        flags.set(Flags::ACTIVATION, of_data && of_parameters);
        flags.set(Flags::OF_PARAMETERS, of_parameters && !of_data);
        let by_optimizer = flags.intersects(Flags::OPTIMIZER);
        let source = match (any_weight, by_optimizer) {
            // What an optimizer computes from a parameter is the parameter's next value; its gradient may come from a
            // fork on a device with other specs.
            (true, true) => weight,
            (false, true) => of_parameter.or(activation),
            _ => activation.or(weight),
        };
        let is_pinned = |meta: Meta| meta.flags.contains(Flags::PINNED);
        // What was set for a parameter by name does not go on by way of an activation, also of one without specs; what is
        // computed of the parameter alone still has it.
        let ends = source.is_some_and(is_pinned) && bare_activation;
        let mut carried = source.and_then(|meta| match ends {
            true => meta.home,
            false => meta.specs,
        });
        let mut home = None;
        if let Some(parameter) = pinned
            && by_optimizer
        {
            flags |= Flags::PINNED;
            (carried, home) = (parameter.specs, parameter.home);
        } else if source.is_some_and(|meta| !ends && meta.specs_of_device().is_none()) {
            flags |= Flags::CHOSEN;
        }
        if let Some([first, second]) = differing
            && !flags.intersects(Flags::PLAIN)
        {
            warnings::warn_mixed(&first.specs, &second.specs);
        }
        let specs = weight.or(activation).and_then(|meta| meta.specs);
        // A weight that is scaled, masked or averaged is a weight, where only activations are emulated.
        let is_weight = any_weight && flags.contains(Flags::OF_PARAMETERS) && is_scoped(specs);
        flags.set(Flags::WEIGHT, is_weight);
        Self {
            specs,
            result: Meta {
                specs: carried,
                flags,
                home,
                label: label.filter(|_| by_optimizer),
                rounded: None,
                storage,
                replaces: None,
            },
            mixed_with,
            any_emulated,
            any_unset,
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
        let context = Self::of(operands.map(|meta| {
            let mut meta = meta?;
            meta.flags.remove(Flags::CONSTANT);
            if any_weight {
                meta.flags.remove(Flags::LOSS);
            }
            Some(meta)
        }));
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
