//! Widths of sums.

use crate::numbers::Numbers;
use microscaling_product::{Accumulator, Order};

/// Bits of an exact sum of k = `products` products, sign included.
///
/// 1 + ⌈log₂(k·r·s + 1)⌉, where r and s are the ratios of the largest and the smallest element of each operand. Scales of blocks are
/// left out, because within a pair of blocks they are one factor.
pub fn exact_bits(lhs: Numbers, rhs: Numbers, products: usize) -> u32 {
    let largest = products as f64 * lhs.range * rhs.range + 1.0;
    1 + largest.log2().ceil() as u32
}

/// Bits of the products that an accumulator keeps.
///
/// # Panics
///
/// At an order that came later than this crate.
pub fn kept_bits(accumulator: &Accumulator, lhs: Numbers, rhs: Numbers) -> u32 {
    match accumulator.order {
        Order::Joint { fraction_bits, .. } | Order::Late { fraction_bits, .. } => 1 + fraction_bits,
        Order::Exact { terms, .. } => exact_bits(lhs, rhs, terms),
        Order::Integer { bits, .. } => bits,
        Order::Pairs { output, .. } | Order::Fma { output } => 1 + output.mantissa_bits(),
        _ => panic!("burn-mx-cost: no width for the order of {accumulator}"),
    }
}
