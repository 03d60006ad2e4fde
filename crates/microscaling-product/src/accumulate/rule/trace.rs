//! A sum step by step, in words.

use super::aligned::{Term, unit};
use super::exact::{ExactSum, ExactValue, Number};
use super::{Dot, ExactProduct, finite};
use crate::accumulate::{AccumulateError, Accumulator, AccumulatorOperand, Order};
use alloc::{format, string::String, string::ToString, vec::Vec};
use microscaling_processor::float_state::ieee;

impl Accumulator {
    /// Each step of [`dot`](Self::dot) as a line of text, for who builds such a unit. An addition has the running sum, the products
    /// that are not 0 with their exponents, and its result. An addition of zeros to 0 is left out. Orders that align terms also show
    /// the largest exponent, the last bit that is kept, and the kept and the dropped part of each term. Promotions and the result come
    /// last. Numbers are exact: `3*2^-4` is 3/16.
    ///
    /// # Errors
    /// The errors of [`multiply`](Self::multiply).
    ///
    /// # Panics
    /// As [`dot`](Self::dot).
    pub fn trace(
        &self,
        lhs: &AccumulatorOperand<'_>,
        row: usize,
        rhs: &AccumulatorOperand<'_>,
        column: usize,
        c: f32,
    ) -> Result<Vec<String>, AccumulateError> {
        let dot = self.checked([lhs, rhs], [row, column])?;
        Ok(ieee(|| dot.lines(c)))
    }
}

impl Dot<'_> {
    fn lines(&self, c: f32) -> Vec<String> {
        let length = self.operands[0].summed.length;
        let every = match self.accumulator.promote_every {
            0 => length.max(1),
            every => every,
        };
        let terms = self.accumulator.order.terms();
        let mut lines = Vec::new();
        let mut first = 0;
        let sum = self.sum_seen(c, &mut |running, products| {
            self.addition_lines(first, running, products, &mut lines);
            let end = first + products.len();
            if self.accumulator.promote_every > 0 && (end % every == 0 || end == length) {
                let start = (end - 1) / every * every;
                lines.push(format!("promotion of the partial sum of products {start} to {}, times the scales if they come in here, added to the float32 register", end - 1));
            }
            first += terms.min(products.len());
        });
        if matches!(self.accumulator.order, Order::Integer { .. }) {
            lines.extend(
                (0..length).map(|at| format!("product {at}: {}", value(self.elements(at)))),
            );
        }
        lines.push(format!("sum: {}", float(sum)));
        lines
    }

    fn addition_lines(
        &self,
        first: usize,
        c: f32,
        products: &[ExactProduct],
        lines: &mut Vec<String>,
    ) {
        let is_zero = |value: ExactValue| finite(value).is_some_and(|number| number.is_zero());
        if c == 0.0 && products.iter().all(|product| is_zero(product.value)) {
            return;
        }
        let last = first + products.len() - 1;
        lines.push(format!(
            "addition of products {first} to {last}; running sum c = {}",
            float(c)
        ));
        for (i, product) in products
            .iter()
            .enumerate()
            .filter(|(_, product)| !is_zero(product.value))
        {
            let exponent = finite(product.value).map_or(String::new(), |number| {
                format!(", exponent {}", number.exponent)
            });
            lines.push(format!(
                "  product {}: {}{exponent}",
                first + i,
                value(product.value)
            ));
        }
        let aligned = match self.accumulator.order {
            Order::Joint {
                fraction_bits,
                floor_exponent,
                group,
                output,
                ..
            } => {
                let c = ExactValue::of(c, output.emin());
                let terms = Term::of_addition(products, group, c);
                Some((terms, fraction_bits as i32, floor_exponent))
            }
            Order::Late {
                fraction_bits,
                interleave: false,
                ..
            } => {
                let terms = products.iter().map(|product| Term::alone(product.value));
                Some((terms.collect(), fraction_bits as i32, i32::MIN / 2))
            }
            _ => None,
        };
        let all_finite = products
            .iter()
            .all(|product| finite(product.value).is_some())
            && c.is_finite();
        if let Some((terms, fraction_bits, floor)) = aligned.filter(|_| all_finite) {
            self.aligned_lines(&terms, fraction_bits, floor, lines);
        }
        lines.push(format!("  rounded: {}", float(self.addition(c, products))));
    }

    /// The terms of one addition, in units of the last bit that is kept.
    fn aligned_lines(
        &self,
        terms: &[Term],
        fraction_bits: i32,
        floor: i32,
        lines: &mut Vec<String>,
    ) {
        if terms.iter().all(|term| term.sum().is_zero()) {
            return;
        }
        let unit = unit(terms, fraction_bits, floor);
        lines.push(format!(
            "  largest exponent {}, last bit kept 2^{unit}",
            unit + fraction_bits
        ));
        let mut partial = ExactSum::ZERO;
        for (i, term) in terms
            .iter()
            .enumerate()
            .filter(|(_, term)| !term.sum().is_zero())
        {
            let kept = term.sum().cut(unit);
            partial.add_sum(&kept);
            let dropped = term.sum().minus(&kept);
            let name = match self.accumulator.order {
                Order::Joint { .. } if i + 1 == terms.len() => "c".to_string(),
                _ => format!("term {i}"),
            };
            let dropped = match dropped.is_zero() {
                true => String::new(),
                false => format!(", dropped {}", dropped.to_text()),
            };
            lines.push(format!("  {name}: kept {}{dropped}", kept.to_text()));
        }
        lines.push(format!("  partial sum: {}", partial.to_text()));
    }
}

impl ExactSum {
    /// The difference.
    fn minus(&self, other: &Self) -> Self {
        let mut difference = *self;
        difference.add_sum(&other.negated());
        difference
    }

    /// `-3*2^-4`
    fn to_text(self) -> String {
        if self.is_zero() {
            return "0".to_string();
        }
        match self.reduced() {
            Some(number) => value(ExactValue::Finite(number)),
            None => format!("about {:e}", self.to_f64()),
        }
    }
}

fn value(x: ExactValue) -> String {
    match x {
        ExactValue::Nan => "NaN".to_string(),
        ExactValue::Infinite(negative) => if negative { "-Inf" } else { "+Inf" }.to_string(),
        ExactValue::Finite(Number {
            negative,
            magnitude,
            unit,
            ..
        }) => {
            let sign = if negative { "-" } else { "" };
            match (magnitude, unit) {
                (0, _) | (_, 0) => format!("{sign}{magnitude}"),
                (_, unit) => format!("{sign}{magnitude}*2^{unit}"),
            }
        }
    }
}

/// A float32, its pattern, and its exact value.
fn float(x: f32) -> String {
    format!(
        "{} = {x:e} ({:#010x})",
        value(ExactValue::of(x, 0)),
        x.to_bits()
    )
}
