//! The numbers that the elements of a block can become, for formats with power-of-two scales.

use crate::quantize::block_rule::Words;
use crate::round::bits::{ABS, BIAS, INFINITY, MANTISSA_BITS, NAN, SIGN};
use crate::round::{RoundingRule, round_magnitude, round_normal};

/// The numbers that the elements of one block can become, with the mantissa bits of the element.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    /// Exponent of the smallest number with all its mantissa bits.
    pub(crate) emin: i32,
    /// Pattern of the largest number, or of NaN if everything becomes NaN.
    pub(crate) max: u32,
}

impl Words for Grid {
    #[inline(always)]
    fn words(self) -> [u32; 2] {
        [self.emin as u32, self.max]
    }

    #[inline(always)]
    fn of([emin, max]: [u32; 2]) -> Self {
        Self {
            emin: emin as i32,
            max,
        }
    }
}

impl Grid {
    /// Rounds one element to the grid.
    #[inline(always)]
    pub(crate) fn round<R: RoundingRule>(self, _: R, mantissa_bits: i32, x: f32, draw: u32) -> f32 {
        let x = x.to_bits();
        let magnitude = round_magnitude::<R>(x & ABS, mantissa_bits, self.emin, draw);
        let saturated = (x & SIGN) | magnitude.min(self.max);
        f32::from_bits(if self.max > INFINITY { NAN } else { saturated })
    }
}

impl Grid {
    /// Of a tame block, from the pattern of 2^emin and that of the largest number.
    #[inline(always)]
    pub(crate) fn of_tame([smallest, max]: [u32; 2]) -> Self {
        Self {
            emin: (smallest >> MANTISSA_BITS) as i32 - BIAS,
            max,
        }
    }
}

/// [`Grid::round`] for tame blocks: `smallest` is the pattern of 2^emin. NaN and Inf become some number.
#[inline(always)]
pub(crate) fn round_to_grid<R: RoundingRule>(
    _: R,
    mantissa_bits: i32,
    [smallest, max]: [u32; 2],
    x: f32,
) -> f32 {
    let x = x.to_bits();
    let magnitude = round_normal::<R>(x & ABS, mantissa_bits, smallest);
    f32::from_bits((x & SIGN) | magnitude.min(max))
}
