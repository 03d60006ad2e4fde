//! Sums and counts, lane by lane.

use super::partial::Partial;
use crate::round::bits::{ABS, INFINITY};
use core::array::from_fn;

/// The sums of blocks, lane by lane.
pub(super) struct Sums<const W: usize> {
    pub(super) power: [f64; W],
    pub(super) error: [f64; W],
}

impl<const W: usize> Sums<W> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self {
            power: [0.0; W],
            error: [0.0; W],
        }
    }
}

/// What is seen of all blocks of a part, lane by lane.
pub(super) struct Lanes<const W: usize> {
    product: [f64; W],
    quantized_power: [f64; W],
    non_finite: [u32; W],
    underflow: [u32; W],
    saturated: [u32; W],
    amax: [u32; W],
    /// Of the smallest magnitude but zero, less 1, so that zero is the largest.
    smallest: [u32; W],
}

impl<const W: usize> Lanes<W> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self {
            product: [0.0; W],
            quantized_power: [0.0; W],
            non_finite: [0; W],
            underflow: [0; W],
            saturated: [0; W],
            amax: [0; W],
            smallest: [u32::MAX; W],
        }
    }

    /// Sees one element a lane; `limits` are patterns of magnitudes beyond which it saturates.
    #[inline(always)]
    pub(super) fn see(&mut self, sums: &mut Sums<W>, [x, q]: [&[f32; W]; 2], limits: &[u32; W]) {
        let magnitude = |x: &[f32; W]| -> [u32; W] { from_fn(|i| x[i].to_bits() & ABS) };
        let [x_abs, q_abs] = [x, q].map(magnitude);
        // All ones where both are numbers.
        let counts: [u32; W] =
            from_fn(|i| u32::from(x_abs[i].max(q_abs[i]) < INFINITY).wrapping_neg());
        let number = |x: &[f32; W]| -> [f64; W] {
            from_fn(|i| f64::from(f32::from_bits(x[i].to_bits() & counts[i])))
        };
        let (x, q) = (number(x), number(q));
        for i in 0..W {
            sums.power[i] += product(x[i], x[i]);
            self.product[i] += product(x[i], q[i]);
            self.quantized_power[i] += product(q[i], q[i]);
        }
        for i in 0..W {
            sums.error[i] += square_of_difference(x[i], q[i]);
        }
        for (non_finite, counts) in self.non_finite.iter_mut().zip(counts) {
            *non_finite += u32::from(counts == 0);
        }
        for i in 0..W {
            let lost = (x_abs[i] != 0) & (q_abs[i] == 0);
            self.underflow[i] += u32::from(lost) & counts[i];
        }
        for i in 0..W {
            self.saturated[i] += u32::from(x_abs[i] > limits[i]) & counts[i];
        }
        for i in 0..W {
            let counted = x_abs[i] & counts[i];
            self.amax[i] = self.amax[i].max(counted);
            self.smallest[i] = self.smallest[i].min(counted.wrapping_sub(1));
        }
    }

    #[inline(always)]
    pub(super) fn add_to(&self, partial: &mut Partial) {
        let count = |lanes: &[u32; W]| lanes.iter().map(|lane| u64::from(*lane)).sum::<u64>();
        partial.product += fold(self.product);
        partial.quantized_power += fold(self.quantized_power);
        partial.non_finite += count(&self.non_finite);
        partial.underflow += count(&self.underflow);
        partial.saturated += count(&self.saturated);
        for (&amax, smallest) in self.amax.iter().zip(self.smallest) {
            partial.amax = partial.amax.max(amax);
            let smallest = smallest.wrapping_add(1);
            if smallest != 0 && (partial.smallest == 0 || smallest < partial.smallest) {
                partial.smallest = smallest;
            }
        }
    }
}

/// The sum of `term` of each pair, in lanes.
#[inline(always)]
pub(super) fn sum_of(a: &[f32], b: &[f32], term: impl Fn(f64, f64) -> f64) -> f64 {
    const LANES: usize = 8;
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            lanes[i] += term(f64::from(a[i]), f64::from(b[i]));
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += term(f64::from(*a), f64::from(*b));
    }
    fold(lanes)
}

/// The sum of lanes, by halves.
#[inline(always)]
fn fold<const W: usize>(mut lanes: [f64; W]) -> f64 {
    let mut width = W;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    lanes[0]
}

/// The pattern of a magnitude, of zero if it is no number.
#[inline(always)]
pub(super) fn finite(abs: u32) -> u32 {
    if abs < INFINITY { abs } else { 0 }
}

#[inline(always)]
pub(super) fn product(a: f64, b: f64) -> f64 {
    // Exact, of two float32.
    a * b
}

#[inline(always)]
pub(super) fn square_of_difference(a: f64, b: f64) -> f64 {
    (a - b) * (a - b)
}
