//! Products and c are aligned together.

use cubecl::prelude::*;

use super::{Chain, STEP, Width, WordPlace};
use crate::cube::accumulate::terms::{FINITE, NONZERO, exponent, sign, significand};
use crate::cube::numbers::bits::{self, ABS, INFINITY, NAN, SIGN};
use crate::cube::numbers::wide::{self, OutputFormat, Wide, of_words};

/// The exponent of c before normalization: the least one of 0, the largest one of Inf and NaN.
#[cube]
pub(super) fn exponent_of(c: u32, output: &OutputFormat) -> i32 {
    let abs = c & ABS;
    let finite = max(bits::exponent(abs), output.emin);
    select(
        abs == 0,
        NONZERO,
        select(abs >= INFINITY, FINITE + 1, finite),
    )
}

/// One addition of products.
#[cube]
pub(super) fn add(
    lhs: &Array<u32>,
    rhs: &Array<u32>,
    place: &WordPlace,
    c: u32,
    chain: &Chain,
    output: &OutputFormat,
    #[comptime] width: Width,
) -> u32 {
    let mut top = max(exponent_of(c, output), chain.floor_exponent);
    let mut left = place.row;
    let mut right = place.column;
    for _ in 0..chain.steps {
        #[unroll]
        for i in 0..STEP {
            let of_product = exponent(lhs[left + i]) + exponent(rhs[right + i * place.step]);
            top = max(top, of_product);
        }
        left += STEP;
        right += STEP * place.step;
    }
    let mut seen = 0u32.runtime();
    if top > FINITE {
        seen = seen_in(c);
        left = place.row;
        right = place.column;
        for _ in 0..chain.steps {
            #[unroll]
            for i in 0..STEP {
                seen |= seen_in_product(lhs[left + i], rhs[right + i * place.step]);
            }
            left += STEP;
            right += STEP * place.step;
        }
    }
    let mut result = special(seen);
    if seen == 0 {
        let unit = top - chain.fraction_bits;
        let of_c = cut(c, unit);
        left = place.row;
        right = place.column;
        let mut total_hi = 0u32.runtime();
        let mut total_lo = 0u32.runtime();
        if comptime!(width == Width::Double) {
            let of_c = wide::negate_if(of_c, c >= SIGN);
            total_hi = of_c.hi;
            total_lo = of_c.lo;
        }
        // In two parts, so that neither overflows.
        let mut low = signed(of_c.lo, c);
        let mut high = 0i32.runtime();
        if comptime!(width == Width::Split) {
            high = low >> 16;
            low &= 0xffff;
        }
        for _ in 0..chain.steps {
            #[unroll]
            for i in 0..STEP {
                let a = lhs[left + i];
                let b = rhs[right + i * place.step];
                let product = significand(a) * significand(b);
                let down = top - exponent(a) - exponent(b) + chain.down;
                if comptime!(width == Width::Double) {
                    let of_product = of_words(0u32.runtime(), product);
                    let aligned = wide::shift_left(of_product, chain.up);
                    let aligned = wide::shift_right(aligned, min(down, 63) as u32);
                    let is_negative = sign(a ^ b) != 0;
                    let term = wide::negate_if(aligned, is_negative);
                    let sum = wide::add(of_words(total_hi, total_lo), term);
                    total_hi = sum.hi;
                    total_lo = sum.lo;
                } else {
                    let aligned = (product << chain.up) >> (min(down, 31) as u32);
                    let term = signed(aligned, sign(a ^ b));
                    if comptime!(width == Width::Split) {
                        high += term >> 16;
                        low += term & 0xffff;
                    } else {
                        low += term;
                    }
                }
            }
            left += STEP;
            right += STEP * place.step;
        }
        if comptime!(width == Width::Single) {
            total_hi = (low >> 31) as u32;
            total_lo = low as u32;
        }
        if comptime!(width == Width::Split) {
            let high = high + (low >> 16);
            total_hi = (high >> 16) as u32;
            total_lo = ((high as u32) << 16) | (low as u32 & 0xffff);
        }
        result = finish(of_words(total_hi, total_lo), unit, output);
    }
    result
}

/// A magnitude with the sign of a pattern.
#[cube]
pub(super) fn signed(magnitude: u32, sign: u32) -> i32 {
    let mask = sign as i32 >> 31;
    (magnitude as i32 ^ mask) - mask
}

/// The magnitude of a finite pattern in units of 2^unit, toward zero.
#[cube]
pub(super) fn cut(pattern: u32, unit: i32) -> Wide {
    let (significand, base) = bits::split(pattern & ABS);
    let up = (base >> 23) as i32 - 149 - unit;
    let whole = of_words(0u32.runtime(), significand);
    let left = wide::shift_left(whole, min(max(up, 0), 63) as u32);
    wide::shift_right(left, min(max(-up, 0), 63) as u32)
}

/// A sum in two's complement, rounded; never −0.
#[cube]
pub(super) fn finish(total: Wide, unit: i32, output: &OutputFormat) -> u32 {
    let is_negative = total.hi >= SIGN;
    let magnitude = wide::negate_if(total, is_negative);
    let rounded = wide::rounded(magnitude, false, unit, output);
    let sign = select(is_negative, SIGN, 0);
    select(rounded == 0, 0, rounded | sign)
}

/// A bit each for +Inf, −Inf and NaN.
#[cube]
pub(super) fn seen_in(c: u32) -> u32 {
    let infinite = select(c >= SIGN, 2, 1);
    let special = select(c & ABS == INFINITY, infinite, 4);
    select(c & ABS >= INFINITY, special, 0)
}

/// The same of a product.
#[cube]
pub(super) fn seen_in_product(a: u32, b: u32) -> u32 {
    let infinite = select(sign(a ^ b) != 0, 2, 1);
    let special = select(significand(a) * significand(b) == 0, 4, infinite);
    select(exponent(a) + exponent(b) > FINITE, special, 0)
}

/// The sum of what has been seen.
#[cube]
pub(super) fn special(seen: u32) -> u32 {
    select(seen >= 3, NAN, select(seen == 1, INFINITY, SIGN | INFINITY))
}
