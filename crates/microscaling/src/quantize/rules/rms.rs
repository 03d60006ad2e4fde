//! The scale of a block from its root mean square.

use crate::format::Headroom;
use crate::round::words::{Int, Word};

/// c = [`FACTOR`].0 / [`FACTOR`].1 = 2.92247856 / 6.
const FACTOR: (u128, u128) = (6_088_497, 12_500_000);

/// From the mean of squares to the exponent of the scale.
#[derive(Clone, Copy)]
pub(crate) struct RmsScale {
    /// 4^14 and 4^15 over (c · h)², rounded up: where c · h times the root of a mean from 4^15 on reaches the next power
    /// of two, and the one after it.
    pub(super) steps: [u32; 2],
}

impl RmsScale {
    pub(crate) const fn of(headroom: Headroom) -> Self {
        let above = FACTOR.0 * headroom.numerator() as u128;
        let below = FACTOR.1 * headroom.denominator() as u128;
        let squares = [above * above, below * below];
        Self {
            steps: [Self::step(14, squares), Self::step(15, squares)],
        }
    }

    const fn step(exponent: u32, [above, below]: [u128; 2]) -> u32 {
        let step = (below << (2 * exponent)).div_ceil(above);
        // No mean is so large.
        if step > u32::MAX as u128 {
            u32::MAX
        } else {
            step as u32
        }
    }

    /// floor(log2(c · h · √mean · 2^unit)) of a mean of at least 1.
    #[inline(always)]
    pub(crate) fn exponent<W: Word>(&self, mean: W, unit: W::Int) -> W::Int {
        let halved = mean.leading_zeros() >> 1.into();
        let normal = mean << (halved + halved);
        let reached = self.steps.map(|step| {
            let is_below = normal.is_below(step.into());
            W::Int::select(is_below, 0.into(), 1.into())
        });
        unit + 13.into() - halved.to_int() + reached[0] + reached[1]
    }
}
