//! MX blocks: the scalar rules. What stands here is the specification; the slice kernels inline it,
//! and any other implementation (GPU, intrinsics) must match it bit for bit.

use super::grid::{Grid, round_to_grid};
use crate::quantize::block_rule::BlockRule;
use crate::round::bits::{self, ABS, IMPLICIT, INFINITY, MANTISSA_BITS, NAN};
use crate::round::{NORMAL, RoundingRule, normal};
use crate::{ElementFormat, MxFormat, Rounding, ScaleMode};
use core::ops::Range;

impl MxFormat {
    /// The exponent s of the scale 2^s of a block whose largest magnitude has the float32 pattern
    /// `amax`; `None` is the scale NaN. The sign bit of `amax` is ignored.
    ///
    /// Patterns of NaN and Inf give `None`, and so does a scale that would be larger than 2^E. A
    /// smaller one than 2^−E becomes 2^−E; in particular 2^−127, a subnormal float32, is a scale like
    /// any other. The largest pattern of a block, compared as an integer, is that of its largest
    /// magnitude, or of a NaN or Inf if it holds one.
    ///
    /// The format must be [valid](Self::validate).
    pub fn scale_exponent(&self, amax: u32) -> Option<i32> {
        let (exponent, nan) = MxRule::of(self).scale(amax & ABS);
        (!nan).then_some(exponent)
    }

    /// One element of a block whose largest magnitude has the float32 pattern `amax`: rounded,
    /// saturated and scaled back. `draw` matters only to [`Rounding::Stochastic`].
    ///
    /// NaN if the scale is NaN, whatever `x` is; zero if the block is flushed. Subnormals of the element format are kept; below the
    /// smallest one the rounding decides between it and zero. Where scale mode `ceil`, `even` or
    /// `rceil` lets an element of a block near the top of float32 round up to 2^128, the result is
    /// ±Inf, the only float32 for it; with `floor` that cannot happen.
    ///
    /// `x` must be finite and its magnitude at most `amax`, unless that makes the scale NaN.
    pub fn round_element(&self, x: f32, amax: u32, rounding: Rounding, draw: u32) -> f32 {
        MxRule::of(self).round_element(x, [amax; 2], rounding, draw)
    }
}

/// What rounding has to know of an element format, as integers.
#[derive(Clone, Copy)]
pub(crate) struct ElementRow {
    pub(crate) mantissa_bits: i32,
    pub(crate) emin: i32,
    pub(crate) emax: i32,
    /// Pattern of the largest number.
    pub(crate) max: u32,
    /// Pattern of its float32 reciprocal.
    pub(crate) inverse_max: u32,
}

impl ElementRow {
    /// All rows, computed at compile time: a division must not see the thread's flush-to-zero state.
    const ROWS: [Self; ElementFormat::ALL.len()] = {
        let mut rows = [Self::new(ElementFormat::Int2); ElementFormat::ALL.len()];
        let mut i = 0;
        while i < rows.len() {
            let element = ElementFormat::ALL[i];
            rows[element as usize] = Self::new(element);
            i += 1;
        }
        rows
    };

    const fn new(element: ElementFormat) -> Self {
        Self {
            mantissa_bits: element.mantissa_bits() as i32,
            emin: element.emin(),
            emax: element.emax(),
            max: element.max().to_bits(),
            inverse_max: (1.0 / element.max()).to_bits(),
        }
    }

    #[inline]
    pub(crate) fn of(element: ElementFormat) -> Self {
        Self::ROWS[element as usize]
    }
}

/// An [`MxFormat`] as the kernels hold it: from a block's largest magnitude to its grid.
#[derive(Clone, Copy)]
pub(crate) struct MxRule {
    pub(crate) row: ElementRow,
    pub(crate) scale_mode: ScaleMode,
    /// E: the scale is 2^−E … 2^E.
    pub(crate) largest_exponent: i32,
    /// Blocks whose largest magnitude is below this pattern become zero.
    pub(crate) flush_below: u32,
    tame: Tame,
}

impl MxRule {
    pub(crate) fn of(format: &MxFormat) -> Self {
        let row = ElementRow::of(format.element);
        let largest_exponent = (1 << (format.scale_bits - 1)) - 1;
        Self {
            tame: Tame::of(&row, format.scale_mode, largest_exponent),
            row,
            scale_mode: format.scale_mode,
            largest_exponent,
            flush_below: if format.flush_fp32_subnorms {
                IMPLICIT
            } else {
                0
            },
        }
    }

    /// The exponent of the scale of a block whose largest magnitude has the pattern `amax`, and whether
    /// the scale is NaN; the exponent means nothing then.
    #[inline(always)]
    pub(crate) fn scale(&self, amax: u32) -> (i32, bool) {
        let exponent = self.scale_mode.exponent(amax, &self.row);
        let nan = amax >= INFINITY || exponent > self.largest_exponent;
        (exponent.max(-self.largest_exponent), nan)
    }
}

impl BlockRule for MxRule {
    type Grid = Grid;

    #[inline(always)]
    fn grid(&self, amax: u32, _: u32) -> Grid {
        let (scale, nan) = self.scale(amax);
        let max = if nan {
            NAN
        } else if amax < self.flush_below {
            0
        } else {
            bits::scale(self.row.max, scale)
        };
        Grid {
            emin: self.row.emin + scale,
            max,
        }
    }

    #[inline(always)]
    fn round<R: RoundingRule>(&self, grid: Grid, rule: R, x: f32, draw: u32) -> f32 {
        grid.round(rule, self.row.mantissa_bits, x, draw)
    }

    #[inline(always)]
    fn tame(&self) -> Range<u32> {
        self.tame.from..self.tame.below
    }

    #[inline(always)]
    fn tame_grid(&self, amax: u32, _: u32) -> [u32; 2] {
        let Tame {
            factor,
            addend,
            to_smallest,
            limit,
            to_max,
            ..
        } = self.tame;
        let scaled = (f32::from_bits(amax) * factor).to_bits() + addend;
        let smallest = (scaled & INFINITY).wrapping_add(to_smallest).max(limit);
        [smallest, smallest + to_max]
    }

    #[inline(always)]
    fn round_tame<R: RoundingRule>(&self, grid: [u32; 2], rule: R, x: f32) -> f32 {
        round_to_grid(rule, self.row.mantissa_bits, grid, x)
    }
}

/// From the largest magnitude of a tame block to its grid, for all scale modes alike: the exponent field of
/// `amax · factor`, to the pattern of which `addend` is added, is that of the scale but for a constant.
#[derive(Clone, Copy)]
struct Tame {
    /// The ends of [`BlockRule::tame`]: a range is not `Copy`.
    from: u32,
    below: u32,
    factor: f32,
    addend: u32,
    /// From there to the pattern of 2^emin, the smallest number with all its mantissa bits.
    to_smallest: u32,
    /// Of that the least pattern, with the smallest scale.
    limit: u32,
    /// From that to the pattern of the largest number.
    to_max: u32,
}

impl Tame {
    fn of(row: &ElementRow, scale_mode: ScaleMode, largest_exponent: i32) -> Self {
        let exponents = |from: i32, to: i32| ((to - from) << MANTISSA_BITS) as u32;
        let before_next = IMPLICIT - 1;
        let (factor, addend, emax) = match scale_mode {
            ScaleMode::Floor => (1.0, 0, row.emax),
            ScaleMode::Ceil => (1.0, before_next, row.emax),
            ScaleMode::Even => (1.0, IMPLICIT >> (row.mantissa_bits + 1), row.emax),
            // The product is a normal number; it has the exponent of the scale.
            ScaleMode::Rms => (1.0, 0, row.emax + 2),
            ScaleMode::Rceil => (f32::from_bits(row.inverse_max), before_next, 0),
        };
        // emin of a block is row.emin + scale, and scale at least exponent − row.emax.
        let lowest = NORMAL.start() - row.emin + row.emax;
        // Below this no scale is larger than 2^E, in any mode.
        let highest = (NORMAL.end() + 1).min(largest_exponent + row.emax);
        let range = normal(lowest, highest);
        Self {
            from: range.start,
            below: range.end,
            factor,
            addend,
            to_smallest: exponents(emax, row.emin),
            limit: bits::pow2((row.emin - largest_exponent).max(*NORMAL.start())),
            to_max: row.max - bits::pow2(row.emin),
        }
    }
}
