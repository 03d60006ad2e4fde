//! The total cost of products.

use crate::accumulator::kept_bits;
use crate::numbers::Numbers;
use crate::product::Product;
use crate::tables::Tables;

/// The total cost of some products.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Multiplications, each with an addition.
    pub macs: f64,
    /// Bits of the operands of all products.
    pub operand_bits: f64,
    /// Mean bits of an element of an operand.
    pub bits: f64,
    /// Gates of a lane of a multiply-accumulate unit, the mean over all multiplications, as a multiple of MXFP8 E4M3's.
    pub area: f64,
    /// Energy of a multiplication and addition in such a lane, the mean over all, as a multiple of MXFP8 E4M3's.
    pub energy: f64,
    /// pJ of all operations, the scales' included, and of reading the operands from memory once, by the table of operations.
    pub picojoules: f64,
}

impl Tables {
    /// The total cost of some products; without products every figure is 0.
    pub fn cost(&self, products: &[Product]) -> Cost {
        let mut sum = Cost::default();
        let mut elements = 0.0;
        for product in products {
            let (lhs, rhs) = (product.lhs.numbers, product.rhs.numbers);
            let width = product.accumulator.map(|sum| kept_bits(&sum, lhs, rhs));
            let macs = product.macs;
            sum.macs += macs;
            sum.operand_bits += product.operand_bits();
            elements += product.lhs.elements + product.rhs.elements;
            sum.area += macs * self.area.lane(lhs, rhs, width);
            sum.energy += macs * self.energy.lane(lhs, rhs, width);
            sum.picojoules += self.operations.product(product);
        }
        if sum.macs > 0.0 {
            let unit = mxfp8();
            sum.bits = sum.operand_bits / elements;
            sum.area /= sum.macs * self.area.lane(unit, unit, None);
            sum.energy /= sum.macs * self.energy.lane(unit, unit, None);
        }
        sum
    }
}

/// The unit of areas and energies.
fn mxfp8() -> Numbers {
    use microscaling::{BlockFormat, ElementFormat};
    BlockFormat::mx(ElementFormat::FP8_E4M3, 32).into()
}
