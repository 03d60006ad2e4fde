//! The set of blocks.

use super::inputs::{BlockMaker, CandidateBlock};
use super::layout::{is_one_scale, layout};
use super::model::ScaleChange;
use super::model::{BlockCodes, BlockConversion, BlockModel};
use super::neighbours::neighbours;
use crate::VERSION;
use crate::choice::{CaseChoice, Dice};
use crate::cover::Cover;
use crate::element::combined;
use crate::element::input::{ExactInput, InputType};
use crate::element::rule::ElementRule;
use crate::error::VectorsError;
use crate::layout::BusLayout;
use crate::set::{NeighbouringRule, VectorSet};
use microscaling::{BlockFormat, NonFinite};

/// Elements of a block that is as long as its axis.
const WHOLE_AXIS: usize = 32;
/// The most elements of a case.
const LONGEST: usize = 1 << 16;
/// Blocks of a case, in formats whose tensor has a scale.
const BLOCKS_OF_TENSOR: usize = 4;

/// Quantizations of blocks.
///
/// A case is a block; in formats with a tensor scale it is a tensor of four blocks, and in formats with outer scales the part of one
/// outer scale. `count` is how many elements there are: behind them the inputs are 0, as at the end of an axis.
#[derive(Debug, Clone)]
pub struct BlockSet {
    model: BlockModel,
    rule: BlockConversion,
    length: usize,
    record: usize,
    values: bool,
    layout: BusLayout,
    seed: u64,
    candidates: Vec<CandidateBlock>,
    choice: CaseChoice,
    neighbours: Vec<NeighbouringRule>,
    deviations: Vec<BlockConversion>,
}

impl BlockSet {
    /// Blocks for a format and a rule of its elements. With `values` the outputs have the numbers as float32, too.
    ///
    /// # Errors
    /// * [`VectorsError::Option`]: a rule that the format cannot have.
    /// * [`VectorsError::Pack`]: the format is not valid.
    pub fn new(
        format: BlockFormat,
        input: InputType,
        rule: ElementRule,
        values: bool,
        seed: u64,
        limit: Option<u64>,
    ) -> Result<Self, VectorsError> {
        rule.validate()?;
        let model = BlockModel::new(format, input)?;
        let own = ElementRule::of(&format);
        // Microexponents flush inputs by themselves.
        let has_own = own != ElementRule::default() && format.shifts.is_none();
        if has_own && rule != ElementRule::default() {
            let allowed = format!(
                "no options beside the format's own rule, {}",
                own.describe()
            );
            return Err(VectorsError::option("rule", rule.describe(), allowed));
        }
        let rule = if has_own { own } else { rule };
        if model.element.is_none() && model.of_library(&rule).is_none() {
            let got = rule.describe();
            let allowed = "rounding even, nearest or floor, and no other switch than flushed inputs: the elements of this format have more \
                           than one scale, or a table";
            return Err(VectorsError::option("rule", got, allowed));
        }
        let one = match (format.group_size(), format.square) {
            (0, _) => WHOLE_AXIS,
            (size, false) => size,
            (size, true) => size.saturating_mul(size),
        };
        let length = one.saturating_mul(if format.tensor_scale {
            BLOCKS_OF_TENSOR
        } else {
            1
        });
        if length > LONGEST {
            let allowed = format!("formats whose cases have at most {LONGEST} elements");
            return Err(VectorsError::option("format", format, &allowed));
        }
        if let Some(plan) = &model.element {
            rule.check_overflow(plan)?;
        }
        let zeros = vec![0; length];
        let conversion = BlockConversion {
            element: rule,
            scale: ScaleChange::None,
        };
        let record = model.outputs(&zeros, &[], &conversion)?.scales.len();
        let layout = layout(&model, &rule, [length, record], values);
        let maker = BlockMaker {
            model: &model,
            length,
            dice: Dice::new(seed, 2),
            blocks: Vec::new(),
        };
        let (must, candidates) = maker.make();
        let (neighbours, deviations) = neighbours(&model, &conversion).into_iter().unzip();
        Ok(Self {
            model,
            rule: conversion,
            length,
            record,
            values,
            layout,
            seed,
            choice: CaseChoice::new(must, candidates.len() as u64, limit),
            candidates,
            neighbours,
            deviations,
        })
    }

    /// The elements of a block, and their random words.
    fn parts<'a>(&self, inputs: &'a [u64]) -> [&'a [u64]; 2] {
        let count = inputs[0] as usize;
        let (patterns, random) = inputs[1..].split_at(self.length);
        [
            &patterns[..count],
            if random.is_empty() {
                random
            } else {
                &random[..count]
            },
        ]
    }

    fn is_one_scale(&self) -> bool {
        is_one_scale(&self.model)
    }

    fn push(&self, outputs: &BlockCodes, words: &mut Vec<u64>) {
        if self.model.format.tensor_scale {
            words.push(outputs.tensor_scale.into());
        }
        match self.is_one_scale() {
            true => words.push(
                outputs
                    .scales
                    .iter()
                    .rev()
                    .fold(0, |code, byte| code << 8 | u64::from(*byte)),
            ),
            false => {
                words.extend(outputs.scales.iter().map(|byte| u64::from(*byte)));
                words.extend(std::iter::repeat_n(0, self.record - outputs.scales.len()));
            }
        }
        let rest = self.length - outputs.codes.len();
        words.extend(outputs.codes.iter().map(|code| u64::from(*code)));
        words.extend(std::iter::repeat_n(0, rest));
        if self.values {
            let pattern = |x: &f32| {
                if x.is_nan() {
                    f32::NAN.to_bits()
                } else {
                    x.to_bits()
                }
            };
            words.extend(outputs.values.iter().map(|x| u64::from(pattern(x))));
            words.extend(std::iter::repeat_n(0, rest));
        }
    }

    fn combined(&self, neighbours: &[usize]) -> BlockConversion {
        let elements: Vec<ElementRule> = self
            .deviations
            .iter()
            .map(|deviation| deviation.element)
            .collect();
        let mut rule = self.rule;
        rule.element = combined(&self.rule.element, &elements, neighbours.iter().copied());
        let scales = neighbours
            .iter()
            .map(|neighbour| self.deviations[*neighbour].scale);
        rule.scale = scales
            .into_iter()
            .find(|scale| *scale != ScaleChange::None)
            .unwrap_or(ScaleChange::None);
        rule
    }
}

impl VectorSet for BlockSet {
    fn name(&self) -> String {
        let rule = self.rule.element.describe();
        format!(
            "blocks format={} input={} {rule} seed={} cases={} version={VERSION}",
            self.model.format,
            self.model.input,
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
        let block = &self.candidates[candidate as usize];
        words.push(block.count as u64);
        words.extend(block.patterns.iter().map(|pattern| u64::from(*pattern)));
        words.extend(std::iter::repeat_n(0, self.length - block.count));
        let rule = self.rule.element;
        if rule.rounding.is_stochastic() {
            let stream = microscaling::RandomStream::new(self.seed, 1 << 32 | candidate);
            words.extend(
                (0..self.length as u64)
                    .map(|i| u64::from(stream.draw(i) >> (32 - rule.random_bits))),
            );
        }
    }

    fn refuse(&self, inputs: &[u64]) -> Option<String> {
        let count = inputs[0] as usize;
        let all = if self.model.format.square {
            self.length
        } else {
            1
        };
        if count > self.length || count < all {
            return Some(format!(
                "count is {count}, expected {all} to {}",
                self.length
            ));
        }
        let is_finite = |pattern: &u64| {
            matches!(
                self.model.input.number(*pattern as u32),
                ExactInput::Finite { .. }
            )
        };
        let kept = self.model.format.non_finite == NonFinite::Kept;
        let [patterns, _] = self.parts(inputs);
        (kept && !patterns.iter().all(is_finite))
            .then(|| "the format has no code for NaN and Inf".to_owned())
    }

    fn neighbours(&self) -> &[NeighbouringRule] {
        &self.neighbours
    }

    fn outputs(&self, inputs: &[u64], neighbours: &[usize], words: &mut Vec<u64>) {
        let [patterns, random] = self.parts(inputs);
        let outputs = self
            .model
            .outputs(patterns, random, &self.combined(neighbours));
        self.push(
            &outputs.expect("`new` and `refuse` checked format and inputs"),
            words,
        );
    }

    fn same(&self, expected: &[u64], got: &[u64]) -> bool {
        if expected == got {
            return true;
        }
        let element = self.model.format.element;
        let has_nan = self.model.element.is_some();
        let at_codes = expected.len() - self.length * if self.values { 2 } else { 1 };
        expected
            .iter()
            .zip(got)
            .enumerate()
            .all(|(i, (expected, got))| {
                let is_nan = |word: u64| match i {
                    _ if i < at_codes => false,
                    _ if i < at_codes + self.length => {
                        has_nan && element.decode(word as u32).is_nan()
                    }
                    _ => f32::from_bits(word as u32).is_nan(),
                };
                expected == got || (is_nan(*expected) && is_nan(*got))
            })
    }

    fn size(&self, inputs: &[u64]) -> u128 {
        let [patterns, _] = self.parts(inputs);
        let sign = u64::from(self.model.input.sign());
        let magnitudes = patterns.iter().map(|pattern| pattern & (sign - 1));
        let nonzero = magnitudes
            .clone()
            .filter(|magnitude| *magnitude != 0)
            .count();
        (nonzero as u128) << 64 | magnitudes.map(u128::from).sum::<u128>()
    }

    fn example(&self, inputs: &[u64], expected: &[u64], got: &[u64]) -> String {
        let [patterns, _] = self.parts(inputs);
        let numbers: Vec<f32> = self.model.numbers(patterns, false);
        let amax = numbers.iter().fold(0.0_f32, |amax, x| amax.max(x.abs()));
        let scales = expected.len() - self.length * if self.values { 2 } else { 1 };
        let place = expected
            .iter()
            .zip(got)
            .position(|(expected, got)| expected != got)
            .unwrap_or(0);
        let (what, i) = match place {
            place if place < scales => ("scale", place),
            place if place < scales + self.length => ("code", place - scales),
            place => ("value", place - scales - self.length),
        };
        let element = match what {
            "scale" => String::new(),
            _ => format!(
                ", element {i} is {:e} ({:#x})",
                numbers.get(i).unwrap_or(&0.0),
                inputs[1 + i]
            ),
        };
        format!(
            "{} elements, amax {amax:e}{element}: expected {what} {:#x}, got {:#x}",
            numbers.len(),
            expected[place],
            got[place]
        )
    }

    fn cover(&self, inputs: &[u64], outputs: &[u64], cover: &mut Cover) {
        let [patterns, _] = self.parts(inputs);
        let numbers: Vec<ExactInput> = patterns
            .iter()
            .map(|pattern| self.model.input.number(*pattern as u32))
            .collect();
        let scales = outputs.len() - self.length * if self.values { 2 } else { 1 };
        if self.is_one_scale()
            && self
                .layout
                .fields()
                .iter()
                .any(|field| field.name == "scale" && field.bits <= 8)
        {
            cover.expect("scales", 1 << self.model.format.scale_bits());
            cover.code("scales", outputs[0]);
        }
        cover.expect("codes", 1 << self.model.format.element_bits());
        for code in &outputs[scales..][..patterns.len()] {
            cover.code("codes", *code);
        }
        let zero = |x: &ExactInput| matches!(x, ExactInput::Finite { significand: 0, .. });
        let subnormal = |x: &ExactInput| {
            matches!(
                x,
                ExactInput::Finite {
                    subnormal: true,
                    ..
                }
            )
        };
        cover.event("blocks of zeros", numbers.iter().all(zero));
        cover.event("blocks with NaN", numbers.contains(&ExactInput::Nan));
        cover.event(
            "blocks with Inf",
            numbers
                .iter()
                .any(|x| matches!(x, ExactInput::Infinite { .. })),
        );
        cover.event(
            "blocks of subnormal inputs",
            numbers.iter().any(subnormal) && numbers.iter().all(|x| zero(x) || subnormal(x)),
        );
        cover.event("blocks that end early", patterns.len() < self.length);
    }
}
