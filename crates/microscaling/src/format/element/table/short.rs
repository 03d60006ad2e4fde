//! Tables of few numbers.

use super::LONGEST;
use super::search::FRACTION_BITS;
use super::sides::Sides;
use crate::round::RoundingRule;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
use crate::round::bits::SIGN;

/// The numbers of a table of few, in ascending order: the one that another number becomes is found without a look at memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ShortTable {
    /// From the pattern of each magnitude to the next one; 0 where there are fewer. (A choice between magnitudes would become a choice
    /// between their addresses, and a gather.)
    steps: [u32; LONGEST_SHORT - 1],
    /// The patterns of all magnitudes, the last one again where there are fewer.
    magnitudes: [u32; LONGEST_SHORT],
    /// From which [key](key) on a number becomes the next one, for each of [`Upper`], and last for the neighbour farther from zero. Each
    /// ends with a number that no key reaches.
    thresholds: [[i32; LONGEST_SHORT]; KINDS],
}

pub(super) const LONGEST_SHORT: usize = 16;

/// A whole step in units of a fraction.
const ONE_OF_FRACTION: f32 = (1 << FRACTION_BITS) as f32;

/// Kinds of thresholds.
pub(super) const KINDS: usize = 4;

/// The last kind.
pub(crate) const AWAY: usize = KINDS - 1;

/// A number as an integer that is larger for larger numbers.
#[inline(always)]
const fn key(sign: u32, abs: u32) -> i32 {
    if sign == 0 { abs as i32 } else { -(abs as i32) }
}

impl ShortTable {
    pub(super) const fn of(sides: &Sides) -> Self {
        let mut short = Self {
            steps: [0; LONGEST_SHORT - 1],
            magnitudes: [0; LONGEST_SHORT],
            thresholds: [[i32::MAX; LONGEST_SHORT]; KINDS],
        };
        let negative = sides.last[1] - LONGEST;
        let all = negative + sides.last[0];
        let mut i = 0;
        while i <= all {
            let magnitude = match i < negative {
                true => sides.magnitudes[LONGEST + negative - i],
                false => sides.magnitudes[i - negative],
            };
            short.magnitudes[i] = magnitude;
            if i > 0 {
                short.steps[i - 1] = magnitude.wrapping_sub(short.magnitudes[i - 1]);
            }
            i += 1;
        }
        while i < LONGEST_SHORT {
            short.magnitudes[i] = short.magnitudes[i - 1];
            i += 1;
        }
        let mut i = 0;
        while i < all {
            // The neighbours by their magnitudes: the smaller one's index on its side.
            let (side, below) = match i < negative {
                true => (LONGEST, negative - i - 1),
                false => (0, i - negative),
            };
            let mean = sides.means[side + below] as i32;
            let [own, next] = [
                sides.magnitudes[side + below] as i32,
                sides.magnitudes[side + below + 1] as i32,
            ];
            let to_even = match below % 2 == 1 || mean == next {
                true => mean,
                false => mean + 1,
            };
            // From 0 on the neighbour is 0 itself.
            let away = if own == 0 { 1 } else { own };
            let from = [mean, to_even, next, away];
            let mut kind = 0;
            while kind < KINDS {
                short.thresholds[kind][i] = match side == 0 {
                    true => from[kind],
                    false => 1 - from[kind],
                };
                kind += 1;
            }
            i += 1;
        }
        short
    }

    /// The largest magnitude of numbers with this sign bit.
    #[inline(always)]
    pub(crate) const fn largest(&self, sign: u32) -> u32 {
        // Where there are no negative numbers, the first one is 0.
        self.magnitudes[if sign >> 31 == 1 {
            0
        } else {
            LONGEST_SHORT - 1
        }]
    }

    /// [`Table::round`]: the magnitude.
    #[inline(always)]
    pub(crate) fn round<R: RoundingRule>(&self, sign: u32, abs: u32, draw: u32) -> u32 {
        let key = key(sign, abs);
        let below = self.at(R::UPPER as usize, key);
        if !R::USES_DRAWS {
            return below;
        }
        let above = self.at(AWAY, key);
        // As floats: to convert them to integers takes longer. A fraction that is NaN comes from two equal neighbours.
        let [low, high, x] = [below, above, abs].map(f32::from_bits);
        let fraction = (x - low) / (high - low) * ONE_OF_FRACTION;
        let needed = ONE_OF_FRACTION - (draw >> (32 - FRACTION_BITS)) as i32 as f32;
        let carries = fraction >= needed && needed < ONE_OF_FRACTION;
        if carries { above } else { below }
    }

    /// The thresholds of a kind, and the magnitudes.
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    #[inline(always)]
    pub(crate) fn registers(&self, kind: usize) -> (&[i32; LONGEST_SHORT], &[u32; LONGEST_SHORT]) {
        (&self.thresholds[kind], &self.magnitudes)
    }

    /// The thresholds of a kind.
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    pub(super) const fn thresholds(&self, kind: usize) -> &[i32; LONGEST_SHORT] {
        &self.thresholds[kind]
    }

    /// The pattern of a number, given how many are negative.
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    pub(super) const fn number(&self, place: usize, negative: usize) -> u32 {
        self.magnitudes[place] | if place < negative { SIGN } else { 0 }
    }

    /// The magnitude of the number that the thresholds of this kind say.
    #[inline(always)]
    fn at(&self, kind: usize, key: i32) -> u32 {
        // The thresholds are in order.
        let mut magnitude = self.magnitudes[0];
        for (threshold, step) in self.thresholds[kind].iter().zip(&self.steps) {
            magnitude = magnitude.wrapping_add(if key >= *threshold { *step } else { 0 });
        }
        magnitude
    }
}
