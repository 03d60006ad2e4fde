//! Operands of an accumulated product: elements and block scales apart.

pub(super) mod kind;
pub(super) mod matrix;

use super::{Accumulator, Order, ScaleAt};
use crate::accumulate::AccumulateError;
use crate::{Axis, Side};
use kind::{Facts, OperandKind, OperandType};
use microscaling_processor::instruction_set::{Kernel, dispatch};

/// An operand in memory: a matrix of elements, and the scales of their blocks.
#[derive(Debug, Clone, Copy)]
pub struct AccumulatorOperand<'a> {
    /// The kind of numbers.
    pub kind: OperandKind,
    /// The elements without their scales, each exactly a number of its type, or NaN or Inf.
    pub elements: &'a [f32],
    /// The axis that the result has, too: the rows of a left operand, the columns of a right one.
    pub free: Axis,
    /// The axis that is summed over.
    pub summed: Axis,
    /// The scales, `[free, blocks]` without gaps: as many blocks as the summed axis has, the last one maybe shorter. Empty
    /// without scales.
    pub scales: &'a [f32],
}

impl AccumulatorOperand<'_> {
    /// Blocks along the summed axis.
    pub(super) fn blocks(&self) -> usize {
        match self.kind {
            OperandKind { scale: None, .. } => 0,
            OperandKind { block: 0, .. } => usize::from(self.summed.length > 0),
            OperandKind { block, .. } => self.summed.length.div_ceil(block),
        }
    }

    /// The block of an element along the summed axis.
    #[inline(always)]
    pub(super) fn block_of(&self, at: usize) -> usize {
        match self.kind.block {
            0 => 0,
            block => at / block,
        }
    }

    /// An element.
    #[inline(always)]
    pub(super) fn element(&self, free: usize, summed: usize) -> f32 {
        self.elements[free * self.free.stride + summed * self.summed.stride]
    }

    /// The scale of an element; 1 without scales.
    #[inline(always)]
    pub(super) fn scale(&self, free: usize, summed: usize) -> f32 {
        match self.kind.scale {
            None => 1.0,
            Some(_) => self.scales[free * self.blocks() + self.block_of(summed)],
        }
    }

    /// That all elements and scales are there.
    pub(super) fn check_layout(&self, side: Side) -> Result<(), AccumulateError> {
        let Self { free, summed, .. } = *self;
        let last = |axis: Axis| axis.length.checked_sub(1)?.checked_mul(axis.stride);
        let there = match (last(free), last(summed)) {
            (Some(free), Some(summed)) => free
                .checked_add(summed)
                .is_some_and(|last| last < self.elements.len()),
            _ => free.length == 0 || summed.length == 0,
        };
        if !there {
            return Err(AccumulateError::Elements {
                side,
                free,
                summed,
                got: self.elements.len(),
            });
        }
        // No length is beyond all memory.
        let expected = free.length.saturating_mul(self.blocks());
        match self.scales.len() == expected {
            true => Ok(()),
            false => Err(AccumulateError::Scales {
                side,
                expected,
                got: self.scales.len(),
            }),
        }
    }

    /// Checks that every number has its type; the error names the first other number.
    pub(super) fn check_numbers(&self, side: Side) -> Result<(), AccumulateError> {
        let facts = self.kind.element.facts();
        let (outer, inner) = match self.free.stride {
            1 => (self.summed, self.free),
            _ => (self.free, self.summed),
        };
        for at in 0..outer.length {
            let start = at * outer.stride;
            let mut all = true;
            match inner.stride {
                1 => dispatch(All {
                    values: &self.elements[start..][..inner.length],
                    facts,
                    all: &mut all,
                }),
                stride => {
                    let values = (0..inner.length).map(|i| self.elements[start + i * stride]);
                    all = values.into_iter().all(|x| facts.has(x.to_bits()));
                }
            }
            if !all {
                return Err(self.wrong_element(side, facts));
            }
        }
        let Some(expected) = self.kind.scale else {
            return Ok(());
        };
        let wrong = |value: &&f32| !expected.facts().has(value.to_bits());
        match self.scales.iter().find(wrong) {
            None => Ok(()),
            Some(&value) => Err(AccumulateError::Scale {
                side,
                value,
                expected,
            }),
        }
    }
}

impl AccumulatorOperand<'_> {
    /// The error of the first element that is not a number of its type. There is one.
    #[cold]
    fn wrong_element(&self, side: Side, facts: Facts) -> AccumulateError {
        let places = (0..self.free.length)
            .flat_map(|free| (0..self.summed.length).map(move |summed| (free, summed)));
        let value = |(free, summed)| (free, summed, self.element(free, summed));
        let mut wrong = places.map(value).filter(|(.., x)| !facts.has(x.to_bits()));
        let (free, summed, value) = wrong.next().expect("an element is wrong");
        AccumulateError::Element {
            side,
            free,
            summed,
            value,
            expected: self.kind.element,
        }
    }
}

/// Whether all values are numbers of a type.
struct All<'a> {
    values: &'a [f32],
    facts: Facts,
    all: &'a mut bool,
}

impl Kernel for All<'_> {
    #[inline(always)]
    fn run(self) {
        let has = self.values.iter().map(|x| self.facts.has(x.to_bits()));
        // Without a branch.
        *self.all = has.fold(true, |all, has| all & has);
    }
}

impl Accumulator {
    /// That the accumulator can take operands of these kinds.
    ///
    /// # Errors
    /// * [`AccumulateError::Accumulator`]: what [`validate`](Self::validate) refuses.
    /// * [`AccumulateError::Integer`]: integers are summed up, and the elements are floats.
    /// * [`AccumulateError::Table`]: the elements are numbers of a table.
    /// * [`AccumulateError::Block`]: a group, or a partial sum whose scales come in at promotion, would lie in two blocks.
    pub fn check(&self, lhs: OperandKind, rhs: OperandKind) -> Result<(), AccumulateError> {
        self.validate()?;
        for kind in [lhs, rhs] {
            if let OperandType::Element(element) = kind.element
                && element.is_table()
            {
                return Err(AccumulateError::Table { got: element });
            }
            if matches!(self.order, Order::Integer { .. }) && kind.element.fraction_bits().is_none()
            {
                return Err(AccumulateError::Integer { got: kind.element });
            }
            // The elements with one scale: a number of elements that divides a block.
            let (field, unit) = match self.scale_at {
                ScaleAt::Product => ("group", self.order.group()),
                ScaleAt::Promotion => ("promote_every", self.promote_every),
            };
            let whole = match (unit, kind.block) {
                (0, block) => block == 0,
                (_, 0) => true,
                (unit, block) => block.is_multiple_of(unit),
            };
            if kind.scale.is_some() && !whole {
                return Err(AccumulateError::Block {
                    field,
                    got: unit,
                    block: kind.block,
                });
            }
        }
        Ok(())
    }
}
