//! Dialects beside the fields that they depend on.

use microscaling::Rounding;

use crate::specs::{ProductKind, ResolvedSpecs, Slot, SpecsError};

impl ResolvedSpecs {
    /// Checks that each dialect has its slot's format, and that no field asks for another rule.
    pub(in crate::specs) fn check_dialects(&self) -> Result<(), SpecsError> {
        for (field, slot) in [("dialect_w", Slot::W), ("dialect_a", Slot::A)] {
            let Some(dialect) = self.dialect(slot) else {
                continue;
            };
            let contradicts = |reason, allowed| SpecsError::Contradiction {
                field,
                value: dialect.to_string(),
                reason,
                allowed,
            };
            let Some(format) = self.block_format(slot) else {
                return Err(contradicts("its slot has no block format", "none"));
            };
            if dialect.check(format).is_err() {
                return Err(SpecsError::Dialect {
                    field,
                    dialect,
                    format: Box::new(format),
                    allowed: dialect.formats().join(", "),
                });
            }
            if self.round_mx_output() == Rounding::Stochastic {
                return Err(contradicts(
                    "`round_mx_output` is stochastic, and a tool rounds to nearest",
                    "none, or another `round_mx_output`",
                ));
            }
            if self.accumulator(ProductKind::Forward).is_some() {
                return Err(contradicts(
                    "an accumulator takes operands by the rule of the format alone",
                    "none, or no accumulator of forward products",
                ));
            }
            if self.mask_clipped() {
                return Err(contradicts(
                    "`mask_clipped` is true, which knows where the rule of the format clips",
                    "none, or `mask_clipped` false",
                ));
            }
        }
        Ok(())
    }
}
