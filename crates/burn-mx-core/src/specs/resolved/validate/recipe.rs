//! The fields of training recipes, and the other fields that each one needs.

use std::fmt::Display;

use microscaling::Rounding;
use microscaling_product::Accumulation;

use crate::specs::{GradientOperands, Hadamard, MxSpecs, Slot, SlotFormat, SpecsError};

/// The allowed values of a field with a transform.
const HADAMARD: &str = "a block size of 16, 32, 64 or 128 and signs of one block";

impl MxSpecs {
    /// Checks the fields of training recipes, each of which needs others to have a meaning.
    pub(super) fn check_recipe(&self) -> Result<(), SpecsError> {
        let contradiction = |field, value: &dyn Display, reason, allowed| {
            Err(SpecsError::Contradiction {
                field,
                value: value.to_string(),
                reason,
                allowed,
            })
        };
        let forward = [Slot::W, Slot::A];
        let has_forward = forward.iter().any(|slot| self.slot_format(*slot).is_some());
        let backward = [Slot::WBp, Slot::ABp, Slot::ABpEx, Slot::ABpOs];
        let own_or_default = |slot: Slot| {
            let own = self.slot_format(slot);
            own.or_else(|| self.slot_format(slot.forward()))
        };
        let backward = backward.map(own_or_default);
        let transforms = [
            ("hadamard_forward", self.hadamard_forward, has_forward),
            ("hadamard_input_grad", self.hadamard_input_grad, true),
            ("hadamard_weight_grad", self.hadamard_weight_grad, true),
        ];
        for (field, transform, has_formats) in transforms {
            let Some(transform) = transform else { continue };
            if !transform.is_valid() {
                let reason = "this is not a transform of one block";
                return contradiction(field, &transform, reason, HADAMARD);
            }
            if !has_formats || backward.iter().all(Option::is_none) {
                let reason = "no operand of these products has a format";
                return contradiction(field, &transform, reason, "none");
            }
        }
        let slots = Slot::ALL.into_iter();
        for (slot, format) in slots.filter_map(|slot| Some((slot, self.slot_format(slot)?))) {
            if let SlotFormat::Block(format) = format
                && format.square
                && !matches!(slot, Slot::W | Slot::WBp)
            {
                let reason = "square blocks are for weights";
                let allowed = "a format without square=true";
                return contradiction(slot.field(), &format, reason, allowed);
            }
        }
        self.check_float_backprop()?;
        let headroom = self.headroom_bp;
        if headroom.is_below_one() {
            let reason = "MX formats allow no headroom below 1";
            return contradiction("headroom_bp", &headroom, reason, "at least 1");
        }
        if !headroom.is_none() {
            let mut formats = backward.into_iter().flatten().peekable();
            let takes_it = |format: SlotFormat| match format {
                SlotFormat::Element(_) => true,
                SlotFormat::Block(format) => format.is_mx() && format.headroom.is_none(),
                _ => false,
            };
            if formats.peek().is_none() || !formats.all(takes_it) {
                let reason =
                    "it is for MX formats without a headroom of their own, in every backward slot";
                return contradiction("headroom_bp", &headroom, reason, "1");
            }
        }
        let by_forward = self.gradient_operands == GradientOperands::Forward;
        let (field, value): (_, &dyn Display) = match by_forward {
            true => ("gradient_operands", &self.gradient_operands),
            false => ("mask_clipped", &self.mask_clipped),
        };
        if by_forward || self.mask_clipped {
            let allowed = match by_forward {
                true => "original",
                false => "false",
            };
            let mx_rounding = self.round_mx_output.unwrap_or(self.round);
            let reason = if !has_forward {
                "no operand of a forward product has a format"
            } else if by_forward && mx_rounding == Rounding::Stochastic {
                "the forward product's operands are rounded at random, and are not kept"
            } else if self
                .hadamard_forward
                .is_some_and(|transform| !transform.is_fixed())
            {
                "the drawn signs of hadamard_forward are not kept"
            } else {
                return Ok(());
            };
            return contradiction(field, value, reason, allowed);
        }
        Ok(())
    }

    /// Checks that no field is set which shapes the gradient products' operands, where the backward pass has none.
    fn check_float_backprop(&self) -> Result<(), SpecsError> {
        if self.quantize_backprop {
            return Ok(());
        }
        let text = |field: &Option<Hadamard>| field.map(|transform| transform.to_string());
        let accumulator = |field: &Option<Accumulation>| field.map(|unit| unit.to_string());
        let (headroom, size) = (self.headroom_bp, self.hadamard_block_size);
        let fields = [
            (
                "headroom_bp",
                (!headroom.is_none()).then(|| headroom.to_string()),
                "1",
            ),
            (
                "hadamard_block_size",
                (size != 0).then(|| size.to_string()),
                "0",
            ),
            (
                "hadamard_input_grad",
                text(&self.hadamard_input_grad),
                "none",
            ),
            (
                "hadamard_weight_grad",
                text(&self.hadamard_weight_grad),
                "none",
            ),
            (
                "accumulator_input_grad",
                accumulator(&self.accumulator_input_grad),
                "none",
            ),
            (
                "accumulator_weight_grad",
                accumulator(&self.accumulator_weight_grad),
                "none",
            ),
        ];
        for (field, value, allowed) in fields {
            if let Some(value) = value {
                return Err(SpecsError::Contradiction {
                    field,
                    value,
                    reason: "quantize_backprop is false, so gradient products are plain float32",
                    allowed,
                });
            }
        }
        Ok(())
    }
}
