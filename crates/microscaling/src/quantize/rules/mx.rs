//! MX blocks: the scalar rules. This code is the specification. The slice kernels inline the code, and any other
//! implementation (GPU, intrinsics) must match it bit for bit.

use super::ConversionRule;
use super::element_row::ElementRow;
use super::grid::{StepElement, Steps};
use super::rms::RmsScale;
use super::scale::PowerScale;
use super::scale_pair::ScalePair;
use super::unit::UnitElement;
use crate::format::{BlockFormat, Subnormals};
use crate::round::bits::{self, ABS, BIAS, IMPLICIT, INFINITY, MANTISSA_BITS, NAN, ONE};
use crate::round::words::{Int, Word};
use crate::round::{NORMAL, normal};
use core::ops::Range;

/// A [`BlockFormat`] with powers of two as the kernels hold it: from a block's largest magnitude to its grid, or from its root mean square.
#[derive(Clone, Copy)]
pub(crate) struct MxRule {
    pub(crate) row: ElementRow,
    /// E: the scale is 2^−E … 2^E.
    pub(crate) largest_exponent: i32,
    /// Blocks whose largest magnitude is below this pattern become zero.
    pub(crate) flush_below: u32,
    /// Magnitudes below this pattern count as zero.
    flush_elements_below: u32,
    conversion: Option<ConversionRule>,
    /// Whether the elements of each sign have a scale.
    pub(super) sign_scales: bool,
    /// `None` if the scale follows from the root mean square.
    power: Option<PowerScale>,
    rms: RmsScale,
    ordinary: Ordinary,
}

/// Added to an exponent that a second look chooses, so that the word is not negative.
const EXPONENT_OFFSET: i32 = 1 << 10;

impl MxRule {
    pub(crate) fn of(format: &BlockFormat) -> Self {
        let row = ElementRow::of(format.element);
        let largest_exponent = -format.scale.emin();
        let power = format.power_scale();
        Self {
            ordinary: Ordinary::of(&row, format, power, largest_exponent),
            power,
            rms: RmsScale::of(format.headroom),
            row,
            largest_exponent,
            flush_below: match format.subnormals {
                Subnormals::FlushBlocks => IMPLICIT,
                Subnormals::Kept | Subnormals::FlushElements => 0,
            },
            flush_elements_below: match format.subnormals {
                Subnormals::FlushElements => IMPLICIT,
                Subnormals::Kept | Subnormals::FlushBlocks => 0,
            },
            conversion: ConversionRule::of(format),
            sign_scales: format.sign_scales,
        }
    }

    /// Whether the scale follows from the root mean square.
    #[inline(always)]
    pub(super) fn is_rms(&self) -> bool {
        self.power.is_none()
    }

    pub(super) fn unit_element(&self) -> UnitElement {
        UnitElement {
            mantissa_bits: self.row.mantissa_bits,
            emin: self.row.emin,
            max: self.row.max,
            flush_below: 0,
        }
    }

    pub(crate) fn step_element(&self) -> StepElement {
        StepElement {
            mantissa_bits: self.row.mantissa_bits,
            flush_below: self.flush_elements_below,
            keeps_special: false,
            conversion: self.conversion,
        }
    }

    /// The exponent of the scale of a block whose largest magnitude has the pattern `amax`, and whether
    /// the scale is NaN; the exponent means nothing then.
    #[inline(always)]
    pub(crate) fn scale<W: Word>(&self, [mut amax, choice]: [W; 2]) -> (W::Int, W::Condition) {
        if self.flush_elements_below > 0 {
            let is_flushed = amax.is_below(self.flush_elements_below.into());
            amax = W::select(is_flushed, 0.into(), amax);
        }
        let exponent = match self.power {
            Some(power) => power.exponent(amax, &self.row),
            None => choice.to_int() - EXPONENT_OFFSET.into(),
        };
        let largest = W::Int::from(self.largest_exponent);
        let nan = !amax.is_below(INFINITY.into()) | largest.is_below(exponent);
        (exponent.larger((-self.largest_exponent).into()), nan)
    }

    /// The grid of a block with the scale 2^scale.
    #[inline(always)]
    pub(super) fn grid_of<W: Word>(&self, scale: W::Int) -> Steps<W> {
        Steps {
            emin: scale + self.row.emin.into(),
            max: W::from(self.row.max)
                .scale(scale)
                .smaller(self.row.top.into()),
        }
    }

    /// The grid of any block.
    #[inline(always)]
    pub(super) fn grid<W: Word>(&self, amax: W, choice: W) -> Steps<W> {
        let (scale, nan) = self.scale([amax, choice]);
        // No number is computed with a scale that is too large.
        let scale = W::Int::select(nan, 0.into(), scale);
        let Steps { emin, mut max } = self.grid_of(scale);
        if self.flush_below > 0 {
            max = W::select(amax.is_below(self.flush_below.into()), 0.into(), max);
        }
        let max = W::select(nan, NAN.into(), max);
        Steps { emin, max }
    }

    /// The code of the scale of a block of zeros.
    #[inline(always)]
    pub(super) fn zero_code(&self) -> u32 {
        let (exponent, _) = self.scale([0, self.choice_of_mean(0, 0)]);
        (exponent + BIAS) as u32
    }

    pub(super) fn ordinary(&self) -> Range<u32> {
        if self.conversion.is_some() || self.flush_elements_below > 0 || self.sign_scales {
            return 0..0;
        }
        self.ordinary.from..self.ordinary.below
    }

    /// The scale of an ordinary block.
    #[inline(always)]
    pub(super) fn ordinary_pair<W: Word>(&self, amax: W) -> ScalePair<W> {
        let Ordinary {
            factor,
            addend,
            emax,
            limit,
            ..
        } = self.ordinary;
        let scaled = amax.product(factor.into()) + addend.into();
        let scale = (scaled & INFINITY.into()).wrapping_sum(0_u32.wrapping_sub(emax).into());
        ScalePair::of_power(scale.larger(limit.into()))
    }

    /// [`ordinary_pair`](Self::ordinary_pair) from a root mean square.
    #[inline(always)]
    pub(super) fn ordinary_pair_of_mean(&self, choice: u32) -> ScalePair {
        // Only the scale of a block of zeros is too small.
        let lowest = (-self.largest_exponent).max(NORMAL.start() - self.row.emin.min(0));
        ScalePair::of_power(bits::pow2((choice as i32 - EXPONENT_OFFSET).max(lowest)))
    }
}

/// Scales from the root mean square: the second look.
impl MxRule {
    /// Exponent of the unit in which the magnitudes of a block have 16 bits.
    #[inline(always)]
    pub(super) fn unit_of_mean<W: Word>(amax: W) -> W::Int {
        amax.exponent() - 15.into()
    }

    /// The square of an element in that unit. NaN and Inf give anything, as the largest magnitude says enough then.
    #[inline(always)]
    pub(super) fn square<W: Word>(unit: W::Int, x: W) -> W {
        (x & ABS.into()).square(unit)
    }

    /// The choice of the sum of the squares of `length` elements.
    #[inline(always)]
    pub(super) fn choice_of_squares(&self, amax: u32, sum: i64, length: usize) -> u32 {
        self.choice_of_mean(amax, (sum as u64 / length.max(1) as u64) as u32)
    }

    /// The choice of the mean of the squares of a block, rounded down.
    #[inline(always)]
    pub(super) fn choice_of_mean<W: Word>(&self, amax: W, mean: W) -> W {
        // As in the other modes.
        let of_zeros = W::Int::from(1 - BIAS - self.row.emax);
        let exponent = self
            .rms
            .exponent(mean.larger(1.into()), Self::unit_of_mean(amax));
        let exponent = W::Int::select(amax.equals(0.into()), of_zeros, exponent);
        (exponent + EXPONENT_OFFSET.into()).to_word()
    }
}

/// From the largest magnitude of an ordinary block to its scale, for all scale modes alike. The pattern of `amax · factor`
/// plus `addend` has the scale's exponent field, but for a constant.
#[derive(Clone, Copy)]
struct Ordinary {
    /// The ends of [`MxRule::ordinary`]: a range is not `Copy`.
    from: u32,
    below: u32,
    factor: u32,
    addend: u32,
    /// From there to the scale, as a difference of patterns.
    emax: u32,
    /// The pattern of the smallest scale.
    limit: u32,
}

impl Ordinary {
    fn of(
        row: &ElementRow,
        format: &BlockFormat,
        power: Option<PowerScale>,
        largest_exponent: i32,
    ) -> Self {
        let (factor, emax) = match power {
            // The product is a normal number; it has the exponent of the scale.
            Some(PowerScale { divides: true, .. }) => (row.inverse_max, 0),
            _ => (ONE, row.emax),
        };
        let addend = power.map_or(0, |power| power.addend);
        // emin of a block is row.emin + scale. The scale is at least exponent − row.emax. A root mean square is at least 2^−15 of the
        // largest magnitude, so its scale is 17 less at most.
        let mean = i32::from(power.is_none());
        // Nor is a scale itself very small or very large, wherever the element's own exponents are.
        let lowest = NORMAL.start() - row.emin.min(0) + row.emax + 32 * mean;
        // Below this no scale is larger than 2^E, in any mode.
        let highest = (NORMAL.end() + 1).min(NORMAL.end() + row.emax);
        let highest = highest.min(largest_exponent + row.emax);
        // Headroom adds one exponent.
        let highest = highest - i32::from(!format.headroom.is_none());
        // Nor are the element's own numbers very large.
        let highest = if row.emax > *NORMAL.end() {
            lowest
        } else {
            highest
        };
        let range = normal(lowest, highest);
        Self {
            from: range.start,
            below: range.end,
            factor,
            addend,
            emax: (emax as u32) << MANTISSA_BITS,
            // No block is ordinary whose element has a very small emin.
            limit: bits::pow2((-largest_exponent).max(NORMAL.start() - row.emin.min(0))),
        }
    }
}
