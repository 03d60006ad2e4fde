//! That accumulators take the operands of their products.

use microscaling::BlockFormat;
use microscaling_product::OperandKind;

use crate::specs::{ProductKind, ResolvedSpecs, Slot, SpecsError};
use burn_mx_kernels::internal::accumulated::kind_of;

impl ResolvedSpecs {
    /// Checks the accumulator of each product against all pairs of operands that it may get.
    pub(in crate::specs) fn check_accumulators(&self) -> Result<(), SpecsError> {
        self.check_accumulator(
            "accumulator_forward",
            ProductKind::Forward,
            &[[Slot::A, Slot::W], [Slot::A, Slot::A]],
        )?;
        if !self.quantize_backprop() {
            return Ok(());
        }
        self.check_accumulator(
            "accumulator_input_grad",
            ProductKind::InputGradient,
            &[[Slot::ABpOs, Slot::WBp], [Slot::ABpOs, Slot::ABp]],
        )?;
        self.check_accumulator(
            "accumulator_weight_grad",
            ProductKind::WeightGradient,
            // The last two are matmul's.
            &[
                [Slot::ABpEx, Slot::ABp],
                [Slot::ABpOs, Slot::ABp],
                [Slot::ABpOs, Slot::WBp],
            ],
        )
    }

    fn check_accumulator(
        &self,
        own_field: &'static str,
        product: ProductKind,
        pairs: &[[Slot; 2]],
    ) -> Result<(), SpecsError> {
        let Some(accumulation) = self.accumulator(product) else {
            return Ok(());
        };
        let field = match self.specs().accumulator == Some(accumulation) {
            true => "accumulator",
            false => own_field,
        };
        if !self.emulates_ops() {
            return Err(SpecsError::Contradiction {
                field,
                value: accumulation.to_string(),
                reason: "no operand of a product has a format, so no product is emulated",
                allowed: "none",
            });
        }
        // A transform leaves no numbers of the elementwise format.
        let elementwise = self.float_format();
        let elementwise = elementwise.filter(|_| self.hadamard(product).is_none());
        let kind = |slot: Slot| -> Result<OperandKind, SpecsError> {
            let format = self.block_format(slot);
            kind_of(format.as_ref(), elementwise).ok_or_else(|| SpecsError::Contradiction {
                field: slot.field(),
                value: format.map(|format| format.to_string()).unwrap_or_default(),
                reason: "its products have an accumulator, which takes elements with one scale a block",
                allowed: BlockFormat::ONE_SCALE,
            })
        };
        for [lhs, rhs] in pairs {
            // Products of two activations may be without blocks.
            let is_emulated =
                !matches!(lhs, Slot::A) || !matches!(rhs, Slot::A) || self.quantize_matmul();
            if is_emulated {
                let result = accumulation.of(kind(*lhs)?, kind(*rhs)?);
                result.map_err(|error| SpecsError::Accumulator {
                    field,
                    accumulator: accumulation.to_string(),
                    product,
                    error: error.to_string(),
                })?;
            }
        }
        Ok(())
    }
}
