//! Sums that are rounded one by one, in chains and in trees.

use super::{Addition, Terms};
use crate::accumulate::kernels::lanes::{SumRounding, pow2, sum_to_odd};
use crate::accumulate::kernels::pack::{LANES, Lanes};

/// Sums of products of `pairs` and `fma`: how two numbers are added.
pub(in crate::accumulate) trait Adder: Copy {
    /// The type of products and sums.
    type Number: Copy;
    const ZERO: Self::Number;
    fn product(&self, a: f32, b: f32) -> Self::Number;
    fn number(&self, x: f32) -> Self::Number;
    fn add(&self, x: Self::Number, y: Self::Number) -> f32;
}

/// Float32's own arithmetic: products are exact, and no sum is a subnormal float32 that would be flushed.
#[derive(Clone, Copy)]
pub(in crate::accumulate) struct Single;

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
pub(in crate::accumulate) struct Rounded {
    pub(in crate::accumulate) output: SumRounding,
    pub(in crate::accumulate) flush: bool,
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

/// `fma`: any number of products, one by one.
#[derive(Clone, Copy)]
pub(in crate::accumulate) struct Chain<A>(pub(in crate::accumulate) A);

impl<A: Adder> Addition for Chain<A> {
    #[inline(always)]
    fn add(&self, terms: Terms<'_>, c: &mut Lanes<f32>) {
        let mut sums = *c;
        for (a, b) in terms.row.iter().zip(terms.strip) {
            for lane in 0..LANES {
                let product = self.0.product(*a, b[lane]);
                sums[lane] = self.0.add(self.0.number(sums[lane]), product);
            }
        }
        *c = sums;
    }
}

/// `pairs`.
#[derive(Clone, Copy)]
pub(in crate::accumulate) struct Pairs<A> {
    pub(in crate::accumulate) adder: A,
    pub(in crate::accumulate) terms: usize,
    /// Below it c is 0: the smallest normal number with `flush`, else 0.
    pub(in crate::accumulate) smallest: f32,
}

/// Levels of a tree of 1024 products.
const LEVELS: usize = 10;

impl<A: Adder> Addition for Pairs<A> {
    #[inline(always)]
    fn add(&self, terms: Terms<'_>, c: &mut Lanes<f32>) {
        let adder = &self.adder;
        if let ([a0, a1, a2, a3], [b0, b1, b2, b3], 4) = (terms.row, terms.strip, self.terms) {
            for lane in 0..LANES {
                let pair = |[a, b]: [&f32; 2], [x, y]: [&Lanes<f32>; 2]| {
                    adder.number(adder.add(adder.product(*a, x[lane]), adder.product(*b, y[lane])))
                };
                let sums = [pair([a0, a1], [b0, b1]), pair([a2, a3], [b2, b3])];
                let sum = adder.number(adder.add(sums[0], sums[1]));
                c[lane] = adder.add(adder.number(self.flushed(c[lane])), sum);
            }
            return;
        }
        let leaf = |i: usize| {
            let mut products = [A::ZERO; LANES];
            if let Some(b) = terms.strip.get(i) {
                for lane in 0..LANES {
                    products[lane] = adder.product(terms.row[i], b[lane]);
                }
            }
            products
        };
        let added = |mut x: Lanes<A::Number>, y: Lanes<A::Number>| {
            for lane in 0..LANES {
                x[lane] = adder.number(adder.add(x[lane], y[lane]));
            }
            x
        };
        let sums = match self.terms {
            2 => added(leaf(0), leaf(1)),
            _ => self.tree(leaf, added),
        };
        for lane in 0..LANES {
            c[lane] = adder.add(adder.number(self.flushed(c[lane])), sums[lane]);
        }
    }
}

impl<A: Adder> Pairs<A> {
    /// A running sum, 0 if it is a subnormal that is flushed.
    #[inline(always)]
    fn flushed(&self, c: f32) -> f32 {
        let flushed = c.abs() < self.smallest && c != 0.0;
        if flushed { 0.0 } else { c }
    }

    /// The sum of any number of products.
    #[inline(always)]
    fn tree(
        &self,
        leaf: impl Fn(usize) -> Lanes<A::Number>,
        added: impl Fn(Lanes<A::Number>, Lanes<A::Number>) -> Lanes<A::Number>,
    ) -> Lanes<A::Number> {
        let mut levels = [[A::ZERO; LANES]; LEVELS];
        for i in 0.. {
            let mut sums = leaf(i);
            // The first of each pair waits for the second.
            let mut level = 0;
            while i >> level & 1 == 1 {
                sums = added(levels[level], sums);
                level += 1;
            }
            if i + 1 == self.terms {
                return sums;
            }
            levels[level] = sums;
        }
        unreachable!("a tree has an end")
    }
}
