//! Tame blocks: ordinary blocks of which a device that computes float32 rounds every element by a few float operations, also
//! with draws, and after rounding it to a bfloat format.

use super::{BlockRule, FloatScaleRule, PowerRules, ScalePair};
use crate::format::FloatFormat;
use crate::round::bits::{MANTISSA_BITS, pow2};
use crate::round::words::Word;
use crate::round::{RoundingRule, round_normal};
use core::ops::Range;

/// The pattern of 2^100. All magnitudes of tame blocks are less.
pub const TAME_END: u32 = 0x7180_0000;
/// Binades of ordinary blocks that are too small for a tame one. So a subnormal element of a tame block is less than 2^−31 steps, and a
/// rounding to a bfloat format before changes nothing.
const TOO_SMALL: u32 = 40;

/// The range of the largest magnitudes that make an ordinary block tame.
fn narrowed(rule: &BlockRule, ordinary: Range<u32>) -> Range<u32> {
    let start = match ordinary.start {
        // Elements are rounded in units of their scale.
        0 => 0,
        start => start + (TOO_SMALL << MANTISSA_BITS),
    };
    let end = ordinary.end.min(TAME_END);
    let element = rule.unit_element();
    match start < end && element.emin - element.mantissa_bits >= -90 {
        true => start..end,
        false => 0..0,
    }
}

/// Whether a block with this largest magnitude is within the range, or of zeros.
fn is_within<W: Word>(range: Range<u32>, amax: W) -> W::Condition {
    let below = amax.wrapping_sum(range.start.wrapping_neg().into());
    let is_within = below.is_below((range.end - range.start).into());
    match range.start {
        0 => is_within,
        _ => is_within | amax.equals(0.into()),
    }
}

/// Tame blocks with powers of two as scales.
impl PowerRules {
    fn tame(&self) -> Range<u32> {
        match self.0.looks_twice() {
            true => 0..0,
            false => narrowed(&self.0, self.0.ordinary()),
        }
    }

    /// Whether a format has tame blocks.
    pub fn has_tame_blocks(&self) -> bool {
        !self.tame().is_empty()
    }

    /// Whether a block with this largest magnitude is tame.
    pub fn is_tame<W: Word>(&self, amax: W) -> W::Condition {
        is_within(self.tame(), amax)
    }

    /// The scale of a tame block, or of its sub-block.
    pub fn tame_scale<W: Word>(&self, amax: W, sub_amax: W) -> W {
        let amax = amax.larger(self.0.ordinary().start.into());
        let pair = match &self.0 {
            BlockRule::FixedPoint(rule) => rule.ordinary_pair(amax, sub_amax),
            BlockRule::Mx(rule) => rule.ordinary_pair(amax),
            _ => unreachable!("scales are powers of two"),
        };
        pair.scale
    }

    /// Rounds a magnitude of a tame block.
    pub fn round_tame<R: RoundingRule, W: Word>(&self, scale: W, abs: W, draw: W) -> W {
        let element = self.0.unit_element();
        element.round_tame_unscaled::<R, _>(scale, abs, draw)
    }
}

/// Tame blocks with floats as scales.
impl FloatScaleRule {
    fn tame(&self) -> [Range<u32>; 2] {
        let [magnitudes, scales] = self.ordinary_ranges();
        let magnitudes = match self.looks_twice() {
            true => 0..0,
            false => narrowed(&BlockRule::FloatScale(*self), magnitudes),
        };
        [magnitudes, scales]
    }

    /// Whether a format has tame blocks.
    pub fn has_tame_blocks(&self) -> bool {
        !self.tame()[0].is_empty()
    }

    /// Whether a block with this largest magnitude is tame in a tensor with this scale, if there is one.
    pub fn is_tame<W: Word>(&self, amax: W, tensor_scale: Option<W>) -> W::Condition {
        let [magnitudes, scales] = self.tame();
        let is_tame = is_within(magnitudes, amax);
        match tensor_scale {
            Some(scale) => is_tame & is_within(scales, scale),
            None => is_tame,
        }
    }
}

impl<W: Word> FloatScaleRule<W> {
    /// The pair of a tame block, or of its sub-block.
    pub fn tame_pair(&self, amax: W, refinement: W) -> ScalePair<W> {
        let pair = self.ordinary_pair(amax, refinement);
        match self.sub_scales {
            Some(sub_scales) => sub_scales.ordinary_pair(pair, refinement),
            None => pair,
        }
    }
}

impl FloatFormat {
    /// Whether [`round_tame`](Self::round_tame) is for this format.
    pub fn rounds_tame(self) -> bool {
        self.is_bfloat() && self.subnormals()
    }

    /// Rounds a magnitude from 2^−90 to 2^101 to this bfloat format, by a rule without draws. A device leaves subnormal numbers
    /// unchanged.
    pub fn round_tame<R: RoundingRule, W: Word>(self, abs: W) -> W {
        if self.is_identity() {
            return abs;
        }
        round_normal::<R, _>(abs, self.mantissa_bits() as i32, 0.into(), 0)
    }
}

const _: () = assert!(TAME_END == pow2(100));
