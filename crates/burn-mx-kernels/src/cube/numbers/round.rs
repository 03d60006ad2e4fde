//! Rounding on a device: `microscaling`'s, on patterns.

use cubecl::prelude::*;
use microscaling::{FloatFormat, Rounding};

use super::bits::{self, ABS, IMPLICIT, INFINITY, SIGN};

/// The addend of `significand` before its low `shift` bits are cut off.
#[cube]
pub(in crate::cube) fn addend(
    significand: u32,
    shift: u32,
    draw: u32,
    #[comptime] rounding: Rounding,
) -> u32 {
    match rounding {
        Rounding::NearestAway => (1u32 << shift) >> 1,
        Rounding::NearestEven => {
            let dropped = (1u32 << shift) - 1;
            (dropped >> 1) + ((significand >> shift) & dropped & 1)
        }
        Rounding::TowardZero => 0u32.runtime(),
        // The upper `shift` bits of the draw, in two steps because a shift by 32 has no meaning.
        Rounding::Stochastic => (draw >> 1) >> (31 - shift),
    }
}

/// Rounds a finite magnitude to `mantissa_bits` explicit mantissa bits at its own exponent, but not finer than at
/// exponent `emin`. A carry goes into the exponent, at the top into Inf. Half to even means the even code.
#[cube]
pub(in crate::cube) fn round_magnitude(
    abs: u32,
    emin: i32,
    draw: u32,
    #[comptime] mantissa_bits: i32,
    #[comptime] rounding: Rounding,
) -> u32 {
    let max_shift = comptime!(if rounding == Rounding::Stochastic {
        31
    } else {
        25
    });
    // The significand counts units of 2^(-149 + field).
    let (significand, base) = bits::split(abs);
    let field = (base >> 23) as i32;
    let finest = emin + 149 - field;
    let wanted = max(bits::log2(significand), finest) - mantissa_bits;
    let shift = min(max(wanted, 0), max_shift) as u32;
    let dropped = (1u32 << shift) - 1;
    if comptime!(rounding == Rounding::Stochastic) {
        // A step too large for the shift: the significand is made smaller instead.
        let excess = min(max(wanted - max_shift, 0), 31) as u32;
        let kept = significand >> excess;
        let rounded = (kept + addend(kept, shift, draw, rounding)) & !dropped;
        // One step, which is longer than a significand, is a normal number.
        let step = ((field + wanted - 22) as u32) << 23;
        let carried = select(rounded > 2 * IMPLICIT, step, rounded + base);
        select(rounded == 0, 0, carried)
    } else {
        let code = if comptime!(mantissa_bits == 0) {
            // All kept digits are odd. The codes of powers of two go on alternately from emin's, which is 1.
            significand ^ ((((wanted - finest) & 1) as u32) << shift)
        } else {
            significand
        };
        let rounded = (significand + addend(code, shift, draw, rounding)) & !dropped;
        select(rounded == 0, 0, rounded + base)
    }
}

/// Rounds a number to a bfloat or fp format.
#[cube]
pub(in crate::cube) fn round_float(
    x: u32,
    draw: u32,
    #[comptime] format: FloatFormat,
    #[comptime] rounding: Rounding,
) -> u32 {
    if comptime!(format.is_identity()) {
        x
    } else {
        let sign = x & SIGN;
        let abs = x & ABS;
        let kept = select(abs < comptime!(flush_below(format)), 0, abs);
        if comptime!(format.exponent_bits() == 8) {
            let shift = comptime!(23 - format.mantissa_bits()).runtime();
            let dropped = (1u32 << shift) - 1;
            let rounded = (kept + addend(kept, shift, draw, rounding)) & !dropped;
            sign | select(abs >= INFINITY, abs, rounded)
        } else {
            let emin = comptime!(minimal_exponent(format)).runtime();
            let mantissa_bits = comptime!(format.mantissa_bits() as i32);
            let rounded = round_magnitude(kept, emin, draw, mantissa_bits, rounding);
            let finite = select(
                rounded > comptime!(format.max().to_bits()),
                INFINITY,
                rounded,
            );
            sign | select(abs >= INFINITY, abs, finite)
        }
    }
}

/// Magnitudes with a pattern below this become zero.
fn flush_below(format: FloatFormat) -> u32 {
    match format.subnormals() {
        true => 0,
        false => format.min_normal().to_bits(),
    }
}

/// The exponent of a format's smallest normal number.
fn minimal_exponent(format: FloatFormat) -> i32 {
    (format.min_normal().to_bits() >> 23) as i32 - 127
}
