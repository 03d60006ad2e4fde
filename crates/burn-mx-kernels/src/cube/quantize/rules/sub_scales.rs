//! Scales that parts of a block double.

use crate::cube::numbers::bits::{self, ONE};
use cubecl::prelude::*;
use microscaling::ElementFormat;

/// The upper half of a pattern.
const UPPER: u32 = 0xffff_0000;

/// The upper halves of two patterns in one word. The upper one is the largest magnitude of a sub-block of the first level, the
/// lower one of a sub-block of the second level.
#[cube]
pub(in crate::cube) fn both_levels(first: u32, second: u32) -> u32 {
    (first & UPPER) | (second >> 16)
}

/// The scale of a sub-block, from the block's scale and what [`doubled`] says; Inf if it is too large.
#[cube]
pub(in crate::cube) fn scale_of_sub_block(scale: u32, doubled: u32) -> u32 {
    let times = (doubled & 1) + (doubled >> 1);
    bits::product(scale, ONE + (times << 23))
}

/// Whether the sub-blocks of both levels double a block's scale, which is finite: a bit for the first level, and above it one for
/// the second level.
#[cube]
pub(super) fn doubled(scale: u32, both: u32, #[comptime] element: ElementFormat) -> u32 {
    let above = comptime!(element.emax() + 1).runtime();
    let first = reaches(both & UPPER, scale, above + 1);
    let second = reaches(both << 16, scale, above + first as i32);
    first | (second << 1)
}

/// Whether a magnitude is at least the scale times a power of two, by the upper halves of both.
#[cube]
fn reaches(magnitude: u32, scale: u32, exponent: i32) -> u32 {
    let limit = bits::product(scale, bits::scale(ONE.runtime(), exponent));
    select(magnitude >= limit & UPPER, 1u32, 0u32)
}
