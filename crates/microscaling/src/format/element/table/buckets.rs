//! The numbers of a table of few, by buckets of equal width.

use super::short::{KINDS, LONGEST_SHORT, ShortTable};
use crate::round::mode::Upper;

/// How many buckets there are: the words of two registers of AVX-512.
pub(crate) const BUCKETS: usize = 32;

/// Buckets of equal width, of which each has at most one threshold. A number's bucket, and a comparison with the bucket's threshold, find
/// what the number becomes. Bucket i has the numbers from i widths on. Its place is i modulo [`BUCKETS`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Buckets {
    /// The pattern of a magnitude beyond all thresholds. Larger numbers become what this one becomes.
    pub(crate) limit: u32,
    /// Pattern of the reciprocal of the width.
    pub(crate) factor: u32,
    /// The pattern of each bucket's threshold; Inf where there is none.
    pub(crate) thresholds: [u32; BUCKETS],
    /// The pattern that the numbers of a bucket become from its threshold on. The bucket before has the pattern for the others.
    pub(crate) numbers: [u32; BUCKETS],
    /// At the same places the neighbours farther from zero. They are right where numbers of the table are the thresholds.
    pub(crate) away: [u32; BUCKETS],
}

/// The pattern of a key's float.
const fn pattern(key: i32) -> u32 {
    if key < 0 {
        (-key) as u32 | 1 << 31
    } else {
        key as u32
    }
}

impl Buckets {
    /// For each kind of thresholds but the last one; `None` where a bucket has two thresholds.
    pub(super) const fn of(short: &ShortTable) -> [Option<Self>; KINDS - 1] {
        let mut all = [None; KINDS - 1];
        let mut kind = 0;
        while kind < all.len() {
            all[kind] = Self::of_kind(short, kind);
            kind += 1;
        }
        all
    }

    const fn of_kind(short: &ShortTable, kind: usize) -> Option<Self> {
        let keys = short.thresholds(kind);
        let (mut count, mut negative, mut limit) = (0, 0, 0);
        while count < LONGEST_SHORT && keys[count] != i32::MAX {
            // Beyond the threshold on either side.
            let magnitude = keys[count].unsigned_abs() + 1;
            limit = if magnitude > limit { magnitude } else { limit };
            negative += (keys[count] <= 0) as usize;
            count += 1;
        }
        // The largest threshold is in the last bucket but one, or the first one.
        let factor = (BUCKETS / 2 - 1) as f32 * 0.999_999 / f32::from_bits(limit);
        let mut buckets = Self {
            limit,
            factor: factor.to_bits(),
            thresholds: [f32::INFINITY.to_bits(); BUCKETS],
            numbers: [0; BUCKETS],
            away: [0; BUCKETS],
        };
        let mut below = 0;
        let mut bucket = -(BUCKETS as i32 / 2);
        while bucket < BUCKETS as i32 / 2 {
            let place = bucket as usize % BUCKETS;
            let before = (bucket - 1) as usize % BUCKETS;
            let away = match bucket < 0 {
                true if below > 0 => below - 1,
                false if below < count => below + 1,
                _ => below,
            };
            buckets.numbers[before] = short.number(below, negative);
            buckets.away[before] = short.number(away, negative);
            let first = below;
            while below < count && floor_of_product(pattern(keys[below]), factor) == bucket {
                buckets.thresholds[place] = pattern(keys[below]);
                below += 1;
            }
            // Numbers that reach a threshold here would have their neighbour on the wrong side of 0.
            let is_last_before_0 = bucket == -1 && kind == Upper::Whole as usize;
            if below > first + 1 || (is_last_before_0 && below > first) {
                return None;
            }
            bucket += 1;
        }
        Some(buckets)
    }
}

/// A float times another one, rounded down to an integer.
const fn floor_of_product(pattern: u32, factor: f32) -> i32 {
    // Exact.
    let product = f32::from_bits(pattern) as f64 * factor as f64;
    let whole = product as i32;
    if whole as f64 > product {
        whole - 1
    } else {
        whole
    }
}
