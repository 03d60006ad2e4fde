//! The scale of a block, and the largest number that its elements can become; the scales of many blocks.

use crate::BlockFormat;
use crate::quantize::block_rule::{BlockRule, Words};
use crate::quantize::rules::{
    BfpRule, MicroexponentRule, MxRule, NVFP4_ELEMENT_MAX, Nvfp4Rule, is_large,
};
use crate::round::bits::{self, BIAS, INFINITY, LOWEST_EXPONENT};

/// A block format as the statistics see it.
pub(super) enum Scales {
    Mx(MxRule),
    Microexponent(MicroexponentRule),
    Bfp(BfpRule),
    Nvfp4(Nvfp4Rule<false>),
    TinyNvfp4(Nvfp4Rule<true>),
}

impl Scales {
    /// Those of a tensor with this scale, if the format has tensor scales.
    pub(super) fn of(format: &BlockFormat, tensor_scale: Option<f32>) -> Self {
        match format {
            BlockFormat::Mx(format) => Self::Mx(MxRule::of(format)),
            BlockFormat::Microexponent(format) => {
                Self::Microexponent(MicroexponentRule::of(format))
            }
            BlockFormat::Bfp(format) => Self::Bfp(BfpRule::of(format)),
            BlockFormat::Nvfp4(_) => match tensor_scale.unwrap_or(1.0) {
                scale if is_large(scale) => Self::Nvfp4(Nvfp4Rule::of(scale)),
                scale => Self::TinyNvfp4(Nvfp4Rule::of(scale)),
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

    /// The scale of a block whose largest finite magnitude, not zero, has this pattern; `None` if it is NaN.
    #[inline(always)]
    pub(super) fn scale(&self, amax: u32) -> Option<f32> {
        let pattern = match self {
            Self::Mx(rule) => match rule.scale(amax) {
                (exponent, false) => bits::pow2(exponent),
                (_, true) => return None,
            },
            // As the rules take it: a block of subnormals has the exponent below that of the smallest normal number.
            Self::Microexponent(_) | Self::Bfp(_) => {
                bits::pow2((amax >> bits::MANTISSA_BITS) as i32 - BIAS)
            }
            Self::Nvfp4(rule) => rule.grid(amax, amax).words()[0],
            Self::TinyNvfp4(rule) => rule.grid(amax, amax).words()[0],
        };
        (pattern < INFINITY).then(|| f32::from_bits(pattern))
    }

    /// Pattern of the largest number that an element can become, from the largest magnitudes of its block and its
    /// sub-block; of Inf where nothing can be said to saturate, because all of the block becomes NaN or zero.
    #[inline(always)]
    pub(super) fn limit(&self, amax: u32, sub_amax: u32) -> u32 {
        let max = match self {
            Self::Mx(rule) => rule.grid(amax, amax).max,
            Self::Microexponent(rule) => rule.grid(amax, sub_amax).max,
            Self::Bfp(rule) => rule.grid(amax, amax).max,
            Self::Nvfp4(_) | Self::TinyNvfp4(_) => match self.scale(amax) {
                Some(scale) => bits::product(scale.to_bits(), NVFP4_ELEMENT_MAX),
                None => INFINITY,
            },
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
