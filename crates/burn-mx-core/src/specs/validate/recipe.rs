//! The fields of training recipes, and the other fields that each one needs.

use std::fmt::Display;

use microscaling::{BlockFormat, Rounding};

use crate::specs::{GradientOperands, MxSpecs, Slot, SlotFormat, SpecsError};

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
                && format.is_square()
                && !matches!(slot, Slot::W | Slot::WBp)
            {
                let reason = "square blocks are for weights";
                let allowed = "a format without square=true";
                return contradiction(slot.field(), &format, reason, allowed);
            }
        }
        let headroom = self.headroom_bp;
        if headroom.is_below_one() {
            let reason = "MX formats allow no headroom below 1";
            return contradiction("headroom_bp", &headroom, reason, "at least 1");
        }
        if !headroom.is_none() {
            let mut formats = backward.into_iter().flatten().peekable();
            let takes_it = |format: SlotFormat| match format {
                SlotFormat::Element(_) => true,
                SlotFormat::Block(BlockFormat::Mx(format)) => format.headroom.is_none(),
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_recipe_says_needs_what_it_speaks_of() {
        for (json, message) in [
            (
                r#"{ "hadamard_forward": "32:none", "a_elem_format_bp": "mxfp4" }"#,
                "`hadamard_forward` is 32:none, but no operand of these products has a format; allowed: none",
            ),
            (
                r#"{ "hadamard_weight_grad": "16", "bfloat": 16 }"#,
                "`hadamard_weight_grad` is 16, but no operand of these products has a format; allowed: none",
            ),
            (
                r#"{ "a_elem_format": "nvfp4(tensor_scale=true,square=true)" }"#,
                "`a_elem_format` is nvfp4(tensor_scale=true,square=true), but square blocks are for weights; \
                 allowed: a format without square=true",
            ),
            (
                r#"{ "headroom_bp": "4/3", "bfloat": 16 }"#,
                "`headroom_bp` is 4/3, but it is for MX formats without a headroom of their own, in every backward slot; \
                 allowed: 1",
            ),
            (
                r#"{ "headroom_bp": "3/4", "a_elem_format": "mxfp4" }"#,
                "`headroom_bp` is 3/4, but MX formats allow no headroom below 1; allowed: at least 1",
            ),
            (
                r#"{ "headroom_bp": "4/3", "a_elem_format": "nvfp4" }"#,
                "`headroom_bp` is 4/3, but it is for MX formats without a headroom of their own, in every backward slot; \
                 allowed: 1",
            ),
            (
                r#"{ "gradient_operands": "forward", "a_elem_format_bp": "mxfp4" }"#,
                "`gradient_operands` is forward, but no operand of a forward product has a format; allowed: original",
            ),
            (
                r#"{ "gradient_operands": "forward", "a_elem_format": "mxfp4", "round_mx_output": "stochastic" }"#,
                "`gradient_operands` is forward, but the forward product's operands are rounded at random, and are not kept; \
                 allowed: original",
            ),
            (
                r#"{ "mask_clipped": true, "a_elem_format": "mxfp4", "hadamard_forward": "32:product" }"#,
                "`mask_clipped` is true, but the drawn signs of hadamard_forward are not kept; allowed: false",
            ),
        ] {
            let specs = MxSpecs::from_json(json).unwrap();
            assert_eq!(specs.resolve().unwrap_err().to_string(), message);
        }
        let invalid = MxSpecs {
            hadamard_input_grad: Some(crate::Hadamard::new(20)),
            ..MxSpecs::mxfp4()
        };
        assert_eq!(
            invalid.resolve().unwrap_err().to_string(),
            "`hadamard_input_grad` is 20, but this is not a transform of one block; allowed: a block size of 16, 32, 64 or 128 \
             and signs of one block"
        );
        // Without a backward pass to quantize nothing of it is refused, as no backward format is.
        for name in MxSpecs::PRESETS {
            let specs = MxSpecs {
                quantize_backprop: false,
                ..MxSpecs::preset(name).unwrap()
            };
            assert!(specs.resolve().is_ok(), "{name}");
        }
    }

    #[test]
    fn resolved_specs_resolve_again() {
        for name in MxSpecs::PRESETS {
            let resolved = MxSpecs::preset(name).unwrap().resolve().unwrap();
            assert_eq!(resolved.specs().resolve(), Ok(resolved.clone()), "{name}");
        }
        let without_formats = MxSpecs {
            hadamard_block_size: 32,
            ..MxSpecs::none()
        };
        let resolved = without_formats.resolve().unwrap();
        assert_eq!(resolved.specs().resolve(), Ok(resolved.clone()));
    }
}
