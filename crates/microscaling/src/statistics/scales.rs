//! The scale of a block, and the largest number that its elements can become; the scales of many blocks.

use crate::quantize::block_rule::{BlockRule, Words};
use crate::quantize::rules::{BfpRule, MicroexponentRule, MxRule, Nvfp4Rule, is_large};
use crate::round::bits::{self, BIAS, INFINITY, LOWEST_EXPONENT, NAN};
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

    /// Elements that share what [`limit`](Self::limit) says, as many as the block or more where there is nothing below it.
    pub(super) fn sub_block(&self) -> usize {
        match self {
            Self::Microexponent(rule) => rule.sub_block(),
            _ => usize::MAX,
        }
    }

    /// What the elements of a block say beside the largest of their magnitudes, where they say something: what
    /// [`scale`](Self::scale) and [`limit`](Self::limit) take in place of a sub-block's. Else that magnitude.
    #[inline(always)]
    pub(super) fn second(&self, amax: u32, elements: impl Iterator<Item = f32>) -> u32 {
        match self {
            Self::RmsMx(rule) => rule.second(amax, elements),
            Self::BetterNvfp4(rule) => rule.second(amax, elements),
            _ => amax,
        }
    }

    /// The scale of a block whose largest magnitude, not zero, has this pattern, and whose elements
    /// [say](Self::second) that; `None` if it is NaN, or too small for any.
    #[inline(always)]
    pub(super) fn scale(&self, amax: u32, second: u32) -> Option<f32> {
        let power = |(exponent, nan)| if nan { NAN } else { bits::pow2(exponent) };
        let pattern = match self {
            Self::Mx(rule) => power(rule.scale([amax, second])),
            Self::RmsMx(rule) => power(rule.scale([amax, second])),
            // As the rules take it: a block of subnormals has the exponent below that of the smallest normal number.
            Self::Microexponent(_) | Self::Bfp(_) => {
                bits::pow2((amax >> bits::MANTISSA_BITS) as i32 - BIAS)
            }
            Self::Nvfp4(rule) => rule.grid(amax, second).words()[0],
            Self::TinyNvfp4(rule) => rule.grid(amax, second).words()[0],
            Self::BetterNvfp4(rule) => rule.grid(amax, second).words()[0],
        };
        (1..INFINITY)
            .contains(&pattern)
            .then(|| f32::from_bits(pattern))
    }

    /// Pattern of the largest number that an element can become, from the largest magnitudes of its block and its
    /// sub-block, or what the elements [say](Self::second); of Inf where nothing can be said to saturate, because all of the block becomes NaN or zero.
    #[inline(always)]
    pub(super) fn limit(&self, amax: u32, second: u32) -> u32 {
        #[inline(always)]
        fn largest<G: BlockRule>(rule: &G, amax: u32, second: u32) -> u32 {
            rule.largest(rule.grid(amax, second))
        }
        let max = match self {
            Self::Mx(rule) => largest(rule, amax, second),
            Self::RmsMx(rule) => largest(rule, amax, second),
            Self::Microexponent(rule) => largest(rule, amax, second),
            Self::Bfp(rule) => largest(rule, amax, second),
            Self::Nvfp4(rule) => largest(rule, amax, second),
            Self::TinyNvfp4(rule) => largest(rule, amax, second),
            Self::BetterNvfp4(rule) => largest(rule, amax, second),
        };
        match max {
            0 => INFINITY,
            max => max.min(INFINITY),
        }
    }
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
