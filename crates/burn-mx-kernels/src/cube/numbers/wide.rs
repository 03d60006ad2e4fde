//! Magnitudes of 64 bits in two words, and sums that are rounded once to any float format.

use super::bits::{self, INFINITY, SIGN};
use cubecl::prelude::*;

/// hi · 2^32 + lo, less than 2^63.
#[derive(CubeType, Clone, Copy)]
pub(in crate::cube) struct Wide {
    pub(in crate::cube) hi: u32,
    pub(in crate::cube) lo: u32,
}

#[cube]
pub(in crate::cube) fn of_words(hi: u32, lo: u32) -> Wide {
    Wide { hi, lo }
}

/// A float format with subnormal numbers, and its rounding: to nearest, half to even, or toward zero.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(in crate::cube) struct OutputFormat {
    pub(in crate::cube) emin: i32,
    pub(in crate::cube) emax: i32,
    pub(in crate::cube) mantissa_bits: i32,
    /// 1 for to nearest.
    pub(in crate::cube) nearest: u32,
}

/// Float32, rounded to nearest.
#[cube]
pub(in crate::cube) fn single() -> OutputFormat {
    OutputFormat {
        emin: comptime!(-126i32).runtime(),
        emax: 127i32.runtime(),
        mantissa_bits: 23i32.runtime(),
        nearest: 1u32.runtime(),
    }
}

/// x / 2^by, rounded down, `by` ≤ 63.
#[cube]
pub(in crate::cube) fn shift_right(x: Wide, by: u32) -> Wide {
    let part = by & 31;
    let across = (x.hi << 1) << (31 - part);
    let hi = x.hi >> part;
    let lo = (x.lo >> part) | across;
    of_words(select(by >= 32, 0, hi), select(by >= 32, hi, lo))
}

/// x · 2^by, which is less than 2^64, `by` ≤ 63.
#[cube]
pub(in crate::cube) fn shift_left(x: Wide, by: u32) -> Wide {
    let part = by & 31;
    let across = (x.lo >> 1) >> (31 - part);
    let lo = x.lo << part;
    let hi = (x.hi << part) | across;
    of_words(select(by >= 32, lo, hi), select(by >= 32, 0, lo))
}

/// x / 2^by in two's complement, rounded down, `by` ≤ 63.
#[cube]
pub(in crate::cube) fn shift_down(x: Wide, by: u32) -> Wide {
    let part = by & 31;
    let across = (x.hi << 1) << (31 - part);
    let hi = (x.hi as i32 >> part as i32) as u32;
    let lo = (x.lo >> part) | across;
    let sign = (x.hi as i32 >> 31) as u32;
    of_words(select(by >= 32, sign, hi), select(by >= 32, hi, lo))
}

/// floor(log2(x)); −127 for 0.
#[cube]
pub(in crate::cube) fn log2(x: Wide) -> i32 {
    select(x.hi == 0, bits::log2(x.lo), 32 + bits::log2(x.hi))
}

/// The sum modulo 2^64.
#[cube]
pub(in crate::cube) fn add(a: Wide, b: Wide) -> Wide {
    let lo = a.lo + b.lo;
    of_words(a.hi + b.hi + select(lo < a.lo, 1, 0), lo)
}

/// −x modulo 2^64, or x.
#[cube]
pub(in crate::cube) fn negate_if(x: Wide, negative: bool) -> Wide {
    let lo = 0u32 - x.lo;
    let hi = 0u32 - x.hi - select(x.lo != 0, 1, 0);
    of_words(select(negative, hi, x.hi), select(negative, lo, x.lo))
}

/// `(x + rest) · 2^unit` rounded to the format, the rest less than 1; +Inf if it is too large. If there is a rest, x has more bits
/// than the format.
#[cube]
pub(in crate::cube) fn rounded(x: Wide, rest: bool, unit: i32, output: &OutputFormat) -> u32 {
    let to = max(log2(x) + unit, output.emin) - output.mantissa_bits;
    let down = to - unit;
    let by = min(max(down, 0), 63) as u32;
    let kept = shift_right(x, by);
    let steps = kept.lo << (min(max(-down, 0), 31) as u32);
    // Twice as fine: the last bit is the half.
    let finer = max(by, 1) - 1;
    let half = shift_right(x, finer);
    let exact = shift_left(half, finer);
    let below = rest || exact.lo != x.lo || exact.hi != x.hi;
    let has_half = down > 0 && down < 64 && half.lo & 1 == 1;
    let is_up = output.nearest == 1 && has_half && (below || steps & 1 == 1);
    let steps = steps + select(is_up, 1, 0);
    // 2^24 is one bit too long.
    let carry = steps >> 24;
    let magnitude = bits::fixed(steps >> carry, to + carry as i32);
    let is_large = steps != 0 && bits::log2(steps) + to > output.emax;
    select(is_large, INFINITY, magnitude)
}

/// ±significand · 2^unit.
#[derive(CubeType, Clone, Copy)]
pub(in crate::cube) struct Number {
    pub(in crate::cube) negative: bool,
    pub(in crate::cube) significand: u32,
    pub(in crate::cube) unit: i32,
}

/// The exponent of the uppermost bit of a zero: less than any other, and so is the difference from any.
const NO_EXPONENT: i32 = -100_000;

/// The sum of two numbers, rounded once, by IEEE 754's rules for zeros.
#[cube]
pub(in crate::cube) fn sum(a: &Number, b: &Number, output: &OutputFormat) -> u32 {
    // With the uppermost bit set.
    let a_zeros = min(a.significand.leading_zeros(), 31);
    let b_zeros = min(b.significand.leading_zeros(), 31);
    let a_bits = a.significand << a_zeros;
    let b_bits = b.significand << b_zeros;
    let a_unit = select(a_bits == 0, NO_EXPONENT, a.unit - a_zeros as i32);
    let b_unit = select(b_bits == 0, NO_EXPONENT, b.unit - b_zeros as i32);
    let a_is_larger = a_unit > b_unit || (a_unit == b_unit && a_bits >= b_bits);
    let large = select(a_is_larger, a_bits, b_bits);
    let small = select(a_is_larger, b_bits, a_bits);
    let unit = select(a_is_larger, a_unit, b_unit);
    let distance = min(unit - select(a_is_larger, b_unit, a_unit), 63) as u32;
    let a_sign = select(a.negative, SIGN, 0);
    let b_sign = select(b.negative, SIGN, 0);

    let large = of_words(large >> 2, large << 30);
    let whole = of_words(small >> 2, small << 30);
    let part = shift_right(whole, distance);
    let back = shift_left(part, distance);
    let rest = back.lo != whole.lo || back.hi != whole.hi;
    let is_difference = a_sign != b_sign;
    // Rounded down, and what remains is less than 1.
    let part = add(
        part,
        of_words(0u32.runtime(), select(rest && is_difference, 1, 0)),
    );
    let total = add(large, negate_if(part, is_difference));
    let is_zero = total.hi == 0 && total.lo == 0;
    let magnitude = rounded(total, rest, unit - 30, output);
    let sign = select(a_is_larger, a_sign, b_sign);
    select(is_zero, a_sign & b_sign, sign | magnitude)
}
