//! One addition of each order, for the lanes of a strip: what the [rule](super::rule) says, by other means.

use super::Overflow;
use super::lanes::{
    NO_EXPONENT, Output, cut_sums, cut_sums_double, exponent, floor, largest, pow2, pow2_single,
    sum_to_odd, truncate,
};
use super::pack::{LANES, Lanes};

/// The factors of one addition.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) row: &'a [f32],
    pub(super) row_exponents: &'a [i16],
    pub(super) strip: &'a [Lanes<f32>],
    pub(super) strip_exponents: &'a [Lanes<i16>],
    /// Of groups.
    pub(super) scales: Scales<'a>,
    /// Position of the first one along the summed axis.
    pub(super) at: usize,
}

/// Scales that are not in the values; without any they are 1.
#[derive(Clone, Copy)]
pub(super) struct Scales<'a> {
    pub(super) row: &'a [f32],
    pub(super) row_exponents: &'a [i16],
    pub(super) strip: &'a [Lanes<f32>],
    pub(super) strip_exponents: &'a [Lanes<i16>],
    /// Elements of a block, of both operands.
    pub(super) blocks: [usize; 2],
}

impl Scales<'_> {
    /// The products of the scales of an element.
    #[inline(always)]
    pub(super) fn products(&self, at: usize) -> Lanes<f64> {
        let mut products = [1.0; LANES];
        if let Some(row) = self.row.get(at / self.blocks[0]) {
            products = [f64::from(*row); LANES];
        }
        if let Some(strip) = self.strip.get(at / self.blocks[1]) {
            for lane in 0..LANES {
                products[lane] *= f64::from(strip[lane]);
            }
        }
        products
    }

    /// Their exponents.
    #[inline(always)]
    fn exponents(&self, at: usize) -> Lanes<i32> {
        let mut exponents = [0; LANES];
        if let Some(row) = self.row_exponents.get(at / self.blocks[0]) {
            exponents = [i32::from(*row); LANES];
        }
        if let Some(strip) = self.strip_exponents.get(at / self.blocks[1]) {
            for lane in 0..LANES {
                exponents[lane] += i32::from(strip[lane]);
            }
        }
        exponents
    }
}

/// An order, with all that is known of the numbers.
pub(super) trait Addition: Copy {
    /// Adds the terms to c.
    fn add(&self, terms: Terms<'_>, c: &mut Lanes<f32>);

    /// The number that a running sum is.
    #[inline(always)]
    fn value(&self, c: f32) -> f64 {
        f64::from(c)
    }
}

/// `joint`, without groups.
#[derive(Clone, Copy)]
pub(super) struct Joint {
    pub(super) fraction_bits: i32,
    pub(super) floor_exponent: i32,
    pub(super) output: Output,
    /// So many cut products are below 2^31 together.
    pub(super) chunk: usize,
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

    /// What the sum of the cut terms becomes.
    #[inline(always)]
    fn finish(&self, sums: &Lanes<f64>, tops: &Lanes<i32>, c: &mut Lanes<f32>) {
        for lane in 0..LANES {
            let finite = c[lane].is_finite();
            let of_c = f64::from(if finite { c[lane] } else { 0.0 });
            let cut = truncate(of_c * pow2(self.fraction_bits - tops[lane]));
            let sum = (sums[lane] + cut) * pow2(tops[lane] - self.fraction_bits);
            // Without −0.
            let rounded = self.output.round(sum) + 0.0;
            c[lane] = if finite { rounded } else { c[lane] };
        }
    }
}

/// Products that float32 holds, cut to 32 bits.
#[derive(Clone, Copy)]
pub(super) struct JointSingle(pub(super) Joint);

impl Addition for JointSingle {
    #[inline(always)]
    fn add(&self, terms: Terms<'_>, c: &mut Lanes<f32>) {
        let tops = self.0.tops(&terms, c);
        let mut factors = [0.0; LANES];
        for lane in 0..LANES {
            // Where it is larger all products are 0.
            factors[lane] = pow2_single((self.0.fraction_bits - tops[lane]).min(127));
        }
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

/// The same, where float32 holds all sums, too, and none is a subnormal or overflows.
#[derive(Clone, Copy)]
pub(super) struct JointQuick(pub(super) Joint);

impl Addition for JointQuick {
    #[inline(always)]
    fn add(&self, terms: Terms<'_>, c: &mut Lanes<f32>) {
        let tops = self.0.tops(&terms, c);
        let mut factors = [0.0; LANES];
        for lane in 0..LANES {
            factors[lane] = pow2_single((self.0.fraction_bits - tops[lane]).min(127));
        }
        // SAFETY: all of them are below 2^24 together.
        let sums = unsafe { cut_sums(terms.row, terms.strip, &factors) };
        let cut_bits = (23 - self.0.output.mantissa_bits()) as u32;
        let mask = (1_u32 << cut_bits) - 1;
        for lane in 0..LANES {
            // SAFETY: as above.
            let of_c = unsafe { (c[lane] * factors[lane]).to_int_unchecked::<i32>() };
            let sum = ((sums[lane] + of_c) as f32).to_bits();
            let up = match self.0.output.is_nearest() {
                // Just under half, and one more if the last bit is odd.
                true => (mask >> 1) + (sum >> cut_bits & 1 & mask),
                false => 0,
            };
            let rounded = f32::from_bits((sum + up) & !mask);
            let unit = (tops[lane] - self.0.fraction_bits).max(-126);
            c[lane] = rounded * pow2_single(unit);
        }
    }
}

/// Any products whose sums float64 holds.
#[derive(Clone, Copy)]
pub(super) struct JointDouble(pub(super) Joint);

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
pub(super) struct Grouped {
    pub(super) joint: Joint,
    pub(super) group: usize,
}

/// The most groups of an addition.
pub(super) const GROUPS: usize = 16;

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

/// `late`.
#[derive(Clone, Copy)]
pub(super) struct Late {
    pub(super) fraction_bits: i32,
    pub(super) interleave: bool,
    pub(super) output: Output,
}

impl Late {
    /// Every `ways`th product from `way` on: the largest exponents, and the sums in units of these.
    #[inline(always)]
    fn sums(&self, terms: &Terms<'_>, way: usize, ways: usize) -> (Lanes<i32>, Lanes<i32>) {
        let mut tops = [i16::MIN; LANES];
        for i in (way..terms.row.len()).step_by(ways) {
            for lane in 0..LANES {
                let exponent = terms.row_exponents[i].wrapping_add(terms.strip_exponents[i][lane]);
                tops[lane] = tops[lane].max(exponent);
            }
        }
        let mut factors = [0.0; LANES];
        for lane in 0..LANES {
            factors[lane] = pow2_single((self.fraction_bits - i32::from(tops[lane])).min(127));
        }
        let mut sums = [0; LANES];
        for i in (way..terms.row.len()).step_by(ways) {
            // SAFETY: all of them are below 2^31 together.
            let cut = unsafe { cut_sums(&[terms.row[i]], &[terms.strip[i]], &factors) };
            for lane in 0..LANES {
                sums[lane] += cut[lane];
            }
        }
        (tops.map(i32::from), sums)
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
        for lane in 0..LANES {
            let finite = c[lane].is_finite();
            let of_c = if finite { c[lane] } else { 0.0 };
            let c_exponent = self.output.exponent_of(of_c).max(self.output.emin());
            let top = largest[lane].max(c_exponent);
            let down = (largest[lane] - top).max(-900);
            let products = floor(products[lane] * pow2(down - bits + 32));
            let of_c = floor(f64::from(of_c) * pow2(bits - top));
            let lost = self.interleave && c_exponent < top - bits - 1;
            let of_c = if lost { 0.0 } else { of_c * pow2(32 - bits) };
            let sum = (products + of_c + 0.0) * pow2(top - 32);
            let unit = exponent(sum).max(self.output.emin()) - 31;
            let floored = floor(sum * pow2(-unit)) * pow2(unit);
            let rounded = self.output.round(floored);
            c[lane] = if finite { rounded } else { c[lane] };
        }
    }
}

/// Sums of products of `pairs` and `fma`: how two numbers are added.
pub(super) trait Adder: Copy {
    /// What products and sums are held in.
    type Number: Copy;
    const ZERO: Self::Number;
    fn product(&self, a: f32, b: f32) -> Self::Number;
    fn number(&self, x: f32) -> Self::Number;
    fn add(&self, x: Self::Number, y: Self::Number) -> f32;
}

/// Float32's own arithmetic: products are exact and no sum is a subnormal of it that would be flushed.
#[derive(Clone, Copy)]
pub(super) struct Single;

impl Adder for Single {
    type Number = f32;
    const ZERO: f32 = 0.0;

    #[inline(always)]
    fn product(&self, a: f32, b: f32) -> f32 {
        a * b
    }

    #[inline(always)]
    fn number(&self, x: f32) -> f32 {
        x
    }

    #[inline(always)]
    fn add(&self, x: f32, y: f32) -> f32 {
        x + y
    }
}

/// Sums of any format.
#[derive(Clone, Copy)]
pub(super) struct Rounded {
    pub(super) output: Output,
    pub(super) flush: bool,
}

impl Rounded {
    #[inline(always)]
    fn flushed(&self, x: f32, zero: f32) -> f32 {
        let subnormal = self.flush && f64::from(x).abs() < pow2(self.output.emin()) && x != 0.0;
        if subnormal { zero } else { x }
    }

    #[inline(always)]
    fn rounded(&self, x: f64) -> f32 {
        let rounded = self.output.round(x);
        self.flushed(rounded, 0.0_f32.copysign(rounded))
    }
}

impl Adder for Rounded {
    type Number = f64;
    const ZERO: f64 = 0.0;

    #[inline(always)]
    fn product(&self, a: f32, b: f32) -> f64 {
        let product = f64::from(a) * f64::from(b);
        match self.flush {
            true => self.rounded(product).into(),
            false => product,
        }
    }

    #[inline(always)]
    fn number(&self, x: f32) -> f64 {
        x.into()
    }

    #[inline(always)]
    fn add(&self, x: f64, y: f64) -> f32 {
        self.rounded(sum_to_odd(x, y))
    }
}

/// `pairs`, and `fma` with one term.
#[derive(Clone, Copy)]
pub(super) struct Pairs<A> {
    pub(super) adder: A,
    pub(super) terms: usize,
    /// Below it c is 0: the smallest normal number with `flush`, else 0.
    pub(super) smallest: f32,
}

/// Levels of a tree of 1024 products.
const LEVELS: usize = 10;

impl<A: Adder> Addition for Pairs<A> {
    #[inline(always)]
    fn add(&self, terms: Terms<'_>, c: &mut Lanes<f32>) {
        let adder = &self.adder;
        let mut levels = [[A::ZERO; LANES]; LEVELS];
        let mut sums = [A::ZERO; LANES];
        for i in 0..self.terms {
            sums = [A::ZERO; LANES];
            if let Some(b) = terms.strip.get(i) {
                for lane in 0..LANES {
                    sums[lane] = adder.product(terms.row[i], b[lane]);
                }
            }
            // The first of each pair waits for the second.
            let mut level = 0;
            while i >> level & 1 == 1 {
                for lane in 0..LANES {
                    sums[lane] = adder.number(adder.add(levels[level][lane], sums[lane]));
                }
                level += 1;
            }
            if i + 1 < self.terms {
                levels[level] = sums;
            }
        }
        for lane in 0..LANES {
            let flushed = c[lane].abs() < self.smallest && c[lane] != 0.0;
            let of_c = if flushed { 0.0 } else { c[lane] };
            c[lane] = adder.add(adder.number(of_c), sums[lane]);
        }
    }
}

/// `integer`, of at most 30 bits, or 32 that wrap. Values and running sums are integers' bits.
#[derive(Clone, Copy)]
pub(super) struct Integer {
    pub(super) bits: u32,
    pub(super) overflow: Overflow,
    /// Of the products' unit.
    pub(super) unit: i32,
}

impl Addition for Integer {
    #[inline(always)]
    fn add(&self, terms: Terms<'_>, c: &mut Lanes<f32>) {
        let unused = 32 - self.bits;
        let (least, most) = (i32::MIN >> unused, i32::MAX >> unused);
        let mut sums = c.map(|c| c.to_bits().cast_signed());
        for (a, b) in terms.row.iter().zip(terms.strip) {
            let a = a.to_bits().cast_signed();
            for lane in 0..LANES {
                let sum = sums[lane].wrapping_add(a * b[lane].to_bits().cast_signed());
                sums[lane] = match self.overflow {
                    Overflow::Wrap => sum,
                    Overflow::Saturate => sum.clamp(least, most),
                };
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
