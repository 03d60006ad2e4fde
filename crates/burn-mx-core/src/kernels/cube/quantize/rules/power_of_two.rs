//! Blocks whose scale is a power of two.

use super::{Grid, VERDICT};
use crate::kernels::cube::numbers::bits::{self, IMPLICIT, INFINITY, NAN, ONE};
use cubecl::prelude::*;
use microscaling::{BlockFormat, ScaleMode, Subnormals};

#[cube]
pub(super) fn mx_grid(amax: u32, verdict: u32, #[comptime] format: BlockFormat) -> Grid {
    let largest_exponent = comptime!(-format.scale.emin());
    let wanted = mx_scale(amax, verdict, format);
    let is_nan = amax >= INFINITY || wanted > largest_exponent;
    let exponent = max(wanted, -largest_exponent);
    // The largest number below 2^128 of blocks that have larger ones.
    let top = comptime!(INFINITY - (IMPLICIT >> format.element.mantissa_bits()));
    let scaled = min(
        bits::scale(
            comptime!(format.element.max().to_bits()).runtime(),
            select(is_nan, 0, exponent),
        ),
        top.runtime(),
    );
    let flush_below = comptime!(if format.subnormals == Subnormals::FlushBlocks {
        IMPLICIT
    } else {
        0
    });
    let largest = select(is_nan, NAN, select(amax < flush_below, 0, scaled));
    let emin = comptime!(format.element.emin()) + exponent;
    (emin as u32, largest, 0u32.runtime())
}

/// The exponent of the scale of a block, before it is limited to what the scale can hold.
#[cube]
fn mx_scale(amax: u32, verdict: u32, #[comptime] format: BlockFormat) -> i32 {
    let emax = comptime!(format.element.emax()).runtime();
    let mode = comptime!(format.scale_mode);
    let exponent = if comptime!(mode == ScaleMode::Rms) {
        verdict as i32 - VERDICT
    } else if comptime!(!format.headroom.is_none()) {
        scale_with_headroom(amax, format)
    } else if comptime!(mode == ScaleMode::Floor) {
        bits::exponent(amax) - emax
    } else if comptime!(mode == ScaleMode::Ceil) {
        let exponent = bits::exponent(amax);
        let is_above = amax != bits::scale(ONE.runtime(), exponent);
        exponent + select(is_above, 1, 0) - emax
    } else if comptime!(mode == ScaleMode::Even) {
        let half_ulp = comptime!(IMPLICIT >> (format.element.mantissa_bits() + 1));
        ((amax + half_ulp) >> 23) as i32 - 127 - emax
    } else {
        let inverse = comptime!((1.0 / format.element.max()).to_bits());
        ceil_log2_of_product(amax, inverse.runtime())
    };
    select(amax == 0, -126 - emax, exponent)
}

/// The exponent of the scale with headroom: the exponent of the magnitude after an addition to its significand.
#[cube]
fn scale_with_headroom(amax: u32, #[comptime] format: BlockFormat) -> i32 {
    let is_rceil = comptime!(format.scale_mode == ScaleMode::Rceil);
    let emax = comptime!(if is_rceil { 0 } else { format.element.emax() }).runtime();
    let magnitude = if comptime!(is_rceil) {
        let inverse = comptime!((1.0 / format.element.max()).to_bits());
        bits::product(amax, inverse.runtime())
    } else {
        amax
    };
    let (significand, base) = bits::split(magnitude);
    let log2 = bits::log2(significand);
    let normal = significand << (min(max(23 - log2, 0), 31) as u32);
    let addend = comptime!(format.headroom_addend()).runtime();
    (base >> 23) as i32 - 149 + log2 + ((normal + addend) >> 23) as i32 - 1 - emax
}

/// ceil(log2(p)) with p the float32 product a · b, rounded half to even, with subnormals, of two positive finite numbers.
#[cube]
fn ceil_log2_of_product(a: u32, b: u32) -> i32 {
    let rounded = bits::product(a, b);
    // Zero is below every scale.
    let exponent = select(rounded == 0, -150, bits::exponent(rounded));
    let is_power = rounded == bits::scale(ONE.runtime(), exponent);
    exponent + select(is_power || rounded == 0, 0, 1)
}

/// The grid of elements in steps that the exponent of their block fixes, less the shift of their sub-block.
#[cube]
pub(super) fn fixed_grid(amax: u32, sub_amax: u32, #[comptime] format: BlockFormat) -> Grid {
    let shared = (amax >> 23) as i32;
    let exponent = if comptime!(format.shifts.is_some()) {
        let below = shared - (sub_amax >> 23) as i32;
        let largest = comptime!(format.shifts.map_or(0, |shifts| shifts.largest() as i32));
        shared - min(below, largest) - 127
    } else {
        shared - 127
    };
    let largest = comptime!(format.element.max().to_bits()).runtime();
    // The largest magnitude of a format that keeps NaN and Inf is finite.
    let is_nan = amax >= INFINITY;
    let scaled = bits::scale(largest, select(is_nan, 0, exponent));
    (exponent as u32, select(is_nan, NAN, scaled), 0u32.runtime())
}
