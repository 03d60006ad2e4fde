//! Energy of operations, by a published table.

use crate::accumulator::kept_bits;
use crate::numbers::{Numbers, Scale};
use crate::product::Product;
use serde::Deserialize;

/// Bits of a float32, of its significand and of its exponent.
const FLOAT32_BITS: f64 = 32.0;
const FLOAT32_SIGNIFICAND: f64 = 24.0;
const EXPONENT_BITS: u32 = 8;

/// Bits of an exponent that a scale is added to.
const SCALE_BITS: f64 = 8.0;

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
        match lhs.exponent_bits + rhs.exponent_bits {
            0 => {
                between(&squares(&self.integer_multiply), product) + between(&self.integer_add, sum)
            }
            _ => self.float_multiplication(product) + between(&self.float_add, sum),
        }
    }

    /// The scales' part of a multiplication: what the scales of two blocks take, over the elements of the shorter block.
    ///
    /// A power of two is an addition of 8-bit integers, to the exponent of the block's sum. Floats are multiplied with each other,
    /// and their product with the block's sum. The sum of a block
    /// of integers is added to a float32 once. Scales of a tensor or of an axis, outer scales and sub-scales take nothing.
    pub fn scales(&self, lhs: Numbers, rhs: Numbers) -> f64 {
        let blocks = [lhs.block, rhs.block].into_iter();
        let Some(block) = blocks.filter(|block| *block > 0).min() else {
            return 0.0;
        };
        let is_power = |numbers: &&Numbers| numbers.scale == Scale::PowerOfTwo;
        let powers = [&lhs, &rhs].into_iter().filter(is_power).count() as f64;
        let significand = |numbers: Numbers| match numbers.scale {
            Scale::Float { mantissa_bits } => Some(f64::from(1 + mantissa_bits)),
            Scale::None | Scale::PowerOfTwo => None,
        };
        let by_sum = |significand| self.float_multiplication(significand * FLOAT32_SIGNIFICAND);
        let multiplications = match (significand(lhs), significand(rhs)) {
            (Some(lhs), Some(rhs)) => self.float_multiplication(lhs * rhs) + by_sum(lhs + rhs),
            (Some(one), None) | (None, Some(one)) => by_sum(one),
            (None, None) => 0.0,
        };
        let applied = powers * between(&self.integer_add, SCALE_BITS) + multiplications;
        let added = match lhs.exponent_bits + rhs.exponent_bits {
            0 => between(&self.float_add, FLOAT32_BITS),
            _ => 0.0,
        };
        (applied + added) / block as f64
    }

    /// The energy of a product: its multiplications, each with an addition and its [part](Self::scales) of the scales, and its
    /// operands read from memory once.
    ///
    /// Without an accumulator a sum has 32 bits. With an [accumulator](Product::accumulator) a sum of floats has the bits that the
    /// accumulator [keeps](crate::kept_bits), and 8 of an exponent; so 24 bits cost as much as a float32. A sum of integers has
    /// the bits that the accumulator keeps.
    pub fn product(&self, product: &Product) -> f64 {
        let (lhs, rhs) = (product.lhs.numbers, product.rhs.numbers);
        let exponent_bits = match lhs.exponent_bits + rhs.exponent_bits {
            0 => 0,
            _ => EXPONENT_BITS,
        };
        let sum_bits = product.accumulator.map_or(FLOAT32_BITS as u32, |sum| {
            kept_bits(&sum, lhs, rhs) + exponent_bits
        });
        let of_each = self.multiply_accumulate(lhs, rhs, sum_bits) + self.scales(lhs, rhs);
        product.macs * of_each + self.memory(product.operand_bits())
    }

    /// A multiplication of floats, by the product of the bits of their significands.
    fn float_multiplication(&self, sides: f64) -> f64 {
        between(&squares(&self.float_multiply), sides)
    }

    /// The energy of this number of bits from memory.
    pub fn memory(&self, bits: f64) -> f64 {
        bits * self.memory_bit
    }
}

/// Points over squares of their bits.
fn squares(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let squares = points.iter().map(|(bits, pj)| (bits * bits, *pj));
    squares.collect()
}

/// The line through the two points around x, or the two nearest ones; at least 0.
fn between(points: &[(f64, f64)], x: f64) -> f64 {
    let last = points.len() - 1;
    let above = points.iter().position(|point| point.0 >= x).unwrap_or(last);
    let (low, high) = (points[above.max(1) - 1], points[above.max(1)]);
    let slope = (high.1 - low.1) / (high.0 - low.0);
    (low.1 + slope * (x - low.0)).max(0.0)
}
