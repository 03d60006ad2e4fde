//! Scales that parts of a block double.

use crate::format::BlockFormat;
use crate::quantize::rules::ScalePair;
use crate::round::bits::{self, INFINITY, MANTISSA_BITS};

/// The sub-blocks of [`SubScales`](crate::SubScales) as the loops see them.
///
/// A sub-block's refinement is the upper halves of the patterns of two magnitudes: above the largest one of its sub-block of
/// the first level, below its own. Scales have so few bits that the lower halves don't matter to a comparison.
#[derive(Clone, Copy)]
pub(crate) struct SubScaleRule {
    /// Elements in a sub-block of the first level and of the second.
    pub(crate) blocks: [usize; 2],
    /// The exponent of the power of two above the largest element.
    exponent: i32,
}

impl SubScaleRule {
    pub(super) fn of(format: &BlockFormat) -> Option<Self> {
        let blocks = format.sub_scales?.block_sizes();
        let exponent = format.element.emax() + 1;
        Some(Self { blocks, exponent })
    }

    /// The refinement of a sub-block of the second level.
    #[inline(always)]
    pub(crate) fn refinement([first, second]: [u32; 2]) -> u32 {
        first & 0xffff_0000 | second >> 16
    }

    /// Whether the sub-blocks of both levels double the block's scale.
    #[inline(always)]
    pub(crate) fn doubled(&self, scale: u32, refinement: u32) -> [bool; 2] {
        let reaches = |magnitude: u32, exponent: i32| {
            let limit = bits::product(scale, bits::pow2(exponent));
            magnitude >= limit & 0xffff_0000
        };
        let first = reaches(refinement & 0xffff_0000, self.exponent + 1);
        let exponent = self.exponent + i32::from(first);
        [first, reaches(refinement << 16, exponent)]
    }

    /// The scale of a sub-block, from the block's scale.
    #[inline(always)]
    pub(super) fn scale(&self, scale: u32, refinement: u32) -> u32 {
        if scale >= INFINITY {
            return scale;
        }
        let doubled = self.doubled(scale, refinement);
        Self::times(scale, doubled)
    }

    /// The pair of an ordinary sub-block, from its block's pair: all numbers are normal, so that exponents may be added as integers.
    #[inline(always)]
    pub(crate) fn ordinary_pair(&self, of_block: ScalePair, refinement: u32) -> ScalePair {
        let times = |scale: u32, exponent: i32| {
            scale.wrapping_add((exponent as u32) << MANTISSA_BITS) & 0xffff_0000
        };
        let limit = times(of_block.scale, self.exponent + 1);
        let first = refinement & 0xffff_0000 >= limit;
        let limit = times(of_block.scale, self.exponent + i32::from(first));
        let own = refinement << 16 >= limit;
        let doubled = (u32::from(first) + u32::from(own)) << MANTISSA_BITS;
        ScalePair {
            scale: of_block.scale + doubled,
            inverse: of_block.inverse - doubled,
        }
    }

    /// A scale as often doubled as bits are set.
    #[inline(always)]
    pub(crate) fn times(scale: u32, doubled: [bool; 2]) -> u32 {
        let exponent = i32::from(doubled[0]) + i32::from(doubled[1]);
        bits::product(scale, (127 + exponent as u32) << MANTISSA_BITS)
    }
}
