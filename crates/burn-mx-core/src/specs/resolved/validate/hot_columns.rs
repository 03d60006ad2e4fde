//! The hot columns of linear layers, alone and beside other fields.

use std::fmt::Display;

use microscaling::Rounding;

use super::recipe::contradiction;
use crate::specs::{
    ColumnChoice, ColumnScore, HotColumns, HotTreatment, MxSpecs, Slot, SlotFormat, SpecsError,
};

impl MxSpecs {
    /// Checks the hot columns, and the fields that exclude them.
    pub(super) fn check_hot_columns(&self) -> Result<(), SpecsError> {
        let Some(hot) = &self.hot_columns else {
            return Ok(());
        };
        hot.check(self)?;
        let forward = [Slot::W, Slot::A];
        if forward.iter().all(|slot| self.slot_format(*slot).is_none()) {
            let reason = "no operand of a forward product has a format";
            return contradiction("hot_columns", hot, reason, "none");
        }
        let is_apart = hot.treatment == HotTreatment::Format;
        let others: [(_, Option<&dyn Display>, _, _); 5] = [
            (
                "hadamard_forward",
                self.hadamard_forward
                    .as_ref()
                    .map(|transform| transform as _),
                "it mixes the columns that hot_columns tells apart",
                "none",
            ),
            (
                "mask_clipped",
                (self.mask_clipped && is_apart).then_some(&true as _),
                "the columns of hot_columns have no mask",
                "false",
            ),
            (
                "accumulator",
                self.accumulator.as_ref().map(|unit| unit as _),
                "products of hot_columns are summed in float32",
                "none",
            ),
            (
                "accumulator_forward",
                self.accumulator_forward.as_ref().map(|unit| unit as _),
                "products of hot_columns are summed in float32",
                "none",
            ),
            (
                "accumulator_weight_grad",
                self.accumulator_weight_grad.as_ref().map(|unit| unit as _),
                "products of hot_columns are summed in float32",
                "none",
            ),
        ];
        for (field, value, reason, allowed) in others {
            if let Some(value) = value {
                return contradiction(field, value, reason, allowed);
            }
        }
        self.check_errors_of_columns(hot)
    }

    /// Checks that errors of quantization are the same each time, where hot columns need them.
    fn check_errors_of_columns(&self, hot: &HotColumns) -> Result<(), SpecsError> {
        if hot.treatment != HotTreatment::Residual && hot.score != ColumnScore::Error {
            return Ok(());
        }
        let roundings = [
            ("round_mx_output", self.round_mx_output),
            ("round_output", self.round_output),
            ("round_weight", self.round_weight),
        ];
        for (field, rounding) in roundings {
            let rounding = rounding.unwrap_or(self.round);
            if rounding == Rounding::Stochastic {
                let reason = "the errors of hot_columns are computed apart from the product, which draws other numbers";
                return contradiction(field, &rounding, reason, "nearest, even, floor");
            }
        }
        Ok(())
    }
}

impl HotColumns {
    fn check(&self, specs: &MxSpecs) -> Result<(), SpecsError> {
        let numbers = [
            ("hot_columns.percent", self.percent, 1..=99, "1 to 99"),
            (
                "hot_columns.multiple",
                self.multiple,
                1..=usize::MAX / 2,
                "1 or more",
            ),
        ];
        for (field, value, range, allowed) in numbers {
            if !range.contains(&value) {
                let allowed = allowed.into();
                return Err(SpecsError::OutOfRange {
                    field,
                    value,
                    allowed,
                });
            }
        }
        if let Some(format) = self.format {
            let field = "hot_columns.format";
            specs.check_format(field, format)?;
            if let SlotFormat::Block(block) = format
                && block.square
            {
                let reason = "square blocks are for weights";
                return contradiction(field, &format, reason, "a format without square=true");
            }
        }
        if self.rounding == Rounding::Stochastic {
            let reason = "hot columns draw no random numbers";
            let allowed = "nearest, even, floor";
            return contradiction("hot_columns.rounding", &self.rounding, reason, allowed);
        }
        match &self.ranking {
            Some(ranking) if self.chosen == ColumnChoice::Product => {
                let reason = "`hot_columns.chosen` is product, so each product ranks its columns";
                let allowed = "none, or with chosen=fixed";
                contradiction("hot_columns.ranking", ranking, reason, allowed)
            }
            _ => Ok(()),
        }
    }
}
