//! Blocks whose scales are powers of two, for other crates: many blocks at a time, and the rules for words.

use super::{BlockRule, Steps, TOGETHER, UnitElement};
use crate::format::BlockFormat;
use crate::round::RoundingRule;
use crate::round::words::Word;

/// Blocks of one length without sub-blocks, whose scales are powers of two and follow from the largest magnitude alone. Elements have
/// mantissa bits.
#[derive(Clone, Copy)]
pub struct PowerBlocks {
    rule: BlockRule,
    element: UnitElement,
}

impl PowerBlocks {
    /// The blocks of a format, if they are such.
    pub fn of(format: &BlockFormat) -> Option<Self> {
        let rule = BlockRule::of(format, None);
        let has = rule.has_powers_of_two()
            && !rule.has_sub_blocks(format.group_size())
            && !rule.looks_twice();
        let element = rule.unit_element();
        (has && element.mantissa_bits > 0).then_some(Self { rule, element })
    }

    /// Explicit mantissa bits of an element.
    pub fn mantissa_bits(&self) -> i32 {
        self.element.mantissa_bits
    }

    /// The scales of blocks with these largest magnitudes, as patterns, if all blocks are ordinary.
    #[inline(always)]
    pub fn scales(&self, maxima: &[u32; TOGETHER]) -> Option<[u32; TOGETHER]> {
        if !self.rule.are_ordinary(maxima) {
            return None;
        }
        let mut pairs = [[0; TOGETHER]; 2];
        let words = pairs.each_mut().map(|words| &mut words[..]);
        self.rule.ordinary_pairs(maxima, maxima, words);
        Some(pairs[0])
    }

    /// The smallest magnitude but zero of a block with this scale, as a pattern.
    #[inline(always)]
    pub fn smallest(&self, scale: u32) -> u32 {
        self.element.smallest(scale)
    }

    /// Rounding of an element of an ordinary block with a scale to a pattern, by a draw if the rule uses draws. The function owns its
    /// numbers: loops read numbers behind a reference again for each vector.
    #[inline(always)]
    pub fn rounding<R: RoundingRule>(&self) -> impl Fn(f32, u32, u32) -> u32 + Copy {
        let element = self.element;
        #[inline(always)]
        move |x, scale, draw| match R::USES_DRAWS {
            true => element.round_unscaled::<R>(scale, x, draw).to_bits(),
            false => element.round_mantissa::<R>(scale, x),
        }
    }
}

/// The rules of blocks whose scales are powers of two, for numbers and for the words of a device's kernel.
#[derive(Clone, Copy)]
pub struct PowerRules(pub(super) BlockRule);

impl PowerRules {
    /// The rules of a format, if its scales are powers of two.
    pub fn of(format: &BlockFormat) -> Option<Self> {
        let rule = BlockRule::of(format, None);
        rule.has_powers_of_two().then_some(Self(rule))
    }

    /// The grid of a block, from its largest counted magnitude and the word that refines it: a sub-block's largest magnitude, or a choice.
    pub fn grid<W: Word>(&self, amax: W, refinement: W) -> Steps<W> {
        self.0.steps(amax, refinement)
    }

    /// The choice of the mean of the squares of a block, rounded down, in units of 2^(e − 15), where e is the exponent of the largest
    /// magnitude.
    pub fn choice_of_mean<W: Word>(&self, amax: W, mean: W) -> W {
        match &self.0 {
            BlockRule::Mx(rule) => rule.choice_of_mean(amax, mean),
            _ => unreachable!("the scale follows from the root mean square"),
        }
    }

    /// Rounds the element with the pattern `x`.
    pub fn round<R: RoundingRule, W: Word>(&self, steps: Steps<W>, x: W, draw: W) -> W {
        let element = self.0.step_element().expect("grids are steps");
        element.round_word::<R, _>(steps, x, draw)
    }
}
