//! The operands of a matrix unit, before their values are known.

use microscaling::{BlockFormat, RandomStream, Rounding};
use microscaling_product::OperandKind;

/// Where a product sums over a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Sums {
    /// The axis that is summed over, along which blocks lie.
    pub summed: usize,
    /// Square blocks lie along this axis, too.
    pub free: usize,
    /// Whether the axes before the last two are rows of one matrix.
    pub flat: bool,
}

/// How a tensor becomes an operand of a matrix unit.
#[derive(Clone, Copy, Debug)]
pub struct AccumulatedForm {
    /// The kinds of elements and scales.
    pub kind: OperandKind,
    /// The block format.
    pub blocks: Option<(BlockFormat, Rounding)>,
    /// The random numbers of stochastic rounding.
    pub stream: RandomStream,
    /// The axes of the product.
    pub sums: Sums,
}

impl AccumulatedForm {
    /// The axis along which blocks of this format lie, as formats count it.
    pub fn block_axis(&self, format: &BlockFormat) -> usize {
        match format.square {
            true => self.sums.summed.max(self.sums.free),
            false => self.sums.summed,
        }
    }
}
