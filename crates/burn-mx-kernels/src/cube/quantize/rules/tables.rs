//! Elements of tables.

use super::known::{Known, table_word};
use crate::cube::numbers::bits::{self, ABS, INFINITY, ONE, SIGN};
use crate::cube::numbers::round::addend;
use cubecl::prelude::*;
use microscaling::{BlockFormat, ElementFormat, Rounding};

/// Bits of the fraction of a step between neighbours.
const FRACTION_BITS: u32 = 24;
/// Half a step.
const HALF: u32 = 1 << (FRACTION_BITS - 1);

/// Where the words of tables lie. A side of a table is its numbers of one sign. The largest magnitude of each side comes first, then
/// the magnitudes of each side in order, their means, and their codes. Last comes the number of each code.
#[derive(Clone, Copy)]
struct TablePlaces {
    sides: usize,
    /// Words of a side, a power of two and more than it has numbers.
    length: usize,
    codes: usize,
}

impl TablePlaces {
    fn of(element: ElementFormat) -> Self {
        let tables = element.table_numbers();
        let numbers = tables.iter().map(Vec::len).max();
        let longest = (tables.iter())
            .flat_map(|numbers| [0, SIGN].map(|sign| TableSide::of(numbers, sign).0.len()))
            .max();
        Self {
            sides: 2 * tables.len(),
            length: (longest.unwrap_or(0) + 1).next_power_of_two(),
            codes: numbers.unwrap_or(0).next_power_of_two(),
        }
    }

    /// Where the magnitudes begin, the means, the codes, and the numbers.
    fn begins(self) -> [usize; 4] {
        [0, 1, 2, 3].map(|i| self.sides * (1 + i * self.length))
    }
}

/// The numbers of one sign of a table, 0 among them: their magnitudes as patterns, in order, and their codes.
struct TableSide(Vec<(u32, u32)>);

impl TableSide {
    fn of(numbers: &[f32], sign: u32) -> Self {
        let patterns = || numbers.iter().map(|number| number.to_bits()).zip(0..);
        // −0 may have its own code.
        let zero = patterns().find(|(pattern, _)| *pattern == sign);
        let zero = zero.or_else(|| patterns().find(|(pattern, _)| *pattern == 0));
        let others = patterns().filter(|(pattern, _)| pattern & ABS > 0 && pattern & SIGN == sign);
        let mut all: Vec<_> = zero.into_iter().chain(others).collect();
        all.iter_mut().for_each(|(pattern, _)| *pattern &= ABS);
        all.sort();
        Self(all)
    }
}

/// The mean of two neighbours, rounded to float32; between neighbours of float32 there is nothing.
fn mean(below: u32, above: u32) -> u32 {
    let [low, high] = [below, above].map(|pattern| f64::from(f32::from_bits(pattern)));
    let mean = (((low + high) / 2.0) as f32).to_bits();
    if mean > below { mean } else { above }
}

/// The words of the tables of an element format, as [`TablePlaces`] says.
pub(in crate::cube) fn words(element: ElementFormat) -> Vec<u32> {
    let tables = element.table_numbers();
    let places = TablePlaces::of(element);
    let sides = tables
        .iter()
        .flat_map(|numbers| [0, SIGN].map(|sign| TableSide::of(numbers, sign).0));
    let sides: Vec<_> = sides.collect();
    let padded = |words: Vec<u32>, fill| {
        let missing = places.length - words.len();
        words.into_iter().chain(std::iter::repeat_n(fill, missing))
    };
    let mut words: Vec<u32> = sides.iter().map(|side| side[side.len() - 1].0).collect();
    for side in &sides {
        words.extend(padded(side.iter().map(|(abs, _)| *abs).collect(), INFINITY));
    }
    for side in &sides {
        let means = side.windows(2).map(|pair| mean(pair[0].0, pair[1].0));
        words.extend(padded(means.collect(), INFINITY));
    }
    for side in &sides {
        words.extend(padded(side.iter().map(|(_, code)| *code).collect(), 0));
    }
    for numbers in &tables {
        let patterns = numbers.iter().map(|number| number.to_bits());
        let missing = places.codes - numbers.len();
        words.extend(patterns.chain(std::iter::repeat_n(f32::NAN.to_bits(), missing)));
    }
    words
}

/// The number of the table that a second look gives.
#[cube]
pub(super) fn table_number(choice: u32, #[comptime] element: ElementFormat) -> u32 {
    if comptime!(TablePlaces::of(element).sides > 2) {
        choice
    } else {
        0u32.runtime()
    }
}

/// The largest magnitude of a table's numbers with a sign.
#[cube]
pub(super) fn largest_of_sign(table: u32, sign: u32, known: &Known) -> u32 {
    table_word(known, (table * 2 + (sign >> 31)) as usize)
}

/// Q, the largest magnitude of a block in units of its scale.
#[cube]
pub(super) fn largest_unit(table: u32, known: &Known, #[comptime] format: BlockFormat) -> u32 {
    if comptime!(format.element.is_table()) {
        let positive = largest_of_sign(table, 0u32, known);
        let negative = largest_of_sign(table, SIGN, known);
        max(positive, negative)
    } else {
        comptime!(format.largest_unit().to_bits()).runtime()
    }
}

/// The place, among the magnitudes of all tables, of what a number becomes in a table, given as a pattern of a finite magnitude and
/// a sign bit.
#[cube]
pub(super) fn round_in_table(
    x: u32,
    abs: u32,
    table: u32,
    draw: u32,
    known: &Known,
    #[comptime] element: ElementFormat,
    #[comptime] rounding: Rounding,
) -> usize {
    let places = comptime!(TablePlaces::of(element));
    let magnitudes = comptime!(places.begins()[0]);
    let means = comptime!(places.begins()[1]);
    // Where there is no next number stands Inf.
    let abs = min(abs, comptime!(INFINITY - 1));
    let first = (table * 2 + (x >> 31)) as usize * comptime!(places.length);
    let mut below = first;
    #[unroll]
    for i in 0..comptime!(places.length.ilog2()) {
        let next = below + comptime!(places.length >> (i + 1));
        let fits = table_word(known, magnitudes + next) <= abs;
        below = select(fits, next, below);
    }
    let fraction = if comptime!(rounding == Rounding::Stochastic) {
        let low = table_word(known, magnitudes + below);
        let high = table_word(known, magnitudes + below + 1);
        fraction(low, high, abs)
    } else {
        let mean = table_word(known, means + below);
        HALF - 1 + select(abs >= mean, 1, 0) + select(abs > mean, 1, 0)
    };
    let exact = ((below - first) as u32) << FRACTION_BITS | fraction;
    let carried = exact + addend(exact, FRACTION_BITS, draw, rounding);
    first + (carried >> FRACTION_BITS) as usize
}

/// How far a magnitude is on the way from one neighbour to the other, if there is another.
#[cube]
fn fraction(below: u32, above: u32, abs: u32) -> u32 {
    let is_last = above >= INFINITY;
    let part = select(is_last, 0, bits::sum(abs, below | SIGN));
    let whole = select(is_last, ONE, bits::sum(above, below | SIGN));
    let quotient = bits::quotient(part, whole);
    min(
        bits::steps(quotient, comptime!(-(FRACTION_BITS as i32)).runtime()),
        comptime!(2 * HALF - 1),
    )
}

/// The magnitude at a place that [`round_in_table`] gives.
#[cube]
pub(super) fn magnitude_at(place: usize, known: &Known, #[comptime] element: ElementFormat) -> u32 {
    table_word(
        known,
        comptime!(TablePlaces::of(element).begins()[0]) + place,
    )
}

/// The code at a place that [`round_in_table`] gives.
#[cube]
pub(super) fn code_at(place: usize, known: &Known, #[comptime] element: ElementFormat) -> u32 {
    table_word(
        known,
        comptime!(TablePlaces::of(element).begins()[2]) + place,
    )
}

/// The number of a code; NaN where there is none.
#[cube]
pub(in crate::cube) fn table_value(
    code: u32,
    table: u32,
    known: &Known,
    #[comptime] element: ElementFormat,
) -> u32 {
    let places = comptime!(TablePlaces::of(element));
    let first = table as usize * comptime!(places.codes);
    table_word(known, comptime!(places.begins()[3]) + first + code as usize)
}
