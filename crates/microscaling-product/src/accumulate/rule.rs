//! The rule of every accumulator: scalar, exact, in integers. The kernels equal it to the bit.

mod aligned;
mod exact;
#[cfg(feature = "std")]
mod statistics;
#[cfg(feature = "std")]
mod trace;

use super::{Accumulator, AccumulatorOperand, Order, Overflow, ScaleAt, ScaleType, SumFormat};
use crate::Side;
use crate::accumulate::AccumulateError;
use aligned::{Term, joint, late};
use alloc::vec::Vec;
use core::ops::Range;
use exact::{ExactSum, ExactValue, Number};
use microscaling_processor::float_state::ieee;
#[cfg(feature = "std")]
pub use statistics::SumStatistics;

/// From this exponent on a product is Inf on CDNA3.
const LATE_OVERFLOW: i32 = 128;

impl Accumulator {
    /// The dot product of a row of the left operand and a column of the right one, added to `c`: the rule that
    /// [`multiply`](Self::multiply) keeps to the bit.
    ///
    /// NaN among factors or c, Inf · 0, and +Inf and −Inf together give [`f32::NAN`]; one kind of Inf gives that Inf.
    ///
    /// # Errors
    /// The errors of [`multiply`](Self::multiply).
    ///
    /// # Panics
    /// If the operands have no such row or column.
    pub fn dot(
        &self,
        lhs: &AccumulatorOperand<'_>,
        row: usize,
        rhs: &AccumulatorOperand<'_>,
        column: usize,
        c: f32,
    ) -> Result<f32, AccumulateError> {
        let dot = self.checked([lhs, rhs], [row, column])?;
        Ok(ieee(|| dot.sum(c)))
    }

    /// A row and a column of operands that make a product.
    fn checked<'a>(
        &self,
        [lhs, rhs]: [&'a AccumulatorOperand<'a>; 2],
        [row, column]: [usize; 2],
    ) -> Result<Dot<'a>, AccumulateError> {
        self.check_operands(lhs, rhs)?;
        assert!(row < lhs.free.length, "row {row} of {}", lhs.free.length);
        let columns = rhs.free.length;
        assert!(column < columns, "column {column} of {columns}");
        Ok(Dot::new(*self, [lhs, rhs], [row, column]))
    }

    /// That these operands make a product.
    pub(super) fn check_operands(
        &self,
        lhs: &AccumulatorOperand<'_>,
        rhs: &AccumulatorOperand<'_>,
    ) -> Result<(), AccumulateError> {
        self.check(lhs.kind, rhs.kind)?;
        if lhs.summed.length != rhs.summed.length {
            return Err(AccumulateError::Summed {
                lhs: lhs.summed.length,
                rhs: rhs.summed.length,
            });
        }
        for (side, operand) in [(Side::Lhs, lhs), (Side::Rhs, rhs)] {
            operand.check_layout(side)?;
            operand.check_numbers(side)?;
        }
        Ok(())
    }
}

/// One row and one column. The operands are checked.
pub(super) struct Dot<'a> {
    accumulator: Accumulator,
    operands: [&'a AccumulatorOperand<'a>; 2],
    /// Row and column.
    lines: [usize; 2],
}

/// A product.
struct ExactProduct {
    /// With the scales that come in here.
    value: ExactValue,
    /// The exponent of those scales.
    scale_exponent: i32,
}

impl<'a> Dot<'a> {
    pub(super) fn new(
        accumulator: Accumulator,
        operands: [&'a AccumulatorOperand<'a>; 2],
        lines: [usize; 2],
    ) -> Self {
        Self {
            accumulator,
            operands,
            lines,
        }
    }

    /// c and all products. To be called in IEEE's default state.
    pub(super) fn sum(&self, c: f32) -> f32 {
        self.sum_seen(c, &mut |_, _| ())
    }

    /// The same. Every addition is seen before it is made: the running sum, and the products.
    fn sum_seen(&self, c: f32, see: &mut impl FnMut(f32, &[ExactProduct])) -> f32 {
        let length = self.operands[0].summed.length;
        let integer = matches!(self.accumulator.order, Order::Integer { .. });
        let every = match self.accumulator.promote_every {
            0 if integer => length.max(1),
            every => every,
        };
        if every == 0 {
            return one_nan(self.chain(0..length, c, see));
        }
        let mut register = c;
        for start in (0..length).step_by(every) {
            let part = start..length.min(start + every);
            let partial = match self.accumulator.order {
                Order::Integer { bits, overflow } => self.integer(part, bits, overflow),
                _ => ExactValue::of(self.chain(part, 0.0, see), 0),
            };
            let scaled = match self.accumulator.scale_at {
                ScaleAt::Product => partial,
                ScaleAt::Promotion => partial.times(self.scales(start)),
            };
            register = add([ExactValue::of(register, 0), scaled], SumFormat::F32_RNE);
        }
        one_nan(register)
    }

    /// c and some products, addition by addition.
    fn chain(
        &self,
        range: Range<usize>,
        mut c: f32,
        see: &mut impl FnMut(f32, &[ExactProduct]),
    ) -> f32 {
        let terms = self.accumulator.order.terms();
        for start in range.clone().step_by(terms) {
            let products: Vec<ExactProduct> = (start..range.end.min(start + terms))
                .map(|at| self.product(at))
                .collect();
            see(c, &products);
            c = self.addition(c, &products);
        }
        c
    }

    /// The product of the scales of an element.
    fn scales(&self, at: usize) -> ExactValue {
        let scale = |i: usize| {
            let operand = self.operands[i];
            match operand.kind.scale {
                None => ExactValue::of(1.0, 0),
                Some(scale) => match (scale, operand.scale(self.lines[i], at)) {
                    (ScaleType::ExponentField, f32::INFINITY) => ExactValue::power_of_two(128),
                    (_, number) => ExactValue::of(number, scale.facts().emin),
                },
            }
        };
        scale(0).times(scale(1))
    }

    /// The product of two elements.
    fn elements(&self, at: usize) -> ExactValue {
        let element = |i: usize| {
            let operand = self.operands[i];
            let x = operand.element(self.lines[i], at);
            ExactValue::of(self.flushed(x, i), operand.kind.element.emin())
        };
        element(0).times(element(1))
    }

    /// An element, 0 if it is a subnormal that is flushed.
    fn flushed(&self, x: f32, operand: usize) -> f32 {
        let flush = matches!(self.accumulator.order, Order::Pairs { flush: true, .. });
        let emin = self.operands[operand].kind.element.emin();
        match flush && is_subnormal(x, emin) {
            true => 0.0,
            false => x,
        }
    }

    /// A product, with the scales if they come in here.
    fn product(&self, at: usize) -> ExactProduct {
        let elements = self.elements(at);
        let scales = match self.accumulator.scale_at {
            ScaleAt::Product => self.scales(at),
            ScaleAt::Promotion => ExactValue::of(1.0, 0),
        };
        ExactProduct {
            value: elements.times(scales),
            scale_exponent: match scales {
                ExactValue::Finite(scales) => scales.exponent,
                _ => 0,
            },
        }
    }

    /// c and the products of one addition.
    fn addition(&self, c: f32, products: &[ExactProduct]) -> f32 {
        let values = products.iter().map(|product| product.value);
        match self.accumulator.order {
            Order::Joint {
                fraction_bits,
                floor_exponent,
                group,
                output,
                ..
            } => {
                let c = ExactValue::of(c, output.emin());
                let all = values.chain([c]);
                special(all).unwrap_or_else(|| {
                    let terms = Term::of_addition(products, group, c);
                    joint(&terms, fraction_bits as i32, floor_exponent, output)
                })
            }
            Order::Late {
                fraction_bits,
                interleave,
                output,
                ..
            } => {
                let overflowing = |value| match value {
                    ExactValue::Finite(product)
                        if !product.is_zero() && product.log2() >= LATE_OVERFLOW =>
                    {
                        ExactValue::Infinite(product.negative)
                    }
                    value => value,
                };
                let products: Vec<ExactValue> = values.map(overflowing).collect();
                let c = ExactValue::of(c, output.emin());
                let all = products.iter().copied().chain([c]);
                special(all)
                    .unwrap_or_else(|| late(&products, c, fraction_bits as i32, interleave, output))
            }
            Order::Exact { output, .. } => {
                let c = ExactValue::of(c, output.emin());
                let all = values.chain([c]);
                special(all.clone()).unwrap_or_else(|| {
                    let mut sum = ExactSum::ZERO;
                    all.filter_map(finite).for_each(|number| sum.add(number));
                    sum.round(output)
                })
            }
            Order::Pairs {
                terms,
                flush,
                output,
            } => self.pairs(c, values.collect(), terms, flush, output),
            Order::Fma { output } => {
                values.fold(c, |c, value| add([value, ExactValue::of(c, 0)], output))
            }
            Order::Integer { .. } => unreachable!("integers are summed up by `integer`"),
        }
    }

    /// A tree of adders.
    fn pairs(
        &self,
        c: f32,
        mut values: Vec<ExactValue>,
        terms: usize,
        flush: bool,
        output: SumFormat,
    ) -> f32 {
        let flushed = |x: f32, sign: f32| match flush && is_subnormal(x, output.emin()) {
            true => sign,
            false => x,
        };
        let rounded = |values: [ExactValue; 2]| {
            let sum = add(values, output);
            flushed(sum, 0.0_f32.copysign(sum))
        };
        values.resize(terms, ExactValue::ZERO);
        if flush {
            for value in &mut values {
                let negative_zero = ExactValue::of(-0.0, 0);
                *value = ExactValue::of(rounded([*value, negative_zero]), 0);
            }
        }
        while values.len() > 1 {
            let pairs = values.chunks_exact(2);
            values = pairs
                .map(|pair| ExactValue::of(rounded([pair[0], pair[1]]), 0))
                .collect();
        }
        rounded([ExactValue::of(flushed(c, 0.0), 0), values[0]])
    }

    /// An integer sum of products.
    fn integer(&self, range: Range<usize>, bits: u32, overflow: Overflow) -> ExactValue {
        let fraction_bits = |i: usize| self.operands[i].kind.element.fraction_bits();
        let fraction_bits = [0, 1].map(|i| fraction_bits(i).expect("integers are fixed point"));
        let unit = -fraction_bits[0] - fraction_bits[1];
        let mut sum = 0_i64;
        for at in range {
            // Fixed point has neither NaN nor Inf: the operands' elements may, and then there is no sum.
            let ExactValue::Finite(product) = self.elements(at) else {
                return ExactValue::Nan;
            };
            sum += product.cut(unit) as i64;
            let unused = 64 - bits;
            sum = match overflow {
                Overflow::Wrap => sum << unused >> unused,
                Overflow::Saturate => sum.clamp(i64::MIN >> unused, i64::MAX >> unused),
            };
        }
        ExactValue::Finite(Number {
            negative: sum < 0,
            magnitude: sum.unsigned_abs().into(),
            unit,
            exponent: 0,
        })
    }
}

/// The sum of two numbers, rounded once, by IEEE 754's rules for zeros, NaN and Inf.
fn add(values: [ExactValue; 2], output: SumFormat) -> f32 {
    if let Some(special) = special(values.into_iter()) {
        return special;
    }
    let mut sum = ExactSum::ZERO;
    let mut negative = true;
    for number in values.into_iter().filter_map(finite) {
        sum.add(number);
        negative &= number.negative;
    }
    match sum.is_zero() {
        true if negative => -0.0,
        true => 0.0,
        // A number that is rounded to zero keeps its sign.
        false => sum
            .round(output)
            .copysign(if sum.is_negative() { -1.0 } else { 1.0 }),
    }
}

fn finite(value: ExactValue) -> Option<Number> {
    match value {
        ExactValue::Finite(number) => Some(number),
        _ => None,
    }
}

/// The sum, if it is NaN or Inf for all finite numbers.
fn special(values: impl Iterator<Item = ExactValue>) -> Option<f32> {
    let mut infinite = None;
    for value in values {
        match (value, infinite) {
            (ExactValue::Nan, _) => return Some(f32::NAN),
            (ExactValue::Infinite(negative), Some(other)) if negative != other => {
                return Some(f32::NAN);
            }
            (ExactValue::Infinite(negative), _) => infinite = Some(negative),
            (ExactValue::Finite(_), _) => {}
        }
    }
    infinite.map(|negative| match negative {
        true => f32::NEG_INFINITY,
        false => f32::INFINITY,
    })
}

/// Whether a number is below 2^emin, and not 0.
fn is_subnormal(x: f32, emin: i32) -> bool {
    finite(ExactValue::of(x, i32::MIN))
        .is_some_and(|number| !number.is_zero() && number.log2() < emin)
}

/// Every NaN is the same.
fn one_nan(x: f32) -> f32 {
    if x.is_nan() { f32::NAN } else { x }
}
