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
        let transforms = [
            ("hadamard_forward", self.hadamard_forward),
            ("hadamard_input_grad", self.hadamard_input_grad),
            ("hadamard_weight_grad", self.hadamard_weight_grad),
        ];
        let size = self.hadamard_block_size;
        let reason = "it transforms the rows whose mean is apart (mean_apart)";
        if size != 0 {
            return contradiction("hadamard_block_size", &size, reason, "0");
        }
        for (field, transform) in transforms {
            if let Some(transform) = transform {
                return contradiction(field, &transform, reason, "none");
            }
        }
        if let Some(hot) = &self.hot_columns {
            let reason = "columns are apart or the mean is (mean_apart)";
            return contradiction("hot_columns", hot, reason, "none");
        }
        self.check_blocks_of_means()
    }

    /// Checks the fields that need operands in a block format.
    fn check_blocks_of_means(&self) -> Result<(), SpecsError> {
        let headroom = self.headroom_bp;
        let fields: [(_, Option<&dyn Display>, _); 3] = [
            (
                "headroom_bp",
                (!headroom.is_none()).then_some(&headroom as _),
                "1",
            ),
            (
                "mask_clipped",
                self.mask_clipped.then_some(&true as _),
                "false",
            ),
            (
                "dialect_a",
                self.dialect_a.as_ref().map(|dialect| dialect as _),
                "none",
            ),
        ];
        let accumulators = [
            ("accumulator", &self.accumulator),
            ("accumulator_forward", &self.accumulator_forward),
            ("accumulator_input_grad", &self.accumulator_input_grad),
            ("accumulator_weight_grad", &self.accumulator_weight_grad),
        ];
        let accumulators = accumulators.map(|(field, own)| {
            let own = own.as_ref().map(|unit| unit as &dyn Display);
            (field, own, "none")
        });
        for (field, value, allowed) in fields.into_iter().chain(accumulators) {
            if let Some(value) = value {
                let reason =
                    "operands with their mean apart (mean_apart) are not in a block format";
                return contradiction(field, value, reason, allowed);
            }
        }
        Ok(())
    }
}
