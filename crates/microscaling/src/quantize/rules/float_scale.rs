//! The scalar rules of blocks whose scale is a float: NVFP4, and blocks of any element and scale.

mod four_over_six;
mod outer_scale;
mod scale_row;
mod sub_scales;
mod tables;

use super::ConversionRule;
use super::grid::Grid;
use super::scale_pair::ScalePair;
use super::unit::UnitElement;
use crate::format::element::table::Tables;
use crate::format::{BlockFormat, NonFinite, ScaleMode, Subnormals};
use crate::round::bits::{self, ABS, IMPLICIT, INFINITY, NAN, ONE, SIGN};
use crate::round::{RoundingRule, round_magnitude};
use core::ops::Range;
pub(super) use four_over_six::{Candidates, FOUR_CHOICE};
use microscaling_processor::float_state::ieee;
pub(crate) use outer_scale::OuterScaleRule;
use scale_row::ScaleRow;
pub(crate) use sub_scales::SubScaleRule;

/// 6 / 4.
const SIX_OVER_FOUR: u32 = 0x3fc0_0000;
/// 2^−80, see [`FloatScaleRule`].
const LARGE: u32 = 0x1780_0000;
/// 2^−40: formats whose scales may be smaller have fewer ordinary blocks.
const NARROW: u32 = 0x2b80_0000;
/// Whether a tensor scale is so large that the rule for floats as scales need not be exact.
pub fn is_large(tensor_scale: f32) -> bool {
    tensor_scale.to_bits() >= LARGE
}

/// Any tensor scale, with the special cases of very small ones.
pub(crate) const EXACT: bool = true;
/// Tensor scales that are [large](is_large): nothing overflows that matters.
const PLAIN: bool = false;

/// A [`BlockFormat`] and its tensor scale as the loops hold them.
#[derive(Clone, Copy)]
pub(crate) struct FloatScaleRule {
    /// t, and 1 / t, as patterns.
    tensor_scale: u32,
    inverse: u32,
    /// By what a block's scale is multiplied in its results: t, or 1 if they are in units of t.
    result_scale: u32,
    /// h as a pattern.
    headroom: u32,
    pub(crate) element: UnitElement,
    /// Q as a pattern.
    largest_unit: u32,
    pub(crate) scale: ScaleRow,
    /// The sub-blocks whose scales may be doubled.
    pub(crate) sub_scales: Option<SubScaleRule>,
    /// Whether stochastic rounding is MS-EDEN.
    pub(crate) eden: bool,
    /// Whether a second look at a block compares its two scales.
    pub(super) four_over_six: bool,
    /// The switches of hardware, if one differs from the library.
    conversion: Option<ConversionRule>,
    /// Whether elements are divided by their scale, so that nothing is rounded twice.
    divides: bool,
    /// Whether NaN and Inf are elements, and do not count for the scale.
    pub(super) special_elements: bool,
    /// The numbers of elements that are none of [`element`](Self::element), of which only the largest one matters then.
    pub(crate) tables: Option<Tables>,
}

impl FloatScaleRule {
    pub(crate) fn of(format: &BlockFormat, tensor_scale: f32) -> Self {
        let rule = Self {
            tensor_scale: ONE,
            inverse: ONE,
            result_scale: ONE,
            headroom: format.headroom.value().to_bits(),
            element: UnitElement {
                mantissa_bits: format.element.mantissa_bits() as i32,
                emin: format.element.emin(),
                max: format.element.max().to_bits(),
                flush_below: match format.subnormals {
                    Subnormals::FlushElements => IMPLICIT,
                    Subnormals::Kept | Subnormals::FlushBlocks => 0,
                },
            },
            largest_unit: format.largest_unit().to_bits(),
            scale: ScaleRow::of(format),
            sub_scales: SubScaleRule::of(format),
            eden: format.eden,
            four_over_six: format.four_over_six,
            conversion: ConversionRule::of(format),
            divides: format.scale_mode == ScaleMode::MaxAbsFinite,
            special_elements: format.non_finite == NonFinite::Elements,
            tables: format.element.as_tables(),
        };
        ieee(|| rule.with_tensor_scale(tensor_scale.to_bits()))
    }

    /// The same rule in a tensor with this scale, given as a pattern.
    #[inline(always)]
    pub(crate) fn with_tensor_scale(self, tensor_scale: u32) -> Self {
        let inverse = match tensor_scale {
            0 | INFINITY.. => 0,
            _ => bits::quotient(ONE, tensor_scale),
        };
        Self {
            tensor_scale,
            inverse,
            result_scale: tensor_scale,
            ..self
        }
    }

    /// Whether the grid depends on all elements of a block.
    #[inline(always)]
    pub(super) fn looks_twice(&self) -> bool {
        self.four_over_six || matches!(self.tables, Some(tables) if tables.0.len() > 1)
    }

    /// The same rule with results in units of the tensor scale: q · c instead of q · (t · c).
    pub(crate) fn in_units_of_the_scale(self) -> Self {
        Self {
            result_scale: ONE,
            ..self
        }
    }

    /// c as a pattern; NaN if the block or the tensor scale is not finite. With `four`, c makes 4 of the largest magnitude, not 6.
    #[inline(always)]
    fn block_scale<const EXACT: bool>(&self, amax: u32, four: bool) -> u32 {
        let factor = if four { SIX_OVER_FOUR } else { ONE };
        self.scale_for::<EXACT>(amax, self.largest_unit, factor)
    }

    /// c, where `max` is Q, times a factor.
    #[inline(always)]
    fn scale_for<const EXACT: bool>(&self, amax: u32, max: u32, factor: u32) -> u32 {
        if EXACT && (amax >= INFINITY || self.tensor_scale >= INFINITY) {
            return NAN;
        }
        if EXACT && self.tensor_scale == 0 {
            return self.scale.min;
        }
        let amax = if EXACT { self.counted(amax) } else { amax };
        let scale = bits::quotient(amax, max);
        let scale = bits::quotient(scale, self.tensor_scale);
        let scale = bits::product(scale, self.headroom);
        let scale = bits::product(scale, factor);
        match EXACT {
            true => self.scale.round_any(scale),
            false => self.scale.round(scale),
        }
    }

    /// c as a pattern, from what a second look says.
    #[inline(always)]
    pub(crate) fn block_scale_with(&self, amax: u32, choice: u32) -> u32 {
        match self.tables {
            Some(tables) => self.table_scale(tables, amax, self.table(choice)),
            None => self.block_scale::<EXACT>(amax, self.is_four(choice)),
        }
    }

    /// The code of c, and above it the number of the table.
    #[inline(always)]
    pub(crate) fn block_scale_code(&self, [amax, choice]: [u32; 2]) -> u64 {
        let code = self.scale.code(self.block_scale_with(amax, choice));
        u64::from(code) | u64::from(self.table(choice)) << self.scale.bits
    }

    /// The inverse: the code of c, and the number of the table, or of the last one where there are fewer.
    #[inline(always)]
    pub(crate) fn split(&self, code: u64) -> (u32, u32) {
        match self.tables {
            Some(tables) if tables.0.len() > 1 => {
                let last = tables.0.len() as u64 - 1;
                let table = (code >> self.scale.bits).min(last);
                ((code & ((1 << self.scale.bits) - 1)) as u32, table as u32)
            }
            _ => (code as u32, 0),
        }
    }

    /// The number of the table that a second look gives.
    #[inline(always)]
    fn table(&self, choice: u32) -> u32 {
        match self.tables {
            Some(tables) if tables.0.len() > 1 => choice,
            _ => 0,
        }
    }

    /// A magnitude in units of the scale.
    #[inline(always)]
    pub(crate) fn scaled(pair: ScalePair, abs: u32) -> u32 {
        if pair.scale == 0 {
            0
        } else if pair.inverse >= INFINITY {
            bits::quotient(abs, pair.scale)
        } else {
            bits::product(abs, pair.inverse)
        }
    }

    /// Zero for a magnitude that is flushed.
    #[inline(always)]
    fn counted(&self, abs: u32) -> u32 {
        if abs < self.element.flush_below {
            0
        } else {
            abs
        }
    }

    /// q as a pattern with the sign of the finite number x, of which `pair` says the scale. Q beyond the largest number may be Inf or NaN.
    #[inline(always)]
    pub(crate) fn round_unit<R: RoundingRule>(&self, pair: ScalePair, x: u32, draw: u32) -> u32 {
        let (sign, abs) = (x & SIGN, x & ABS);
        if let Some(rule) = self.conversion
            && abs >= INFINITY
        {
            return rule.special(sign, abs, self.element.max);
        }
        let scaled = Self::scaled(pair, self.counted(abs));
        let UnitElement {
            mantissa_bits,
            emin,
            max,
            ..
        } = self.element;
        match self.conversion {
            Some(rule) => rule.element::<R, _>(sign, scaled, (emin, max), draw),
            None => sign | round_magnitude::<R, _>(scaled.min(max), mantissa_bits, emin, draw),
        }
    }

    #[inline(always)]
    fn is_four(&self, choice: u32) -> bool {
        self.four_over_six && choice == FOUR_CHOICE
    }

    /// The data that the elements of a block with the scale c need.
    #[inline(always)]
    pub(crate) fn pair<const EXACT: bool>(&self, scale: u32) -> ScalePair {
        self.pair_with::<EXACT>(scale, self.result_scale)
    }

    /// [`pair`](Self::pair), with results in these units.
    #[inline(always)]
    fn pair_with<const EXACT: bool>(&self, scale: u32, result_scale: u32) -> ScalePair {
        // Also in units of the tensor scale, whatever is too large with it is NaN.
        if EXACT && (scale >= INFINITY || bits::product(self.tensor_scale, scale) >= INFINITY) {
            return ScalePair {
                scale: NAN,
                inverse: 0,
            };
        }
        ScalePair {
            scale: bits::product(result_scale, scale),
            inverse: if EXACT && (self.inverse >= INFINITY || self.divides) {
                INFINITY
            } else {
                bits::quotient(self.inverse, scale)
            },
        }
    }

    /// The grid of any block: a [`ScalePair`]; with tables c and the number of the block's table.
    #[inline(always)]
    pub(super) fn grid(&self, amax: u32, choice: u32) -> Grid {
        let scale = self.block_scale_with(amax, choice);
        match self.sub_scales {
            Some(sub_scales) => self.grid_of(sub_scales.scale(scale, choice), 0),
            None => self.grid_of(scale, self.table(choice)),
        }
    }

    /// The grid of a block with the scale c, and that table.
    #[inline(always)]
    pub(super) fn grid_of(&self, scale: u32, table: u32) -> Grid {
        match self.tables {
            Some(_) => [scale, table],
            None => self.pair::<EXACT>(scale).words(),
        }
    }

    /// The pair of such a grid.
    #[inline(always)]
    pub(crate) fn pair_of(&self, grid: Grid) -> ScalePair {
        match self.tables {
            Some(_) => self.pair::<EXACT>(grid[0]),
            None => ScalePair::of(grid),
        }
    }

    /// Rounds an element of any block.
    #[inline(always)]
    pub(super) fn round<R: RoundingRule>(&self, grid: Grid, x: f32, draw: u32) -> f32 {
        let pair = self.pair_of(grid);
        if pair.is_nan() {
            return f32::from_bits(NAN);
        }
        let signed = match self.tables {
            Some(tables) => {
                let table = &tables.0[grid[1] as usize];
                let sign = x.to_bits() & SIGN;
                sign | Self::round_in::<R>(table, pair, x.to_bits(), draw)[0]
            }
            None => self.round_unit::<R>(pair, x.to_bits(), draw),
        };
        let (sign, unit) = (signed & SIGN, signed & ABS);
        if unit > INFINITY {
            return f32::from_bits(NAN);
        }
        f32::from_bits(sign | bits::product(unit, pair.scale))
    }

    /// The largest number of a block, from that in units of the scale; the smallest number where there is but 0, beyond which all
    /// is clipped.
    #[inline(always)]
    pub(crate) fn largest(pair: ScalePair, unit: u32) -> u32 {
        if unit == 0 && pair.scale > 0 {
            1
        } else {
            bits::product(pair.scale, unit)
        }
    }

    /// The largest number with a sign bit that an element of a grid can become in units of the scale.
    #[inline(always)]
    pub(super) fn largest_unit(&self, grid: Grid, sign: u32) -> u32 {
        match self.tables {
            Some(tables) => tables.0[grid[1] as usize].largest(sign),
            None => self.element.max,
        }
    }

    pub(super) fn unit_element(&self) -> UnitElement {
        self.element
    }

    pub(super) fn ordinary(&self) -> Range<u32> {
        let range =
            |least: u32, end: u32, scales: Range<u32>| match scales.contains(&self.tensor_scale) {
                true => least..end,
                false => 0..0,
            };
        match self.scale.min >= NARROW {
            _ if self.tables.is_some() || self.conversion.is_some() => 0..0,
            _ if self.element.flush_below > 0 || self.special_elements || self.divides => 0..0,
            // A scale of more than float32 makes its block NaN.
            true => range(0, bits::pow2(120), LARGE..INFINITY),
            // Neither a scale nor its reciprocal is very small or very large.
            false => range(
                bits::pow2(-60),
                bits::pow2(100),
                bits::pow2(-20)..bits::pow2(20),
            ),
        }
    }

    /// The pair of an ordinary block.
    #[inline(always)]
    pub(super) fn ordinary_pair(&self, amax: u32, four: bool) -> ScalePair {
        self.pair::<PLAIN>(self.block_scale::<PLAIN>(amax, four))
    }
}

// The patterns that are written as numbers.
const _: () = {
    assert!(LARGE == bits::pow2(-80) && NARROW == bits::pow2(-40));
    assert!(SIX_OVER_FOUR == 1.5_f32.to_bits());
};
