//! The scalar rules of microexponents and block floating point.

use super::ConversionRule;
use super::grid::{StepElement, Steps};
use super::scale_pair::ScalePair;
use super::unit::UnitElement;
use crate::format::{BlockFormat, ElementRounding, NonFinite, Subnormals};
use crate::round::bits::{self, BIAS, IMPLICIT, INFINITY, MANTISSA_BITS, NAN};
use crate::round::words::{Int, Word};
use crate::round::{NORMAL, normal};
use core::ops::Range;

/// A format of fixed-point elements that share exponents, as the loops hold it.
#[derive(Clone, Copy)]
pub(crate) struct FixedPointRule {
    pub(super) sub_block: usize,
    pub(super) largest_shift: i32,
    /// Mantissa bits below the leading one.
    fraction_bits: i32,
    /// Pattern of the largest element of a sub-block with exponent 0.
    max: u32,
    /// Magnitudes below this pattern count as zero.
    flush_below: u32,
    /// Whether NaN and Inf stay as they are; otherwise the whole block becomes NaN.
    keeps_special: bool,
    /// Whether they take part in the largest magnitude, and give the block the exponent of Inf.
    pub(crate) counts_special: bool,
    conversion: Option<ConversionRule>,
    /// The mantissa bits of the smallest number between 1 and 2 that is rounded to 2, where blocks are rounded again; `None` if none is.
    overflow: Option<u32>,
}

impl FixedPointRule {
    pub(crate) fn of(format: &BlockFormat) -> Self {
        let fraction_bits = format.element.mantissa_bits() as i32;
        let shifts = format.shifts;
        let conversion = ConversionRule::of(format);
        Self {
            sub_block: shifts.map_or(format.block_size, |shifts| shifts.block_size),
            largest_shift: shifts.map_or(0, |shifts| shifts.largest() as i32),
            fraction_bits,
            // A block that is rounded again has room for all of its numbers, and for the most negative code.
            max: match conversion.is_some_and(ConversionRule::renormalizes) {
                true => bits::pow2(1),
                false => bits::fixed((2 << fraction_bits) - 1, -fraction_bits),
            },
            flush_below: match format.subnormals {
                Subnormals::FlushElements => IMPLICIT,
                Subnormals::Kept | Subnormals::FlushBlocks => 0,
            },
            keeps_special: format.non_finite != NonFinite::OfBlock,
            counts_special: format.non_finite == NonFinite::TopExponent,
            conversion,
            overflow: conversion.and_then(|rule| Self::overflow_of(rule, fraction_bits)),
        }
    }

    fn overflow_of(rule: ConversionRule, fraction_bits: i32) -> Option<u32> {
        let half_step = 1 << (MANTISSA_BITS - fraction_bits - 1);
        let largest = IMPLICIT - 2 * half_step;
        // The largest code is odd.
        Some(match rule.own_rounding()? {
            ElementRounding::TiesToEven
            | ElementRounding::TiesToAway
            | ElementRounding::TiesTowardPositive => largest + half_step,
            ElementRounding::TiesToZero
            | ElementRounding::TiesToOdd
            | ElementRounding::TiesTowardNegative => largest + half_step + 1,
            ElementRounding::TowardPositive | ElementRounding::AwayFromZero => largest + 1,
            ElementRounding::TowardZero
            | ElementRounding::TowardNegative
            | ElementRounding::ToOdd
            | ElementRounding::Stochastic(_) => return None,
        })
    }

    pub(super) fn unit_element(&self) -> UnitElement {
        UnitElement {
            mantissa_bits: self.fraction_bits,
            emin: 0,
            max: self.max,
            flush_below: self.flush_below,
        }
    }

    pub(crate) fn step_element(&self) -> StepElement {
        StepElement {
            mantissa_bits: self.fraction_bits,
            flush_below: self.flush_below,
            keeps_special: self.keeps_special,
            conversion: self.conversion,
        }
    }

    /// The part of a magnitude that counts for the largest one.
    #[inline(always)]
    pub(super) fn counted(&self, abs: u32) -> u32 {
        if self.keeps_special && !self.counts_special && abs >= INFINITY {
            0
        } else {
            abs
        }
    }

    /// Whether a block is rounded again where a number overflows.
    #[inline(always)]
    pub(crate) fn renormalizes(&self) -> bool {
        self.conversion.is_some_and(ConversionRule::renormalizes)
    }

    /// The smallest positive number that overflows with the exponent of its block's largest magnitude, as a pattern. If no finite number
    /// overflows, the result is Inf. A two's complement has a code for the negative number that is as large as the step beyond the largest number.
    #[inline(always)]
    pub(super) fn least_overflow(&self, amax: u32) -> u32 {
        let field = amax & INFINITY;
        match self.overflow {
            // Subnormal numbers count as zero in such formats.
            Some(mantissa) if field > 0 && field < INFINITY => field + mantissa,
            _ => INFINITY,
        }
    }

    /// 1 if an element overflows, given the [least number](Self::least_overflow) that does, else 0.
    #[inline(always)]
    pub(super) fn overflows(least: u32, x: f32) -> i64 {
        let x = x.to_bits();
        i64::from((x >= least) & (x < INFINITY))
    }

    /// The exponent of a block with this largest magnitude and the choice of a second look; `None` if the scale is NaN.
    pub(crate) fn exponent(&self, [amax, choice]: [u32; 2]) -> Option<i32> {
        let exponent = (amax >> MANTISSA_BITS) as i32 - BIAS;
        match self.renormalizes() {
            true => Some(exponent + choice as i32),
            false => (amax < INFINITY || self.counts_special).then_some(exponent),
        }
    }

    /// The shift d of a sub-block.
    #[inline(always)]
    pub(crate) fn shift<W: Word>(&self, [amax, sub_amax]: [W; 2]) -> W::Int {
        let below = Self::field(amax) - Self::field(sub_amax);
        below.smaller(self.largest_shift.into())
    }

    /// The exponent field of a magnitude.
    #[inline(always)]
    fn field<W: Word>(abs: W) -> W::Int {
        (abs >> (MANTISSA_BITS as u32).into()).to_int()
    }

    #[inline(always)]
    pub(super) fn grid<W: Word>(&self, amax: W, sub_amax: W) -> Steps<W> {
        let mut exponent = Self::field(amax) - BIAS.into();
        if self.largest_shift > 0 {
            exponent = exponent - self.shift([amax, sub_amax]);
        }
        if self.renormalizes() {
            exponent = exponent + sub_amax.to_int();
        }
        let Steps { emin, mut max } = self.grid_of(exponent);
        if !self.counts_special {
            max = W::select(amax.is_below(INFINITY.into()), max, NAN.into());
        }
        Steps { emin, max }
    }

    /// The grid of a sub-block whose scale is 2^`exponent`.
    #[inline(always)]
    pub(super) fn grid_of<W: Word>(&self, exponent: W::Int) -> Steps<W> {
        Steps {
            emin: exponent,
            max: W::from(self.max).scale(exponent),
        }
    }

    pub(super) fn ordinary(&self) -> Range<u32> {
        if self.conversion.is_some() || self.counts_special {
            return 0..0;
        }
        normal(NORMAL.start() + self.largest_shift, NORMAL.end() + 1)
    }

    #[inline(always)]
    pub(super) fn ordinary_pair<W: Word>(&self, amax: W, sub_amax: W) -> ScalePair<W> {
        let exponent = |abs: W| abs & INFINITY.into();
        let largest_shift = (self.largest_shift as u32) << MANTISSA_BITS;
        let shifted = exponent(amax) - largest_shift.into();
        ScalePair::of_power(exponent(sub_amax).larger(shifted))
    }

    /// The scale of a sub-block of an ordinary block.
    #[inline(always)]
    pub(crate) fn ordinary_scale(&self, amax: u32, sub_amax: u32) -> u32 {
        self.ordinary_pair(amax.max(self.ordinary().start), sub_amax)
            .scale
    }
}
