//! Exact sums, and sums of integers.

use super::{Addition, Terms};
use crate::accumulate::kernels::lanes::{SumRounding, exponent, pow2};
use crate::accumulate::kernels::pack::{LANES, Lanes};

/// `exact`, of numbers of at most 24 significant bits that 128-bit integers hold: multiples of 2^least.
#[derive(Clone, Copy)]
pub(in crate::accumulate) struct Exact {
    pub(in crate::accumulate) least: i32,
    pub(in crate::accumulate) output: SumRounding,
}

/// Binades of the numbers of [`Exact`].
pub(in crate::accumulate) const EXACT_BINADES: i32 = 100;

impl Exact {
    /// A number in units of 2^least.
    #[inline(always)]
    fn integer(&self, x: f64) -> i128 {
        let pattern = x.to_bits();
        // Of 24 bits.
        let significand = (pattern & ((1 << 52) - 1) | 1 << 52) >> 29;
        let up = exponent(x) - self.least;
        let magnitude = match x == 0.0 {
            true => 0,
            false => (i128::from(significand) << up) >> 23,
        };
        if x < 0.0 { -magnitude } else { magnitude }
    }

    /// A sum in units of 2^least, rounded to odd.
    #[inline(always)]
    fn number(&self, sum: i128) -> f64 {
        let magnitude = sum.unsigned_abs();
        let down = (128 - magnitude.leading_zeros()).saturating_sub(53);
        let kept = (magnitude >> down) as u64;
        let lost = (u128::from(kept) << down) != magnitude;
        let number = (kept | u64::from(lost)) as f64 * pow2(self.least + down as i32);
        if sum < 0 { -number } else { number }
    }
}

impl Addition for Exact {
    #[inline(always)]
    fn add(&self, terms: Terms<'_>, c: &mut Lanes<f32>) {
        for (lane, c) in c.iter_mut().enumerate() {
            if !c.is_finite() {
                continue;
            }
            let mut sum = self.integer(f64::from(*c));
            for (a, b) in terms.row.iter().zip(terms.strip) {
                sum += self.integer(f64::from(*a) * f64::from(b[lane]));
            }
            *c = self.output.round(self.number(sum));
        }
    }
}

/// `integer`, of at most 30 bits, or 32 that wrap. Values and running sums are integers' bits.
#[derive(Clone, Copy)]
pub(in crate::accumulate) struct Integer {
    pub(in crate::accumulate) bits: u32,
    /// Bits of the range that a sum is kept in. Sums that wrap have all 32.
    pub(in crate::accumulate) range_bits: u32,
    /// Of the products' unit.
    pub(in crate::accumulate) unit: i32,
}

impl Addition for Integer {
    #[inline(always)]
    fn add(&self, terms: Terms<'_>, c: &mut Lanes<f32>) {
        let unused = 32 - self.bits;
        // By shifts: a branch would need two loops.
        let beyond = 32 - self.range_bits;
        let (least, most) = (i32::MIN >> beyond, i32::MAX >> beyond);
        let mut sums = [0; LANES];
        for lane in 0..LANES {
            sums[lane] = c[lane].to_bits().cast_signed();
        }
        for (a, b) in terms.row.iter().zip(terms.strip) {
            let a = a.to_bits().cast_signed();
            for lane in 0..LANES {
                let sum = sums[lane].wrapping_add(a * b[lane].to_bits().cast_signed());
                sums[lane] = sum.max(least).min(most);
            }
        }
        for lane in 0..LANES {
            c[lane] = f32::from_bits((sums[lane] << unused >> unused).cast_unsigned());
        }
    }

    #[inline(always)]
    fn value(&self, c: f32) -> f64 {
        f64::from(c.to_bits().cast_signed()) * pow2(self.unit)
    }
}
