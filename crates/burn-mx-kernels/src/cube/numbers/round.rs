//! Rounding on a device: `microscaling`'s, on patterns.

use cubecl::prelude::*;
use microscaling::internal::{self, RoundingRule};
use microscaling::{FloatFormat, Rounding, with_rule};

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
#[allow(unused_variables, reason = "used where the kernel is written")]
pub(in crate::cube) fn round_float(
    x: u32,
    draw: u32,
    #[comptime] format: FloatFormat,
    #[comptime] rounding: Rounding,
) -> u32 {
    intrinsic!(|scope| written(scope, || {
        let [x, draw] = [x, draw].map(KernelValue::of);
        with_rule!(rounding, R => format.round_word::<R, _>(x, draw)).variable()
    }))
}
