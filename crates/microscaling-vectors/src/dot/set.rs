//! The set of dot products.

use super::inputs::{DotCase, DotMaker};
use super::neighbours::neighbours;
use super::operand::DotOperand;
use super::rule::{DotChange, DotNumbers, DotRule, operand};
use super::search::smallest;
use crate::VERSION;
use crate::choice::CaseChoice;
use crate::cover::Cover;
use crate::error::VectorsError;
use crate::layout::{BusField, BusLayout};
use crate::set::{NeighbouringRule, VectorSet};
use microscaling_product::{Accumulation, OperandKind, ScaleAt};

/// Most products of a dot product.
const MOST: usize = 1 << 16;

/// Dot products under an accumulator.
///
/// A case is the number that the sum starts from, as float32, the codes of both operands, and the codes of their scales.
#[derive(Debug, Clone)]
pub struct DotSet {
    rule: DotRule,
    operands: [DotOperand; 2],
    length: usize,
    layout: BusLayout,
    seed: u64,
    candidates: Vec<DotCase>,
    choice: CaseChoice,
    other: Option<DotRule>,
    neighbours: Vec<NeighbouringRule>,
    changes: Vec<DotChange>,
}

impl DotSet {
    /// Dot products of a length, by default of several additions and promotions. Among them are the smallest ones that were found to
    /// tell each neighbouring rule from this one.
    ///
    /// # Errors
    /// * [`VectorsError::Accumulate`]: the accumulator does not take the operands.
    /// * [`VectorsError::Option`]: a length out of range, or a block format with other factors than elements and scales.
    pub fn new(
        accumulation: Accumulation,
        operands: [DotOperand; 2],
        length: Option<usize>,
        seed: u64,
        limit: Option<u64>,
    ) -> Result<Self, VectorsError> {
        for operand in operands {
            if let DotOperand::Blocks(format) = operand
                && (OperandKind::of_format(&format).is_none() || format.tensor_scale)
            {
                return Err(VectorsError::option(
                    "operand",
                    format,
                    "elements times the scale of their block",
                ));
            }
        }
        let [lhs, rhs] = operands.map(DotOperand::kind);
        let accumulator = accumulation.of(lhs, rhs)?;
        let rule = DotRule::new(accumulator);
        let terms = accumulator.order.terms();
        let block = lhs.block.max(rhs.block);
        let usual = (4 * terms)
            .max(3 * accumulator.promote_every + block)
            .max(2 * block)
            .max(8);
        let length = length.unwrap_or(usual);
        if !(1..=MOST).contains(&length) {
            return Err(VectorsError::option(
                "length",
                length,
                format!("1 to {MOST}"),
            ));
        }
        let mut maker = DotMaker::new(operands, length, seed);
        let (names, changes): (Vec<_>, Vec<DotChange>) =
            neighbours(&rule, operands).into_iter().unzip();
        let mut candidates = maker.special();
        for change in &changes {
            let other = rule.with(*change);
            candidates.extend(smallest(&mut maker, |case| {
                differ(operands, [&rule, &other], case)
            }));
        }
        let must = candidates.len();
        candidates.extend(maker.ordinary());
        Ok(Self {
            rule,
            operands,
            length,
            layout: layout(operands, length),
            seed,
            choice: CaseChoice::new(must, candidates.len() as u64, limit),
            candidates,
            other: None,
            neighbours: names,
            changes,
        })
    }

    /// Only the smallest dot product that was found to have another sum by another accumulator.
    ///
    /// # Errors
    /// [`VectorsError::Option`], if none was found; or the other accumulator does not take the operands.
    pub fn telling_apart(mut self, other: Accumulation) -> Result<Self, VectorsError> {
        let [lhs, rhs] = self.operands.map(DotOperand::kind);
        let accumulator = other.of(lhs, rhs)?;
        let other = DotRule::new(accumulator);
        let mut maker = DotMaker::new(self.operands, self.length, self.seed);
        let found = smallest(&mut maker, |case| {
            differ(self.operands, [&self.rule, &other], case)
        });
        let none = || {
            let allowed = "an accumulator with other sums: none of 4096 dot products has two, a greater length may";
            VectorsError::option("tell-apart", accumulator, allowed)
        };
        self.candidates = vec![found.ok_or_else(none)?];
        self.choice = CaseChoice::new(1, 1, None);
        self.other = Some(other);
        Ok(self)
    }

    /// Each step of the sum of a case, see [`Accumulator::trace`](microscaling_product::Accumulator::trace).
    ///
    /// # Errors
    /// [`VectorsError::Option`]: the set has fewer cases.
    pub fn trace(&self, case: u64) -> Result<Vec<String>, VectorsError> {
        if case >= self.cases() {
            let last = self.cases().saturating_sub(1);
            return Err(VectorsError::option("trace", case, format!("0 to {last}")));
        }
        let numbers = numbers(
            self.operands,
            &self.candidates[self.choice.candidate(case) as usize],
        );
        let [lhs, rhs] = [0, 1].map(|i| {
            operand(
                self.operands[i],
                &numbers.elements[i],
                &numbers.scales[i],
                0,
            )
        });
        let mut lines = Vec::new();
        for rule in [Some(&self.rule), self.other.as_ref()]
            .into_iter()
            .flatten()
        {
            lines.push(rule.accumulator.to_string());
            lines.extend(rule.accumulator.trace(&lhs, 0, &rhs, 0, numbers.c)?);
        }
        Ok(lines)
    }

    fn case(&self, inputs: &[u64]) -> DotCase {
        let mut rest = &inputs[1..];
        let mut take = |count: usize| {
            let (own, tail) = rest.split_at(count);
            rest = tail;
            own.to_vec()
        };
        let elements = [take(self.length), take(self.length)];
        let scales = self
            .operands
            .map(|operand| take(operand.blocks(self.length)));
        DotCase {
            c: inputs[0] as u32,
            elements,
            scales,
        }
    }
}

fn layout(operands: [DotOperand; 2], length: usize) -> BusLayout {
    let mut fields = vec![BusField::input("c", 32, 0)];
    for (name, operand) in ["a", "b"].into_iter().zip(operands) {
        fields.push(BusField::input(name, operand.element().bits(), length));
    }
    for (name, operand) in ["a_scale", "b_scale"].into_iter().zip(operands) {
        let blocks = operand.blocks(length);
        if blocks > 0 {
            fields.push(BusField::input(name, operand.scale_bits(), blocks));
        }
    }
    fields.push(BusField::output("sum", 32, 0));
    BusLayout::new(fields)
}

fn numbers(operands: [DotOperand; 2], case: &DotCase) -> DotNumbers {
    let of = |i: usize, f: &dyn Fn(u64) -> f32, codes: &[Vec<u64>; 2]| {
        codes[i].iter().map(|code| f(*code)).collect()
    };
    DotNumbers {
        c: f32::from_bits(case.c),
        elements: [0, 1].map(|i| {
            of(
                i,
                &|code| operands[i].element().decode(code as u32),
                &case.elements,
            )
        }),
        scales: [0, 1].map(|i| of(i, &|code| operands[i].scale(code), &case.scales)),
    }
}

/// The pattern of the sum by a rule.
fn pattern(rule: &DotRule, operands: [DotOperand; 2], numbers: &DotNumbers) -> u64 {
    match rule.sum(operands, numbers) {
        Some(sum) if sum.is_nan() => f32::NAN.to_bits().into(),
        Some(sum) => sum.to_bits().into(),
        // No float32: a rule that two changes make impossible matches nothing.
        None => u64::MAX,
    }
}

fn differ(operands: [DotOperand; 2], rules: [&DotRule; 2], case: &DotCase) -> bool {
    let numbers = numbers(operands, case);
    let [one, other] = rules.map(|rule| pattern(rule, operands, &numbers));
    one != other
}

impl VectorSet for DotSet {
    fn name(&self) -> String {
        let [lhs, rhs] = self.operands;
        let other = self.other.map_or(String::new(), |other| {
            format!(" tell_apart={}", other.accumulator)
        });
        format!(
            "dot accumulator={} lhs={lhs} rhs={rhs} length={}{other} seed={} cases={} version={VERSION}",
            self.rule.accumulator,
            self.length,
            self.seed,
            self.cases()
        )
    }

    fn layout(&self) -> &BusLayout {
        &self.layout
    }

    fn cases(&self) -> u64 {
        self.choice.cases()
    }

    fn inputs(&self, case: u64, words: &mut Vec<u64>) {
        let case = &self.candidates[self.choice.candidate(case) as usize];
        words.push(case.c.into());
        words.extend(case.elements.iter().chain(&case.scales).flatten());
    }

    fn refuse(&self, inputs: &[u64]) -> Option<String> {
        let case = self.case(inputs);
        for (operand, codes) in self.operands.into_iter().zip(&case.elements) {
            if let Some(code) = codes.iter().find(|code| !operand.allows(**code)) {
                return Some(format!(
                    "the code {code:#x} is the most negative one of {operand}; allowed: every other code"
                ));
            }
        }
        let numbers = numbers(self.operands, &case);
        match self.rule.sum(self.operands, &numbers) {
            Some(_) => None,
            None => Some(
                "a scale is negative, which no unit has; allowed: scales without a sign".to_owned(),
            ),
        }
    }

    fn neighbours(&self) -> &[NeighbouringRule] {
        &self.neighbours
    }

    fn outputs(&self, inputs: &[u64], neighbours: &[usize], words: &mut Vec<u64>) {
        let rule = neighbours.iter().fold(self.rule, |rule, neighbour| {
            rule.with(self.changes[*neighbour])
        });
        let numbers = numbers(self.operands, &self.case(inputs));
        let possible = rule.is_possible(self.operands);
        words.push(if possible {
            pattern(&rule, self.operands, &numbers)
        } else {
            u64::MAX
        });
    }

    fn same(&self, expected: &[u64], got: &[u64]) -> bool {
        let is_nan = |words: &[u64]| f32::from_bits(words[0] as u32).is_nan();
        expected == got || (expected[0] != u64::MAX && is_nan(expected) && is_nan(got))
    }

    fn size(&self, inputs: &[u64]) -> u128 {
        let products = inputs[1..][..2 * self.length]
            .iter()
            .filter(|code| **code != 0)
            .count();
        (products as u128) << 64 | u128::from(inputs[0] & 0x7fff_ffff)
    }

    fn example(&self, inputs: &[u64], expected: &[u64], got: &[u64]) -> String {
        let numbers = numbers(self.operands, &self.case(inputs));
        let factors = numbers.elements[0]
            .iter()
            .zip(&numbers.elements[1])
            .enumerate();
        let factors = factors.filter(|(_, (a, b))| **a != 0.0 && **b != 0.0);
        let factors: Vec<String> = factors
            .map(|(at, (a, b))| format!("{a}*{b} at {at}"))
            .collect();
        let shown = match factors.len() {
            0..=6 => factors.join(" + "),
            count => format!("{} + … ({count} products)", factors[..4].join(" + ")),
        };
        let [expected, got] = [expected, got]
            .map(|words| format!("{:e} ({:#x})", f32::from_bits(words[0] as u32), words[0]));
        format!("c {:e}, {shown}: expected {expected}, got {got}", numbers.c)
    }

    fn cover(&self, inputs: &[u64], outputs: &[u64], cover: &mut Cover) {
        let case = self.case(inputs);
        for (what, side) in [("codes of a", 0), ("codes of b", 1)] {
            cover.expect(what, 1 << self.operands[side].element().bits());
            case.elements[side]
                .iter()
                .for_each(|code| cover.code(what, *code));
        }
        let sum = f32::from_bits(outputs[0] as u32);
        cover.event("sums that are NaN", sum.is_nan());
        cover.event("sums that are Inf", sum.is_infinite());
        cover.event("sums that are zero", sum == 0.0);
        let promoted = self.rule.accumulator.promote_every > 0
            || self.rule.accumulator.scale_at == ScaleAt::Promotion;
        cover.event("sums with a promotion", promoted);
        for (neighbour, change) in self.neighbours.iter().zip(&self.changes) {
            if neighbour.field == "width" || neighbour.field == "promotion" {
                let numbers = numbers(self.operands, &case);
                let other = pattern(&self.rule.with(*change), self.operands, &numbers);
                let event = match neighbour.field {
                    "width" => "tell another width",
                    _ => "tell another promotion",
                };
                cover.event(event, other != outputs[0]);
            }
        }
    }
}
