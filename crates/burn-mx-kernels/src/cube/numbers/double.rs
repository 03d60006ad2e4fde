//! The bit pattern of a float64 on a device, in two words, and exact arithmetic on it: few devices have float64, and those that
//! do may fuse products with sums.
//!
//! The numbers are products of float32 and whole numbers, far from float64's subnormals and Inf, which this code does not handle.

use cubecl::prelude::*;

use super::bits::{self, ABS, INFINITY, NAN, SIGN};

/// The exponent field of the upper word, and its bias.
const EXPONENT: u32 = 0x7ff0_0000;
const BIAS: i32 = 1023;

/// A float64, or a significand in two words.
#[derive(CubeType, Clone, Copy)]
pub(in crate::cube) struct Double {
    high: u32,
    low: u32,
}

/// The number with these words.
#[cube]
fn words(high: u32, low: u32) -> Double {
    Double { high, low }
}

/// The float64, half to even, of a whole number of two words, less than 2^56.
#[cube]
pub(in crate::cube) fn of_whole(high: u32, low: u32) -> Double {
    compose(
        0u32.runtime(),
        words(high, low),
        comptime!(55 + BIAS).runtime(),
    )
}

/// The 53 bits of a significand, of zero none.
#[cube]
fn significand(a: Double) -> Double {
    let is_zero = a.high & EXPONENT == 0;
    words(
        select(is_zero, 0, (a.high & 0x000f_ffff) | 0x0010_0000),
        a.low,
    )
}

/// The exponent field.
#[cube]
fn field(a: Double) -> i32 {
    ((a.high & EXPONENT) >> 20) as i32
}

/// The float64, half to even, of a significand of at most 57 bits, the last of which says whether there are others, and
/// which has at least 55 unless it is exact. Bit 55 has the exponent of this field.
#[cube]
fn compose(sign: u32, significand: Double, field: i32) -> Double {
    let carries = significand.high >> 24;
    let halved = (significand.low >> 1) | (significand.high << 31) | (significand.low & 1);
    let low = select(carries == 1, halved, significand.low);
    let high = significand.high >> carries;
    let is_short = high == 0;
    let zeros = select(is_short, low.leading_zeros() + 24, high.leading_zeros() - 8);
    // By whole words, and then by bits.
    let by_a_word = zeros >= 32;
    let moved_high = select(by_a_word, low, high);
    let moved_low = select(by_a_word, 0, low);
    let shift = zeros % 32;
    let high = (moved_high << shift) | ((moved_low >> 1) >> (31 - shift));
    let low = moved_low << shift;

    let rest = low & 7;
    let low = (low >> 3) | (high << 29);
    let up = select(rest + (low & 1) > 4, 1u32.runtime(), 0u32.runtime());
    let rounded = low + up;
    let high = (high >> 3) + select(rounded < up, 1, 0);
    // The implicit bit is one of the exponent field.
    let field = ((field + carries as i32 - zeros as i32 - 1) as u32) << 20;
    let is_zero = zeros >= 56;
    words(
        select(is_zero, 0, sign | (field + high)),
        select(is_zero, 0, rounded),
    )
}

/// The product of two finite float32, which is exact.
#[cube]
pub(in crate::cube) fn product(a: u32, b: u32) -> Double {
    let (x, x_unit) = bits::normalized(a & ABS);
    let (y, y_unit) = bits::normalized(b & ABS);
    let high = x.mul_hi(y);
    let low = x * y;
    // Its 48 bits end where 56 do.
    let significand = words((high << 8) | (low >> 24), low << 8);
    compose(
        (a ^ b) & SIGN,
        significand,
        x_unit + y_unit + comptime!(47 + BIAS),
    )
}

/// The float32 of the float64 product of a float32 and a number that is not negative.
#[cube]
pub(in crate::cube) fn scaled(x: u32, factor: Double) -> u32 {
    let abs = x & ABS;
    let is_finite = abs < INFINITY;
    let (of_x, unit) = bits::normalized(select(is_finite, abs, 0));
    let of_factor = significand(factor);
    // The product of both, in three words.
    let low = of_x * of_factor.low;
    let cross = of_x * of_factor.high;
    let middle = of_x.mul_hi(of_factor.low) + cross;
    let high = of_x.mul_hi(of_factor.high) + select(middle < cross, 1, 0);
    // Of 77 bits the first 57.
    let rest = select(low & 0x000f_ffff != 0, 1u32.runtime(), 0u32.runtime());
    let product = words(
        (high << 12) | (middle >> 20),
        (middle << 12) | (low >> 20) | rest,
    );
    let product = compose(0u32.runtime(), product, field(factor) + unit + 23);
    let is_zero = abs == 0 || factor.high == 0;
    let is_nan = abs > INFINITY || factor.high == 0;
    let special = select(is_nan, NAN, INFINITY);
    let usual = select(is_zero, 0, to_float32(product));
    (x & SIGN) | select(is_finite, usual, special)
}

/// The float32, half to even, of a number that is not negative.
#[cube]
fn to_float32(a: Double) -> u32 {
    let exact = significand(a);
    // Of 53 bits the first 29.
    bits::compose(
        (exact.high << 8) | (exact.low >> 24),
        exact.low << 8 != 0,
        field(a) - comptime!(BIAS + 28),
    )
}

/// The float32 of the float64 quotient of two numbers that are not negative, of which `b` is not 0.
#[cube]
pub(in crate::cube) fn quotient(a: Double, b: Double) -> u32 {
    let dividend = significand(a);
    let divisor = significand(b);
    let mut rest_high = dividend.high;
    let mut rest_low = dividend.low;
    let high = divisor.high;
    let low = divisor.low;
    let mut quotient_high = 0u32.runtime();
    let mut quotient_low = 0u32.runtime();
    for _ in 0..56u32 {
        let fits = rest_high > high || (rest_high == high && rest_low >= low);
        let borrows = select(rest_low < low, 1u32.runtime(), 0u32.runtime());
        rest_high -= select(fits, high + borrows, 0);
        rest_low -= select(fits, low, 0);
        quotient_high = (quotient_high << 1) | (quotient_low >> 31);
        quotient_low = (quotient_low << 1) | select(fits, 1, 0);
        rest_high = (rest_high << 1) | (rest_low >> 31);
        rest_low <<= 1u32;
    }
    quotient_low |= select((rest_high | rest_low) != 0, 1, 0);
    let exponent = field(a) - field(b) + BIAS;
    to_float32(compose(
        0u32.runtime(),
        words(quotient_high, quotient_low),
        exponent,
    ))
}
