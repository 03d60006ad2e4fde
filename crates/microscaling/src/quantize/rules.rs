//! The rules of the block formats: from the magnitudes of a block to its scale, and from there to an element.
//!
//! The rules of any block are the specification, written with integers. Ordinary blocks, which are
//! [tame](BlockRule::tame), have a shorter way with the same result: the elements of every format are rounded alike, in units
//! of a scale.

mod bfp;
mod element_rule;
mod float;
mod float_scale;
mod grid;
mod microexponent;
mod mx;
mod rms;
mod scale;
mod scale_pair;
mod unit;

pub(crate) use bfp::BfpRule;
pub(crate) use element_rule::{Clipped, ElementRule};
pub(crate) use float_scale::{EXACT, FloatScaleRule, SubScaleRule, is_large};
pub(crate) use grid::{Grid, StepElement, Steps};
pub(crate) use microexponent::MicroexponentRule;
pub(crate) use mx::MxRule;
pub(crate) use scale_pair::ScalePair;
pub(crate) use unit::UnitElement;

use super::contiguous::TOGETHER;
use crate::float_state::ieee;
use crate::format::table::Few;
use crate::round::bits::{ABS, MANTISSA_BITS, NAN};
use crate::round::{RoundingRule, with_rule};
use crate::{BlockFormat, FloatScaleFormat, Rounding};
use core::hint::black_box;
use core::ops::Range;
use float_scale::{Candidates, FOUR_VERDICT};

/// A block format, and the scale of the tensor if it has one, as the loops hold them.
#[derive(Clone, Copy)]
pub(crate) enum BlockRule {
    Mx(MxRule),
    Microexponent(MicroexponentRule),
    Bfp(BfpRule),
    FloatScale(FloatScaleRule),
}

impl BlockRule {
    /// The rule for a tensor with this scale, if the format has tensor scales.
    pub(crate) fn of(format: &BlockFormat, tensor_scale: Option<f32>) -> Self {
        match format {
            BlockFormat::Mx(format) => Self::Mx(MxRule::of(format)),
            BlockFormat::Microexponent(format) => {
                Self::Microexponent(MicroexponentRule::of(format))
            }
            BlockFormat::Bfp(format) => Self::Bfp(BfpRule::of(format)),
            BlockFormat::Nvfp4(format) => Self::of_float_scale(&(*format).into(), tensor_scale),
            BlockFormat::FloatScale(format) => Self::of_float_scale(format, tensor_scale),
        }
    }

    fn of_float_scale(format: &FloatScaleFormat, tensor_scale: Option<f32>) -> Self {
        Self::FloatScale(FloatScaleRule::of(format, tensor_scale.unwrap_or(1.0)))
    }

    /// The same rule with results in units of the tensor scale, if there is one.
    pub(crate) fn in_units_of_the_tensor_scale(self) -> Self {
        match self {
            Self::FloatScale(rule) => Self::FloatScale(rule.in_units_of_the_scale()),
            rule => rule,
        }
    }

    /// Elements that share a grid, at least 1. As many as a block, or more, where there is nothing below the block.
    #[inline(always)]
    pub(crate) fn sub_block(&self) -> usize {
        match self {
            Self::Microexponent(rule) => rule.sub_block,
            Self::FloatScale(rule) => rule.sub_scales.map_or(usize::MAX, |sub| sub.blocks[1]),
            _ => usize::MAX,
        }
    }

    /// Whether a block with this number of elements has sub-blocks.
    #[inline(always)]
    pub(crate) fn has_sub_blocks(&self, length: usize) -> bool {
        self.sub_block() < length || self.first_sub_block().is_some()
    }

    /// Elements that share what sub-blocks need to know beside their block, where there are two levels of sub-blocks.
    #[inline(always)]
    pub(crate) fn first_sub_block(&self) -> Option<usize> {
        match self {
            Self::FloatScale(rule) => rule.sub_scales.map(|sub| sub.blocks[0]),
            _ => None,
        }
    }

    /// The second word of a sub-block, given its number, from the elements of its block.
    pub(crate) fn second_of_sub_block(
        &self,
        index: usize,
        elements: impl Iterator<Item = f32> + Clone,
    ) -> u32 {
        let length = self.sub_block();
        let first = index * length;
        let max = |start, length| self.counted_max(elements.clone().skip(start).take(length));
        let own = max(first, length);
        match self.first_sub_block() {
            Some(length) => SubScaleRule::second([max(first / length * length, length), own]),
            None => own,
        }
    }

    /// Whether every scale is a power of two.
    #[inline(always)]
    pub(crate) fn has_powers_of_two(&self) -> bool {
        !matches!(self, Self::FloatScale(_))
    }

    /// Whether the grid depends on all elements of a block. The loops look at such a block twice: the second time they know its
    /// largest magnitude. A format of such blocks has no sub-blocks.
    #[inline(always)]
    pub(crate) fn looks_twice(&self) -> bool {
        match self {
            Self::Mx(rule) => rule.is_rms(),
            Self::FloatScale(rule) => rule.looks_twice(),
            _ => false,
        }
    }
}

/// Any block: the specification.
impl BlockRule {
    /// The part of a magnitude that counts for the largest one.
    #[inline(always)]
    fn counted(&self, abs: u32) -> u32 {
        match self {
            Self::Bfp(_) => BfpRule::counted(abs),
            _ => abs,
        }
    }

    /// The largest of the counted magnitudes of some elements.
    pub(crate) fn counted_max(&self, elements: impl Iterator<Item = f32>) -> u32 {
        elements.fold(0, |amax, x| amax.max(self.counted(x.to_bits() & ABS)))
    }

    /// The largest magnitude of a block of some elements, and what a second look at them says.
    pub(crate) fn maxima(&self, elements: impl Iterator<Item = f32> + Clone) -> [u32; 2] {
        let amax = self.counted_max(elements.clone());
        [amax, self.second(amax, elements)]
    }

    /// The verdict of a second look at a block with the largest magnitude `amax`. Rules without a second look return
    /// `amax`.
    #[inline(always)]
    pub(crate) fn second(&self, amax: u32, elements: impl Iterator<Item = f32>) -> u32 {
        if !self.looks_twice() {
            return amax;
        }
        if let Self::FloatScale(rule) = self
            && !rule.four_over_six
        {
            return rule.best_table(amax, elements);
        }
        let sight = self.sight::<true>(amax);
        let (sum, length) = elements.fold((0_i64, 0), |(sum, length), x| {
            let weight = self.weight::<true>(sight, x);
            (sum.wrapping_add(weight), length + 1)
        });
        self.verdict(amax, sum, length)
    }

    /// The data for a second look: at any block if `EXACT`, else at a tame block.
    #[inline(always)]
    fn sight<const EXACT: bool>(&self, amax: u32) -> Sight {
        match self {
            Self::Mx(_) => [MxRule::unit_of_mean(amax) as u32, 0, 0, 0, 0],
            Self::FloatScale(rule) => rule.candidates::<EXACT>(amax).words(),
            _ => Sight::default(),
        }
    }

    /// The summand of an element in a second look. Summands are integers, so their order does not matter.
    #[inline(always)]
    fn weight<const EXACT: bool>(&self, sight: Sight, x: f32) -> i64 {
        match self {
            Self::Mx(_) => MxRule::square(sight[0] as i32, x),
            Self::FloatScale(rule) => rule.difference::<EXACT>(Candidates::of(sight), x),
            _ => 0,
        }
    }

    /// The grid of a sub-block, from the largest counted magnitudes of its block and its own, or what a second look says.
    #[inline(always)]
    pub(crate) fn grid(&self, amax: u32, second: u32) -> Grid {
        match self {
            Self::Mx(rule) => rule.grid(amax, second),
            Self::Microexponent(rule) => rule.grid(amax, second),
            Self::Bfp(rule) => rule.grid(amax),
            Self::FloatScale(rule) => rule.grid(amax, second),
        }
    }

    /// How elements are rounded to a grid; `None` if grids are [`ScalePair`]s.
    #[inline(always)]
    pub(crate) fn step_element(&self) -> Option<StepElement> {
        match self {
            Self::Mx(rule) => Some(rule.step_element()),
            Self::Microexponent(rule) => Some(rule.step_element()),
            Self::Bfp(rule) => Some(rule.step_element()),
            Self::FloatScale(_) => None,
        }
    }

    /// Whether elements are of tables with few numbers.
    #[inline(always)]
    pub(crate) fn has_few(&self) -> bool {
        matches!(self, Self::FloatScale(rule) if rule.has_few())
    }

    /// The numbers of a block with this grid, if they are few, and the pair.
    #[inline(always)]
    pub(crate) fn few(&self, grid: Grid) -> Option<(Few, ScalePair)> {
        match self {
            Self::FloatScale(rule) => rule.few(grid),
            _ => None,
        }
    }

    /// Rounds an element to a grid.
    #[inline(always)]
    pub(crate) fn round<R: RoundingRule>(&self, grid: Grid, x: f32, draw: u32) -> f32 {
        match self {
            Self::FloatScale(rule) => rule.round::<R>(grid, x, draw),
            Self::Mx(rule) => rule.step_element().round::<R>(grid, x, draw),
            Self::Microexponent(rule) => rule.step_element().round::<R>(grid, x, draw),
            Self::Bfp(rule) => rule.step_element().round::<R>(grid, x, draw),
        }
    }

    /// Pattern of the largest number of a grid with this sign. The pattern is 0 or NaN if every element becomes 0 or NaN. A table
    /// without numbers of this sign gives the pattern of its smallest number.
    #[inline(always)]
    pub(crate) fn largest(&self, grid: Grid, sign: u32) -> u32 {
        match self {
            Self::FloatScale(rule) => match rule.pair_of(grid) {
                pair if pair.is_nan() => NAN,
                pair => FloatScaleRule::largest(pair, rule.largest_unit(grid, sign)),
            },
            _ => Steps::of(grid).max,
        }
    }

    /// One element, given the patterns of the largest magnitudes of its block and of its sub-block,
    /// whose sign bits are ignored.
    pub(crate) fn round_element(
        &self,
        x: f32,
        maxima: [u32; 2],
        rounding: Rounding,
        draw: u32,
    ) -> f32 {
        ieee(|| {
            let grid = self.grid(maxima[0] & ABS, maxima[1] & ABS);
            with_rule!(rounding, R => self.round::<R>(grid, x, draw))
        })
    }
}

/// Tame blocks, all of whose elements are finite.
impl BlockRule {
    /// The patterns of a block's largest magnitude from which on and below which the block is tame: neither very large nor
    /// very small. A block of zeros is as tame as one with the first of them. No block with a NaN or Inf is.
    #[inline(always)]
    pub(crate) fn tame(&self) -> Range<u32> {
        match self {
            Self::Mx(rule) => rule.tame(),
            Self::Microexponent(rule) => rule.tame(),
            Self::Bfp(rule) => rule.tame(),
            Self::FloatScale(rule) => rule.tame(),
        }
    }

    /// Whether all blocks with these largest magnitudes are tame, which are looked at without a branch.
    #[inline(always)]
    pub(crate) fn are_tame(&self, maxima: &[u32]) -> bool {
        let range = self.tame();
        maxima.iter().fold(true, |all, amax| {
            all & (*amax < range.end) & ((*amax >= range.start) | (*amax == 0))
        })
    }

    /// The elements of tame blocks.
    #[inline(always)]
    pub(crate) fn unit_element(&self) -> UnitElement {
        match self {
            Self::Mx(rule) => rule.unit_element(),
            Self::Microexponent(rule) => rule.unit_element(),
            Self::Bfp(rule) => rule.unit_element(),
            Self::FloatScale(rule) => rule.unit_element(),
        }
    }

    /// The pairs of tame sub-blocks, word by word, from the largest magnitudes of their blocks and their own, or what second
    /// looks say. Pairs of a block of zeros are any.
    #[inline(always)]
    pub(crate) fn tame_pairs(
        &self,
        maxima: &[u32],
        seconds: &[u32],
        [scales, inverses]: [&mut [u32]; 2],
    ) {
        let least = self.tame().start;
        let pairs = scales.iter_mut().zip(inverses);
        let pairs = pairs.zip(maxima.iter().zip(seconds));
        // By value: loops without branches need what they look at in registers.
        match self {
            Self::Mx(rule) if rule.is_rms() => {
                let rule = *rule;
                for ((scale, inverse), (_, second)) in pairs {
                    [*scale, *inverse] = rule.tame_pair_of_mean(*second).words();
                }
            }
            Self::Mx(rule) => {
                let rule = *rule;
                for ((scale, inverse), (amax, _)) in pairs {
                    [*scale, *inverse] = rule.tame_pair((*amax).max(least)).words();
                }
            }
            Self::Microexponent(rule) => {
                let rule = *rule;
                for ((scale, inverse), (amax, second)) in pairs {
                    [*scale, *inverse] = rule.tame_pair((*amax).max(least), *second).words();
                }
            }
            Self::Bfp(rule) => {
                let rule = *rule;
                for ((scale, inverse), (amax, _)) in pairs {
                    [*scale, *inverse] = rule.tame_pair((*amax).max(least)).words();
                }
            }
            Self::FloatScale(rule) if rule.four_over_six => {
                let rule = *rule;
                for ((scale, inverse), (amax, second)) in pairs {
                    let four = *second == FOUR_VERDICT;
                    [*scale, *inverse] = rule.tame_pair((*amax).max(least), four).words();
                }
            }
            Self::FloatScale(rule) => {
                let rule = *rule;
                for ((scale, inverse), (amax, _)) in pairs {
                    [*scale, *inverse] = rule.tame_pair((*amax).max(least), false).words();
                }
            }
        }
    }

    /// The pair of one tame sub-block, of a format that has sub-blocks.
    #[inline(always)]
    pub(crate) fn tame_sub_pair(&self, amax: u32, sub_amax: u32) -> ScalePair {
        match self {
            Self::Microexponent(rule) => rule.tame_pair(amax.max(rule.tame().start), sub_amax),
            _ => unreachable!("there are sub-blocks"),
        }
    }

    /// The code of a tame block's scale, given the scale. Floats are in units of the tensor's scale.
    #[inline(always)]
    pub(crate) fn tame_scale_code(&self, amax: u32, scale: u32) -> u32 {
        match self {
            Self::Mx(rule) if amax == 0 => rule.zero_code(),
            Self::Mx(_) => scale >> MANTISSA_BITS,
            Self::Microexponent(_) | Self::Bfp(_) => amax >> MANTISSA_BITS,
            Self::FloatScale(rule) if amax == 0 => rule.scale.zero_code(),
            Self::FloatScale(rule) => rule.scale.code(scale),
        }
    }

    /// Looks twice at tame blocks of the same length, at most [`TOGETHER`] of them, one after the other.
    #[inline(always)]
    pub(crate) fn tame_seconds(
        &self,
        maxima: &[u32],
        blocks: &[f32],
        length: usize,
        seconds: &mut [u32],
    ) {
        let rule = *self;
        let mut sights = [[0; TOGETHER]; SIGHT];
        rule.tame_sights(maxima, sights.each_mut().map(|words| &mut words[..]));
        let blocks = blocks.chunks_exact(length).zip(maxima).zip(seconds);
        for (i, ((elements, amax), second)) in blocks.enumerate() {
            // Hidden, lest blocks become lanes.
            let sight = black_box(sights.each_ref().map(|words| words[i]));
            let add = |sum: i64, weight: i64| sum.wrapping_add(weight);
            let sum = match rule {
                Self::Mx(_) => elements
                    .iter()
                    .map(
                        #[inline(always)]
                        |x| MxRule::square(sight[0] as i32, *x),
                    )
                    .fold(0, add),
                Self::FloatScale(rule) => {
                    let candidates = Candidates::of(sight);
                    elements
                        .iter()
                        .map(
                            #[inline(always)]
                            |x| rule.difference::<false>(candidates, *x),
                        )
                        .fold(0, add)
                }
                _ => 0,
            };
            *second = rule.verdict(*amax, sum, length);
        }
    }

    /// Writes, word by word, what second looks need to know of tame blocks. The blocks are columns of some rows.
    #[inline(always)]
    pub(crate) fn tame_sights(&self, maxima: &[u32], sights: [&mut [u32]; SIGHT]) {
        let rule = *self;
        for (i, amax) in maxima.iter().enumerate() {
            let words = rule.sight::<false>(*amax);
            for word in 0..SIGHT {
                sights[word][i] = words[word];
            }
        }
    }

    /// Adds a row of such columns to their sums.
    #[inline(always)]
    pub(crate) fn add_to_sums(&self, sights: [&[u32]; SIGHT], row: &[f32], sums: &mut [i64]) {
        let rule = *self;
        let [a, b, c, d, e] = sights;
        let sums = sums.iter_mut().zip(row).zip(a);
        let others = b.iter().zip(c).zip(d).zip(e);
        for (((sum, x), a), (((b, c), d), e)) in sums.zip(others) {
            let weight = rule.weight::<false>([*a, *b, *c, *d, *e], *x);
            *sum = sum.wrapping_add(weight);
        }
    }

    /// The verdict of the sum over a block of `length` elements.
    #[inline(always)]
    pub(crate) fn verdict(&self, amax: u32, sum: i64, length: usize) -> u32 {
        match self {
            Self::Mx(rule) => rule.verdict_of_squares(amax, sum, length),
            _ => u32::from(sum < 0) * FOUR_VERDICT,
        }
    }
}

/// The data for a second look at a block, word by word.
type Sight = [u32; SIGHT];
pub(crate) const SIGHT: usize = 5;
