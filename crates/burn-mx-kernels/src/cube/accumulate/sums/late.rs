//! Products are aligned and added up, c comes late.

use cubecl::prelude::*;

use super::joint::{seen_in, seen_in_product, signed, special};
use super::{Chain, STEP, WordPlace};
use crate::cube::accumulate::terms::{NONZERO, exponent, sign, significand};
use crate::cube::numbers::bits::{self, ABS, SIGN};
use crate::cube::numbers::wide::{self, OutputFormat, Wide, of_words};

/// From this exponent on a product is Inf.
const OVERFLOW: i32 = 128;
/// The product of significands is less than 2 to this power above its exponent.
const EXTRA: i32 = 4;
/// Bits that are kept of the sum of products below the largest exponent.
const SUM_BITS: i32 = 32;
/// Fraction bits that are kept of the whole sum.
const FRACTION_BITS: i32 = 31;

/// One addition. 31 bits hold all products together.
#[cube]
pub(super) fn add_late(
    lhs: &Array<u32>,
    rhs: &Array<u32>,
    place: &WordPlace,
    c: u32,
    chain: &Chain,
    output: &OutputFormat,
    #[comptime] interleave: bool,
) -> u32 {
    let mut top_of_even = NONZERO.runtime();
    let mut top_of_odd = NONZERO.runtime();
    let mut left = place.row;
    let mut right = place.column;
    for _ in 0..chain.steps {
        #[unroll]
        for i in 0..STEP {
            let of_product = exponent(lhs[left + i]) + exponent(rhs[right + i * place.step]);
            if comptime!(interleave && i % 2 == 1) {
                top_of_odd = max(top_of_odd, of_product);
            } else {
                top_of_even = max(top_of_even, of_product);
            }
        }
        left += STEP;
        right += STEP * place.step;
    }
    let largest = max(top_of_even, top_of_odd);
    let mut seen = seen_in(c);
    if largest >= comptime!(OVERFLOW - EXTRA) {
        left = place.row;
        right = place.column;
        for _ in 0..chain.steps {
            #[unroll]
            for i in 0..STEP {
                let a = lhs[left + i];
                let b = rhs[right + i * place.step];
                let special = seen_in_product(a, b);
                let product = significand(a) * significand(b);
                let of_product =
                    bits::log2(product) + exponent(a) + exponent(b) - chain.product_bits;
                let infinite = select(sign(a ^ b) != 0, 2, 1);
                let is_large = product != 0 && of_product >= OVERFLOW && special == 0;
                seen |= special | select(is_large, infinite, 0);
            }
            left += STEP;
            right += STEP * place.step;
        }
    }
    let mut result = special(seen);
    if seen == 0 {
        let mut even = 0i32.runtime();
        let mut odd = 0i32.runtime();
        left = place.row;
        right = place.column;
        for _ in 0..chain.steps {
            #[unroll]
            for i in 0..STEP {
                let a = lhs[left + i];
                let b = rhs[right + i * place.step];
                let product = (significand(a) * significand(b)) << chain.up;
                let below = chain.down - exponent(a) - exponent(b);
                if comptime!(interleave && i % 2 == 1) {
                    let down = min(max(below + top_of_odd, 0), 31) as u32;
                    odd += signed(product >> down, sign(a ^ b));
                } else {
                    let down = min(max(below + top_of_even, 0), 31) as u32;
                    even += signed(product >> down, sign(a ^ b));
                }
            }
            left += STEP;
            right += STEP * place.step;
        }
        let products =
            (even >> min(largest - top_of_even, 31)) + (odd >> min(largest - top_of_odd, 31));
        result = with_c(
            products,
            largest,
            c,
            chain.fraction_bits,
            output,
            interleave,
        );
    }
    result
}

/// The sum of products in units of 2^(largest − fraction bits) and of c, which is finite.
#[cube]
fn with_c(
    products: i32,
    largest: i32,
    c: u32,
    fraction_bits: i32,
    output: &OutputFormat,
    #[comptime] interleave: bool,
) -> u32 {
    let abs = c & ABS;
    // A zero counts as the smallest normal number.
    let of_c = select(abs == 0, output.emin, max(bits::exponent(abs), output.emin));
    let top = max(largest, of_c);
    let unit = top - SUM_BITS;
    let products = of_words((products >> 31) as u32, products as u32);
    let products = floor(products, largest - fraction_bits - unit);
    let (significand, base) = bits::split(abs);
    let whole = wide::negate_if(of_words(0u32.runtime(), significand), c >= SIGN);
    let aligned = floor(whole, (base >> 23) as i32 - 149 - (top - fraction_bits));
    let aligned = wide::shift_left(aligned, (SUM_BITS - fraction_bits) as u32);
    let is_lost = comptime!(interleave).runtime() && of_c < top - fraction_bits - 1;
    let aligned = of_words(
        select(is_lost, 0, aligned.hi),
        select(is_lost, 0, aligned.lo),
    );

    let sum = wide::add(products, aligned);
    let is_zero = sum.hi == 0 && sum.lo == 0;
    let is_negative = sum.hi >= SIGN;
    let magnitude = wide::negate_if(sum, is_negative);
    let exponent = max(wide::log2(magnitude) + unit, output.emin);
    let down = max(exponent - FRACTION_BITS - unit, 0);
    let kept = wide::negate_if(floor(sum, -down), is_negative);
    let rounded = wide::rounded(kept, false, unit + down, output);
    select(is_zero, 0, select(is_negative, SIGN, 0) | rounded)
}

/// A number in two's complement times 2^by, rounded down.
#[cube]
fn floor(x: Wide, by: i32) -> Wide {
    let left = wide::shift_left(x, min(max(by, 0), 63) as u32);
    wide::shift_down(left, min(max(-by, 0), 63) as u32)
}
