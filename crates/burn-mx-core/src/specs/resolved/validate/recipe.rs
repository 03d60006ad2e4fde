//! The fields of training recipes, and the other fields that each one needs.

use std::fmt::Display;

use microscaling::Rounding;
use microscaling_product::Accumulation;

use crate::specs::{GradientOperands, Hadamard, MxSpecs, Slot, SlotFormat, SpecsError};

/// The allowed values of a field with a transform.
const HADAMARD: &str = "a block size of 16, 32, 64 or 128 and signs of one block";

pub(super) fn contradiction(
    field: &'static str,
    value: &dyn Display,
    reason: &'static str,
    allowed: &'static str,
) -> Result<(), SpecsError> {
    Err(SpecsError::Contradiction {
        field,
        value: value.to_string(),
        reason,
        allowed,
    })
}

impl MxSpecs {
    /// Checks the fields of training recipes, each of which needs others to have a meaning.
    pub(super) fn check_recipe(&self) -> Result<(), SpecsError> {
        let forward = [Slot::W, Slot::A];
        let has_forward = forward.iter().any(|slot| self.slot_format(*slot).is_some());
        let backward = [Slot::WBp, Slot::ABp, Slot::ABpEx, Slot::ABpOs];
        let own_or_default = |slot: Slot| {
            let own = self.slot_format(slot);
            own.or_else(|| self.slot_format(slot.forward()))
        };
        let backward: Vec<SlotFormat> = backward.into_iter().filter_map(own_or_default).collect();
        self.check_transforms(has_forward, !backward.is_empty())?;
        self.check_square_blocks()?;
        self.check_float_backprop()?;
        self.check_headroom(&backward)?;
        self.check_gradient_operands(has_forward)
    }

    /// Checks that each Hadamard transform is one of a block, in products with a format.
    fn check_transforms(&self, has_forward: bool, has_backward: bool) -> Result<(), SpecsError> {
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
            if !has_formats || !has_backward {
                let reason = "no operand of these products has a format";
                return contradiction(field, &transform, reason, "none");
            }
        }
        Ok(())
    }

    /// Checks that weights alone have square blocks.
    fn check_square_blocks(&self) -> Result<(), SpecsError> {
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
        Ok(())
    }

    /// Checks the headroom of the formats of gradient products.
    fn check_headroom(&self, backward: &[SlotFormat]) -> Result<(), SpecsError> {
        let headroom = self.headroom_bp;
        if headroom.is_below_one() {
            let reason = "MX formats allow no headroom below 1";
            return contradiction("headroom_bp", &headroom, reason, "at least 1");
        }
        let takes_it = |format: &SlotFormat| match format {
            SlotFormat::Element(_) => true,
            SlotFormat::Block(format) => format.is_mx() && format.headroom.is_none(),
            _ => false,
        };
        if !headroom.is_none() && (backward.is_empty() || !backward.iter().all(takes_it)) {
            let reason =
                "it is for MX formats without a headroom of their own, in every backward slot";
            return contradiction("headroom_bp", &headroom, reason, "1");
        }
        Ok(())
    }

    /// Checks that gradient products find the operands of forward products, if they read these or mask clipped values by them.
    fn check_gradient_operands(&self, has_forward: bool) -> Result<(), SpecsError> {
        let by_forward = self.gradient_operands == GradientOperands::Forward;
        let (field, value, allowed): (_, &dyn Display, _) = match by_forward {
            true => ("gradient_operands", &self.gradient_operands, "original"),
            false => ("mask_clipped", &self.mask_clipped, "false"),
        };
        if !by_forward && !self.mask_clipped {
            return Ok(());
        }
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
        contradiction(field, value, reason, allowed)
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
                let reason = "quantize_backprop is false, so gradient products are plain float32";
                return contradiction(field, &value, reason, allowed);
            }
        }
        Ok(())
    }
}
