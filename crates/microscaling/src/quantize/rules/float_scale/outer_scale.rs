//! Outer scales: a part of a tensor is quantized as a tensor with a tensor scale, and its blocks are sub-blocks.

use super::scale_row::ScaleRow;
use super::{FloatScaleRule, LARGE, NARROW, ScaleAbove};
use crate::format::BlockFormat;
use crate::quantize::rules::{Grid, ScalePair};
use crate::round::bits;
use core::ops::Range;

/// A [`BlockFormat`] with an outer scale, as the loops hold it. The largest magnitude of a part gives its t, and the
/// largest magnitude of a block in it gives the block's c.
#[derive(Clone, Copy)]
pub(crate) struct OuterScaleRule {
    /// The rule of the blocks, for any t.
    pub(crate) blocks: FloatScaleRule,
    /// Elements in a block.
    pub(crate) block: usize,
    /// The rule of t.
    pub(crate) above: ScaleAbove,
}

impl OuterScaleRule {
    pub(crate) fn of(format: &BlockFormat) -> Option<Self> {
        format.outer?;
        Some(Self {
            blocks: FloatScaleRule::of(format, 1.0),
            block: format.block_size,
            above: ScaleAbove::of(format)?,
        })
    }

    /// The scales t.
    pub(crate) fn outer(&self) -> ScaleRow {
        self.above.row.expect("an outer scale has a format")
    }

    /// The rule of the blocks of a part with this largest magnitude.
    #[inline(always)]
    pub(crate) fn within(&self, amax: u32) -> FloatScaleRule {
        self.blocks.with_tensor_scale(self.above.scale(amax))
    }

    /// The grid of a block, from the largest magnitudes of its part and its own.
    #[inline(always)]
    pub(crate) fn grid(&self, amax: u32, own: u32) -> Grid {
        self.within(amax).grid(own, own)
    }

    /// The parts of which all blocks are ordinary.
    pub(crate) fn ordinary(&self) -> Range<u32> {
        let is_narrow = self.blocks.scale.min < NARROW || self.outer().max < LARGE;
        if is_narrow {
            return 0..0;
        }
        // From here on t is at least 2^-80: a headroom is at least 1/2.
        let start = -80 + bits::exponent(self.above.max) + 2;
        bits::pow2(start)..bits::pow2(120)
    }

    /// The pair of a block of an ordinary part.
    #[inline(always)]
    pub(crate) fn ordinary_pair(&self, amax: u32, own: u32) -> ScalePair {
        let rule = self
            .blocks
            .with_tensor_scale(self.above.ordinary_scale(amax));
        rule.ordinary_pair(own, 0)
    }
}
