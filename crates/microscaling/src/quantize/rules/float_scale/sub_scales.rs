//! Scales that parts of a block double.

use crate::format::BlockFormat;
use crate::quantize::rules::ScalePair;
use crate::round::bits::{IMPLICIT, INFINITY, MANTISSA_BITS, ONE};
use crate::round::words::{Int, Word};

/// The upper half of a pattern.
const UPPER: u32 = 0xffff_0000;

/// The sub-blocks of [`SubScales`](crate::SubScales) as the loops see them.
///
/// A sub-block's refinement is the upper halves of the patterns of two magnitudes: above the largest one of its sub-block of
/// the first level, below its own. Scales have so few bits that the lower halves don't matter to a comparison.
#[derive(Clone, Copy)]
pub struct SubScaleRule {
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
    pub fn refinement<W: Word>([first, second]: [W; 2]) -> W {
        first & UPPER.into() | second >> 16.into()
    }

    /// Whether the sub-blocks of both levels double the block's scale, which is finite.
    #[inline(always)]
    pub(crate) fn doubled<W: Word>(&self, scale: W, refinement: W) -> [W::Condition; 2] {
        let reaches = |magnitude: W, exponent: W::Int| {
            let limit = scale.product(W::from(ONE).scale(exponent));
            !magnitude.is_below(limit & UPPER.into())
        };
        let exponent = W::Int::from(self.exponent);
        let above = W::Int::from(self.exponent + 1);
        let first = reaches(refinement & UPPER.into(), above);
        let exponent = W::Int::select(first, above, exponent);
        [first, reaches(refinement << 16.into(), exponent)]
    }

    /// The scale of a sub-block, from the block's scale.
    #[inline(always)]
    pub(super) fn scale<W: Word>(&self, scale: W, refinement: W) -> W {
        W::choose(
            scale.is_below(INFINITY.into()),
            || Self::times(scale, self.doubled(scale, refinement)),
            || scale,
        )
    }

    /// The pair of an ordinary sub-block, from its block's pair: all numbers are normal, so that exponents may be added as integers.
    #[inline(always)]
    pub(crate) fn ordinary_pair<W: Word>(
        &self,
        of_block: ScalePair<W>,
        refinement: W,
    ) -> ScalePair<W> {
        let [above, limit] = [self.exponent + 1, self.exponent]
            .map(|exponent| of_block.scale.times_power(exponent) & UPPER.into());
        let first = !(refinement & UPPER.into()).is_below(above);
        let limit = W::select(first, above, limit);
        let own = !(refinement << 16.into()).is_below(limit);
        let [first, own] =
            [first, own].map(|doubled| W::select(doubled, IMPLICIT.into(), 0.into()));
        let doubled = first + own;
        ScalePair {
            scale: of_block.scale + doubled,
            inverse: of_block.inverse - doubled,
        }
    }

    /// A scale as often doubled as conditions hold; Inf if it is too large.
    #[inline(always)]
    pub(crate) fn times<W: Word>(scale: W, doubled: [W::Condition; 2]) -> W {
        let [first, second] = doubled.map(|doubled| W::select(doubled, 1.into(), 0.into()));
        let times = first + second;
        scale.product(W::from(ONE) + (times << (MANTISSA_BITS as u32).into()))
    }

    /// The same, with a bit for each level.
    pub fn times_of_bits<W: Word>(scale: W, doubled: W) -> W {
        let holds = |bit: u32| !(doubled & bit.into()).equals(0.into());
        Self::times(scale, [holds(1), holds(2)])
    }
}
