//! The numbers of a table by their signs.

use super::LONGEST;
use crate::round::bits::{ABS, INFINITY};
use alloc::vec::Vec;

/// The numbers that are not negative, and from [`LONGEST`] on those that are not positive.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Sides {
    /// The patterns of the magnitudes, ascending from 0 on; of Inf after the last one of a side.
    pub(super) magnitudes: [u32; 2 * LONGEST],
    /// The means of each magnitude and the next one, rounded to float32; of Inf where there is no next one.
    pub(super) means: [u32; 2 * LONGEST],
    pub(super) codes: [u8; 2 * LONGEST],
    /// The index of the last one of each side.
    pub(super) last: [usize; 2],
}

impl Sides {
    /// With 0 alone.
    pub(super) const fn new(code_of_zero: u8, code_of_negative_zero: u8) -> Self {
        let mut sides = Self {
            magnitudes: [INFINITY; 2 * LONGEST],
            means: [INFINITY; 2 * LONGEST],
            codes: [0; 2 * LONGEST],
            last: [0, LONGEST],
        };
        let codes = [code_of_zero, code_of_negative_zero];
        let mut side = 0;
        while side < 2 {
            sides.magnitudes[side * LONGEST] = 0;
            sides.codes[side * LONGEST] = codes[side];
            side += 1;
        }
        sides
    }

    /// Adds a new number other than 0.
    pub(super) const fn insert(mut self, number: u32, code: u8) -> Self {
        let (side, magnitude) = ((number >> 31) as usize, number & ABS);
        let mut at = self.last[side] + 1;
        while self.magnitudes[at - 1] > magnitude {
            self.magnitudes[at] = self.magnitudes[at - 1];
            self.codes[at] = self.codes[at - 1];
            at -= 1;
        }
        self.magnitudes[at] = magnitude;
        self.codes[at] = code;
        self.last[side] += 1;
        self
    }

    pub(super) const fn with_means(mut self) -> Self {
        let mut i = 0;
        while i < 2 * LONGEST - 1 {
            let [below, above] = [self.magnitudes[i], self.magnitudes[i + 1]];
            if above > below && above < INFINITY {
                let sum = f32::from_bits(below) as f64 + f32::from_bits(above) as f64;
                let mean = ((sum / 2.0) as f32).to_bits();
                // Between neighbours of float32 there is nothing.
                self.means[i] = if mean > below { mean } else { above };
            }
            i += 1;
        }
        self
    }

    /// The magnitudes of a side, their means and their codes.
    pub(super) fn of_sign(&self, side: usize) -> [Vec<u32>; 3] {
        let places = side * LONGEST..self.last[side] + 1;
        let codes = self.codes[places.clone()].iter();
        [
            self.magnitudes[places.clone()].to_vec(),
            self.means[places].to_vec(),
            codes.map(|code| u32::from(*code)).collect(),
        ]
    }
}
