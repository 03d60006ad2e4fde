//! Sums of terms that are aligned to the largest one.

use super::exact::{ExactSum, ExactValue};
use super::{ExactProduct, finite};
use crate::accumulate::SumFormat;
use alloc::vec::Vec;

/// Bits that CDNA3 keeps of the sum of products below the largest exponent.
const LATE_SUM_BITS: i32 = 32;
/// Fraction bits that CDNA3 keeps of the whole sum.
const LATE_FRACTION_BITS: i32 = 31;
/// A term that is aligned: a product, a group of products, or c.
pub(super) struct Term {
    sum: ExactSum,
    /// `None` of a zero, which has none.
    exponent: Option<i32>,
}

impl Term {
    /// Of a finite number.
    pub(super) fn alone(value: ExactValue) -> Self {
        let mut sum = ExactSum::ZERO;
        let number = finite(value).filter(|number| !number.is_zero());
        if let Some(number) = number {
            sum.add(number);
        }
        Self {
            sum,
            exponent: number.map(|number| number.exponent),
        }
    }

    /// The terms of one addition that aligns groups of finite products: a term for each group, then c.
    pub(super) fn of_addition(products: &[ExactProduct], group: usize, c: ExactValue) -> Vec<Self> {
        let groups = products.chunks(group);
        let groups = groups.map(|products| Self::of(products, group));
        groups.chain([Self::alone(c)]).collect()
    }

    /// From the finite products of a group; the last group may have fewer.
    fn of(products: &[ExactProduct], group: usize) -> Self {
        let mut sum = ExactSum::ZERO;
        let mut exponent = None;
        for product in products {
            let Some(number) = finite(product.value).filter(|number| !number.is_zero()) else {
                continue;
            };
            sum.add(number);
            exponent = Some(match group {
                1 => number.exponent,
                _ => product.scale_exponent,
            });
        }
        Self { sum, exponent }
    }

    /// The exact sum of the term.
    #[cfg(feature = "std")]
    pub(super) const fn sum(&self) -> &ExactSum {
        &self.sum
    }

    /// Whether the term is not 0 and becomes 0 when cut off to a multiple of 2^`unit`.
    #[cfg(feature = "std")]
    pub(super) fn is_cut_to_nothing(&self, unit: i32) -> bool {
        !self.sum.is_zero() && self.sum.cut(unit).is_zero()
    }
}

/// The exponent of the last bit that is kept of terms: `fraction_bits` below the largest exponent.
pub(super) fn unit(terms: &[Term], fraction_bits: i32, floor_exponent: i32) -> i32 {
    let exponents = terms.iter().filter_map(|term| term.exponent);
    exponents.fold(floor_exponent, i32::max) - fraction_bits
}

/// All terms are cut off below the largest exponent and added up.
pub(super) fn joint(
    terms: &[Term],
    fraction_bits: i32,
    floor_exponent: i32,
    output: SumFormat,
) -> f32 {
    let unit = unit(terms, fraction_bits, floor_exponent);
    let mut sum = ExactSum::ZERO;
    for term in terms {
        sum.add_sum(&term.sum.cut(unit));
    }
    // Nor is there a −0 where a sum is rounded to zero.
    sum.round(output) + 0.0
}

/// Products are summed first, c comes late.
pub(super) fn late(
    products: &[ExactValue],
    c: ExactValue,
    fraction_bits: i32,
    interleave: bool,
    output: SumFormat,
) -> f32 {
    // The sums of even and odd products, or of all of them twice over nothing.
    let ways = if interleave { 2 } else { 1 };
    let sums = (0..ways).map(|way| {
        let terms = products.iter().skip(way).step_by(ways);
        let terms: Vec<Term> = terms.map(|product| Term::alone(*product)).collect();
        let top = terms.iter().filter_map(|term| term.exponent).max();
        let unit = top.unwrap_or(0) - fraction_bits;
        let mut sum = ExactSum::ZERO;
        for term in &terms {
            sum.add_sum(&term.sum.cut(unit));
        }
        (top, sum)
    });
    let sums: Vec<(Option<i32>, ExactSum)> = sums.collect();
    let largest = sums.iter().filter_map(|(top, _)| *top).max();
    let mut products = ExactSum::ZERO;
    let unit = largest.unwrap_or(0) - fraction_bits;
    for (_, sum) in &sums {
        products.add_sum(&sum.floor(unit));
    }
    let c = Term::alone(c);
    // A zero counts as the smallest normal number here.
    let c_exponent = c.exponent.unwrap_or(output.emin());
    let top = largest.map_or(c_exponent, |largest| largest.max(c_exponent));
    let mut sum = ExactSum::ZERO;
    sum.add_sum(&products.floor(top - LATE_SUM_BITS));
    if !(interleave && c_exponent < top - fraction_bits - 1) {
        sum.add_sum(&c.sum.floor(top - fraction_bits));
    }
    if sum.is_zero() {
        return 0.0;
    }
    let unit = sum.log2().max(output.emin()) - LATE_FRACTION_BITS;
    sum.floor(unit).round(output)
}
