//! Blocks for other crates: many plain ones at a time, and the rules for words of those whose scales are powers of two.

use super::{BlockRule, ScalePair, Steps, TOGETHER, UnitElement};
use crate::format::BlockFormat;
use crate::round::RoundingRule;
use crate::round::bits::ONE;
use crate::round::words::Word;

/// Blocks of one length without sub-blocks, whose scales follow from the largest magnitude alone: powers of two beside elements with
/// mantissa bits, or floats.
#[derive(Clone, Copy)]
pub struct PlainBlocks {
    rule: BlockRule,
    element: UnitElement,
}

impl PlainBlocks {
    /// The blocks of a format, if they are such. The results are in units of a tensor scale.
    pub fn of(format: &BlockFormat, tensor_scale: Option<f32>) -> Option<Self> {
        let rule = BlockRule::of(format, tensor_scale).in_units_of_the_tensor_scale();
        let element = rule.unit_element();
        let is_plain = match rule {
            _ if rule.has_sub_blocks(format.group_size()) || rule.looks_twice() => false,
            BlockRule::FloatScale(_) => !rule.ordinary().is_empty(),
            _ => rule.has_powers_of_two() && element.mantissa_bits > 0,
        };
        is_plain.then_some(Self { rule, element })
    }

    /// Whether scales are powers of two.
    pub fn has_powers_of_two(&self) -> bool {
        self.rule.has_powers_of_two()
    }

    /// The scales of blocks with these largest magnitudes, as patterns, and their reciprocals, if all blocks are ordinary.
    #[inline(always)]
    pub fn pairs(&self, maxima: &[u32; TOGETHER]) -> Option<[[u32; TOGETHER]; 2]> {
        if !self.rule.are_ordinary(maxima) {
            return None;
        }
        let mut pairs = [[0; TOGETHER]; 2];
        let words = pairs.each_mut().map(|words| &mut words[..]);
        self.rule.ordinary_pairs(maxima, maxima, words);
        Some(pairs)
    }

    /// How elements of ordinary blocks are rounded whose scales are powers of two, by draws if the rule uses draws. The functions own
    /// their numbers: loops read numbers behind a reference again for each vector.
    #[inline(always)]
    pub fn by_powers<R: RoundingRule>(
        &self,
    ) -> PlainRounding<impl Fn(f32, [u32; 2], u32) -> u32 + Copy, impl Fn(u32) -> u32 + Copy> {
        let element = self.element;
        PlainRounding::new(
            #[inline(always)]
            move |x, [scale, _]: [u32; 2], draw| match R::USES_DRAWS {
                true => element.round_unscaled::<R>(scale, x, draw).to_bits(),
                false => element.round_mantissa::<R>(scale, x),
            },
            #[inline(always)]
            move |scale| element.smallest(scale),
        )
    }

    /// The same for scales that are floats.
    #[inline(always)]
    pub fn by_floats<R: RoundingRule>(
        &self,
    ) -> PlainRounding<impl Fn(f32, [u32; 2], u32) -> u32 + Copy, impl Fn(u32) -> u32 + Copy> {
        let element = self.element;
        PlainRounding::new(
            #[inline(always)]
            move |x, pair, draw| (element.round::<R>(ScalePair::of(pair), x, draw)).to_bits(),
            #[inline(always)]
            move |scale| element.smallest(ONE).product(scale),
        )
    }
}

/// The rounding of elements of ordinary blocks.
#[derive(Clone, Copy)]
pub struct PlainRounding<F, S> {
    /// From an element, its block's scale and the scale's reciprocal, and a draw, to a pattern.
    pub round: F,
    /// From a scale to the smallest magnitude but zero of a block, as patterns.
    pub smallest: S,
}

impl<F, S> PlainRounding<F, S>
where
    F: Fn(f32, [u32; 2], u32) -> u32 + Copy,
    S: Fn(u32) -> u32 + Copy,
{
    #[inline(always)]
    fn new(round: F, smallest: S) -> Self {
        Self { round, smallest }
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
