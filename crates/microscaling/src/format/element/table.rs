//! Elements by a table: any numbers, each with a code.

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod buckets;
mod search;
mod short;
mod sides;

use crate::format::{ElementFormat, FormatError};
use crate::round::RoundingRule;
use crate::round::bits::{self, ABS, INFINITY, NAN};
use alloc::{boxed::Box, vec::Vec};
#[cfg(all(target_arch = "x86_64", feature = "std"))]
pub(crate) use buckets::{BUCKETS, Buckets};
use core::fmt;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
pub(crate) use search::FRACTION_BITS;
pub use search::round_on_side;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
pub(crate) use short::AWAY;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
use short::KINDS;
use short::LONGEST_SHORT;
pub(crate) use short::ShortTable;
use sides::Sides;

/// The most numbers of a table.
const LONGEST: usize = 256;

/// Some numbers: by their codes, and in order.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Table {
    count: usize,
    /// The pattern of each code's number; of NaN where there is none.
    numbers: [u32; LONGEST],
    sides: Sides,
    /// If codes have at most four bits.
    short: Option<ShortTable>,
    /// For each kind of the short table's thresholds.
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    buckets: [Option<Buckets>; KINDS - 1],
}

impl Table {
    /// The numbers in the order of their codes.
    pub(crate) const fn new(numbers: &[f32]) -> Result<Self, FormatError> {
        if numbers.len() < 3 || numbers.len() > LONGEST {
            return Err(FormatError::Field {
                format: "table",
                field: "length",
                min: 3,
                max: LONGEST,
                got: numbers.len(),
            });
        }
        let mut table = Self {
            count: numbers.len(),
            numbers: [NAN; LONGEST],
            sides: Sides::new(0, 0),
            short: None,
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            buckets: [None; KINDS - 1],
        };
        let mut code = 0;
        while code < numbers.len() {
            let pattern = numbers[code].to_bits();
            let magnitude = pattern & ABS;
            if magnitude != 0 && (magnitude < bits::pow2(-32) || magnitude >= bits::pow2(32)) {
                return Err(refused(
                    numbers,
                    code,
                    "0, or at least 2^-32 and less than 2^32, or the negative of that",
                ));
            }
            if table.code_of(pattern) < code {
                return Err(refused(numbers, code, "another one than before"));
            }
            table.numbers[code] = pattern;
            code += 1;
        }
        let zero = table.code_of(0);
        if zero == LONGEST {
            return Err(refused(numbers, numbers.len() - 1, "a 0 among them"));
        }
        let negative_zero = match table.code_of(bits::SIGN) {
            LONGEST => zero,
            code => code,
        };
        let mut sides = Sides::new(zero as u8, negative_zero as u8);
        let mut code = 0;
        while code < table.count {
            if table.numbers[code] & ABS > 0 {
                sides = sides.insert(table.numbers[code], code as u8);
            }
            code += 1;
        }
        table.sides = sides.with_means();
        if table.count <= LONGEST_SHORT {
            let short = ShortTable::of(&table.sides);
            #[cfg(all(target_arch = "x86_64", feature = "std"))]
            {
                table.buckets = Buckets::of(&short);
            }
            table.short = Some(short);
        }
        if table.max() < bits::ONE {
            return Err(refused(
                numbers,
                numbers.len() - 1,
                "a magnitude of 1 or more among them",
            ));
        }
        Ok(table)
    }

    /// The code of a number; [`LONGEST`] if it has none.
    const fn code_of(&self, pattern: u32) -> usize {
        let mut code = 0;
        while code < LONGEST && self.numbers[code] != pattern {
            code += 1;
        }
        code
    }

    /// The numbers in the order of their codes.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = f32> {
        let numbers = self.numbers[..self.count].iter();
        numbers.map(|pattern| f32::from_bits(*pattern))
    }

    /// Bits of a code.
    pub(crate) const fn bits(&self) -> u32 {
        self.count.next_power_of_two().trailing_zeros()
    }

    /// The pattern of a code's number; of NaN if there is none.
    #[inline(always)]
    pub(crate) const fn number(&self, code: u32) -> u32 {
        self.numbers[code as usize % LONGEST]
    }

    /// The pattern of the largest magnitude of numbers with this sign bit.
    #[inline(always)]
    pub(crate) const fn largest(&self, sign: u32) -> u32 {
        self.sides.magnitudes[self.sides.last[(sign >> 31) as usize]]
    }

    /// The pattern of the largest magnitude.
    pub(crate) const fn max(&self) -> u32 {
        let [positive, negative] = [self.largest(0), self.largest(bits::SIGN)];
        if positive > negative {
            positive
        } else {
            negative
        }
    }

    /// The pattern of the smallest magnitude but 0.
    pub(crate) const fn min(&self) -> u32 {
        let magnitudes = &self.sides.magnitudes;
        let [positive, negative] = [magnitudes[1], magnitudes[LONGEST + 1]];
        if positive < negative {
            positive
        } else {
            negative
        }
    }

    /// Bits that the significands have at most.
    const fn significant_bits(&self) -> u32 {
        let (mut most, mut code) = (1, 0);
        while code < self.count {
            let (significand, _) = bits::split(self.numbers[code] & ABS);
            if significand > 0 && 24 - significand.trailing_zeros() > most {
                most = 24 - significand.trailing_zeros();
            }
            code += 1;
        }
        most
    }

    /// Whether there is a −0.
    const fn has_negative_zero(&self) -> bool {
        self.code_of(bits::SIGN) < LONGEST
    }

    /// The numbers in order, if they are few.
    #[inline(always)]
    pub(crate) const fn short_table(&self) -> Option<&ShortTable> {
        self.short.as_ref()
    }

    /// The buckets of a kind of thresholds.
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    #[inline(always)]
    pub(crate) const fn buckets(&self, kind: usize) -> Option<&Buckets> {
        self.buckets[kind].as_ref()
    }

    /// The number that a number becomes, given as a pattern of a finite magnitude and a sign bit: its magnitude, and its code.
    ///
    /// Numbers are rounded as magnitudes. Halfway is the mean of two neighbours, rounded to float32. Even are 0 and every other magnitude
    /// from there on. Numbers beyond the last magnitude saturate.
    #[inline(always)]
    pub(crate) fn round<R: RoundingRule>(&self, sign: u32, abs: u32, draw: u32) -> [u32; 2] {
        let Sides {
            magnitudes,
            means,
            codes,
            ..
        } = &self.sides;
        // The remainders only show that the indices are less.
        const ALL: usize = 2 * LONGEST;
        let place = round_on_side::<R, u32>(
            (sign >> 31) * LONGEST as u32,
            LONGEST,
            abs,
            draw,
            |at| magnitudes[at as usize % ALL],
            |at| means[at as usize % ALL],
        );
        let place = place as usize % ALL;
        [magnitudes[place], u32::from(codes[place])]
    }
}

/// The number of this code is none that the table can have.
const fn refused(numbers: &[f32], code: usize, allowed: &'static str) -> FormatError {
    FormatError::TableNumber {
        code,
        got: numbers[code].to_bits(),
        allowed,
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.numbers()).finish()
    }
}

impl ElementFormat {
    /// The numbers of each of its [tables](Self::tables), in the order of their codes. Empty for a float or fixed point.
    ///
    /// ```
    /// use microscaling::ElementFormat;
    ///
    /// let two = ElementFormat::tables(&[&[0.0, 1.0, -1.0], &[0.0, 1.0, 3.0]])?;
    /// assert_eq!(two.table_numbers(), [[0.0, 1.0, -1.0], [0.0, 1.0, 3.0]]);
    /// assert!(ElementFormat::INT4.table_numbers().is_empty());
    /// # Ok::<(), microscaling::FormatError>(())
    /// ```
    pub fn table_numbers(self) -> Vec<Vec<f32>> {
        let tables = self.as_tables().map_or(&[][..], |tables| tables.0);
        tables
            .iter()
            .map(|table| table.numbers().collect())
            .collect()
    }

    /// For each of its tables the numbers that are not negative, then those that are not positive. Each of these sides has its
    /// magnitudes in order as patterns, the mean of each and the next one (Inf of the last one), and the codes.
    #[doc(hidden)]
    pub fn table_sides(self) -> Vec<[Vec<u32>; 3]> {
        let tables = self.as_tables().map_or(&[][..], |tables| tables.0);
        let sides = tables
            .iter()
            .flat_map(|table| [0, 1].map(|side| table.sides.of_sign(side)));
        sides.collect()
    }
}

/// One table or several, of which each block has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tables(pub(crate) &'static &'static [Table]);

impl Tables {
    /// The most tables.
    pub(crate) const MOST: usize = 16;

    /// A format is copied freely, so its tables are never given back. With `std` equal ones are kept once.
    pub(crate) fn new(tables: &[&[f32]]) -> Result<Self, FormatError> {
        if tables.is_empty() || tables.len() > Self::MOST {
            return Err(FormatError::Field {
                format: "table",
                field: "alternatives",
                min: 1,
                max: Self::MOST,
                got: tables.len(),
            });
        }
        let made = tables.iter().map(|numbers| Table::new(numbers));
        let made: Vec<Table> = made.collect::<Result<_, _>>()?;
        let bits = made[0].bits();
        if let Some(other) = made.iter().find(|table| table.bits() != bits) {
            return Err(FormatError::TableBits {
                bits,
                got: other.bits(),
            });
        }
        Ok(Self(keep(made)))
    }

    /// Bits that the significands have at most.
    pub(crate) const fn significant_bits(self) -> u32 {
        let (mut most, mut i) = (0, 0);
        while i < self.0.len() {
            let bits = self.0[i].significant_bits();
            most = if bits > most { bits } else { most };
            i += 1;
        }
        most
    }

    /// The pattern of the smallest magnitude but 0.
    pub(crate) const fn min(self) -> u32 {
        let (mut least, mut i) = (INFINITY, 0);
        while i < self.0.len() {
            let min = self.0[i].min();
            least = if min < least { min } else { least };
            i += 1;
        }
        least
    }

    /// Whether each has a −0.
    pub(crate) const fn have_negative_zeros(self) -> bool {
        let (mut all, mut i) = (true, 0);
        while i < self.0.len() {
            all &= self.0[i].has_negative_zero();
            i += 1;
        }
        all
    }

    /// Bits that tell the tables apart.
    pub(crate) const fn selector_bits(self) -> u32 {
        self.0.len().next_power_of_two().trailing_zeros()
    }
}

#[cfg(feature = "std")]
fn keep(tables: Vec<Table>) -> &'static &'static [Table] {
    use std::sync::{Mutex, PoisonError};

    static KEPT: Mutex<Vec<&&[Table]>> = Mutex::new(Vec::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(equal) = kept.iter().find(|kept| ***kept == tables) {
        return equal;
    }
    let tables = leak(tables);
    kept.push(tables);
    tables
}

#[cfg(not(feature = "std"))]
fn keep(tables: Vec<Table>) -> &'static &'static [Table] {
    leak(tables)
}

fn leak(tables: Vec<Table>) -> &'static &'static [Table] {
    let tables: &'static [Table] = Vec::leak(tables);
    Box::leak(Box::new(tables))
}
