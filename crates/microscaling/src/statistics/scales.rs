//! The scale of a block, and the largest number that its elements can become; the scales of many blocks.

use crate::quantize::block_rule::{BlockRule, Words};
use crate::quantize::blocks::make_grids;
use crate::quantize::rules::{
    BfpRule, Grid, MicroexponentRule, MxRule, Nvfp4Rule, ScalePair, is_large,
};
use crate::round::bits::{self, BIAS, INFINITY, LOWEST_EXPONENT, NAN};
use crate::round::mode::Stochastic;
use crate::{BlockFormat, ScaleMode};

/// A block format as the statistics see it.
pub(super) enum Scales {
    Mx(MxRule<false>),
    RmsMx(MxRule<true>),
    Microexponent(MicroexponentRule),
    Bfp(BfpRule),
    Nvfp4(Nvfp4Rule<false, false>),
    TinyNvfp4(Nvfp4Rule<true, false>),
    BetterNvfp4(Nvfp4Rule<true, true>),
}

impl Scales {
    /// Those of a tensor with this scale, if the format has tensor scales.
    pub(super) fn of(format: &BlockFormat, tensor_scale: Option<f32>) -> Self {
        match format {
            BlockFormat::Mx(format) => match format.scale_mode {
                ScaleMode::Rms => Self::RmsMx(MxRule::of(format)),
                _ => Self::Mx(MxRule::of(format)),
            },
            BlockFormat::Microexponent(format) => {
                Self::Microexponent(MicroexponentRule::of(format))
            }
            BlockFormat::Bfp(format) => Self::Bfp(BfpRule::of(format)),
            BlockFormat::Nvfp4(format) => match tensor_scale.unwrap_or(1.0) {
                // Fit for any scale.
                scale if format.four_over_six => Self::BetterNvfp4(Nvfp4Rule::of(format, scale)),
                scale if is_large(scale) => Self::Nvfp4(Nvfp4Rule::of(format, scale)),
                scale => Self::TinyNvfp4(Nvfp4Rule::of(format, scale)),
            },
        }
    }

    /// Elements that share a limit of [`limits_and_scales`](Self::limits_and_scales), as many as the block or more where there is nothing below it.
    pub(super) fn sub_block(&self) -> usize {
        match self {
            Self::Microexponent(rule) => rule.sub_block(),
            _ => usize::MAX,
        }
    }

    /// What the elements of a block say beside the largest of their magnitudes, where they say something: what
    /// [`limits_and_scales`](Self::limits_and_scales) takes in place of a sub-block's. Else that magnitude.
    #[inline(always)]
    pub(super) fn second(&self, amax: u32, elements: impl Iterator<Item = f32>) -> u32 {
        match self {
            Self::RmsMx(rule) => rule.second(amax, elements),
            Self::BetterNvfp4(rule) => rule.second(amax, elements),
            _ => amax,
        }
    }

    /// Whether [`second`](Self::second) looks at the elements.
    #[inline(always)]
    pub(super) fn looks_twice(&self) -> bool {
        matches!(self, Self::RmsMx(_) | Self::BetterNvfp4(_))
    }

    /// Of many sub-blocks, from the largest magnitudes of their blocks and their own, or what the elements of a block
    /// [say](Self::second):
    ///
    /// * the pattern of the largest number that an element can become; of Inf where nothing can be said to saturate, because
    ///   all of the block becomes NaN or zero;
    /// * that of the scale of the block; of NaN or 0 if it is NaN, or too small for any, and anything if the block is zero.
    #[inline(always)]
    pub(super) fn limits_and_scales(&self, maxima: [&[u32]; 2], [limits, scales]: [&mut [u32]; 2]) {
        let words = [limits, scales];
        match self {
            Self::Mx(rule) => each(*rule, maxima, words, scale_of_mx(rule)),
            Self::RmsMx(rule) => each(*rule, maxima, words, scale_of_mx(rule)),
            Self::Microexponent(rule) => each(*rule, maxima, words, shared_exponent),
            Self::Bfp(rule) => each(*rule, maxima, words, shared_exponent),
            Self::Nvfp4(rule) => each(*rule, maxima, words, scale_of_pair),
            Self::TinyNvfp4(rule) => each(*rule, maxima, words, scale_of_pair),
            Self::BetterNvfp4(rule) => each(*rule, maxima, words, scale_of_pair),
        }
    }
}

/// [`Scales::limits_and_scales`] by a rule, which knows the scale from the grid of a block and its largest magnitude.
#[inline(always)]
fn each<G: BlockRule>(
    rule: G,
    [maxima, seconds]: [&[u32]; 2],
    [limits, scales]: [&mut [u32]; 2],
    scale: impl Fn(G::Grid, u32) -> u32,
) {
    // As for rounding with draws: grids that say everything.
    make_grids::<G, Stochastic>(rule, maxima, seconds, [&mut *limits, &mut *scales]);
    for ((limit, other), amax) in limits.iter_mut().zip(scales).zip(maxima) {
        let grid = G::Grid::of([*limit, *other]);
        let max = rule.largest(grid);
        *limit = if max == 0 {
            INFINITY
        } else {
            max.min(INFINITY)
        };
        *other = scale(grid, *amax);
    }
}

#[inline(always)]
fn scale_of_mx<const RMS: bool>(rule: &MxRule<RMS>) -> impl Fn(Grid, u32) -> u32 + Copy {
    let emin = rule.row.emin;
    #[inline(always)]
    move |grid, _| match grid.max > INFINITY {
        true => NAN,
        false => bits::pow2(grid.emin - emin),
    }
}

/// As the rules take it: a block of subnormals has the exponent below that of the smallest normal number.
#[inline(always)]
fn shared_exponent(_: Grid, amax: u32) -> u32 {
    bits::pow2((amax >> bits::MANTISSA_BITS) as i32 - BIAS)
}

#[inline(always)]
fn scale_of_pair(grid: ScalePair, _: u32) -> u32 {
    grid.scale
}

/// Binades of the positive float32.
const BINADES: usize = (BIAS - LOWEST_EXPONENT + 1) as usize;

/// The scales of some blocks.
pub(super) struct SeenScales {
    counts: [u32; BINADES],
    /// Of their logarithms to base 2, and of the squares of these.
    pub(super) sum: f64,
    pub(super) squares: f64,
    /// The smallest and the largest.
    pub(super) range: Option<[f32; 2]>,
}

impl Default for SeenScales {
    fn default() -> Self {
        Self {
            counts: [0; BINADES],
            sum: 0.0,
            squares: 0.0,
            range: None,
        }
    }
}

impl SeenScales {
    #[inline(always)]
    pub(super) fn see(&mut self, scale: f32) {
        let binade = bits::exponent(scale.to_bits());
        self.counts[(binade - LOWEST_EXPONENT) as usize] += 1;
        // The logarithm of most scales is a whole number.
        let log2 = match scale.to_bits() == bits::pow2(binade) {
            true => f64::from(binade),
            false => f64::from(scale).log2(),
        };
        self.sum += log2;
        self.squares += log2 * log2;
        let [min, max] = self.range.unwrap_or([scale; 2]);
        self.range = Some([min.min(scale), max.max(scale)]);
    }

    /// How many scales there are in each binade that has some.
    pub(super) fn binades(&self) -> impl Iterator<Item = (i32, u64)> {
        let counts = self.counts.iter().zip(LOWEST_EXPONENT..);
        let counts = counts.filter(|(count, _)| **count > 0);
        counts.map(|(&count, binade)| (binade, u64::from(count)))
    }
}
