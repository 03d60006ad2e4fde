//! The scalar rules of blocks whose scale is a float: NVFP4, and those of any element and scale.

use super::BlockRule;
use super::grid::Grid;
use super::scale_pair::ScalePair;
use super::unit::UnitElement;
use crate::float_state::ieee;
use crate::format::table::{Few, Table, Tables};
use crate::pack::places::Places;
use crate::round::bits::{self, ABS, INFINITY, MANTISSA_BITS, NAN, ONE, SIGN};
use crate::round::mode::Even;
use crate::round::{RoundingRule, round_magnitude, round_normal, with_rule};
use crate::{BlockFormat, FloatScaleFormat, Nvfp4Format, Rounding, ScaleFormat};
use core::ops::Range;

/// 6 / 4.
const SIX_OVER_FOUR: u32 = 0x3fc0_0000;
/// 2^−80, see [`FloatScaleRule`].
const LARGE: u32 = 0x1780_0000;
/// 2^−40: formats whose scales may be smaller have fewer tame blocks.
const NARROW: u32 = 0x2b80_0000;
/// Whether a tensor scale is so large that [`FloatScaleRule`] need not be exact.
pub(crate) fn is_large(tensor_scale: f32) -> bool {
    tensor_scale.to_bits() >= LARGE
}

impl BlockFormat {
    /// The tensor scale where there is one, of a tensor whose largest magnitude has the float32 pattern that `amax`
    /// gives.
    pub(crate) fn tensor_scale(&self, amax: impl FnOnce() -> u32) -> Option<f32> {
        let format = self.float_scale().filter(|format| format.tensor_scale)?;
        Some(format.tensor_scale_of(amax()))
    }
}

impl FloatScaleFormat {
    /// The tensor scale t of a tensor whose largest magnitude has the float32 pattern `amax`: 1 without
    /// one, NaN for a NaN or Inf, 0 for zeros and numbers close to the smallest subnormal. The sign bit
    /// of `amax` is ignored.
    pub fn tensor_scale_of(&self, amax: u32) -> f32 {
        f32::from_bits(match self.tensor_scale {
            false => ONE,
            true if amax & ABS >= INFINITY => NAN,
            true => {
                let (max, headroom) = (self.tensor_max(), self.headroom.value());
                ieee(|| {
                    bits::product(
                        bits::quotient(amax & ABS, max.to_bits()),
                        headroom.to_bits(),
                    )
                })
            }
        })
    }

    /// The scale c of a block of these elements, in a tensor with the scale `tensor_scale`; NaN if either is NaN or Inf.
    pub fn block_scale_of(&self, block: &[f32], tensor_scale: f32) -> f32 {
        let rule = FloatScaleRule::of(self, tensor_scale);
        let elements = block.iter().copied();
        f32::from_bits(ieee(|| {
            let [amax, second] = BlockRule::FloatScale(rule).maxima(elements);
            rule.block_scale_with(amax, second)
        }))
    }

    /// One element of a block with the scale c, one that [`block_scale_of`](Self::block_scale_of) gives, in a tensor with the
    /// scale `tensor_scale`: scaled, rounded, saturated and scaled back. `draw` matters only to [`Rounding::Stochastic`]. Of
    /// several tables it is the first.
    pub fn round_scaled(
        &self,
        x: f32,
        block_scale: f32,
        tensor_scale: f32,
        rounding: Rounding,
        draw: u32,
    ) -> f32 {
        let rule = FloatScaleRule::of(self, tensor_scale);
        ieee(|| {
            let grid = rule.grid_of(block_scale.to_bits(), 0);
            with_rule!(rounding, R => rule.round::<R>(grid, x, draw))
        })
    }
}

impl Nvfp4Format {
    /// The tensor scale t of a tensor whose largest magnitude has the float32 pattern `amax`: 1 without
    /// one, NaN for a NaN or Inf, 0 for zeros and numbers close to the smallest subnormal. The sign bit
    /// of `amax` is ignored.
    pub fn tensor_scale_of(&self, amax: u32) -> f32 {
        FloatScaleFormat::from(*self).tensor_scale_of(amax)
    }

    /// The E4M3 code of the scale c of a block whose largest magnitude has the float32 pattern `amax`,
    /// in a tensor with the scale `tensor_scale`: 0x08 (2^−6) to 0x7e (448), or 0x7f, NaN, if either is
    /// NaN or Inf. A tensor scale of 0 gives 0x08. The sign bit of `amax` is ignored.
    ///
    /// With [`four_over_six`](Self::four_over_six) it is the first of the two candidates;
    /// [`block_scale_of`](Self::block_scale_of) knows which one a block has.
    pub fn block_scale(&self, amax: u32, tensor_scale: f32) -> u8 {
        let rule = FloatScaleRule::of(&(*self).into(), tensor_scale);
        ieee(|| rule.block_scale_code([amax & ABS, 0]) as u8)
    }

    /// The E4M3 code of the scale c of a block of these elements, as [`block_scale`](Self::block_scale).
    ///
    /// With [`four_over_six`](Self::four_over_six), c is c₆ or c₄, and c₄ if the block's error is less. The error with a
    /// scale is the sum of d², where d is the float32 difference of x and what it becomes, rounded half to even whatever
    /// the rounding mode, in units of 2^(e − 17), rounded down to a whole number, of 2^16 − 1 at most; 2^e is the power of
    /// two of the block's largest magnitude. Both sums are of integers: no order matters.
    pub fn block_scale_of(&self, block: &[f32], tensor_scale: f32) -> u8 {
        let rule = FloatScaleRule::of(&(*self).into(), tensor_scale);
        let elements = block.iter().copied();
        ieee(|| rule.block_scale_code(BlockRule::FloatScale(rule).maxima(elements)) as u8)
    }

    /// One element of a block whose largest magnitude has the float32 pattern `amax`, in a tensor with
    /// the scale `tensor_scale`: scaled, rounded, saturated and scaled back. `draw` matters only to
    /// [`Rounding::Stochastic`]. Not with [`four_over_six`](Self::four_over_six), where the scale follows from
    /// all elements: [`round_scaled`](Self::round_scaled) is.
    pub fn round_element(
        &self,
        x: f32,
        amax: u32,
        tensor_scale: f32,
        rounding: Rounding,
        draw: u32,
    ) -> f32 {
        let rule = BlockRule::FloatScale(FloatScaleRule::of(&(*self).into(), tensor_scale));
        rule.round_element(x, [amax, 0], rounding, draw)
    }

    /// One element of a block whose scale c has the E4M3 code `block_scale`, one that
    /// [`block_scale_of`](Self::block_scale_of) gives, in a tensor with the scale `tensor_scale`: scaled, rounded,
    /// saturated and scaled back. `draw` matters only to [`Rounding::Stochastic`].
    pub fn round_scaled(
        &self,
        x: f32,
        block_scale: u8,
        tensor_scale: f32,
        rounding: Rounding,
        draw: u32,
    ) -> f32 {
        let format = FloatScaleFormat::from(*self);
        let rule = FloatScaleRule::of(&format, tensor_scale);
        let scale = rule.scale.decode(u32::from(block_scale & 0x7f));
        format.round_scaled(x, f32::from_bits(scale), tensor_scale, rounding, draw)
    }
}

/// The numbers that a block's scale can be.
#[derive(Clone, Copy)]
pub(crate) struct ScaleRow {
    /// Bits of a float32's mantissa that a scale does not have.
    dropped: u32,
    /// The smallest and the largest scale, and the smallest normal one, as patterns.
    min: u32,
    max: u32,
    smallest_normal: u32,
    /// Added and subtracted again, rounds a number to the multiples of the smallest subnormal scale.
    to_subnormal: f32,
    /// The codes; `None` are those of float32.
    places: Option<Places>,
    /// The code of NaN.
    nan_code: u32,
    /// Bits of a code.
    bits: u32,
}

impl ScaleRow {
    fn of(format: &FloatScaleFormat) -> Self {
        let scale = format.scale;
        let dropped = MANTISSA_BITS as u32 - scale.mantissa_bits();
        Self {
            dropped,
            min: format.scale_min().to_bits(),
            max: scale.max().to_bits(),
            smallest_normal: bits::pow2(scale.emin()),
            to_subnormal: f32::from_bits(bits::pow2(scale.emin() + dropped as i32)),
            places: scale.float().map(Places::of_element),
            nan_code: match scale {
                ScaleFormat::FLOAT32 => NAN,
                _ => (1 << scale.bits()) - 1,
            },
            bits: scale.bits(),
        }
    }

    /// Limits a scale, and rounds it half to even; no carry leads beyond the limits.
    #[inline(always)]
    fn round(&self, scale: u32) -> u32 {
        let scale = scale.clamp(self.min, self.max);
        let addend = Even::addend(scale, self.dropped, 0);
        let normal = (scale + addend) & !((1 << self.dropped) - 1);
        let subnormal = (f32::from_bits(scale) + self.to_subnormal) - self.to_subnormal;
        if scale < self.smallest_normal {
            subnormal.to_bits()
        } else {
            normal
        }
    }

    /// The code of a scale.
    #[inline(always)]
    pub(crate) fn code(&self, scale: u32) -> u32 {
        match self.places {
            _ if scale >= INFINITY => self.nan_code,
            Some(places) => places.code(self.smallest_normal, scale),
            None => scale,
        }
    }

    /// The code of the scale of a block of zeros.
    #[inline(always)]
    pub(super) fn zero_code(&self) -> u32 {
        self.code(self.min)
    }

    /// The scale of a code, as a pattern, and its sign: codes of a byte may have one.
    #[inline(always)]
    pub(crate) fn decode(&self, code: u32) -> u32 {
        match self.places {
            Some(places) => places.number(self.smallest_normal, code),
            None => code,
        }
    }
}

/// Any tensor scale: with the cases of its own that a very small one has.
const EXACT: bool = true;
/// Tensor scales that are [large](is_large): nothing overflows that matters.
const PLAIN: bool = false;

/// A [`FloatScaleFormat`] and its tensor scale as the loops hold them.
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
    pub(crate) scale: ScaleRow,
    /// Whether a second look at a block compares its two scales.
    pub(super) four_over_six: bool,
    /// The numbers of elements that are none of [`element`](Self::element), of which only the largest one matters then.
    pub(super) tables: Option<Tables>,
}

impl FloatScaleRule {
    pub(crate) fn of(format: &FloatScaleFormat, tensor_scale: f32) -> Self {
        let tensor_scale = tensor_scale.to_bits();
        let inverse = match tensor_scale {
            0 | INFINITY.. => 0,
            _ => ieee(|| bits::quotient(ONE, tensor_scale)),
        };
        Self {
            tensor_scale,
            inverse,
            result_scale: tensor_scale,
            headroom: format.headroom.value().to_bits(),
            element: UnitElement {
                mantissa_bits: format.element.mantissa_bits() as i32,
                emin: format.element.emin(),
                max: format.element.max().to_bits(),
                flush_below: 0,
            },
            scale: ScaleRow::of(format),
            four_over_six: format.four_over_six,
            tables: format.element.as_tables(),
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

    /// c as a pattern; NaN if the block or the tensor scale is not finite. With `four`, that which makes of the largest
    /// magnitude 4, not 6.
    #[inline(always)]
    fn block_scale<const EXACT: bool>(&self, amax: u32, four: bool) -> u32 {
        if amax >= INFINITY || self.tensor_scale >= INFINITY {
            return NAN;
        }
        if EXACT && self.tensor_scale == 0 {
            return self.scale.min;
        }
        let scale = self.unrounded_scale(amax, self.element.max);
        let scale = bits::product(scale, if four { SIX_OVER_FOUR } else { ONE });
        self.scale.round(scale)
    }

    /// (amax / Q / t) · h.
    #[inline(always)]
    fn unrounded_scale(&self, amax: u32, max: u32) -> u32 {
        let scale = bits::quotient(amax, max);
        let scale = bits::quotient(scale, self.tensor_scale);
        bits::product(scale, self.headroom)
    }

    /// c as a pattern, from what a second look says.
    #[inline(always)]
    fn block_scale_with(&self, amax: u32, verdict: u32) -> u32 {
        match self.tables {
            Some(tables) => self.table_scale(tables, amax, self.table(verdict)),
            None => self.block_scale::<EXACT>(amax, self.is_four(verdict)),
        }
    }

    /// The code of c, and above it the number of the table.
    #[inline(always)]
    pub(crate) fn block_scale_code(&self, [amax, verdict]: [u32; 2]) -> u64 {
        let code = self.scale.code(self.block_scale_with(amax, verdict));
        u64::from(code) | u64::from(self.table(verdict)) << self.scale.bits
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
    fn table(&self, verdict: u32) -> u32 {
        match self.tables {
            Some(tables) if tables.0.len() > 1 => verdict,
            _ => 0,
        }
    }

    /// A magnitude in units of the scale.
    #[inline(always)]
    fn scaled(pair: ScalePair, abs: u32) -> u32 {
        if pair.scale == 0 {
            0
        } else if pair.inverse >= INFINITY {
            bits::quotient(abs, pair.scale)
        } else {
            bits::product(abs, pair.inverse)
        }
    }

    /// q as a pattern without a sign. `abs` must be finite.
    #[inline(always)]
    pub(crate) fn round_unit<R: RoundingRule>(&self, pair: ScalePair, abs: u32, draw: u32) -> u32 {
        let scaled = Self::scaled(pair, abs);
        let UnitElement {
            mantissa_bits,
            emin,
            max,
            ..
        } = self.element;
        round_magnitude::<R>(scaled.min(max), mantissa_bits, emin, draw)
    }

    #[inline(always)]
    fn is_four(&self, verdict: u32) -> bool {
        self.four_over_six && verdict == FOUR_VERDICT
    }

    /// What the elements need to know of a block with the scale c.
    #[inline(always)]
    fn pair<const EXACT: bool>(&self, scale: u32) -> ScalePair {
        self.pair_with::<EXACT>(scale, self.result_scale)
    }

    /// [`pair`](Self::pair), with results in these units.
    #[inline(always)]
    fn pair_with<const EXACT: bool>(&self, scale: u32, result_scale: u32) -> ScalePair {
        // Also in units of the tensor scale, whatever is too large with it is NaN.
        if scale >= INFINITY || (EXACT && bits::product(self.tensor_scale, scale) >= INFINITY) {
            return ScalePair {
                scale: NAN,
                inverse: 0,
            };
        }
        ScalePair {
            scale: bits::product(result_scale, scale),
            inverse: if EXACT && self.inverse >= INFINITY {
                INFINITY
            } else {
                bits::quotient(self.inverse, scale)
            },
        }
    }

    /// The grid of any block: a [`ScalePair`]; with tables c and the number of the block's table.
    #[inline(always)]
    pub(super) fn grid(&self, amax: u32, verdict: u32) -> Grid {
        self.grid_of(self.block_scale_with(amax, verdict), self.table(verdict))
    }

    /// The grid of a block with the scale c, and that table.
    #[inline(always)]
    fn grid_of(&self, scale: u32, table: u32) -> Grid {
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
        let (sign, abs) = (x.to_bits() & SIGN, x.to_bits() & ABS);
        let unit = match self.tables {
            Some(tables) => {
                self.round_in::<R>(&tables.0[grid[1] as usize], pair, sign | abs, draw)[0]
            }
            None => self.round_unit::<R>(pair, abs, draw),
        };
        f32::from_bits(sign | bits::product(unit, pair.scale))
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

    pub(super) fn tame(&self) -> Range<u32> {
        let range =
            |least: u32, end: u32, scales: Range<u32>| match scales.contains(&self.tensor_scale) {
                true => least..end,
                false => 0..0,
            };
        match self.scale.min >= NARROW {
            _ if self.tables.is_some() => 0..0,
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

    /// The pair of a tame block.
    #[inline(always)]
    pub(super) fn tame_pair(&self, amax: u32, four: bool) -> ScalePair {
        self.pair::<PLAIN>(self.block_scale::<PLAIN>(amax, four))
    }
}

/// What the second look at a block says where the scale that makes of the largest magnitude 4 is better; else 0.
pub(super) const FOUR_VERDICT: u32 = 1;

/// What the second look at a block needs to know.
#[derive(Clone, Copy)]
pub(super) struct Candidates {
    six: ScalePair,
    four: ScalePair,
    /// Exponent of the unit of their errors.
    unit: i32,
}

impl Candidates {
    /// As words, so that there can be arrays of each.
    #[inline(always)]
    pub(super) fn words(self) -> [u32; 5] {
        let [six, four] = [self.six, self.four].map(ScalePair::words);
        [six[0], six[1], four[0], four[1], self.unit as u32]
    }

    #[inline(always)]
    pub(super) fn of([six, six_inverse, four, four_inverse, unit]: [u32; 5]) -> Self {
        Self {
            six: ScalePair::of([six, six_inverse]),
            four: ScalePair::of([four, four_inverse]),
            unit: unit as i32,
        }
    }
}

/// Four over six: the second look.
impl FloatScaleRule {
    /// Both scales of a block, and the unit of their errors.
    #[inline(always)]
    pub(super) fn candidates<const EXACT: bool>(&self, amax: u32) -> Candidates {
        // Of a block that becomes NaN, anything but that.
        let amax = if amax >= INFINITY { 0 } else { amax };
        let [six, four] = [false, true].map(
            #[inline(always)]
            |four| {
                let scale = self.block_scale::<EXACT>(amax, four);
                self.pair_with::<EXACT>(scale, self.tensor_scale)
            },
        );
        let unit = bits::exponent(amax) - 17;
        Candidates { six, four, unit }
    }

    /// By how much the squared error of an element is larger with the second scale.
    #[inline(always)]
    pub(super) fn difference<const EXACT: bool>(&self, candidates: Candidates, x: f32) -> i64 {
        let Candidates { six, four, unit } = candidates;
        let abs = x.to_bits() & ABS;
        // A block with a NaN or Inf becomes NaN anyway.
        let abs = if EXACT && (abs >= INFINITY || six.is_nan()) {
            0
        } else {
            abs
        };
        let [four, six] = [four, six].map(
            #[inline(always)]
            |pair| self.square_of_error::<EXACT>(pair, abs, unit),
        );
        i64::from(four) - i64::from(six)
    }

    /// The square of the error of a magnitude, in units of 2^unit.
    #[inline(always)]
    fn square_of_error<const EXACT: bool>(&self, pair: ScalePair, abs: u32, unit: i32) -> u32 {
        let q = if EXACT {
            self.round_unit::<Even>(pair, abs, 0)
        } else {
            let scaled = bits::product(abs, pair.inverse);
            round_normal::<Even>(scaled.min(self.element.max), 1, ONE)
        };
        let value = bits::product(q, pair.scale);
        let difference = bits::sum(value, abs | SIGN);
        let error = bits::fixed_point(difference & ABS, unit);
        error * error
    }
}

/// Elements that a second look compares tables on together.
const TOGETHER: usize = 64;

/// Elements of tables. A second look gives the number of the block's table.
impl FloatScaleRule {
    /// c as a pattern, of a block with that table.
    #[inline(always)]
    fn table_scale(&self, tables: Tables, amax: u32, table: u32) -> u32 {
        if amax >= INFINITY || self.tensor_scale >= INFINITY {
            return NAN;
        }
        if self.tensor_scale == 0 {
            return self.scale.min;
        }
        let max = tables.0[table as usize].max();
        self.scale.round(self.unrounded_scale(amax, max))
    }

    /// The magnitude of what an element becomes in units of the scale, as a pattern, and its code. The element is given as a pattern,
    /// and must be finite.
    #[inline(always)]
    pub(crate) fn round_in<R: RoundingRule>(
        &self,
        table: &Table,
        pair: ScalePair,
        x: u32,
        draw: u32,
    ) -> [u32; 2] {
        table.round::<R>(x & SIGN, Self::scaled(pair, x & ABS), draw)
    }

    /// Whether each table has [few](Table::few) numbers.
    pub(super) fn has_few(&self) -> bool {
        self.tables
            .is_some_and(|tables| tables.0.iter().all(|table| table.few().is_some()))
    }

    /// The numbers of a block with this grid, if they are [few](Table::few), and the pair.
    #[inline(always)]
    pub(super) fn few(&self, grid: Grid) -> Option<(Few, ScalePair)> {
        let few = self.tables?.0[grid[1] as usize].few()?;
        Some((*few, self.pair_of(grid)))
    }

    /// Rounds an element to these numbers, by a rule without draws.
    #[inline(always)]
    pub(super) fn round_to_few<R: RoundingRule>(few: &Few, pair: ScalePair, x: f32) -> f32 {
        let (sign, abs) = (x.to_bits() & SIGN, x.to_bits() & ABS);
        let q = few.round::<R>(sign, Self::scaled(pair, abs));
        f32::from_bits(if pair.is_nan() {
            NAN
        } else {
            sign | bits::product(q, pair.scale)
        })
    }

    /// The number of the table with the least squared error, of equal ones the first, for the elements of a block.
    #[inline(always)]
    pub(super) fn best_table(&self, amax: u32, mut elements: impl Iterator<Item = f32>) -> u32 {
        let Some(tables) = self.tables else { return 0 };
        // A block with a NaN or Inf becomes NaN anyway.
        if amax >= INFINITY {
            return 0;
        }
        // Any error is less than the largest multiple.
        let unit = bits::exponent(amax) - 15;
        let mut sums = [0_u64; Tables::MOST];
        let mut some = [0.0; TOGETHER];
        loop {
            let mut count = 0;
            for (place, x) in some.iter_mut().zip(elements.by_ref()) {
                *place = x;
                count += 1;
            }
            if count == 0 {
                break;
            }
            for ((table, number), sum) in tables.0.iter().zip(0..).zip(&mut sums) {
                let scale = self.table_scale(tables, amax, number);
                let pair = self.pair_with::<EXACT>(scale, self.tensor_scale);
                *sum = sum.wrapping_add(match table.few() {
                    _ if pair.is_nan() => 0,
                    Some(few) => Self::sum_of_squares(pair, unit, &some[..count], |sign, abs| {
                        few.round::<Even>(sign, abs)
                    }),
                    None => Self::sum_of_squares(pair, unit, &some[..count], |sign, abs| {
                        table.round::<Even>(sign, abs, 0)[0]
                    }),
                });
            }
        }
        let sums = sums.iter().zip(0..).take(tables.0.len());
        sums.min_by_key(|(sum, _)| **sum)
            .map_or(0, |(_, table)| table)
    }

    /// The sum of the squares of errors, in units of 2^unit.
    #[inline(always)]
    fn sum_of_squares(
        pair: ScalePair,
        unit: i32,
        elements: &[f32],
        round: impl Fn(u32, u32) -> u32,
    ) -> u64 {
        let mut squares = [0_u32; TOGETHER];
        let squares = &mut squares[..elements.len()];
        for (square, x) in squares.iter_mut().zip(elements) {
            let (sign, abs) = (x.to_bits() & SIGN, x.to_bits() & ABS);
            let q = round(sign, Self::scaled(pair, abs));
            let difference = bits::sum(bits::product(q, pair.scale), abs | SIGN);
            let error = bits::fixed_point(difference & ABS, unit);
            *square = error * error;
        }
        squares.iter().map(|square| u64::from(*square)).sum()
    }
}

// The patterns that are written as numbers.
const _: () = {
    assert!(LARGE == bits::pow2(-80) && NARROW == bits::pow2(-40));
    assert!(SIX_OVER_FOUR == 1.5_f32.to_bits());
};
