//! Rounding a magnitude to a grid: the one place where bits are dropped.

use super::bits::{self, IMPLICIT, LOWEST_EXPONENT, MANTISSA_BITS};
use super::mode::{RoundingRule, Upper};
use super::words::{Int, Word};
use core::ops::{Range, RangeInclusive};

/// Rounds a finite magnitude, given as a pattern, to `mantissa_bits` explicit mantissa bits at its own exponent, but
/// not finer than at exponent `emin`. Returns a pattern, which may have carried into the next exponent, at the top into
/// Inf. Half to even means the even code, where 2^`emin` has the code 2^`mantissa_bits`.
///
/// Integer arithmetic only, without a branch, the same for normal and subnormal numbers.
#[inline(always)]
pub(crate) fn round_magnitude<R: RoundingRule, W: Word>(
    abs: W,
    mantissa_bits: i32,
    emin: W::Int,
    draw: W,
) -> W {
    // The significand counts units of 2^(-149 + field).
    let (significand, base) = abs.split();
    let field = (base >> (MANTISSA_BITS as u32).into()).to_int();
    let finest = emin - LOWEST_EXPONENT.into() - field;
    let wanted = significand.log2().larger(finest) - mantissa_bits.into();
    let shift = wanted.within(0, R::MAX_SHIFT).to_word();
    let kept = if R::USES_DRAWS {
        // A step too large for the shift: the significand is made smaller instead.
        let excess = (wanted - R::MAX_SHIFT.into()).within(0, 31);
        significand >> excess.to_word()
    } else if R::LIFTS {
        // If a step is much longer than the significand, the only question is whether the magnitude is 0.
        let is_short = W::Int::from(R::MAX_SHIFT).is_below(wanted);
        W::select(is_short, significand.smaller(1.into()), significand)
    } else {
        significand
    };

    let one = W::from(1);
    let dropped = (one << shift) - one;
    let code = if R::BY_PARITY && mantissa_bits == 0 {
        // Without mantissa bits all kept digits are odd. The codes of powers of two go on alternately from emin's, which is 1.
        kept ^ (((wanted - finest).to_word() & one) << shift)
    } else {
        kept
    };
    let rounded = (kept + R::addend(code, shift, draw)) & !dropped;

    // A carry goes where it belongs: into the exponent field.
    let mut carried = rounded + base;
    if R::USES_DRAWS || R::LIFTS {
        // One step, which is longer than a significand: 2^(-149 + field + wanted), a normal number.
        let step = (field + wanted - (MANTISSA_BITS - 1).into()).to_word();
        let step = step << (MANTISSA_BITS as u32).into();
        carried = W::select(W::from(2 * IMPLICIT).is_below(rounded), step, carried);
    }
    W::select(rounded.equals(0.into()), 0.into(), carried)
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

/// [`round_magnitude`] with fewer operations, of float32, within [`NORMAL`] and by a rule without draws. `smallest` is the pattern of
/// 2^emin. `by_code` is 1 for elements without mantissa bits, and 0 for others.
///
/// All numbers that matter are normal or zero: half a step is, and a subnormal is less than that. So
/// the flush-to-zero state of the thread does not matter.
#[inline(always)]
pub(crate) fn round_normal<R: RoundingRule>(
    abs: u32,
    mantissa_bits: i32,
    smallest: u32,
    by_code: u32,
) -> u32 {
    // 2 to the exponent of the magnitude, or to emin.
    let power = (abs & bits::INFINITY).max(smallest);
    let fraction_bits = |bits: i32| (bits as u32) << MANTISSA_BITS;
    let step = f32::from_bits(power - fraction_bits(mantissa_bits));
    // So large that one step is its unit in the last place: the sum rounds to a multiple of the step.
    let large = power + fraction_bits(MANTISSA_BITS - mantissa_bits);
    // One step more where, without mantissa bits, the code of the power is even: then the tie goes down to it.
    let odd_binade = (power.wrapping_sub(smallest) >> MANTISSA_BITS) & by_code;
    let large = f32::from_bits(match R::UPPER {
        Upper::HalfToEven => large | odd_binade,
        Upper::Half | Upper::Whole => large,
    });
    let x = f32::from_bits(abs);
    R::from_even(x, (x + large) - large, step).to_bits()
}
