//! The errors of sums.

use super::aligned::{Term, unit};
use super::exact::{ExactSum, ExactValue};
use super::{Dot, ExactProduct, finite};
use crate::accumulate::{AccumulateError, Accumulator, AccumulatorOperand, Order};
use microscaling_processor::float_state::ieee;

/// The least exponent of a float32 sum's last bit.
const LAST_BIT: i32 = -149;

/// How far the sums of an accumulator are from the exact sums of the same products.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct SumStatistics {
    /// Number of sums, without those that are NaN or Inf.
    pub sums: u64,
    /// Number of products that are not 0 in these sums.
    pub products: u64,
    /// Number of these products that were cut to nothing. In `joint` and `late`, the product lies below the last bit that is kept.
    /// In `fma`, the running sum does not change. If a group is cut to nothing, all its products count. Other orders cut nothing.
    pub cut_to_nothing: u64,
    /// Sums of the squares of the exact sums, of the sums, and of their differences.
    powers: [f64; 3],
    /// Sum of the exact sums times the sums.
    dot: f64,
    /// Bits of the last place of float32 that are wrong, of all sums.
    bits_lost: f64,
}

impl SumStatistics {
    /// Norm of the differences over the norm of the exact sums; `None` if all of these are 0.
    pub fn relative_error(&self) -> Option<f64> {
        let [exact, _, error] = self.powers;
        (exact > 0.0).then(|| (error / exact).sqrt())
    }

    /// Cosine of the angle between sums and exact sums; `None` if one of these is 0.
    pub fn cosine(&self) -> Option<f64> {
        let [exact, power, _] = self.powers;
        let norms = exact.sqrt() * power.sqrt();
        (norms > 0.0).then(|| self.dot / norms)
    }

    /// How many of the last bits of the exact sum, rounded to float32, are wrong: the mean of log₂(1 + |error| / last place). `None`
    /// without sums.
    pub fn bits_lost(&self) -> Option<f64> {
        (self.sums > 0).then(|| self.bits_lost / self.sums as f64)
    }

    /// Share of the products that were cut to nothing; `None` without products.
    pub fn share_cut_to_nothing(&self) -> Option<f64> {
        (self.products > 0).then(|| self.cut_to_nothing as f64 / self.products as f64)
    }

    /// Adds the sums of another product.
    pub fn merge(&mut self, other: &Self) {
        self.sums += other.sums;
        self.products += other.products;
        self.cut_to_nothing += other.cut_to_nothing;
        for (power, other) in self.powers.iter_mut().zip(other.powers) {
            *power += other;
        }
        self.dot += other.dot;
        self.bits_lost += other.bits_lost;
    }
}

impl Accumulator {
    /// The errors of the accumulator's sums in a product of two matrices. The function takes `dots` dot products spread over the
    /// result, or all dot products of a smaller result. The scalar rule computes the sums, at about 10⁷ products a second.
    ///
    /// # Errors
    /// The errors of [`multiply`](Self::multiply).
    pub fn statistics(
        &self,
        lhs: &AccumulatorOperand<'_>,
        rhs: &AccumulatorOperand<'_>,
        dots: usize,
    ) -> Result<SumStatistics, AccumulateError> {
        self.check_operands(lhs, rhs)?;
        let columns = rhs.free.length;
        let all = lhs.free.length.saturating_mul(columns);
        let mut statistics = SumStatistics::default();
        for i in 0..dots.min(all) {
            // By the golden ratio no row or column is preferred.
            let place = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let at = match dots < all {
                true => ((u128::from(place) * all as u128) >> 64) as usize,
                false => i,
            };
            let dot = Dot::new(*self, [lhs, rhs], [at / columns, at % columns]);
            ieee(|| dot.see(&mut statistics));
        }
        Ok(statistics)
    }
}

impl Dot<'_> {
    /// Adds the error of this sum.
    fn see(&self, statistics: &mut SumStatistics) {
        let [mut products, mut cut] = [0, 0];
        let got = self.sum_seen(0.0, &mut |c, added| {
            products += added.iter().filter(|product| product.is_nonzero()).count() as u64;
            cut += self.cut_to_nothing(c, added);
        });
        let mut sum = ExactSum::ZERO;
        for at in 0..self.operands[0].summed.length {
            match self.elements(at).times(self.scales(at)) {
                ExactValue::Finite(number) => sum.add(number),
                _ => return,
            }
        }
        if !got.is_finite() {
            return;
        }
        let exact = sum.to_f64();
        let sum_exponent = if sum.is_zero() { 0 } else { sum.log2() };
        if let Some(mut got) = finite(ExactValue::of(got, 0)) {
            got.negative = !got.negative;
            sum.add(got);
        }
        let (got, error) = (f64::from(got), sum.to_f64());
        let last_place = match exact == 0.0 {
            true => LAST_BIT,
            false => (sum_exponent - 23).max(LAST_BIT),
        };
        statistics.sums += 1;
        statistics.products += products;
        statistics.cut_to_nothing += cut;
        for (power, x) in statistics.powers.iter_mut().zip([exact, got, error]) {
            *power += x * x;
        }
        statistics.dot += exact * got;
        statistics.bits_lost += (1.0 + error.abs() / 2.0_f64.powi(last_place)).log2();
    }

    /// How many products of an addition are cut to nothing.
    fn cut_to_nothing(&self, c: f32, products: &[ExactProduct]) -> u64 {
        let count = |products: &[ExactProduct]| {
            products
                .iter()
                .filter(|product| product.is_nonzero())
                .count()
        };
        let count = match self.accumulator.order {
            Order::Joint {
                fraction_bits,
                floor_exponent,
                group,
                output,
                ..
            } => {
                let terms = Term::of_addition(products, group, ExactValue::of(c, output.emin()));
                let unit = unit(&terms, fraction_bits as i32, floor_exponent);
                let cut = products
                    .chunks(group)
                    .zip(&terms)
                    .filter(|(_, term)| term.is_cut_to_nothing(unit));
                cut.map(|(products, _)| count(products)).sum()
            }
            Order::Late {
                fraction_bits,
                interleave,
                ..
            } => {
                let ways = if interleave { 2 } else { 1 };
                let of_way = |way| {
                    let terms = products.iter().skip(way).step_by(ways);
                    let terms: Vec<Term> =
                        terms.map(|product| Term::alone(product.value)).collect();
                    let unit = unit(&terms, fraction_bits as i32, i32::MIN / 2);
                    terms
                        .iter()
                        .filter(|term| term.is_cut_to_nothing(unit))
                        .count()
                };
                (0..ways).map(of_way).sum()
            }
            Order::Fma { .. } => match self.addition(c, products) == c {
                true => count(products),
                false => 0,
            },
            Order::Exact { .. } | Order::Pairs { .. } | Order::Integer { .. } => 0,
        };
        count as u64
    }
}

impl ExactProduct {
    fn is_nonzero(&self) -> bool {
        finite(self.value).is_some_and(|number| !number.is_zero())
    }
}
