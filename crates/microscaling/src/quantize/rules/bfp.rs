//! The scalar rules of [`BfpFormat`].

use super::grid::{Grid, round_to_grid};
use crate::quantize::block_rule::BlockRule;
use crate::round::bits::{self, ABS, BIAS, INFINITY, MANTISSA_BITS, ONE};
use crate::round::{NORMAL, RoundingRule, normal};
use crate::{BfpFormat, Rounding};
use core::ops::Range;

impl BfpFormat {
    /// One element of a block whose largest finite magnitude has the float32 pattern `amax`: rounded,
    /// saturated and scaled back; NaN and ±Inf unchanged. `draw` matters only to
    /// [`Rounding::Stochastic`].
    ///
    /// The format must be [valid](Self::validate), `x` not finite or its magnitude at most `amax`.
    pub fn round_element(&self, x: f32, amax: u32, rounding: Rounding, draw: u32) -> f32 {
        BfpRule::of(self).round_element(x, [amax, amax], rounding, draw)
    }
}

/// A [`BfpFormat`] as the loops hold it.
#[derive(Clone, Copy)]
pub(crate) struct BfpRule {
    /// Mantissa bits below the leading one.
    fraction_bits: i32,
    /// Pattern of the largest element of a block with exponent 0.
    max: u32,
}

impl BfpRule {
    pub(crate) fn of(format: &BfpFormat) -> Self {
        let fraction_bits = format.mantissa_bits() as i32 - 1;
        Self {
            fraction_bits,
            max: bits::fixed((2 << fraction_bits) - 1, -fraction_bits),
        }
    }
}

impl BlockRule for BfpRule {
    type Grid = Grid;

    const COUNTS_ALL: bool = false;

    #[inline(always)]
    fn counted(abs: u32) -> u32 {
        if abs < INFINITY { abs } else { 0 }
    }

    #[inline(always)]
    fn grid(&self, amax: u32, _: u32) -> Grid {
        let exponent = (amax >> MANTISSA_BITS) as i32 - BIAS;
        Grid {
            emin: exponent,
            max: bits::scale(self.max, exponent),
        }
    }

    #[inline(always)]
    fn largest(&self, grid: Grid) -> u32 {
        grid.max
    }

    #[inline(always)]
    fn round<R: RoundingRule>(&self, grid: Grid, rule: R, x: f32, draw: u32) -> f32 {
        let special = x.to_bits() & ABS >= INFINITY;
        let finite = if special { 0.0 } else { x };
        let rounded = grid.round(rule, self.fraction_bits, finite, draw);
        if special { x } else { rounded }
    }

    #[inline(always)]
    fn tame(&self) -> Range<u32> {
        normal(*NORMAL.start(), NORMAL.end() + 1)
    }

    #[inline(always)]
    fn tame_grid(&self, amax: u32, _: u32) -> [u32; 2] {
        let smallest = amax & INFINITY;
        [smallest, smallest + (self.max - ONE)]
    }

    #[inline(always)]
    fn round_tame<R: RoundingRule>(&self, grid: [u32; 2], rule: R, x: f32) -> f32 {
        let special = x.to_bits() & ABS >= INFINITY;
        let rounded = round_to_grid(rule, self.fraction_bits, grid, x);
        if special { x } else { rounded }
    }
}
