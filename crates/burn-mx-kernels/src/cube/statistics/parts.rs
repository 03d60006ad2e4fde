//! Sums over the parts of a tensor.

use super::Places;
use crate::cube::numbers::bits;
use crate::cube::numbers::float::number;
use crate::statistics::{
    AMAX, NON_FINITE, NONZERO, OVERFLOW, PART_WORDS, POWER, SATURATED, SMALLEST, UNDERFLOW, UNIT,
};
use cubecl::prelude::*;

/// Sums of a part. Their words lie side by side, from [`POWER`] on.
const SUMS: usize = 4;

/// A part's first run and the first behind it, its first column and the first behind it.
#[derive(CubeType, Clone, Copy)]
struct Part {
    run: usize,
    pub(super) end: usize,
    column: usize,
    column_end: usize,
}

#[cube]
fn part(places: &Places, number: usize) -> Part {
    let run = number / places.parts_of_a_run * places.runs_together;
    let column = number % places.parts_of_a_run * places.part_columns;
    Part {
        run,
        end: min(run + places.runs_together, places.runs),
        column,
        column_end: min(column + places.part_columns, places.blocks.inner),
    }
}

/// One unit a part.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::cube) fn parts_kernel(
    figures: &Array<u32>,
    words: &mut Array<u32>,
    places: &Places,
    parts: usize,
) {
    if ABSOLUTE_POS >= parts {
        terminate!();
    }
    let own = ABSOLUTE_POS * PART_WORDS;
    let part = part(places, ABSOLUTE_POS);
    let group = places.blocks.columns * places.blocks.stride;
    let first_block = part.column.div_ceil(group) * places.blocks.stride;
    let end_block = part.column_end.div_ceil(group) * places.blocks.stride;
    let mut unit = bits::exponent(0u32.runtime());
    for run in part.run..part.end {
        for block in first_block..end_block {
            let at = (run * places.blocks.of_a_run + block) * PART_WORDS;
            unit = max(unit, figures[at + UNIT] as i32);
        }
    }
    let mut sums = Array::<f32>::new(comptime!(SUMS));
    #[unroll]
    for sum in 0..comptime!(SUMS) {
        sums[sum] = 0.0f32.runtime();
    }
    let mut non_finite = 0u32.runtime();
    let mut overflow = 0u32.runtime();
    let mut nonzero = 0u32.runtime();
    let mut underflow = 0u32.runtime();
    let mut saturated = 0u32.runtime();
    let mut amax = 0u32.runtime();
    let mut smallest = u32::MAX.runtime();
    for run in part.run..part.end {
        for block in first_block..end_block {
            let at = (run * places.blocks.of_a_run + block) * PART_WORDS;
            // From the square of the block's unit to the square of the part's.
            let power = 2 * (figures[at + UNIT] as i32 - unit);
            let factor = number((max(power + 127, 0) as u32) << 23);
            #[unroll]
            for sum in 0..comptime!(SUMS) {
                sums[sum] += number(figures[at + comptime!(POWER + sum)]) * factor;
            }
            non_finite += figures[at + NON_FINITE];
            overflow += figures[at + OVERFLOW];
            nonzero += figures[at + NONZERO];
            underflow += figures[at + UNDERFLOW];
            saturated += figures[at + SATURATED];
            amax = max(amax, figures[at + AMAX]);
            smallest = min(smallest, figures[at + SMALLEST] - 1);
        }
    }
    #[unroll]
    for sum in 0..comptime!(SUMS) {
        words[own + comptime!(POWER + sum)] = u32::reinterpret(sums[sum]);
    }
    words[own + UNIT] = unit as u32;
    words[own + NON_FINITE] = non_finite;
    words[own + OVERFLOW] = overflow;
    words[own + NONZERO] = nonzero;
    words[own + UNDERFLOW] = underflow;
    words[own + SATURATED] = saturated;
    words[own + AMAX] = amax;
    words[own + SMALLEST] = smallest + 1;
}
