//! The sets of elements.

use super::format::{CodeFormat, CodePlan};
use super::input::{ExactInput, InputType};
use super::inputs::{CandidateInputs, random_words};
use super::neighbours::{combined, neighbouring_rules};
use super::rule::{ElementRule, Place};
use crate::VERSION;
use crate::choice::{CaseChoice, Dice};
use crate::cover::Cover;
use crate::error::VectorsError;
use crate::layout::{BusField, BusLayout};
use crate::set::{NeighbouringRule, VectorSet};

/// Conversions of numbers to a format.
#[derive(Debug, Clone)]
pub struct ElementSet {
    format: CodeFormat,
    plan: CodePlan,
    input: InputType,
    rule: ElementRule,
    layout: BusLayout,
    seed: u64,
    /// None: every pattern.
    candidates: Option<Vec<[u32; 2]>>,
    choice: CaseChoice,
    neighbours: Vec<NeighbouringRule>,
    deviations: Vec<ElementRule>,
}

impl ElementSet {
    /// All codes, midpoints and their neighbours, and special cases, or (`exhaustive`) every input pattern in order. The seed is of
    /// random patterns and random words.
    ///
    /// # Errors
    /// [`VectorsError::Option`]: the format has tables, or the rule has a field out of range.
    pub fn new(
        format: CodeFormat,
        input: InputType,
        rule: ElementRule,
        exhaustive: bool,
        seed: u64,
        limit: Option<u64>,
    ) -> Result<Self, VectorsError> {
        rule.validate()?;
        let plan = format.plan()?;
        rule.check_overflow(&plan)?;
        let mut fields = vec![BusField::input("input", input.bits(), 0)];
        if rule.rounding.is_stochastic() {
            fields.push(BusField::input("random", rule.random_bits, 0));
        }
        fields.push(BusField::output("code", format.bits(), 0));
        let (candidates, choice) = match exhaustive {
            true => (None, CaseChoice::new(0, 1 << input.bits(), limit)),
            false => {
                let (must, all) = candidates(&plan, input, &rule, seed);
                let choice = CaseChoice::new(must, all.len() as u64, limit);
                (Some(all), choice)
            }
        };
        let (neighbours, deviations) = neighbouring_rules(&rule, Some(&plan)).into_iter().unzip();
        Ok(Self {
            format,
            plan,
            input,
            rule,
            layout: BusLayout::new(fields),
            seed,
            candidates,
            choice,
            neighbours,
            deviations,
        })
    }

    fn number(&self, inputs: &[u64]) -> ExactInput {
        self.input.number(inputs[0] as u32)
    }
}

/// Inputs with their random words, and how many of them come before any limit.
fn candidates(
    plan: &CodePlan,
    input: InputType,
    rule: &ElementRule,
    seed: u64,
) -> (usize, Vec<[u32; 2]>) {
    let CandidateInputs { must, patterns } = CandidateInputs::new(plan, input, seed);
    if !rule.rounding.is_stochastic() {
        return (
            must,
            patterns.into_iter().map(|pattern| [pattern, 0]).collect(),
        );
    }
    let mut dice = Dice::new(seed, 1);
    let mut all = Vec::new();
    let mut end = 0;
    for (i, pattern) in patterns.into_iter().enumerate() {
        let words = random_words(plan, rule, input.number(pattern), dice.word());
        all.extend(words.into_iter().map(|word| [pattern, word]));
        if i < must {
            end = all.len();
        }
    }
    (end, all)
}

impl VectorSet for ElementSet {
    fn name(&self) -> String {
        let exhaustive = if self.candidates.is_none() {
            " exhaustive"
        } else {
            ""
        };
        format!(
            "elements format={} input={} {}{exhaustive} seed={} cases={} version={VERSION}",
            self.format,
            self.input,
            self.rule.describe(),
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
        let candidate = self.choice.candidate(case);
        let stochastic = self.rule.rounding.is_stochastic();
        match &self.candidates {
            Some(all) => {
                let [pattern, random] = all[candidate as usize];
                words.push(pattern.into());
                words.extend(stochastic.then_some(u64::from(random)));
            }
            None => {
                words.push(candidate);
                let word = || microscaling::RandomStream::new(self.seed, 1).draw(candidate);
                words.extend(stochastic.then(|| u64::from(word() >> (32 - self.rule.random_bits))));
            }
        }
    }

    fn refuse(&self, _: &[u64]) -> Option<String> {
        None
    }

    fn neighbours(&self) -> &[NeighbouringRule] {
        &self.neighbours
    }

    fn outputs(&self, inputs: &[u64], neighbours: &[usize], words: &mut Vec<u64>) {
        let rule = combined(&self.rule, &self.deviations, neighbours.iter().copied());
        let random = inputs.get(1).copied().unwrap_or(0) as u32;
        words.push(rule.convert(&self.plan, self.number(inputs), random).into());
    }

    fn same(&self, expected: &[u64], got: &[u64]) -> bool {
        let is_nan = |words: &[u64]| self.format.is_nan(words[0] as u32);
        expected == got || (is_nan(expected) && is_nan(got))
    }

    fn size(&self, inputs: &[u64]) -> u128 {
        let (pattern, sign) = (inputs[0], u64::from(self.input.sign()));
        u128::from(pattern & (sign - 1)) << 1 | u128::from(pattern & sign != 0)
    }

    fn example(&self, inputs: &[u64], expected: &[u64], got: &[u64]) -> String {
        let x = self.input.to_f32(inputs[0] as u32);
        let random = inputs
            .get(1)
            .map_or(String::new(), |word| format!(", random {word:#x}"));
        let [expected, got] = [expected, got].map(|words| {
            let value = self.format.decode(words[0] as u32);
            format!("{:#x} ({value})", words[0])
        });
        format!(
            "input {:#x} ({x:e}){random}: expected {expected}, got {got}",
            inputs[0]
        )
    }

    fn cover(&self, inputs: &[u64], outputs: &[u64], cover: &mut Cover) {
        cover.expect("codes", 1 << self.format.bits());
        cover.code("codes", outputs[0]);
        let x = self.number(inputs);
        cover.event("NaN", x == ExactInput::Nan);
        cover.event("Inf", matches!(x, ExactInput::Infinite { .. }));
        let ExactInput::Finite {
            negative,
            significand,
            exponent,
            subnormal,
        } = x
        else {
            return;
        };
        cover.event("negative inputs", negative);
        cover.event("zeros", significand == 0);
        cover.event("subnormal inputs", subnormal);
        if significand == 0 {
            return;
        }
        let place = Place::of(&self.plan, significand, exponent);
        let (magnitude, _) = self.plan.magnitude(outputs[0] as u32);
        let beyond = place.code >= self.plan.largest
            && !(place.is_exact() && place.code == self.plan.largest);
        cover.event("beyond the largest number", beyond);
        cover.event("exact", place.is_exact() && !beyond);
        cover.event("ties", place.half().is_eq() && !place.is_exact());
        cover.event("below a tie", place.half().is_lt() && !place.is_exact());
        cover.event("above a tie", place.half().is_gt());
        cover.event("subnormal outputs", self.plan.is_subnormal(magnitude));
    }
}
