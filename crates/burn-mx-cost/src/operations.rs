//! Energy of operations, by a published table.

use crate::numbers::Numbers;
use crate::product::Product;
use serde::Deserialize;

/// Energies in pJ of operations of some widths. Between widths they are interpolated, and continued beyond.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operations {
    /// Where the numbers are from.
    pub source: String,
    /// Additions of integers: bits, pJ. Linear in the bits.
    pub integer_add: Vec<(f64, f64)>,
    /// Multiplications of integers: bits, pJ. Linear in the square of the bits.
    pub integer_multiply: Vec<(f64, f64)>,
    /// Additions of floats: bits, pJ. Linear in the bits.
    pub float_add: Vec<(f64, f64)>,
    /// Multiplications of floats: bits of the significand, pJ. Linear in the square of the bits.
    pub float_multiply: Vec<(f64, f64)>,
    /// A bit from memory.
    pub memory_bit: f64,
}

impl Operations {
    /// A multiplication, and an addition to a sum of this number of bits. The sum is an integer if both operands are
    /// integers, else a float.
    pub fn multiply_accumulate(&self, lhs: Numbers, rhs: Numbers, sum_bits: u32) -> f64 {
        let product = f64::from((lhs.mantissa_bits + 1) * (rhs.mantissa_bits + 1));
        let sum = f64::from(sum_bits);
        let squares = |table: &[(f64, f64)]| -> Vec<(f64, f64)> {
            table.iter().map(|(bits, pj)| (bits * bits, *pj)).collect()
        };
        match lhs.exponent_bits + rhs.exponent_bits {
            0 => {
                between(&squares(&self.integer_multiply), product) + between(&self.integer_add, sum)
            }
            _ => between(&squares(&self.float_multiply), product) + between(&self.float_add, sum),
        }
    }

    /// The energy of a product: its multiplications with additions to a sum of 32 bits, and its operands read from memory once.
    pub fn product(&self, product: &Product) -> f64 {
        let (lhs, rhs) = (product.lhs.numbers, product.rhs.numbers);
        product.macs * self.multiply_accumulate(lhs, rhs, 32) + self.memory(product.operand_bits())
    }

    /// The energy of this number of bits from memory.
    pub fn memory(&self, bits: f64) -> f64 {
        bits * self.memory_bit
    }
}

/// The line through the two points around x, or the two nearest ones; at least 0.
fn between(points: &[(f64, f64)], x: f64) -> f64 {
    let last = points.len() - 1;
    let above = points.iter().position(|point| point.0 >= x).unwrap_or(last);
    let (low, high) = (points[above.max(1) - 1], points[above.max(1)]);
    let slope = (high.1 - low.1) / (high.0 - low.0);
    (low.1 + slope * (x - low.0)).max(0.0)
}
