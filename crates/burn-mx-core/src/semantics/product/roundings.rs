//! How operands and result of a product are rounded.

use super::Product;
use crate::semantics::elementwise::Rounder;
use crate::specs::{ProductKind, ProductOp, Slot};
use burn_mx_kernels::MxKernels;
use microscaling::Rounding;

/// How an operand and the result of a product are rounded: to the elementwise format, and before that to the block format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Roundings {
    pub(super) elementwise: Rounding,
    pub(super) mx: Rounding,
}

/// How an operand is quantized.
impl<B: MxKernels> Product<B> {
    /// Rounding of a slot's operand to the elementwise format, if there is one.
    pub(super) fn rounder(&self, slot: Slot) -> Option<Rounder> {
        Rounder::new(self.specs, self.roundings(slot).elementwise)
    }

    /// How the operand of a slot is rounded.
    pub(super) fn roundings(&self, slot: Slot) -> Roundings {
        let specs = &self.specs.specs;
        let elementwise = match slot {
            Slot::W | Slot::WBp => specs.round_weight(),
            Slot::A | Slot::ABp => specs.round_output(),
            Slot::ABpEx | Slot::ABpOs => specs.round_grad_input(),
        };
        let mx = specs.rounding_of_blocks(self.op, slot);
        Roundings { elementwise, mx }
    }

    /// How the result is rounded.
    pub(crate) fn result_rounding(&self) -> Rounding {
        let specs = &self.specs.specs;
        match (self.op, self.kind) {
            (_, ProductKind::Forward) => specs.round_output(),
            (ProductOp::Matmul, _) | (_, ProductKind::InputGradient) => specs.round_grad_input(),
            (_, ProductKind::WeightGradient) => specs.round_grad_weight(),
        }
    }
}
