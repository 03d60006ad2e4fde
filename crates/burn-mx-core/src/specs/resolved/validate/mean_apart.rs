//! The mean apart, beside other fields.

use std::fmt::Display;

use super::recipe::contradiction;
use crate::specs::{MxSpecs, Slot, SpecsError};

impl MxSpecs {
    /// Checks that an operand has a mean to be apart, and the fields that exclude it.
    pub(super) fn check_mean_apart(&self) -> Result<(), SpecsError> {
        if !self.mean_apart {
            return Ok(());
        }
        let rows = [Slot::A, Slot::ABp, Slot::ABpEx, Slot::ABpOs];
        if rows.iter().all(|slot| self.slot_format(*slot).is_none()) {
            let reason = "neither inputs nor gradients have a format";
            return contradiction("mean_apart", &true, reason, "false");
        }
        let transform = "it transforms the rows whose mean is apart (mean_apart)";
        let rounded = "operands with their mean apart (mean_apart) are not in a block format";
        let size =
            (self.hadamard_block_size != 0).then_some(&self.hadamard_block_size as &dyn Display);
        let headroom = (!self.headroom_bp.is_none()).then_some(&self.headroom_bp as &dyn Display);
        let others: [(_, Option<&dyn Display>, _, _); 12] = [
            ("hadamard_block_size", size, transform, "0"),
            (
                "hadamard_forward",
                (self.hadamard_forward.as_ref().map(|own| own as _)),
                transform,
                "none",
            ),
            (
                "hadamard_input_grad",
                (self.hadamard_input_grad.as_ref().map(|own| own as _)),
                transform,
                "none",
            ),
            (
                "hadamard_weight_grad",
                (self.hadamard_weight_grad.as_ref().map(|own| own as _)),
                transform,
                "none",
            ),
            ("headroom_bp", headroom, rounded, "1"),
            (
                "mask_clipped",
                self.mask_clipped.then_some(&true as _),
                rounded,
                "false",
            ),
            (
                "dialect_a",
                self.dialect_a.as_ref().map(|own| own as _),
                rounded,
                "none",
            ),
            (
                "accumulator",
                self.accumulator.as_ref().map(|own| own as _),
                rounded,
                "none",
            ),
            (
                "accumulator_forward",
                self.accumulator_forward.as_ref().map(|own| own as _),
                rounded,
                "none",
            ),
            (
                "accumulator_input_grad",
                self.accumulator_input_grad.as_ref().map(|own| own as _),
                rounded,
                "none",
            ),
            (
                "accumulator_weight_grad",
                self.accumulator_weight_grad.as_ref().map(|own| own as _),
                rounded,
                "none",
            ),
            (
                "hot_columns",
                self.hot_columns.as_ref().map(|own| own as _),
                "columns are apart or the mean is (mean_apart)",
                "none",
            ),
        ];
        for (field, value, reason, allowed) in others {
            if let Some(value) = value {
                return contradiction(field, value, reason, allowed);
            }
        }
        Ok(())
    }
}
