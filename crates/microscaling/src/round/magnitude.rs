//! Rounding a magnitude to a grid: the one place where bits are dropped.

use super::bits::{self, IMPLICIT, LOWEST_EXPONENT, MANTISSA_BITS};
use super::mode::{RoundingRule, Upper};
use core::ops::{Range, RangeInclusive};

/// Rounds a finite magnitude, given as a pattern, to `mantissa_bits` explicit mantissa bits at its own exponent, but
/// not finer than at exponent `emin`. Returns a pattern, which may have carried into the next exponent, at the top into
/// Inf. Half to even means the even code, where 2^`emin` has the code 2^`mantissa_bits`.
///
/// Integer arithmetic only, without a branch, the same for normal and subnormal numbers.
#[inline(always)]
pub(crate) fn round_magnitude<R: RoundingRule>(
    abs: u32,
    mantissa_bits: i32,
    emin: i32,
    draw: u32,
) -> u32 {
    // The significand counts units of 2^(-149 + field).
    let (significand, base) = bits::split(abs);
    let field = (base >> MANTISSA_BITS) as i32;
    let finest = emin - LOWEST_EXPONENT - field;
    let wanted = bits::log2(significand).max(finest) - mantissa_bits;
    let shift = wanted.clamp(0, R::MAX_SHIFT) as u32;
    // A step too large for the shift: the significand is made smaller instead.
    let excess = (wanted - R::MAX_SHIFT).clamp(0, 31) as u32;
    let kept = if R::USES_DRAWS {
        significand >> excess
    } else {
        significand
    };

    let dropped = (1 << shift) - 1;
    // Without mantissa bits all kept digits are odd. The codes of powers of two go on alternately from emin's, which is 1.
    let odd_binade = ((wanted - finest + mantissa_bits) << mantissa_bits) as u32 & 1;
    let code = if matches!(R::UPPER, Upper::HalfToEven) {
        kept ^ odd_binade << shift
    } else {
        kept
    };
    let rounded = (kept + R::addend(code, shift, draw)) & !dropped;

    let carried = if R::USES_DRAWS && rounded > 2 * IMPLICIT {
        // One step, which is longer than a significand: 2^(-149 + field + wanted), a normal number.
        ((field + wanted - MANTISSA_BITS + 1) as u32) << MANTISSA_BITS
    } else {
        // A carry goes where it belongs: into the exponent field.
        rounded + base
    };
    if rounded == 0 { 0 } else { carried }
}

/// The exponents of `emin` and of magnitudes that [`round_normal`] is for. Smaller magnitudes are allowed, too.
pub(crate) const NORMAL: RangeInclusive<i32> = -100..=100;

/// The patterns of 2^lowest up to 2^end, which is left out; empty if there are none.
pub(crate) fn normal(lowest: i32, end: i32) -> Range<u32> {
    if lowest < end {
        bits::pow2(lowest)..bits::pow2(end)
    } else {
        0..0
    }
}

/// [`round_magnitude`] with fewer operations, of float32, within [`NORMAL`] and by a rule without draws.
/// `smallest` is the pattern of 2^emin.
///
/// All numbers that matter are normal or zero: half a step is, and a subnormal is less than that. So
/// the flush-to-zero state of the thread does not matter.
#[inline(always)]
pub(crate) fn round_normal<R: RoundingRule>(abs: u32, mantissa_bits: i32, smallest: u32) -> u32 {
    // 2 to the exponent of the magnitude, or to emin.
    let power = (abs & bits::INFINITY).max(smallest);
    let fraction_bits = |bits: i32| (bits as u32) << MANTISSA_BITS;
    let step = f32::from_bits(power - fraction_bits(mantissa_bits));
    // So large that one step is its unit in the last place: the sum rounds to a multiple of the step.
    let large = power + fraction_bits(MANTISSA_BITS - mantissa_bits);
    // One step more where, without mantissa bits, the code of the power is even: then the tie goes down to it.
    let odd_binade = (power.wrapping_sub(smallest) >> MANTISSA_BITS << mantissa_bits) & 1;
    let large = f32::from_bits(if matches!(R::UPPER, Upper::HalfToEven) {
        large | odd_binade
    } else {
        large
    });
    let x = f32::from_bits(abs);
    R::from_even(x, (x + large) - large, step).to_bits()
}
