//! Sums over the parts of a tensor.

use super::{FIGURES, LANE_WORDS, PART_LANES, Places, finite};
use crate::kernels::cube::numbers::double;
use crate::kernels::statistics::{
    AMAX, ERROR, NON_FINITE, OVERFLOW, PART_WORDS, POWER, PRODUCT, QUANTIZED_POWER, SATURATED,
    SMALLEST, UNDERFLOW,
};
use cubecl::prelude::*;

/// A part's first run and the first behind it, its first column and the first behind it.
#[derive(CubeType, Clone, Copy)]
struct Part {
    pub(super) run: usize,
    pub(super) end: usize,
    pub(super) column: usize,
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

/// Where a run starts, in rows of the tensor.
#[cube]
pub(super) fn row(places: &Places, run: usize) -> usize {
    let of_an_axis = places.blocks.axis.div_ceil(places.blocks.rows);
    run / of_an_axis * places.blocks.axis + run % of_an_axis * places.blocks.rows
}

/// One unit a lane of a part: Σ x q and Σ q².
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::kernels::cube) fn lanes_kernel(
    before: &Array<u32>,
    after: &Array<u32>,
    lanes: &mut Array<u32>,
    places: &Places,
    units: usize,
) {
    if ABSOLUTE_POS >= units {
        terminate!();
    }
    let part = part(places, ABSOLUTE_POS / PART_LANES);
    let first = row(places, part.run);
    let last = part.end - 1;
    let at = last % places.blocks.axis.div_ceil(places.blocks.rows) * places.blocks.rows;
    let rows = row(places, last) + min(places.blocks.rows, places.blocks.axis - at) - first;
    let columns = part.column_end - part.column;
    let start = first * places.blocks.inner + part.column;
    let mut product_high = 0u32.runtime();
    let mut product_low = 0u32.runtime();
    let mut power_high = 0u32.runtime();
    let mut power_low = 0u32.runtime();
    for i in range_stepped(ABSOLUTE_POS % PART_LANES, rows * columns, PART_LANES) {
        let place = start + i / columns * places.blocks.inner + i % columns;
        let x_word = before[place];
        let q_word = after[place];
        let x = finite(x_word, q_word, x_word);
        let q = finite(x_word, q_word, q_word);
        let product = double::words(product_high, product_low);
        let product = double::sum(product, double::product(x, q));
        product_high = product.high;
        product_low = product.low;
        let power = double::words(power_high, power_low);
        let power = double::sum(power, double::product(q, q));
        power_high = power.high;
        power_low = power.low;
    }
    let own = ABSOLUTE_POS * LANE_WORDS;
    lanes[own] = product_high;
    lanes[own + 1] = product_low;
    lanes[own + 2] = power_high;
    lanes[own + 3] = power_low;
}

/// One unit a part.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::kernels::cube) fn parts_kernel(
    figures: &Array<u32>,
    lanes: &mut Array<u32>,
    words: &mut Array<u32>,
    places: &Places,
    parts: usize,
) {
    if ABSOLUTE_POS >= parts {
        terminate!();
    }
    let own = ABSOLUTE_POS * PART_WORDS;
    // The lanes by halves.
    let first = ABSOLUTE_POS * comptime!(PART_LANES * LANE_WORDS);
    let mut width = comptime!(PART_LANES / 2).runtime();
    while width > 0 {
        for i in 0..width {
            #[unroll]
            for sum in 0..2usize {
                let at = first + i * LANE_WORDS + comptime!(sum * 2);
                let other = at + width * LANE_WORDS;
                let both = double::sum(
                    double::words(lanes[at], lanes[at + 1]),
                    double::words(lanes[other], lanes[other + 1]),
                );
                lanes[at] = both.high;
                lanes[at + 1] = both.low;
            }
        }
        width /= 2;
    }
    #[unroll]
    for i in 0..2usize {
        words[own + comptime!(PRODUCT + i)] = lanes[first + i];
        words[own + comptime!(QUANTIZED_POWER + i)] = lanes[first + 2 + i];
    }

    // The blocks one after the other.
    let part = part(places, ABSOLUTE_POS);
    let group = places.blocks.columns * places.blocks.stride;
    let first_block = part.column.div_ceil(group) * places.blocks.stride;
    let end_block = part.column_end.div_ceil(group) * places.blocks.stride;
    let mut power_high = 0u32.runtime();
    let mut power_low = 0u32.runtime();
    let mut error_high = 0u32.runtime();
    let mut error_low = 0u32.runtime();
    let mut non_finite = 0u32.runtime();
    let mut overflow = 0u32.runtime();
    let mut underflow = 0u32.runtime();
    let mut saturated = 0u32.runtime();
    let mut amax = 0u32.runtime();
    let mut smallest = u32::MAX.runtime();
    for run in part.run..part.end {
        for block in first_block..end_block {
            let at = (run * places.blocks.of_a_run + block) * FIGURES;
            let own_power = double::words(figures[at + POWER], figures[at + comptime!(POWER + 1)]);
            let own_error = double::words(figures[at + ERROR], figures[at + comptime!(ERROR + 1)]);
            let power = double::sum(double::words(power_high, power_low), own_power);
            power_high = power.high;
            power_low = power.low;
            let error = double::sum(double::words(error_high, error_low), own_error);
            error_high = error.high;
            error_low = error.low;
            non_finite += figures[at + NON_FINITE];
            overflow += figures[at + OVERFLOW];
            underflow += figures[at + UNDERFLOW];
            saturated += figures[at + SATURATED];
            amax = max(amax, figures[at + AMAX]);
            smallest = min(smallest, figures[at + SMALLEST] - 1);
        }
    }
    words[own + POWER] = power_high;
    words[own + comptime!(POWER + 1)] = power_low;
    words[own + ERROR] = error_high;
    words[own + comptime!(ERROR + 1)] = error_low;
    words[own + NON_FINITE] = non_finite;
    words[own + OVERFLOW] = overflow;
    words[own + UNDERFLOW] = underflow;
    words[own + SATURATED] = saturated;
    words[own + AMAX] = amax;
    words[own + SMALLEST] = smallest + 1;
}
