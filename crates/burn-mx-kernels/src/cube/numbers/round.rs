//! Rounding on a device: `microscaling`'s, on patterns.

use cubecl::prelude::*;
use microscaling::internal::{self, RoundingRule};
use microscaling::{FloatFormat, Rounding, with_rule};

use super::bits::{ABS, INFINITY, SIGN};
use super::words::{KernelValue, written};

/// The addend of `significand` before its low `shift` bits are cut off.
#[cube]
#[allow(unused_variables, reason = "used where the kernel is written")]
pub(in crate::cube) fn addend(
    significand: u32,
    shift: u32,
    draw: u32,
    #[comptime] rounding: Rounding,
) -> u32 {
    intrinsic!(|scope| written(scope, || {
        let [significand, shift, draw] = [significand, shift, draw].map(KernelValue::of);
        with_rule!(rounding, R => R::addend(significand, shift, draw)).variable()
    }))
}

/// Rounds a finite magnitude to `mantissa_bits` explicit mantissa bits at its own exponent, but not finer than at exponent `emin`.
#[cube]
#[allow(unused_variables, reason = "used where the kernel is written")]
pub(in crate::cube) fn round_magnitude(
    abs: u32,
    emin: i32,
    draw: u32,
    #[comptime] mantissa_bits: i32,
    #[comptime] rounding: Rounding,
) -> u32 {
    intrinsic!(|scope| written(scope, || {
        let [abs, draw] = [abs, draw].map(KernelValue::of);
        let emin = KernelValue::of(emin);
        let rounded = with_rule!(rounding, R => internal::round_magnitude::<R, _>(abs, mantissa_bits, emin, draw));
        rounded.variable()
    }))
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
