//! Elements of tables.

use super::known::{Known, table_word};
use crate::cube::numbers::bits::{INFINITY, SIGN};
use crate::cube::numbers::words::{KernelValue, Variables, written};
use cubecl::prelude::*;
use microscaling::internal::round_on_side;
use microscaling::{BlockFormat, ElementFormat, Rounding, with_rule};

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
        let sides = element.table_sides();
        let longest = sides.iter().map(|[magnitudes, ..]| magnitudes.len()).max();
        let numbers = element.table_numbers().iter().map(Vec::len).max();
        Self {
            sides: sides.len(),
            length: (longest.unwrap_or(0) + 1).next_power_of_two(),
            codes: numbers.unwrap_or(0).next_power_of_two(),
        }
    }

    /// Where the magnitudes begin, the means, the codes, and the numbers.
    fn begins(self) -> [usize; 4] {
        [0, 1, 2, 3].map(|i| self.sides * (1 + i * self.length))
    }
}

/// The words of the tables of an element format, as [`TablePlaces`] says.
pub(in crate::cube) fn words(element: ElementFormat) -> Vec<u32> {
    let places = TablePlaces::of(element);
    let padded = |words: Vec<u32>, length, fill| {
        let missing = length - words.len();
        words.into_iter().chain(std::iter::repeat_n(fill, missing))
    };
    let sides = element.table_sides();
    let mut words: Vec<u32> = sides.iter().map(|[all, ..]| all[all.len() - 1]).collect();
    for part in 0..3 {
        for side in &sides {
            words.extend(padded(side[part].clone(), places.length, INFINITY));
        }
    }
    for numbers in element.table_numbers() {
        let patterns = numbers.into_iter().map(f32::to_bits).collect();
        words.extend(padded(patterns, places.codes, f32::NAN.to_bits()));
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
#[allow(unused_variables, reason = "used where the kernel is written")]
pub(super) fn round_in_table(
    x: u32,
    abs: u32,
    table: u32,
    draw: u32,
    known: &Known,
    #[comptime] element: ElementFormat,
    #[comptime] rounding: Rounding,
) -> u32 {
    intrinsic!(|scope| written::<NativeExpand<u32>>(scope, || {
        let [x, abs, table, draw] = [x, abs, table, draw].map(Variables::values);
        let places = TablePlaces::of(element);
        let first = (table + table + (x >> 31.into())) * (places.length as u32).into();
        let [magnitudes, means, ..] = places.begins();
        let word = |at: KernelValue<u32>, begin: usize| {
            let at = at + (begin as u32).into();
            at.then(|scope, at| {
                let at = usize::__expand_cast_from(scope, at);
                table_word::expand(scope, known.clone(), at)
            })
        };
        let [magnitude, mean] = [magnitudes, means].map(|begin| move |at| word(at, begin));
        with_rule!(rounding, R => {
            round_on_side::<R, _>(first, places.length, abs, draw, magnitude, mean)
        })
    }))
}

/// The magnitude at a place that [`round_in_table`] gives.
#[cube]
pub(super) fn magnitude_at(place: u32, known: &Known, #[comptime] element: ElementFormat) -> u32 {
    let begin = comptime!(TablePlaces::of(element).begins()[0]);
    table_word(known, begin + place as usize)
}

/// The code at a place that [`round_in_table`] gives.
#[cube]
pub(super) fn code_at(place: u32, known: &Known, #[comptime] element: ElementFormat) -> u32 {
    let begin = comptime!(TablePlaces::of(element).begins()[2]);
    table_word(known, begin + place as usize)
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
