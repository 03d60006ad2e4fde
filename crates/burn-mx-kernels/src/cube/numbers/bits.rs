//! The bit pattern of a float32 on a device, and exact arithmetic on it.
//!
//! Integers alone decide a result: devices flush subnormal numbers, divide and take roots approximately, and fuse
//! products with sums as they please. This file is `microscaling`'s arithmetic on patterns, line by line. Where a
//! kernel says that its device [computes](super::float::computed_by), products and quotients are the device's. Nothing fuses
//! them with a sum, as integers compute sums.

use super::float::{is_by_device, number};
use cubecl::prelude::*;

/// All bits but the sign.
pub(in crate::cube) const ABS: u32 = 0x7fff_ffff;
/// The sign bit.
pub(in crate::cube) const SIGN: u32 = 0x8000_0000;
/// The exponent field, which is also the pattern of +Inf.
pub(in crate::cube) const INFINITY: u32 = 0x7f80_0000;
/// The one NaN that is produced.
pub(in crate::cube) const NAN: u32 = 0x7fc0_0000;
/// The pattern of 1.
pub(in crate::cube) const ONE: u32 = 0x3f80_0000;
/// The implicit bit of a normal significand, which is also the pattern of the smallest normal.
pub(in crate::cube) const IMPLICIT: u32 = 0x0080_0000;
/// The explicit bits of a significand.
pub(super) const FRACTION: u32 = 0x007f_ffff;

/// The significand of a pattern, with its implicit bit if there is one, and what remains: a pattern is the sum of both.
#[cube]
pub(in crate::cube) fn split(abs: u32) -> (u32, u32) {
    let field = abs & INFINITY;
    let base = select(field == 0, 0, field - IMPLICIT);
    (abs - base, base)
}

/// floor(log2(n)); −127 for 0.
#[cube]
pub(in crate::cube) fn log2(n: u32) -> i32 {
    select(n == 0, -127, 31 - n.leading_zeros() as i32)
}

/// floor(log2(x)) of a positive finite `x`; subnormals have their true exponent.
#[cube]
pub(in crate::cube) fn exponent(abs: u32) -> i32 {
    let (significand, base) = split(abs);
    log2(significand) + (base >> 23) as i32 - 149
}

/// value · 2^exponent as a pattern, for a normal non-negative `value`: truncated if the product is subnormal, +Inf if it
/// is too large.
#[cube]
pub(in crate::cube) fn scale(value: u32, exponent: i32) -> u32 {
    let biased = (value >> 23) as i32 + exponent;
    let normal = (value & FRACTION) | ((biased as u32) << 23);
    let shift = min(max(1 - biased, 0), 31) as u32;
    let subnormal = ((value & FRACTION) | IMPLICIT) >> shift;
    select(
        biased > 254,
        INFINITY,
        select(biased >= 1, normal, subnormal),
    )
}

/// steps · 2^exponent as a pattern, for `steps` < 2^24; limits as in [`scale`].
#[cube]
pub(in crate::cube) fn fixed(steps: u32, exponent: i32) -> u32 {
    let log2 = log2(steps);
    let normal = ((steps << (min(23 - log2, 31) as u32)) & FRACTION) | ONE;
    select(steps == 0, 0, scale(normal, log2 + exponent))
}

/// How many times 2^exponent a magnitude is, which must be a whole number below 2^24. Inf counts as 2^128.
#[cube]
pub(in crate::cube) fn steps(abs: u32, exponent: i32) -> u32 {
    let (significand, base) = split(abs);
    let up = (base >> 23) as i32 - 149 - exponent;
    (significand << (min(max(up, 0), 31) as u32)) >> (min(max(-up, 0), 31) as u32)
}

/// Significand and unit of a finite magnitude, `significand · 2^unit`, the significand of 24 bits, or zero.
#[cube]
pub(in crate::cube) fn normalized(abs: u32) -> (u32, i32) {
    let (significand, base) = split(abs);
    let shift = significand.leading_zeros() - 8;
    (
        significand << shift,
        (base >> 23) as i32 - 149 - shift as i32,
    )
}

/// The float32 of `(significand + rest) · 2^unit`, `significand` less than 2^30 and the rest less than 1, rounded half to
/// even; +Inf if it is too large.
#[cube]
pub(super) fn compose(significand: u32, has_rest: bool, unit: i32) -> u32 {
    let m = (significand << 1) | select(has_rest, 1, 0);
    let shift = max(log2(m) - 23, -148 - unit);
    // To the left it is exact, and only normal numbers come to that.
    let right = min(max(shift, 0), 31) as u32;
    let left = min(max(-shift, 0), 31) as u32;
    let dropped = (1u32 << right) - 1;
    let even = (dropped >> 1) + ((m >> right) & dropped & 1);
    let rounded = ((m + even) >> right) << left;
    let field = unit + shift + 148;
    let pattern = rounded + ((min(field, 255) as u32) << 23);
    let limited = select(field > 254, INFINITY, min(pattern, INFINITY));
    select(rounded == 0, 0, limited)
}

/// The float32 product of two finite magnitudes, rounded half to even.
#[cube]
pub(in crate::cube) fn product(a: u32, b: u32) -> u32 {
    let by_device = is_by_device();
    if comptime!(by_device) {
        u32::reinterpret(number(a) * number(b))
    } else {
        product_of_integers(a, b)
    }
}

#[cube]
fn product_of_integers(a: u32, b: u32) -> u32 {
    let (a, a_unit) = normalized(a);
    let (b, b_unit) = normalized(b);
    let high = a.mul_hi(b);
    let low = a * b;
    compose(
        (high << 10) | (low >> 22),
        low & 0x003f_ffff != 0,
        a_unit + b_unit + 22,
    )
}

/// The float32 quotient of two finite magnitudes, of which `b` is not 0, rounded half to even.
#[cube]
pub(in crate::cube) fn quotient(a: u32, b: u32) -> u32 {
    let by_device = is_by_device();
    if comptime!(by_device) {
        u32::reinterpret(number(a) / number(b))
    } else {
        quotient_of_integers(a, b)
    }
}

#[cube]
fn quotient_of_integers(a: u32, b: u32) -> u32 {
    let (a, a_unit) = normalized(a);
    let (b, b_unit) = normalized(b);
    // The device's quotient of numbers of about the same size, which is a few units of its last place off; what remains
    // tells by how many divisors.
    let guess = ((a as f32 / b as f32) * 67_108_864.0) as u32;
    let remainder = ((a << 26) - guess * b) as i32;
    let step = (remainder as f32 / b as f32) as i32;
    let mut quotient = (guess as i32 + step) as u32;
    let mut rest = remainder - step * b as i32;
    #[unroll]
    for _ in 0..2u32 {
        let below = rest < 0;
        quotient -= select(below, 1, 0);
        rest += select(below, b as i32, 0);
        let above = rest >= b as i32;
        quotient += select(above, 1, 0);
        rest -= select(above, b as i32, 0);
    }
    compose(quotient, rest != 0, a_unit - b_unit - 26)
}

/// The float32 square root of a finite magnitude, rounded half to even.
#[cube]
pub(super) fn square_root(a: u32) -> u32 {
    let (significand, unit) = normalized(a);
    let odd = (unit & 1) as u32;
    let significand = significand << odd;
    // For significand · 2^26, whose root has 25 bits before the point.
    let high = significand >> 6;
    let low = significand << 26;
    let guess = ((significand as f32).sqrt() * 8192.0) as u32;
    let mut root = guess - 64;
    #[unroll]
    for i in 0..7u32 {
        let next = root + comptime!(64u32 >> i);
        let square_high = next.mul_hi(next);
        let fits = square_high < high || (square_high == high && next * next <= low);
        root = select(fits, next, root);
    }
    let has_rest = root * root != low || root.mul_hi(root) != high;
    let result = compose(root, has_rest, (unit - odd as i32 - 26) / 2);
    select(a == 0, 0, result)
}

/// The float32 sum of two finite numbers, rounded half to even.
#[cube]
pub(in crate::cube) fn sum(a: u32, b: u32) -> u32 {
    let a_is_larger = a & ABS >= b & ABS;
    let large = select(a_is_larger, a, b);
    let small = select(a_is_larger, b, a);
    let (large_significand, large_base) = split(large & ABS);
    let (small_significand, small_base) = split(small & ABS);
    let shift = min((large_base - small_base) >> 23, 31);
    // Three more bits, the last of which says whether there are others.
    let whole = large_significand << 3;
    let small = small_significand << 3;
    let kept = small >> shift;
    let lost = small & ((1u32 << shift) - 1);
    let part = kept | select(lost != 0, 1, 0);
    let total = select((a ^ b) & SIGN == 0, whole + part, whole - part);
    let magnitude = compose(total, false, (large_base >> 23) as i32 - 152);
    // Zero is negative if both are.
    select(total == 0, a & b & SIGN, (large & SIGN) | magnitude)
}
