//! Products and c are aligned together.

use super::{Addition, Terms};
use crate::accumulate::kernels::lanes::{
    NO_EXPONENT, SumRounding, cut, cut_sums, cut_sums_double, largest, pow2, pow2_single, truncate,
};
use crate::accumulate::kernels::pack::{LANES, Lanes};
use microscaling::internal::bits;

/// `joint`, without groups.
#[derive(Clone, Copy)]
pub(in crate::accumulate) struct Joint {
    pub(in crate::accumulate) fraction_bits: i32,
    pub(in crate::accumulate) floor_exponent: i32,
    pub(in crate::accumulate) output: SumRounding,
    /// This number of cut products is below 2^31 together.
    pub(in crate::accumulate) chunk: usize,
}

impl Joint {
    /// The largest exponent of each lane.
    #[inline(always)]
    fn tops(&self, terms: &Terms<'_>, c: &Lanes<f32>) -> Lanes<i32> {
        let products = largest(terms.row_exponents, terms.strip_exponents);
        let mut tops = [0; LANES];
        for lane in 0..LANES {
            let of_c = self.output.exponent_of(c[lane]);
            tops[lane] = i32::from(products[lane]).max(of_c).max(self.floor_exponent);
        }
        tops
    }

    /// The factors that make the unit of the kept bits 1, where float32 holds the products.
    #[inline(always)]
    fn factors(&self, tops: &Lanes<i32>) -> Lanes<f32> {
        // A loop: `array::map` stays a function, which the compiler builds without the widest vectors.
        let mut factors = [0.0; LANES];
        for lane in 0..LANES {
            // Where a factor is larger, all products are 0.
            factors[lane] = pow2_single((self.fraction_bits - tops[lane]).min(127));
        }
        factors
    }

    /// The rounding of the sum of the cut terms.
    #[inline(always)]
    fn finish(&self, sums: &Lanes<f64>, tops: &Lanes<i32>, c: &mut Lanes<f32>) {
        let mut totals = [0.0; LANES];
        for lane in 0..LANES {
            let of_c = f64::from(if c[lane].is_finite() { c[lane] } else { 0.0 });
            let cut = truncate(of_c * pow2(self.fraction_bits - tops[lane]));
            totals[lane] = (sums[lane] + cut) * pow2(tops[lane] - self.fraction_bits);
        }
        let rounded = self.output.round_all(&totals);
        for lane in 0..LANES {
            // Without −0.
            let sum = rounded[lane] + 0.0;
            c[lane] = if c[lane].is_finite() { sum } else { c[lane] };
        }
    }
}

/// Products that float32 holds, cut to 32 bits.
#[derive(Clone, Copy)]
pub(in crate::accumulate) struct JointSingle(pub(in crate::accumulate) Joint);

impl Addition for JointSingle {
    #[inline(always)]
    fn add(&self, terms: Terms<'_>, c: &mut Lanes<f32>) {
        let tops = self.0.tops(&terms, c);
        let factors = self.0.factors(&tops);
        let mut sums = [0.0; LANES];
        let rows = terms.row.chunks(self.0.chunk);
        for (row, strip) in rows.zip(terms.strip.chunks(self.0.chunk)) {
            // SAFETY: as many as are below 2^31 together.
            let cut = unsafe { cut_sums(row, strip, &factors) };
            for lane in 0..LANES {
                sums[lane] += f64::from(cut[lane]);
            }
        }
        self.0.finish(&sums, &tops, c);
    }
}

/// The same, where 31 bits hold all sums, none becomes a subnormal, and none overflows. Sums of more than 24 bits are rounded toward
/// zero, or to float32.
#[derive(Clone, Copy)]
pub(in crate::accumulate) struct JointQuick(pub(in crate::accumulate) Joint);

/// Bits of the magnitudes of a [`JointQuick`].
pub(in crate::accumulate) const QUICK_BITS: i32 = 30;

impl Addition for JointQuick {
    #[inline(always)]
    fn add(&self, terms: Terms<'_>, c: &mut Lanes<f32>) {
        let tops = self.0.tops(&terms, c);
        let factors = self.0.factors(&tops);
        // SAFETY: all of them, and c, are below 2^30 together.
        let sums = unsafe { cut_sums(terms.row, terms.strip, &factors) };
        let cut_bits = (23 - self.0.output.mantissa_bits()) as u32;
        let mask = (1_u32 << cut_bits) - 1;
        let nearest = self.0.output.is_nearest();
        for lane in 0..LANES {
            // SAFETY: as above.
            let of_c = unsafe { cut(c[lane] * factors[lane]) };
            let sum = sums[lane] + of_c;
            let near = sum.abs() as f32;
            let rounded = if nearest {
                // Just under half, and one more if the last bit is odd.
                let up = (mask >> 1) + (near.to_bits() >> cut_bits & 1 & mask);
                near.to_bits() + up
            } else {
                // SAFETY: at most 2^30.
                let above = unsafe { cut(near) } > sum.abs();
                near.to_bits() - u32::from(above)
            };
            let rounded = f32::from_bits(rounded & !mask | sum.cast_unsigned() & bits::SIGN);
            let unit = (tops[lane] - self.0.fraction_bits).max(-126);
            c[lane] = rounded * pow2_single(unit);
        }
    }
}

/// Any products whose sums float64 holds.
#[derive(Clone, Copy)]
pub(in crate::accumulate) struct JointDouble(pub(in crate::accumulate) Joint);

impl Addition for JointDouble {
    #[inline(always)]
    fn add(&self, terms: Terms<'_>, c: &mut Lanes<f32>) {
        let tops = self.0.tops(&terms, c);
        let mut factors = [0.0; LANES];
        for lane in 0..LANES {
            factors[lane] = pow2(self.0.fraction_bits - tops[lane]);
        }
        let sums = cut_sums_double(terms.row, terms.strip, &factors);
        self.0.finish(&sums, &tops, c);
    }
}

/// `joint`, in groups: their sums are exact in float32.
#[derive(Clone, Copy)]
pub(in crate::accumulate) struct Grouped {
    pub(in crate::accumulate) joint: Joint,
    pub(in crate::accumulate) group: usize,
}

/// The most groups of an addition.
pub(in crate::accumulate) const GROUPS: usize = 16;

impl Addition for Grouped {
    #[inline(always)]
    fn add(&self, terms: Terms<'_>, c: &mut Lanes<f32>) {
        let mut tops = [0; LANES];
        for lane in 0..LANES {
            let of_c = self.joint.output.exponent_of(c[lane]);
            tops[lane] = of_c.max(self.joint.floor_exponent);
        }
        let mut sums = [[0.0_f32; LANES]; GROUPS];
        let rows = terms.row.chunks(self.group);
        let groups = rows.zip(terms.strip.chunks(self.group));
        for (i, ((row, strip), sums)) in groups.zip(&mut sums).enumerate() {
            let mut any = [0_u32; LANES];
            for (a, b) in row.iter().zip(strip) {
                for lane in 0..LANES {
                    let product = a * b[lane];
                    any[lane] |= product.to_bits();
                    sums[lane] += product;
                }
            }
            let exponents = terms.scales.exponents(terms.at + i * self.group);
            for lane in 0..LANES {
                // A group of zeros has no exponent; one whose products add up to 0 does. Nor has one whose scale is 0.
                let of_group = match any[lane] << 1 {
                    0 => i32::MIN,
                    _ if exponents[lane] < NO_EXPONENT => i32::MIN,
                    _ => exponents[lane],
                };
                tops[lane] = tops[lane].max(of_group);
            }
        }
        let mut total = [0.0; LANES];
        for (i, sums) in sums
            .iter()
            .take(terms.row.len().div_ceil(self.group))
            .enumerate()
        {
            let scales = terms.scales.products(terms.at + i * self.group);
            for lane in 0..LANES {
                let factor = pow2(self.joint.fraction_bits - tops[lane]);
                total[lane] += truncate(f64::from(sums[lane]) * scales[lane] * factor);
            }
        }
        self.joint.finish(&total, &tops, c);
    }
}
