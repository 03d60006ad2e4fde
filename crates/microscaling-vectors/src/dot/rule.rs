//! The rule of a sum, and what neighbouring rules change.

use super::operand::DotOperand;
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
