//! Products are summed in groups, and the groups and c are aligned together.

use cubecl::prelude::*;

use super::joint::{cut, exponent_of, finish, seen_in, signed, special};
use super::{Chain, STEP, ScalesAt, WordPlace, word_or_unit};
use crate::cube::accumulate::terms::{FINITE, NONZERO, UNIT, exponent, sign, significand};
use crate::cube::numbers::bits::SIGN;
use crate::cube::numbers::wide::{self, OutputFormat, of_words};

/// The most groups of an addition.
pub(in crate::cube::accumulate) const GROUPS: usize = 16;

/// The scale of a group.
#[cube]
fn group_scale(
    words: &ComptimeOption<Array<u32>>,
    at: usize,
    #[comptime] scales_at: ScalesAt,
) -> u32 {
    if comptime!(scales_at == ScalesAt::Groups) {
        word_or_unit(words, at)
    } else {
        UNIT.runtime()
    }
}

/// One addition of groups. Their elements are finite, and fixed point.
#[cube]
pub(super) fn add_groups(
    lhs: &Array<u32>,
    rhs: &Array<u32>,
    lhs_scales: &ComptimeOption<Array<u32>>,
    rhs_scales: &ComptimeOption<Array<u32>>,
    place: &WordPlace,
    scales: &WordPlace,
    c: u32,
    chain: &Chain,
    output: &OutputFormat,
    #[comptime] scales_at: ScalesAt,
) -> u32 {
    let mut sums = Array::<u32>::new(GROUPS);
    let mut top = max(exponent_of(c, output), chain.floor_exponent);
    let mut seen = seen_in(c);
    let mut left = place.row;
    let mut right = place.column;
    for group in 0..chain.groups {
        let mut sum = 0i32.runtime();
        let mut of_products = NONZERO.runtime();
        for _ in 0..chain.steps {
            #[unroll]
            for i in 0..STEP {
                let a = lhs[left + i];
                let b = rhs[right + i * place.step];
                of_products = max(of_products, exponent(a) + exponent(b));
                sum += signed(significand(a) * significand(b), sign(a ^ b));
            }
            left += STEP;
            right += STEP * place.step;
        }
        sums[group] = sum as u32;
        let of_row = group_scale(lhs_scales, scales.row + group, scales_at);
        let of_column = group_scale(rhs_scales, scales.column + group * scales.step, scales_at);
        let of_scales = exponent(of_row) + exponent(of_column);
        // Zeros times a scale that is NaN are NaN, too.
        seen |= select(of_scales > FINITE, 4, 0);
        let is_zero = of_products < 0 || of_scales < NONZERO;
        top = max(top, select(is_zero, NONZERO, of_scales));
    }
    let mut result = special(seen);
    if seen == 0 {
        let unit = top - chain.fraction_bits;
        let of_c = wide::negate_if(cut(c, unit), c >= SIGN);
        let mut total_hi = of_c.hi;
        let mut total_lo = of_c.lo;
        for group in 0..chain.groups {
            let of_row = group_scale(lhs_scales, scales.row + group, scales_at);
            let of_column = group_scale(rhs_scales, scales.column + group * scales.step, scales_at);
            let sum = sums[group];
            let magnitude = select(sum >= SIGN, 0u32 - sum, sum);
            let scaled = magnitude * (significand(of_row) * significand(of_column));
            // A zero may have any exponent.
            let down = top - exponent(of_row) - exponent(of_column) + chain.down;
            let aligned = wide::shift_left(of_words(0u32.runtime(), scaled), chain.up);
            let aligned = wide::shift_right(aligned, min(max(down, 0), 63) as u32);
            let of_scales = sign(of_row ^ of_column);
            let is_negative = (sum ^ of_scales) >= SIGN;
            let term = wide::negate_if(aligned, is_negative);
            let sum = wide::add(of_words(total_hi, total_lo), term);
            total_hi = sum.hi;
            total_lo = sum.lo;
        }
        result = finish(of_words(total_hi, total_lo), unit, output);
    }
    result
}
