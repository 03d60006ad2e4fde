//! The rule of a sum, and what neighbouring rules change.

use super::operand::DotOperand;
use crate::set::NeighbouringRule;
use microscaling::Rounding;
use microscaling_product::{
    Accumulator, AccumulatorOperand, Axis, Order, Overflow, ScaleAt, SumFormat,
};

/// The rule of a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DotRule {
    pub(super) accumulator: Accumulator,
    /// Elements by which the first promotion comes late, and every other one with it.
    pub(super) late: usize,
    pub(super) flush_factors: bool,
    pub(super) flush_sum: bool,
}

/// A change of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DotChange {
    FractionBits(i32),
    Terms(usize),
    Output(SumFormat),
    PromoteEvery(usize),
    Late(usize),
    Interleave,
    FlushProducts,
    IntegerBits(i32),
    Overflow,
    Group,
    OtherOrder(Order),
    FlushFactors,
    FlushSum,
}

/// A case's operands as numbers.
pub(super) struct DotNumbers {
    pub(super) c: f32,
    pub(super) elements: [Vec<f32>; 2],
    pub(super) scales: [Vec<f32>; 2],
}

impl DotRule {
    pub(super) fn new(accumulator: Accumulator) -> Self {
        Self {
            accumulator,
            late: 0,
            flush_factors: false,
            flush_sum: false,
        }
    }

    pub(super) fn with(mut self, change: DotChange) -> Self {
        let Accumulator {
            order,
            promote_every,
            ..
        } = &mut self.accumulator;
        match change {
            DotChange::FractionBits(by) => match order {
                Order::Joint { fraction_bits, .. } | Order::Late { fraction_bits, .. } => {
                    *fraction_bits = fraction_bits.saturating_add_signed(by);
                }
                _ => {}
            },
            DotChange::Terms(to) => match order {
                Order::Joint { terms, .. }
                | Order::Late { terms, .. }
                | Order::Exact { terms, .. }
                | Order::Pairs { terms, .. } => *terms = to,
                _ => {}
            },
            DotChange::Output(to) => match order {
                Order::Joint { output, .. }
                | Order::Late { output, .. }
                | Order::Exact { output, .. }
                | Order::Pairs { output, .. }
                | Order::Fma { output } => *output = to,
                _ => {}
            },
            DotChange::PromoteEvery(to) => *promote_every = to,
            DotChange::Late(by) => self.late = by,
            DotChange::Interleave => {
                if let Order::Late { interleave, .. } = order {
                    *interleave = !*interleave;
                }
            }
            DotChange::FlushProducts => {
                if let Order::Pairs { flush, .. } = order {
                    *flush = !*flush;
                }
            }
            DotChange::IntegerBits(by) => {
                if let Order::Integer { bits, .. } = order {
                    *bits = bits.saturating_add_signed(by);
                }
            }
            DotChange::Overflow => {
                if let Order::Integer { overflow, .. } = order {
                    *overflow = if *overflow == Overflow::Wrap {
                        Overflow::Saturate
                    } else {
                        Overflow::Wrap
                    };
                }
            }
            DotChange::Group => {
                if let Order::Joint { group, .. } = order {
                    *group = 1;
                }
            }
            DotChange::OtherOrder(to) => *order = to,
            DotChange::FlushFactors => self.flush_factors = true,
            DotChange::FlushSum => self.flush_sum = true,
        }
        self
    }

    /// Whether the rule can sum up these operands.
    pub(super) fn is_possible(&self, operands: [DotOperand; 2]) -> bool {
        let [lhs, rhs] = operands.map(DotOperand::kind);
        let blocks = [lhs, rhs].map(|kind| if kind.scale.is_some() { kind.block } else { 1 });
        let every = self.accumulator.promote_every;
        let is_aligned = |block: usize| {
            block != 0 && self.late.is_multiple_of(block) && every.is_multiple_of(block)
        };
        let late = self.late == 0
            || (self.accumulator.scale_at == ScaleAt::Product
                && blocks.into_iter().all(is_aligned));
        late && self.accumulator.check(lhs, rhs).is_ok()
    }

    /// The sum, `None` if the rule does not take the operands.
    pub(super) fn sum(&self, operands: [DotOperand; 2], numbers: &DotNumbers) -> Option<f32> {
        let mut elements = numbers.elements.clone();
        if self.flush_factors {
            for (elements, operand) in elements.iter_mut().zip(operands) {
                let smallest = 2.0_f32.powi(operand.element().emin().max(-126));
                let integer = operand.element().is_integer();
                elements
                    .iter_mut()
                    .filter(|x| !integer && x.abs() < smallest)
                    .for_each(|x| *x = 0.0_f32.copysign(*x));
            }
        }
        let length = elements[0].len();
        let dot = |accumulator: &Accumulator, start: usize, end: usize, c: f32| {
            let [lhs, rhs] = [0, 1].map(|i| {
                operand(
                    operands[i],
                    &elements[i][start..end],
                    &numbers.scales[i],
                    start,
                )
            });
            accumulator.dot(&lhs, 0, &rhs, 0, c).ok()
        };
        let sum = match self.late {
            0 => dot(&self.accumulator, 0, length, numbers.c)?,
            late => {
                let every = self.accumulator.promote_every;
                let chain = Accumulator {
                    promote_every: 0,
                    ..self.accumulator
                };
                let mut register = numbers.c;
                let mut start = 0;
                while start < length {
                    let end = (start + every + if start == 0 { late } else { 0 }).min(length);
                    // A float32 addition, rounded half to even: the promotion.
                    register += dot(&chain, start, end, 0.0)?;
                    start = end;
                }
                register
            }
        };
        let flushed = self.flush_sum && sum.abs() < f32::MIN_POSITIVE;
        Some(if flushed { 0.0_f32.copysign(sum) } else { sum })
    }
}

/// A line of elements from a position on, which begins a block.
pub(super) fn operand<'a>(
    operand: DotOperand,
    elements: &'a [f32],
    scales: &'a [f32],
    start: usize,
) -> AccumulatorOperand<'a> {
    let kind = operand.kind();
    let first = match (kind.scale.is_some(), kind.block) {
        (true, 1..) => start / kind.block,
        _ => 0,
    };
    let blocks = operand.blocks(elements.len());
    AccumulatorOperand {
        kind,
        elements,
        free: Axis {
            length: 1,
            stride: elements.len(),
        },
        summed: Axis {
            length: elements.len(),
            stride: 1,
        },
        scales: &scales[first..][..blocks],
    }
}

/// The neighbours of a rule, for these operands.
pub(super) fn neighbours(
    rule: &DotRule,
    operands: [DotOperand; 2],
) -> Vec<(NeighbouringRule, DotChange)> {
    let mut found: Vec<(&'static str, String, DotChange)> = Vec::new();
    let Accumulator {
        order,
        promote_every,
        ..
    } = rule.accumulator;
    let mut add = |field, name: &str, change| found.push((field, name.to_owned(), change));
    add(
        "width",
        "one fraction bit narrower",
        DotChange::FractionBits(-1),
    );
    add(
        "width",
        "one fraction bit wider",
        DotChange::FractionBits(1),
    );
    add(
        "width",
        "two fraction bits narrower",
        DotChange::FractionBits(-2),
    );
    let terms = order.terms();
    if promote_every > 0 {
        let blocks = operands
            .map(|operand| operand.kind().block)
            .into_iter()
            .filter(|block| *block > 0);
        let mut units: Vec<usize> = blocks.chain([terms]).collect();
        units.sort_unstable();
        units.dedup();
        for unit in units {
            add(
                "promotion",
                &format!("promotion one block of {unit} late (the first one, and so each)"),
                DotChange::Late(unit),
            );
            let every = promote_every + unit;
            add(
                "promotion",
                &format!("promotion every {every} elements, one block of {unit} late each time"),
                DotChange::PromoteEvery(every),
            );
        }
        add(
            "promotion",
            "promotion half as often",
            DotChange::PromoteEvery(2 * promote_every),
        );
        add(
            "promotion",
            "promotion twice as often",
            DotChange::PromoteEvery(promote_every / 2),
        );
        add("promotion", "no promotion", DotChange::PromoteEvery(0));
    }
    add(
        "terms",
        "twice as many products at once",
        DotChange::Terms(2 * terms),
    );
    add(
        "terms",
        "half as many products at once",
        DotChange::Terms(terms / 2),
    );
    add(
        "group",
        "products aligned one by one, without groups",
        DotChange::Group,
    );
    add(
        "interleave",
        "even and odd products summed apart, or not",
        DotChange::Interleave,
    );
    add(
        "products",
        "products flushed and rounded, or not",
        DotChange::FlushProducts,
    );
    add(
        "width",
        "one integer bit narrower",
        DotChange::IntegerBits(-1),
    );
    add("width", "one integer bit wider", DotChange::IntegerBits(1));
    add(
        "overflow",
        "integers wrap where they should saturate, or the other way",
        DotChange::Overflow,
    );
    add(
        "inputs",
        "subnormal factors flushed to zero",
        DotChange::FlushFactors,
    );
    add(
        "outputs",
        "subnormal sums flushed to zero",
        DotChange::FlushSum,
    );
    if let Some(output) = output_of(order) {
        let (e, m) = (output.exponent_bits(), output.mantissa_bits());
        let other = match output.rounding() {
            Rounding::TowardZero => Rounding::NearestEven,
            _ => Rounding::TowardZero,
        };
        for (name, m, rounding) in [
            (
                "sums rounded the other way (to nearest, or toward zero)",
                m,
                other,
            ),
            (
                "sums one mantissa bit narrower",
                m.saturating_sub(1),
                output.rounding(),
            ),
            ("sums one mantissa bit wider", m + 1, output.rounding()),
        ] {
            found.extend(
                SumFormat::new(e, m, rounding)
                    .ok()
                    .map(|to| ("sums", name.to_owned(), DotChange::Output(to))),
            );
        }
        let fma = Order::Fma {
            output: SumFormat::F32_RNE,
        };
        found.push((
            "order",
            "one product after the other in float32 (fma)".to_owned(),
            DotChange::OtherOrder(fma),
        ));
        let exact = Order::Exact {
            terms,
            output: SumFormat::F32_RNE,
        };
        found.push((
            "order",
            "exact additions, rounded once to float32".to_owned(),
            DotChange::OtherOrder(exact),
        ));
    }
    let possible = found.into_iter().filter(|(.., change)| {
        let other = rule.with(*change);
        other != *rule && other.is_possible(operands)
    });
    possible
        .map(|(field, name, change)| (NeighbouringRule { field, name }, change))
        .collect()
}

fn output_of(order: Order) -> Option<SumFormat> {
    match order {
        Order::Joint { output, .. }
        | Order::Late { output, .. }
        | Order::Exact { output, .. }
        | Order::Pairs { output, .. }
        | Order::Fma { output } => Some(output),
        _ => None,
    }
}
