//! What the elements of an NVFP4 block need to know.

use crate::quantize::block_rule::Words;
use crate::round::bits::INFINITY;

/// What the elements of a block need to know, as patterns.
#[derive(Clone, Copy)]
pub(crate) struct ScalePair {
    /// t · c, or NaN.
    pub(crate) scale: u32,
    /// (1 / t) / c; Inf if that is too large.
    pub(crate) inverse: u32,
}

impl ScalePair {
    /// Whether everything becomes NaN.
    #[inline(always)]
    pub(crate) fn is_nan(self) -> bool {
        self.scale >= INFINITY
    }
}

impl Words for ScalePair {
    #[inline(always)]
    fn words(self) -> [u32; 2] {
        [self.scale, self.inverse]
    }

    #[inline(always)]
    fn of([scale, inverse]: [u32; 2]) -> Self {
        Self { scale, inverse }
    }
}
