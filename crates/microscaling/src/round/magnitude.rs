//! Rounding a magnitude to a grid: the one place where bits are dropped.

use super::bits::{self, ABS, BIAS, IMPLICIT, LOWEST_EXPONENT, MANTISSA_BITS};
use super::mode::{Floor, RoundingRule, Upper};
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
pub(crate) fn round_normal<R: RoundingRule, W: Word>(
    abs: W,
    mantissa_bits: i32,
    smallest: W,
    by_code: u32,
) -> W {
    // 2 to the exponent of the magnitude, or to emin.
    let power = (abs & bits::INFINITY.into()).larger(smallest);
    let step = power.times_power(-mantissa_bits);
    // So large that one step is its unit in the last place: the sum rounds to a multiple of the step.
    let large = power.times_power(MANTISSA_BITS - mantissa_bits);
    // One step more where, without mantissa bits, the code of the power is even: then the tie goes down to it.
    let odd_binade = ((power - smallest) >> (MANTISSA_BITS as u32).into()) & by_code.into();
    let large = match R::UPPER {
        Upper::HalfToEven => large | odd_binade,
        Upper::Half | Upper::Whole => large,
    };
    R::from_even(abs, abs.plus(large).minus(large), step)
}

/// [`round_magnitude`] with draws by float arithmetic, for steps of 2^−90 and more and magnitudes below 2^101. `smallest` is the pattern
/// of 2^emin.
#[inline(always)]
pub(crate) fn round_drawn<W: Word>(abs: W, mantissa_bits: i32, smallest: W, draw: W) -> W {
    let whole = round_normal::<Floor, W>(abs, mantissa_bits, smallest, 0);
    let power = (abs & bits::INFINITY.into()).larger(smallest);
    // 31 bits of the fraction and of the draw take part. Both are whole numbers below 2^31.
    let per_step = (31 + mantissa_bits + 2 * BIAS) as u32;
    let per_unit = W::from(per_step << MANTISSA_BITS) - power;
    let fraction = abs.minus(whole).product(per_unit).truncated();
    let sum = fraction + (draw >> 1.into());
    let is_up = W::from(ABS).is_below(sum);
    whole.plus(W::select(
        is_up,
        power.times_power(-mantissa_bits),
        0.into(),
    ))
}
