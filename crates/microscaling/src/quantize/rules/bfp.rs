//! The scalar rules of [`BfpFormat`].

use super::BlockRule;
use super::grid::{Grid, StepElement, Steps};
use super::scale_pair::ScalePair;
use super::unit::UnitElement;
use crate::format::BfpFormat;
use crate::round::bits::{self, BIAS, INFINITY, MANTISSA_BITS};
use crate::round::mode::Rounding;
use crate::round::{NORMAL, normal};
use core::ops::Range;

impl BfpFormat {
    /// One element of a block whose largest finite magnitude has the float32 pattern `amax`: rounded,
    /// saturated and scaled back; NaN and ±Inf unchanged. `draw` matters only to
    /// [`Rounding::Stochastic`].
    ///
    /// The format must be [valid](Self::validate), `x` not finite or its magnitude at most `amax`.
    pub fn round_element(&self, x: f32, amax: u32, rounding: Rounding, draw: u32) -> f32 {
        BlockRule::Bfp(BfpRule::of(self)).round_element(x, [amax; 2], rounding, draw)
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

    pub(super) fn unit_element(&self) -> UnitElement {
        UnitElement {
            mantissa_bits: self.fraction_bits,
            emin: 0,
            max: self.max,
            flush_below: 0,
        }
    }

    pub(super) fn step_element(&self) -> StepElement {
        StepElement {
            mantissa_bits: self.fraction_bits,
            flush_below: 0,
            keeps_special: true,
        }
    }

    /// NaN and Inf do not take part in the largest magnitude.
    #[inline(always)]
    pub(super) fn counted(abs: u32) -> u32 {
        if abs < INFINITY { abs } else { 0 }
    }

    #[inline(always)]
    pub(super) fn grid(&self, amax: u32) -> Grid {
        let exponent = (amax >> MANTISSA_BITS) as i32 - BIAS;
        let max = bits::scale(self.max, exponent);
        Steps {
            emin: exponent,
            max,
        }
        .words()
    }

    pub(super) fn tame(&self) -> Range<u32> {
        normal(*NORMAL.start(), NORMAL.end() + 1)
    }

    #[inline(always)]
    pub(super) fn tame_pair(&self, amax: u32) -> ScalePair {
        ScalePair::of_power(amax & INFINITY)
    }
}
