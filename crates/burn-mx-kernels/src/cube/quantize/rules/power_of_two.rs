//! Blocks whose scale is a power of two.

use super::{EXPONENT_OFFSET, Grid};
use crate::cube::numbers::bits::{self, IMPLICIT, INFINITY, NAN};
use cubecl::prelude::*;
use microscaling::{BlockFormat, ElementFormat, PowerScale, Subnormals};

#[cube]
pub(super) fn mx_grid(amax: u32, choice: u32, #[comptime] format: BlockFormat) -> Grid {
    let largest_exponent = comptime!(-format.scale.emin());
    let wanted = mx_scale(amax, choice, format);
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
fn mx_scale(amax: u32, choice: u32, #[comptime] format: BlockFormat) -> i32 {
    let exponent = match comptime!(format.power_scale()) {
        Some(rule) => power_scale(amax, rule, format.element),
        // The root mean square's.
        None => choice as i32 - EXPONENT_OFFSET,
    };
    let of_zeros = comptime!(-126 - format.element.emax()).runtime();
    select(amax == 0, of_zeros, exponent)
}

/// The exponent of the scale: the exponent of the magnitude after an addition to its significand.
#[cube]
fn power_scale(amax: u32, #[comptime] rule: PowerScale, #[comptime] element: ElementFormat) -> i32 {
    let emax = comptime!(if rule.divides { 0 } else { element.emax() }).runtime();
    let magnitude = if comptime!(rule.divides) {
        let inverse = comptime!((1.0 / element.max()).to_bits());
        bits::product(amax, inverse.runtime())
    } else {
        amax
    };
    let (significand, base) = bits::split(magnitude);
    let log2 = if comptime!(rule.keeps_subnormals) {
        23i32.runtime()
    } else {
        bits::log2(significand)
    };
    let normal = significand << (min(max(23 - log2, 0), 31) as u32);
    let addend = comptime!(rule.addend).runtime();
    (base >> 23) as i32 - 149 + log2 + ((normal + addend) >> 23) as i32 - 1 - emax
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
