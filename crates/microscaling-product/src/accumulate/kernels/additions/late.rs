//! Products are summed first, c comes late.

use super::{Addition, Terms};
use crate::accumulate::kernels::lanes::{SumRounding, cut, exponent, floor, pow2, pow2_single};
use crate::accumulate::kernels::pack::{LANES, Lanes};

/// `late`.
#[derive(Clone, Copy)]
pub(in crate::accumulate) struct Late {
    pub(in crate::accumulate) fraction_bits: i32,
    pub(in crate::accumulate) interleave: bool,
    pub(in crate::accumulate) output: SumRounding,
}

impl Late {
    /// Every `ways`th product from `way` on: the largest exponents, and the sums in units of these.
    #[inline(always)]
    fn sums(&self, terms: &Terms<'_>, way: usize, ways: usize) -> (Lanes<i32>, Lanes<i32>) {
        let mut tops = [i16::MIN; LANES];
        for i in (way..terms.row.len()).step_by(ways) {
            let a = terms.row_exponents[i];
            for (top, b) in tops.iter_mut().zip(&terms.strip_exponents[i]) {
                *top = (*top).max(a.wrapping_add(*b));
            }
        }
        let mut factors = [0.0; LANES];
        for lane in 0..LANES {
            factors[lane] = pow2_single((self.fraction_bits - i32::from(tops[lane])).min(127));
        }
        let mut sums = [0; LANES];
        for i in (way..terms.row.len()).step_by(ways) {
            let (a, b) = (terms.row[i], &terms.strip[i]);
            for lane in 0..LANES {
                // SAFETY: all of them are below 2^31 together.
                sums[lane] += unsafe { cut(a * b[lane] * factors[lane]) };
            }
        }
        (tops.map(i32::from), sums)
    }
}

/// The same in one way, to float32's nearest, where no sum becomes a subnormal and none overflows.
#[derive(Clone, Copy)]
pub(in crate::accumulate) struct LateQuick(pub(in crate::accumulate) Late);

/// The least unit of the products of a [`LateQuick`]: so far above the subnormals are all bits that a sum keeps.
pub(in crate::accumulate) const QUICK_LEAST: i32 = -90;

impl Addition for LateQuick {
    #[inline(always)]
    fn add(&self, terms: Terms<'_>, c: &mut Lanes<f32>) {
        let bits = self.0.fraction_bits;
        let (largest, sums) = self.0.sums(&terms, 0, 1);
        // The bits of float64's 52 mantissa bits behind 31 fraction bits.
        let behind = (1 << 21) - 1;
        for lane in 0..LANES {
            let c_exponent = (c[lane].to_bits() >> 23 & 0xff) as i32 - 127;
            let top = largest[lane].max(c_exponent.max(-126));
            let down = (largest[lane] - top).max(-900);
            let products = floor(f64::from(sums[lane]) * pow2(down - bits + 32));
            let of_c = floor(f64::from(c[lane]) * pow2(bits - top)) * pow2(32 - bits);
            let sum = (products + of_c + 0.0).to_bits();
            // Rounded down: away from zero if it is negative.
            let away = (sum.cast_signed() >> 63).cast_unsigned() & behind;
            let floored = f64::from_bits((sum + away) & !behind);
            c[lane] = (floored * pow2(top - 32)) as f32;
        }
    }
}

impl Addition for Late {
    #[inline(always)]
    fn add(&self, terms: Terms<'_>, c: &mut Lanes<f32>) {
        let bits = self.fraction_bits;
        let (mut largest, mut products) = ([0; LANES], [0.0; LANES]);
        if self.interleave {
            let (even, even_sums) = self.sums(&terms, 0, 2);
            let (odd, odd_sums) = self.sums(&terms, 1, 2);
            for lane in 0..LANES {
                largest[lane] = even[lane].max(odd[lane]);
                // The sum of a way without products is 0.
                let aligned = |sum: i32, top: i32| {
                    floor(f64::from(sum) * pow2((top - largest[lane]).max(-1000)))
                };
                products[lane] =
                    aligned(even_sums[lane], even[lane]) + aligned(odd_sums[lane], odd[lane]);
            }
        } else {
            let sums;
            (largest, sums) = self.sums(&terms, 0, 1);
            products = sums.map(f64::from);
        }
        let mut floored = [0.0; LANES];
        for lane in 0..LANES {
            let of_c = if c[lane].is_finite() { c[lane] } else { 0.0 };
            let c_exponent = self.output.exponent_of(of_c).max(self.output.emin());
            let top = largest[lane].max(c_exponent);
            let down = (largest[lane] - top).max(-900);
            let products = floor(products[lane] * pow2(down - bits + 32));
            let of_c = floor(f64::from(of_c) * pow2(bits - top));
            let lost = self.interleave && c_exponent < top - bits - 1;
            let of_c = if lost { 0.0 } else { of_c * pow2(32 - bits) };
            let sum = (products + of_c + 0.0) * pow2(top - 32);
            let unit = exponent(sum).max(self.output.emin()) - 31;
            floored[lane] = floor(sum * pow2(-unit)) * pow2(unit);
        }
        let rounded = self.output.round_all(&floored);
        for lane in 0..LANES {
            c[lane] = if c[lane].is_finite() {
                rounded[lane]
            } else {
                c[lane]
            };
        }
    }
}
