//! The second look at a block on a device, for formats whose scale or table follows from all elements and not from the largest
//! magnitude alone. The sums are of squares of 16-bit whole numbers, with upper and lower halves added up apart.

use cubecl::prelude::*;
use microscaling::{
    BlockFormat, ElementFormat, NonFinite, Rounding, ScaleMode, SpecialCodes, Subnormals,
};

use super::known::Known;
use super::rules::{self, Format, Grid};
use crate::cube::numbers::bits::{self, ABS, INFINITY, SIGN};
use crate::cube::numbers::words::written_by_rules;
use microscaling::internal::Word;

/// Words of a sum, its upper and its lower half, and words of a grid beside its number.
pub(super) const WORDS: usize = 2;

/// Words of the sums, and of the grids, among which a format's blocks choose.
pub(in crate::cube) fn words(format: Format) -> usize {
    WORDS * format.grids()
}

/// A block has fewer than this number of elements. The words hold the sums of this number of elements, and the mean of
/// twice as many. Mesa's driver for processors ends all loops of a unit after 2^16 turns.
const LONGEST: usize = 1 << 14;

/// Whether kernels have all switches of a format. The switches of hardware, and the special codes and scales of P3109, are the
/// host's.
fn has_kernels(format: &BlockFormat) -> bool {
    let has_inf = |element: ElementFormat| {
        matches!(
            element.special_codes(),
            Some(SpecialCodes::Extended | SpecialCodes::NanInf)
        )
    };
    let is_subnormal = |emin: i32| emin < -126;
    let flushes = format.subnormals == Subnormals::FlushElements && format.shifts.is_none();
    let own_special = !matches!(format.non_finite, NonFinite::OfBlock | NonFinite::Kept);
    let scale = format.scale.float();
    let is_of_p3109 = has_inf(format.element)
        || format.element.is_unsigned()
        || format.scale.is_signed()
        || is_subnormal(format.element.emin())
        || scale.is_some_and(|scale| has_inf(scale) || is_subnormal(scale.emin()));
    format.conversion.is_of_library()
        && format.scale_mode != ScaleMode::MaxAbsFinite
        && !flushes
        && !own_special
        && !is_of_p3109
}

/// Whether there are kernels for a format, whose blocks are short enough.
pub(in crate::cube) fn is_short_enough(format: &BlockFormat) -> bool {
    if !has_kernels(format) {
        return false;
    }
    let size = format.group_size();
    let columns = if format.square { size } else { 1 };
    !Format::of(*format).looks_twice() || (size > 0 && size.saturating_mul(columns) < LONGEST)
}

/// Whether a device packs blocks of a format.
pub(in crate::cube) fn has_packing(format: &BlockFormat) -> bool {
    format.outer.is_none() && !format.sign_scales
}

/// Writes all grids that a block with this largest magnitude may get, where it has several.
///
/// A loop, here as in [`add`], holds the code once. Compilers take long for this code.
#[cube]
pub(in crate::cube) fn write_grids(
    grids: &mut Array<u32>,
    amax: u32,
    known: &Known,
    #[comptime] format: Format,
) {
    if comptime!(format.grids() > 1) {
        for choice in 0..comptime!(format.grids() as u32) {
            let (first, second, _) = rules::grid(amax, choice, known, format);
            let at = (choice * 2) as usize;
            grids[at] = first;
            grids[at + 1] = second;
        }
    }
}

/// The grid of a block and of its sub-block, after a second look if the format asks for one. As [`rules::grid`], but the
/// choice chooses one of the grids, if a block has several.
#[cube]
pub(in crate::cube) fn grid(
    grids: &Array<u32>,
    amax: u32,
    choice: u32,
    known: &Known,
    #[comptime] format: Format,
) -> Grid {
    if comptime!(format.grids() > 1) {
        written(grids, choice)
    } else {
        rules::grid(amax, choice, known, format)
    }
}

/// The grid with this number.
#[cube]
fn written(grids: &Array<u32>, number: u32) -> Grid {
    let at = (number * 2) as usize;
    (grids[at], grids[at + 1], number)
}

/// Sums of nothing.
#[cube]
pub(in crate::cube) fn none(#[comptime] format: Format) -> Array<u32> {
    let mut sums = Array::<u32>::new(comptime!(words(format)));
    #[unroll]
    for i in 0..comptime!(words(format)) {
        sums[i] = 0u32.runtime();
    }
    sums
}

/// Adds an element of a block with this largest magnitude and these grids, where it has several.
#[cube]
pub(in crate::cube) fn add(
    sums: &mut Array<u32>,
    x: u32,
    amax: u32,
    grids: &Array<u32>,
    known: &Known,
    #[comptime] format: Format,
) {
    // A block that becomes NaN may be anything.
    let x = select(amax >= INFINITY, 0, x);
    // Any error is less than the largest multiple.
    let fraction_bits = comptime!(if format.four_over_six { 17i32 } else { 15 }).runtime();
    let unit = bits::exponent(select(amax >= INFINITY, 0, amax)) - fraction_bits;
    if comptime!(format.sign_scales) {
        // In the place of sums, the largest magnitude of each sign.
        let abs = x & ABS;
        sums[0] = max(sums[0], select(x < SIGN, abs, 0));
        sums[1] = max(sums[1], select(x < SIGN, 0, abs));
    } else if comptime!(format.grids() > 1) {
        for number in 0..comptime!(format.grids() as u32) {
            let error = error(x, written(grids, number), known, format);
            add_square(sums, (number * 2) as usize, error, unit);
        }
    } else {
        add_square(sums, 0usize, x & ABS, unit);
    }
}

/// Adds the square of a magnitude, in units of 2^unit, to a sum.
#[cube]
fn add_square(sums: &mut Array<u32>, at: usize, abs: u32, unit: i32) {
    let square = square(abs, unit);
    sums[at] += square >> 16;
    sums[at + 1] += square & 0xffff;
}

written_by_rules! {
    fn square(abs: u32, unit: i32) -> u32 {
        abs.square(unit)
    }
}

/// The choice of the sums over `length` elements of a block with this largest magnitude and these grids.
#[cube]
pub(in crate::cube) fn choice(
    sums: &Array<u32>,
    grids: &Array<u32>,
    amax: u32,
    length: u32,
    #[comptime] format: Format,
) -> u32 {
    if comptime!(format.sign_scales) {
        // As the host has it: the smaller one, with a sign bit if it is of the positive elements.
        let positive = sums[0];
        let negative = sums[1];
        select(positive >= negative, negative, positive | SIGN)
    } else if comptime!(format.grids() > 1) {
        // The number of the least sum, of equal ones the first.
        let mut best = 0u32.runtime();
        let mut least = u32::MAX.runtime();
        let mut least_rest = u32::MAX.runtime();
        for number in 0..comptime!(format.grids() as u32) {
            let at = (number * 2) as usize;
            // A table that makes the block NaN comes last.
            let is_nan = is_nan_in_table(grids[at], format.element);
            let sum = select(is_nan, u32::MAX, sums[at] + (sums[at + 1] >> 16));
            let rest = select(is_nan, u32::MAX, sums[at + 1] & 0xffff);
            let is_less = sum < least || (sum == least && rest < least_rest);
            best = select(is_less, number, best);
            least = select(is_less, sum, least);
            least_rest = select(is_less, rest, least_rest);
        }
        select(is_nan_in_table(amax, format.element), 0, best)
    } else if comptime!(format.scale_mode == ScaleMode::Rms) {
        // A square block that is beyond the tensor has none.
        let length = max(length, 1);
        // Division by hand, a half at a time.
        let upper = sums[0] / length;
        let rest = sums[0] % length;
        let lower = ((rest << 16) + sums[1]) / length;
        rules::choice_of_mean(amax, (upper << 16) + lower, comptime!(format.block()))
    } else {
        amax
    }
}

/// Whether a word is a NaN or Inf, if blocks choose a table.
#[cube]
fn is_nan_in_table(word: u32, #[comptime] element: ElementFormat) -> bool {
    if comptime!(element.is_table()) {
        word >= INFINITY
    } else {
        false.runtime()
    }
}

/// The error of an element under a grid; Inf where the block becomes NaN.
#[cube]
fn error(x: u32, grid: Grid, known: &Known, #[comptime] format: Format) -> u32 {
    let value = rules::round(x, grid, 0, known, format, Rounding::NearestEven) & ABS;
    let difference = bits::sum(select(value >= INFINITY, 0, value), x | SIGN) & ABS;
    select(value >= INFINITY, INFINITY, difference)
}
