//! The scalar rules of [`MicroexponentFormat`].

use super::grid::{Grid, round_to_grid};
use crate::quantize::block_rule::BlockRule;
use crate::round::bits::{self, ABS, BIAS, IMPLICIT, INFINITY, MANTISSA_BITS, NAN, ONE, SIGN};
use crate::round::{NORMAL, RoundingRule, normal};
use crate::{MicroexponentFormat, Rounding};
use core::ops::Range;

impl MicroexponentFormat {
    /// One element, given the float32 patterns of the largest magnitudes of its block and of its
    /// sub-block: rounded, saturated and scaled back. NaN if `amax` is NaN or Inf, zero if `x` is
    /// subnormal. `draw` matters only to [`Rounding::Stochastic`].
    ///
    /// The format must be [valid](Self::validate), the magnitude of `x` at most `sub_amax`, and that at
    /// most `amax`.
    pub fn round_element(
        &self,
        x: f32,
        amax: u32,
        sub_amax: u32,
        rounding: Rounding,
        draw: u32,
    ) -> f32 {
        MicroexponentRule::of(self).round_element(x, [amax, sub_amax], rounding, draw)
    }
}

/// A [`MicroexponentFormat`] as the loops hold it.
#[derive(Clone, Copy)]
pub(crate) struct MicroexponentRule {
    sub_block: usize,
    largest_shift: i32,
    /// Mantissa bits below the leading one.
    fraction_bits: i32,
    /// Pattern of the largest element of a sub-block with exponent 0.
    max: u32,
}

impl MicroexponentRule {
    pub(crate) fn of(format: &MicroexponentFormat) -> Self {
        let fraction_bits = format.mantissa_bits() as i32 - 1;
        Self {
            sub_block: format.sub_block_size,
            largest_shift: (1 << format.shift_bits) - 1,
            fraction_bits,
            max: bits::fixed((2 << fraction_bits) - 1, -fraction_bits),
        }
    }
}

impl BlockRule for MicroexponentRule {
    type Grid = Grid;

    const HAS_SUB_BLOCKS: bool = true;

    #[inline(always)]
    fn sub_block(&self) -> usize {
        self.sub_block
    }

    #[inline(always)]
    fn grid(&self, amax: u32, sub_amax: u32) -> Grid {
        let shared = (amax >> MANTISSA_BITS) as i32;
        let below = shared - (sub_amax >> MANTISSA_BITS) as i32;
        let exponent = shared - below.min(self.largest_shift) - BIAS;
        let max = if amax >= INFINITY {
            NAN
        } else {
            bits::scale(self.max, exponent)
        };
        Grid {
            emin: exponent,
            max,
        }
    }

    #[inline(always)]
    fn largest(&self, grid: Grid) -> u32 {
        grid.max
    }

    #[inline(always)]
    fn round<R: RoundingRule>(&self, grid: Grid, rule: R, x: f32, draw: u32) -> f32 {
        let sign = x.to_bits() & SIGN;
        let abs = x.to_bits() & ABS;
        let normal = if abs < IMPLICIT { 0 } else { abs };
        grid.round(
            rule,
            self.fraction_bits,
            f32::from_bits(sign | normal),
            draw,
        )
    }

    #[inline(always)]
    fn tame(&self) -> Range<u32> {
        normal(NORMAL.start() + self.largest_shift, NORMAL.end() + 1)
    }

    #[inline(always)]
    fn tame_grid(&self, amax: u32, sub_amax: u32) -> [u32; 2] {
        let shifted = (amax & INFINITY) - ((self.largest_shift as u32) << MANTISSA_BITS);
        let smallest = (sub_amax & INFINITY).max(shifted);
        [smallest, smallest + (self.max - ONE)]
    }

    #[inline(always)]
    fn round_tame<R: RoundingRule>(&self, grid: [u32; 2], rule: R, x: f32) -> f32 {
        // A subnormal is less than half a step.
        round_to_grid(rule, self.fraction_bits, grid, x)
    }
}
