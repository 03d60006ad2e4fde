//! The second look at a block on a device, for formats whose scale follows from all elements and not from the largest
//! magnitude alone. The sums are of squares of 16-bit whole numbers, with upper and lower halves added up apart.

use cubecl::prelude::*;
use microscaling::{BlockFormat, Headroom, Rounding, ScaleMode};

use super::rules::{self, FOUR, Format, VERDICT, has_kernel};
use crate::kernels::cube::numbers::bits::{self, ABS, INFINITY, SIGN};

/// Words of two sums, the upper and the lower halves of each.
pub(super) const WORDS: usize = 4;
/// Words of two grids.
pub(in crate::kernels::cube) const GRIDS: usize = 4;

/// A block has fewer than this number of elements. The words hold the sums of this number of elements, and the mean of
/// twice as many. Mesa's driver for processors ends all loops of a unit after 2^16 turns.
const LONGEST: usize = 1 << 14;

/// Whether blocks of a format are short enough, and there is a kernel for them.
pub(in crate::kernels::cube) fn is_short_enough(format: &BlockFormat) -> bool {
    let looks_twice = match format {
        BlockFormat::Mx(format) => format.scale_mode == ScaleMode::Rms,
        BlockFormat::FloatScale(format) if !has_kernel(format) => return false,
        BlockFormat::FloatScale(format) => format.four_over_six,
        _ => false,
    };
    let size = format.block_size();
    let columns = if format.is_square() { size } else { 1 };
    !looks_twice || (size > 0 && size.saturating_mul(columns) < LONGEST)
}

/// Writes the grids of both scales that a block with this largest magnitude may get, where it has two.
///
/// A loop, here as in [`add`], holds the code once. Compilers take long for this code.
#[cube]
pub(in crate::kernels::cube) fn write_grids(
    grids: &mut Array<u32>,
    amax: u32,
    tensor_amax: u32,
    #[comptime] format: Format,
) {
    if comptime!(format.has_two_grids()) {
        for verdict in 0..2u32 {
            let (first, second) = rules::grid(amax, verdict, tensor_amax, format);
            let at = (verdict * 2) as usize;
            grids[at] = first;
            grids[at + 1] = second;
        }
    }
}

/// The grid of a block and of its sub-block, after a second look if the format asks for one. As [`rules::grid`], but the
/// verdict chooses one of two grids, if a block has two.
#[cube]
pub(in crate::kernels::cube) fn grid(
    grids: &Array<u32>,
    amax: u32,
    verdict: u32,
    tensor_amax: u32,
    #[comptime] format: Format,
) -> (u32, u32) {
    if comptime!(format.has_two_grids()) {
        let at = (verdict * 2) as usize;
        (grids[at], grids[at + 1])
    } else {
        rules::grid(amax, verdict, tensor_amax, format)
    }
}

/// Sums of nothing.
#[cube]
pub(in crate::kernels::cube) fn none() -> Array<u32> {
    let mut sums = Array::<u32>::new(WORDS);
    #[unroll]
    for i in 0..WORDS {
        sums[i] = 0u32.runtime();
    }
    sums
}

/// Adds an element of a block with this largest magnitude and these grids, where it has two.
#[cube]
pub(in crate::kernels::cube) fn add(
    sums: &mut Array<u32>,
    x: u32,
    amax: u32,
    grids: &Array<u32>,
    #[comptime] format: Format,
) {
    // A block that becomes NaN may be anything.
    let abs = select(amax >= INFINITY, 0, x & ABS);
    if comptime!(format.has_two_grids()) {
        let unit = bits::exponent(select(amax >= INFINITY, 0, amax)) - 17;
        for verdict in 0..2u32 {
            let at = (verdict * 2) as usize;
            let square = square_of_error(abs, (grids[at], grids[at + 1]), unit, format);
            sums[at] += square >> 16;
            sums[at + 1] += square & 0xffff;
        }
    } else {
        let multiples = fixed_point(abs, bits::exponent(amax) - 15);
        let square = multiples * multiples;
        sums[0] += square >> 16;
        sums[1] += square & 0xffff;
    }
}

/// The verdict of the sums over `length` elements.
#[cube]
pub(in crate::kernels::cube) fn verdict(
    sums: &Array<u32>,
    amax: u32,
    length: u32,
    #[comptime] format: Format,
) -> u32 {
    match format {
        Format::FloatScale(_) => {
            let six = sums[0] + (sums[1] >> 16);
            let four = sums[2] + (sums[3] >> 16);
            let is_less = sums[3] & 0xffff < sums[1] & 0xffff;
            let four_is_less = four < six || (four == six && is_less);
            select(four_is_less, FOUR, 0)
        }
        Format::Mx(format) => {
            // A square block that is beyond the tensor has none.
            let length = max(length, 1);
            // Division by hand, a half at a time.
            let upper = sums[0] / length;
            let rest = sums[0] % length;
            let lower = ((rest << 16) + sums[1]) / length;
            let mean = max((upper << 16) + lower, 1);
            let halved = mean.leading_zeros() / 2;
            let normal = mean << (2 * halved);
            let steps = comptime!(rms_steps(format.headroom));
            let exponent = bits::exponent(amax) - 2 - halved as i32
                + select(normal >= comptime!(steps[0]), 1, 0)
                + select(normal >= comptime!(steps[1]), 1, 0);
            let emax = comptime!(format.element.emax());
            let of_zeros = comptime!(-126 - emax).runtime();
            (VERDICT + select(amax == 0, of_zeros, exponent)) as u32
        }
        _ => amax,
    }
}

/// The square of the error of a magnitude under a scale, in units of 2^unit.
#[cube]
fn square_of_error(abs: u32, grid: (u32, u32), unit: i32, #[comptime] format: Format) -> u32 {
    let value = rules::round(abs, grid, 0, format, Rounding::NearestEven);
    let difference = bits::sum(select(value >= INFINITY, 0, value), abs | SIGN) & ABS;
    let error = fixed_point(select(value >= INFINITY, INFINITY, difference), unit);
    error * error
}

/// A magnitude in multiples of 2^unit, rounded down; 2^16 − 1 at most. The magnitude must be less than 2^(unit + 20).
#[cube]
fn fixed_point(abs: u32, unit: i32) -> u32 {
    let (significand, base) = bits::split(abs);
    let shift = unit - (base >> 23) as i32 + 149;
    let right = min(max(shift, 0), 31) as u32;
    let left = min(max(-shift, 0), 20) as u32;
    min((significand << left) >> right, 0xffff)
}

/// From which means from 4^15 on the exponent of the scale is one more, and from which two: 4^14 and 4^15 over (c · h)²,
/// rounded up, with c = 2.92247856 / 6.
fn rms_steps(headroom: Headroom) -> [u32; 2] {
    let above = 6_088_497 * u128::from(headroom.numerator());
    let below = 12_500_000 * u128::from(headroom.denominator());
    [14, 15].map(|exponent: u32| {
        let step = ((below * below) << (2 * exponent)).div_ceil(above * above);
        u32::try_from(step).unwrap_or(u32::MAX)
    })
}
