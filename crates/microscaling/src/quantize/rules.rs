//! The rules of the block formats: from the magnitudes of a block to its scale, and from there to an element.
//!
//! The rules of any block are the specification, written with integers. [Ordinary blocks](BlockRule::ordinary)
//! have a shorter way with the same result: the elements of every format are rounded alike, in units of a scale.

mod conversion;
mod element_row;
mod element_rule;
mod fixed_point;
mod float;
mod float_scale;
mod formats;
mod grid;
mod mx;
mod ordinary;
mod plain_blocks;
mod rms;
mod scale;
mod scale_pair;
mod tame;
mod unit;

pub(crate) use conversion::{AnyNumbers, ConversionRule};
pub(crate) use element_row::ElementRow;
pub(crate) use element_rule::{Clipped, ElementRule};
pub(crate) use fixed_point::FixedPointRule;
pub(crate) use float_scale::OuterScaleRule;
pub use float_scale::{FloatScaleRule, ScaleAbove, SubScaleRule, is_large};
pub use grid::Steps;
pub(crate) use grid::{Grid, StepElement};
pub(crate) use mx::MxRule;
pub use plain_blocks::{PlainBlocks, PlainRounding, PowerRules};
pub use scale::PowerScale;
pub use scale_pair::ScalePair;
pub use tame::TAME_END;
pub use unit::UnitElement;

use crate::format::element::table::ShortTable;
use crate::format::{BlockFormat, ElementRounding};
use crate::round::bits::{ABS, INFINITY, NAN, SIGN};
use crate::round::mode::Rounding;
use crate::round::words::Word;
use crate::round::{RoundingRule, with_rule};
use float_scale::Candidates;
use microscaling_processor::float_state::ieee;
use ordinary::SecondLook;
pub use ordinary::TOGETHER;
pub(crate) use ordinary::{LANES, LOOK_WORDS, are_within};

/// A block format, and the scale of the tensor if it has one, as the loops hold them.
#[derive(Clone, Copy)]
pub(crate) enum BlockRule {
    Mx(MxRule),
    FixedPoint(FixedPointRule),
    FloatScale(FloatScaleRule),
    OuterScale(OuterScaleRule),
}

impl BlockRule {
    /// The rule for a tensor with this scale, if the format has tensor scales.
    pub(crate) fn of(format: &BlockFormat, tensor_scale: Option<f32>) -> Self {
        if format.has_fixed_steps() {
            return Self::FixedPoint(FixedPointRule::of(format));
        }
        if format.has_exponent() {
            return Self::Mx(MxRule::of(format));
        }
        match OuterScaleRule::of(format) {
            Some(rule) => Self::OuterScale(rule),
            None => Self::FloatScale(FloatScaleRule::of(format, tensor_scale.unwrap_or(1.0))),
        }
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
            Self::FixedPoint(rule) => rule.sub_block,
            Self::FloatScale(rule) => rule.sub_scales.map_or(usize::MAX, |sub| sub.blocks[1]),
            Self::OuterScale(rule) => rule.block,
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

    /// The [refinement](Self::refinement) of a sub-block, given its number, from the elements of its block.
    pub(crate) fn refinement_of_sub_block(
        &self,
        index: usize,
        elements: impl Iterator<Item = f32> + Clone,
    ) -> u32 {
        let length = self.sub_block();
        let first = index * length;
        let max = |start, length| self.counted_max(elements.clone().skip(start).take(length));
        let own = max(first, length);
        match self.first_sub_block() {
            Some(length) => SubScaleRule::refinement([max(first / length * length, length), own]),
            None => own,
        }
    }

    /// Whether every scale is a power of two.
    #[inline(always)]
    pub(crate) fn has_powers_of_two(&self) -> bool {
        matches!(self, Self::Mx(_) | Self::FixedPoint(_))
    }

    /// Whether the elements of each sign have a scale.
    #[inline(always)]
    pub(crate) fn has_sign_scales(&self) -> bool {
        match self {
            Self::Mx(rule) => rule.sign_scales,
            Self::FloatScale(rule) => rule.sign_scales,
            Self::FixedPoint(_) | Self::OuterScale(_) => false,
        }
    }

    /// Whether the grid depends on all elements of a block. The loops look at such a block twice: the second time they know its
    /// largest magnitude. A format of such blocks has no sub-blocks.
    #[inline(always)]
    pub(crate) fn looks_twice(&self) -> bool {
        match self {
            Self::Mx(rule) => rule.is_rms() || rule.sign_scales,
            Self::FixedPoint(rule) => rule.renormalizes(),
            Self::FloatScale(rule) => rule.looks_twice() || rule.sign_scales,
            Self::OuterScale(_) => false,
        }
    }

    /// Whether a second look at any block is one at an ordinary block.
    #[inline(always)]
    pub(crate) fn looks_alike(&self) -> bool {
        matches!(self, Self::FixedPoint(rule) if rule.renormalizes() && rule.counts_special)
    }

    /// Whether blocks of this length are worked on as columns even along a contiguous axis. Such blocks are never ordinary and have elements
    /// that are rounded to [`Steps`] or by a [`ScalePair`], or they are parts with an outer scale and few blocks.
    pub(crate) fn is_of_columns(&self, length: usize) -> bool {
        if let Self::OuterScale(rule) = self {
            return length < TOGETHER * rule.block;
        }
        let is_numbers = || self.step_element().is_some() || self.as_numbers().is_some();
        self.ordinary().is_empty() && is_numbers()
    }

    /// How elements are rounded to [`Steps`], and the rounding of the format, if the format has one that needs no draws.
    #[inline(never)]
    pub(crate) fn own_rounding(&self) -> Option<(StepElement, ConversionRule, ElementRounding)> {
        let element = self.step_element()?;
        let conversion = element.conversion?;
        Some((element, conversion, conversion.own_rounding()?))
    }
}

/// Any block: the specification.
impl BlockRule {
    /// The part of a magnitude that counts for the largest one.
    #[inline(always)]
    fn counted(&self, abs: u32) -> u32 {
        match self {
            Self::FixedPoint(rule) => rule.counted(abs),
            Self::FloatScale(rule) if rule.special_elements && abs >= INFINITY => 0,
            Self::Mx(_) | Self::FloatScale(_) | Self::OuterScale(_) => abs,
        }
    }

    /// The largest of the counted magnitudes of some elements.
    pub(crate) fn counted_max(&self, elements: impl Iterator<Item = f32>) -> u32 {
        let mut is_nan = matches!(self, Self::FloatScale(rule) if rule.special_elements);
        let amax = elements.fold(0, |amax, x| {
            is_nan &= x.is_nan();
            amax.max(self.counted(x.to_bits() & ABS))
        });
        // A block of NaN alone has the scale NaN in any case.
        if is_nan { NAN } else { amax }
    }

    /// The largest magnitude of a block of some elements, and what a second look at them says.
    pub(crate) fn maxima(&self, elements: impl Iterator<Item = f32> + Clone) -> [u32; 2] {
        let amax = self.counted_max(elements.clone());
        [amax, self.refinement(amax, elements)]
    }

    /// The word that refines the grid of a block beside its largest magnitude `amax`: what a second look at the block chooses, which
    /// is an exponent, a scale or a table. Rules without a second look return `amax`. The refinement of a sub-block has its own
    /// largest magnitude.
    #[inline(always)]
    pub(crate) fn refinement(&self, amax: u32, elements: impl Iterator<Item = f32>) -> u32 {
        if !self.looks_twice() {
            return amax;
        }
        if self.has_sign_scales() {
            return smaller_of_signs(elements);
        }
        if let Self::FloatScale(rule) = self
            && !rule.four_over_six
        {
            return rule.best_table(amax, elements);
        }
        let look = self.look::<true>(amax);
        let (sum, length) = elements.fold((0_i64, 0), |(sum, length), x| {
            let weight = self.weight::<true>(look, x);
            (sum.wrapping_add(weight), length + 1)
        });
        self.choice(amax, sum, length)
    }

    /// The data for a second look: at any block if `EXACT`, else at an ordinary block.
    #[inline(always)]
    fn look<const EXACT: bool>(&self, amax: u32) -> SecondLook {
        match self {
            Self::Mx(_) => [MxRule::unit_of_mean(amax) as u32, 0, 0, 0, 0],
            Self::FixedPoint(rule) => [rule.least_overflow(amax), 0, 0, 0, 0],
            Self::FloatScale(rule) => rule.candidates::<EXACT>(amax).words(),
            _ => SecondLook::default(),
        }
    }

    /// The summand of an element in a second look. Summands are integers, so their order does not matter.
    #[inline(always)]
    fn weight<const EXACT: bool>(&self, look: SecondLook, x: f32) -> i64 {
        match self {
            Self::Mx(_) => i64::from(MxRule::square(look[0] as i32, x.to_bits())),
            Self::FixedPoint(_) => FixedPointRule::overflows(look[0], x),
            Self::FloatScale(rule) => rule.difference::<EXACT>(Candidates::of(look), x),
            Self::OuterScale(_) => 0,
        }
    }

    /// The grid of a sub-block, from the largest counted magnitudes of its block and its own, or what a second look says. Scales by sign
    /// have a word for each sign in place of the grid, see [`grid_of_sign`](Self::grid_of_sign).
    #[inline(always)]
    pub(crate) fn grid(&self, amax: u32, refinement: u32) -> Grid {
        match self.has_sign_scales() {
            true => self.grid_of_signs(amax, refinement),
            false => self.grid_of_one(amax, refinement),
        }
    }

    /// The same of a format without scales by sign, or of the elements of one sign.
    #[inline(always)]
    pub(crate) fn grid_of_one(&self, amax: u32, refinement: u32) -> Grid {
        match self {
            Self::Mx(_) | Self::FixedPoint(_) => self.steps(amax, refinement).words(),
            Self::FloatScale(rule) => rule.grid(amax, refinement),
            Self::OuterScale(rule) => rule.grid(amax, refinement),
        }
    }

    /// The same of a block whose scale is a power of two.
    #[inline(always)]
    fn steps<W: Word>(&self, amax: W, refinement: W) -> Steps<W> {
        match self {
            Self::Mx(rule) => rule.grid(amax, refinement),
            Self::FixedPoint(rule) => rule.grid(amax, refinement),
            Self::FloatScale(_) | Self::OuterScale(_) => unreachable!("the scale is a float"),
        }
    }

    /// The grids of many sub-blocks, word by word.
    #[inline(always)]
    pub(crate) fn grids(&self, maxima: &[u32], refinements: &[u32], grids: [&mut [u32]; 2]) {
        // A loop for each kind of rule: one loop that asks for the kind does not become vectors.
        match *self {
            Self::FixedPoint(rule) => write_grids(
                maxima,
                refinements,
                grids,
                #[inline(always)]
                |amax, refinement| rule.grid(amax, refinement).words(),
            ),
            Self::Mx(rule) if !rule.sign_scales => write_grids(
                maxima,
                refinements,
                grids,
                #[inline(always)]
                |amax, refinement| rule.grid(amax, refinement).words(),
            ),
            rule => write_grids(maxima, refinements, grids, |amax, refinement| {
                rule.grid(amax, refinement)
            }),
        }
    }

    /// How elements are rounded to a grid; `None` if grids are [`ScalePair`]s.
    #[inline(always)]
    pub(crate) fn step_element(&self) -> Option<StepElement> {
        match self {
            Self::Mx(rule) if rule.sign_scales => None,
            Self::Mx(rule) => Some(rule.step_element()),
            Self::FixedPoint(rule) => Some(rule.step_element()),
            Self::FloatScale(_) | Self::OuterScale(_) => None,
        }
    }

    /// The rule of blocks whose scale is a float, without tables and scales by sign.
    #[inline(always)]
    pub(crate) fn as_numbers(&self) -> Option<&FloatScaleRule> {
        match self {
            Self::FloatScale(rule) | Self::OuterScale(OuterScaleRule { blocks: rule, .. }) => {
                (rule.tables.is_none() && !rule.sign_scales).then_some(rule)
            }
            _ => None,
        }
    }

    /// Whether elements are of tables with few numbers.
    #[inline(always)]
    pub(crate) fn has_short_tables(&self) -> bool {
        matches!(self, Self::FloatScale(rule) if rule.has_short_tables())
    }

    /// The numbers of a block with this grid, if they are few, and the pair.
    #[inline(always)]
    pub(crate) fn short_table(&self, grid: Grid) -> Option<(ShortTable, ScalePair)> {
        match self {
            Self::FloatScale(rule) => rule.short_table(grid),
            _ => None,
        }
    }

    /// Rounds an element to a grid.
    #[inline(always)]
    pub(crate) fn round<R: RoundingRule>(&self, grid: Grid, x: f32, draw: u32) -> f32 {
        let grid = self.grid_of_sign(grid, x.to_bits());
        match self {
            Self::FloatScale(rule) => rule.round::<R>(grid, x, draw),
            Self::OuterScale(rule) => rule.blocks.round::<R>(grid, x, draw),
            Self::Mx(rule) => rule.step_element().round::<R>(grid, x, draw),
            Self::FixedPoint(rule) => rule.step_element().round::<R>(grid, x, draw),
        }
    }

    /// Pattern of the largest number of a grid with this sign. The pattern is 0 or NaN if every element becomes 0 or NaN. A table
    /// without numbers of this sign gives the pattern of its smallest number.
    #[inline(always)]
    pub(crate) fn largest(&self, grid: Grid, sign: u32) -> u32 {
        let grid = self.grid_of_sign(grid, sign);
        match self {
            Self::FloatScale(rule) | Self::OuterScale(OuterScaleRule { blocks: rule, .. }) => {
                rule.pair_of(grid).largest(rule.largest_unit(grid, sign))
            }
            _ => Steps::of(grid).max,
        }
    }

    /// One element, given the largest magnitude of its block and the word that refines its grid.
    pub(crate) fn round_element(
        &self,
        x: f32,
        maxima: [u32; 2],
        rounding: Rounding,
        draw: u32,
    ) -> f32 {
        ieee(|| {
            let grid = self.grid(maxima[0], maxima[1]);
            with_rule!(rounding, R => self.round::<R>(grid, x, draw))
        })
    }
}

/// Scales by sign. The refinement of a block is the largest magnitude among the elements of one sign, with a sign bit if these are
/// the positive ones. The other sign has the largest magnitude of the block.
impl BlockRule {
    /// The same rule with a scale for each sign, or without.
    fn with_sign_scales(mut self, sign_scales: bool) -> Self {
        match &mut self {
            Self::Mx(rule) => rule.sign_scales = sign_scales,
            Self::FloatScale(rule) => rule.sign_scales = sign_scales,
            Self::FixedPoint(_) | Self::OuterScale(_) => {}
        }
        self
    }

    /// The same rule with a scale for each sign.
    pub(crate) fn by_sign(self) -> Self {
        self.with_sign_scales(true)
    }

    /// The rule of the elements of one sign, if each sign has a scale.
    pub(crate) fn of_one_sign(&self) -> Option<Self> {
        self.has_sign_scales().then(|| self.with_sign_scales(false))
    }

    /// Whether no element is NaN or Inf, before or after, of blocks with scales by sign and this largest magnitude or a smaller one.
    pub(crate) fn has_numbers_alone(&self, amax: u32) -> bool {
        amax < INFINITY && self.of_signs([amax, 0]) != [NAN; 2]
    }

    /// The largest magnitudes of the positive and of the negative elements, from the largest magnitude of the block and its refinement;
    /// NaN where all of the block becomes NaN. The largest magnitude has the largest scale.
    pub(crate) fn of_signs(&self, [amax, refinement]: [u32; 2]) -> [u32; 2] {
        let largest = self.grid_of_one(amax, amax);
        let is_nan = match self {
            Self::FloatScale(rule) => rule.pair_of(largest).is_nan(),
            _ => Steps::of(largest).max > INFINITY,
        };
        let other = refinement & ABS;
        match (is_nan, refinement & SIGN) {
            (true, _) => [NAN; 2],
            (false, 0) => [amax, other],
            (false, _) => [other, amax],
        }
    }

    /// The largest magnitudes of both signs, or their scales if scales are floats: a division less for each element.
    fn grid_of_signs(&self, amax: u32, refinement: u32) -> Grid {
        let maxima = self.of_signs([amax, refinement]);
        match self {
            Self::FloatScale(rule) => maxima.map(|amax| rule.block_scale_with(amax, 0)),
            _ => maxima,
        }
    }

    /// The grid of the elements with this sign bit.
    #[inline(always)]
    fn grid_of_sign(&self, grid: Grid, sign: u32) -> Grid {
        let of_sign = grid[(sign >> 31) as usize];
        match self {
            Self::Mx(rule) if rule.sign_scales => self.grid_of_one(of_sign, of_sign),
            Self::FloatScale(rule) if rule.sign_scales => rule.grid_of(of_sign, 0),
            _ => grid,
        }
    }
}

/// The refinement of a block with scales by sign.
fn smaller_of_signs(elements: impl Iterator<Item = f32>) -> u32 {
    let [positive, negative] = elements.fold([0; 2], |mut maxima, x| {
        let own = &mut maxima[usize::from(x.is_sign_negative())];
        *own = (x.to_bits() & ABS).max(*own);
        maxima
    });
    match positive >= negative {
        true => negative,
        false => positive | SIGN,
    }
}

#[inline(always)]
fn write_grids(
    maxima: &[u32],
    refinements: &[u32],
    [first, second]: [&mut [u32]; 2],
    grid: impl Fn(u32, u32) -> Grid,
) {
    let maxima = maxima.iter().zip(refinements);
    for ((first, second), (amax, refinement)) in first.iter_mut().zip(second).zip(maxima) {
        [*first, *second] = grid(*amax, *refinement);
    }
}
