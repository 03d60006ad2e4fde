//! The scalar rules of blocks whose scale is a float: NVFP4, and blocks of any element and scale.

mod four_over_six;
mod outer_scale;
mod scale_row;
mod sub_scales;
mod tables;

use super::grid::Grid;
use super::scale_pair::ScalePair;
use super::unit::UnitElement;
use super::{AnyNumbers, ConversionRule};
use crate::format::element::table::Tables;
use crate::format::{BlockFormat, NonFinite, ScaleMode, Subnormals};
use crate::round::RoundingRule;
use crate::round::bits::{self, ABS, IMPLICIT, INFINITY, NAN, ONE, SIGN};
use crate::round::words::Word;
use core::ops::Range;
pub(super) use four_over_six::{Candidates, FOUR_CHOICE};
use microscaling_processor::float_state::ieee;
pub(crate) use outer_scale::OuterScaleRule;
use scale_row::ScaleRow;
pub use sub_scales::SubScaleRule;

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

/// The scale t of a tensor, or of a part that shares an outer scale: t, and 1 / t, as patterns.
#[derive(Clone, Copy)]
struct TensorScale<W: Word> {
    scale: W,
    inverse: W,
}

impl<W: Word> TensorScale<W> {
    #[inline(always)]
    fn of(scale: W) -> Self {
        let is_ordinary = !scale.equals(0.into()) & scale.is_below(INFINITY.into());
        let inverse = || W::from(ONE).quotient(Self::divisor(scale));
        Self {
            scale,
            inverse: W::choose(is_ordinary, inverse, || 0.into()),
        }
    }

    /// Of a scale that is neither 0 nor NaN.
    #[inline(always)]
    fn of_ordinary(scale: W) -> Self {
        Self {
            scale,
            inverse: W::from(ONE).quotient(scale),
        }
    }

    /// A number by which words can be divided: t, unless it is 0.
    #[inline(always)]
    fn divisor(scale: W) -> W {
        W::select(scale.equals(0.into()), ONE.into(), scale)
    }
}

/// A [`BlockFormat`] and its tensor scale as the loops and kernels hold them.
#[derive(Clone, Copy)]
pub struct FloatScaleRule<W: Word = u32> {
    /// `None` stands for 1.
    tensor: Option<TensorScale<W>>,
    /// Whether results are in units of t.
    in_units: bool,
    /// h as a pattern; `None` stands for 1.
    headroom: Option<u32>,
    /// The elements, in units of their scale.
    pub element: UnitElement,
    /// Q as a pattern.
    largest_unit: u32,
    pub(crate) scale: ScaleRow,
    /// The sub-blocks whose scales may be doubled.
    pub(crate) sub_scales: Option<SubScaleRule>,
    /// Whether stochastic rounding is MS-EDEN.
    pub(crate) eden: bool,
    /// Whether a second look at a block compares its two scales.
    pub(super) four_over_six: bool,
    /// Whether the elements of each sign have a scale.
    pub(super) sign_scales: bool,
    /// The switches of hardware, if one differs from the library.
    conversion: Option<ConversionRule>,
    /// Whether elements are divided by their scale, so that nothing is rounded twice.
    divides: bool,
    /// Whether NaN and Inf are elements, and do not count for the scale.
    pub(crate) special_elements: bool,
    /// The numbers of elements that are none of [`element`](Self::element), of which only the largest one matters then.
    pub(crate) tables: Option<Tables>,
}

/// The rule of the scale t that blocks share: the tensor's, or an outer scale.
#[derive(Clone, Copy)]
pub struct ScaleAbove {
    /// C · Q as a pattern.
    max: u32,
    headroom: Option<u32>,
    /// The numbers that t can be, if it is an outer scale.
    row: Option<ScaleRow>,
}

impl ScaleAbove {
    /// The rule of a format, if its blocks share a scale.
    pub fn of(format: &BlockFormat) -> Option<Self> {
        (format.tensor_scale || format.outer.is_some()).then(|| Self {
            max: format.tensor_max().to_bits(),
            headroom: headroom(format),
            row: format.outer.map(|outer| ScaleRow::of_all(outer.scale)),
        })
    }

    /// t as a pattern, from the largest magnitude of what shares it; NaN if that is not finite.
    #[inline(always)]
    pub fn scale<W: Word>(&self, amax: W) -> W {
        W::choose(
            amax.is_below(INFINITY.into()),
            || self.ordinary_scale(amax),
            || NAN.into(),
        )
    }

    #[inline(always)]
    fn ordinary_scale<W: Word>(&self, amax: W) -> W {
        let scale = times(amax.quotient(self.max.into()), self.headroom);
        match self.row {
            Some(row) => row.round(scale),
            None => scale,
        }
    }
}

/// h as a pattern, unless it is 1.
fn headroom(format: &BlockFormat) -> Option<u32> {
    (!format.headroom.is_none()).then(|| format.headroom.value().to_bits())
}

/// A magnitude times a factor, if there is one.
#[inline(always)]
fn times<W: Word>(x: W, factor: Option<u32>) -> W {
    match factor {
        Some(factor) => x.product(factor.into()),
        None => x,
    }
}

impl FloatScaleRule {
    pub(crate) fn of(format: &BlockFormat, tensor_scale: f32) -> Self {
        let rule = Self {
            tensor: None,
            in_units: false,
            headroom: headroom(format),
            element: UnitElement {
                flush_below: match format.subnormals {
                    Subnormals::FlushElements => IMPLICIT,
                    Subnormals::Kept | Subnormals::FlushBlocks => 0,
                },
                ..UnitElement::of(format.element)
            },
            largest_unit: format.largest_unit().to_bits(),
            scale: ScaleRow::of(format),
            sub_scales: SubScaleRule::of(format),
            eden: format.eden,
            four_over_six: format.four_over_six,
            sign_scales: format.sign_scales,
            conversion: ConversionRule::of(format),
            divides: format.scale_mode == ScaleMode::MaxAbsFinite,
            special_elements: format.non_finite == NonFinite::Elements,
            tables: format.element.as_tables(),
        };
        match tensor_scale {
            1.0 => rule,
            _ => ieee(|| rule.with_tensor_scale(tensor_scale.to_bits())),
        }
    }

    /// The rules of a format whose blocks have a float as their scale, for words.
    pub fn for_words(format: &BlockFormat) -> Option<Self> {
        (!format.has_exponent()).then(|| Self::of(format, 1.0))
    }

    /// The same rule in a tensor with this scale, given as a pattern.
    #[inline(always)]
    pub fn with_tensor_scale<W: Word>(self, tensor_scale: W) -> FloatScaleRule<W> {
        let tensor = Some(TensorScale::of(tensor_scale));
        self.with_tensor(tensor)
    }

    /// The same rule in a tensor with this scale, which is neither 0 nor NaN.
    #[inline(always)]
    pub fn with_ordinary_tensor_scale<W: Word>(self, tensor_scale: W) -> FloatScaleRule<W> {
        self.with_tensor(Some(TensorScale::of_ordinary(tensor_scale)))
    }

    /// The same rule in a tensor with the scale 1.
    #[inline(always)]
    pub fn without_tensor_scale<W: Word>(self) -> FloatScaleRule<W> {
        self.with_tensor(None)
    }

    #[inline(always)]
    fn with_tensor<W: Word>(self, tensor: Option<TensorScale<W>>) -> FloatScaleRule<W> {
        FloatScaleRule {
            tensor,
            in_units: self.in_units,
            headroom: self.headroom,
            element: self.element,
            largest_unit: self.largest_unit,
            scale: self.scale,
            sub_scales: self.sub_scales,
            eden: self.eden,
            four_over_six: self.four_over_six,
            sign_scales: self.sign_scales,
            conversion: self.conversion,
            divides: self.divides,
            special_elements: self.special_elements,
            tables: self.tables,
        }
    }

    /// t as a pattern.
    fn tensor_scale(&self) -> u32 {
        self.tensor.map_or(ONE, |tensor| tensor.scale)
    }

    /// Whether the grid depends on all elements of a block.
    #[inline(always)]
    pub(super) fn looks_twice(&self) -> bool {
        self.four_over_six || matches!(self.tables, Some(tables) if tables.0.len() > 1)
    }

    /// c as a pattern, from what a second look says.
    #[inline(always)]
    pub(crate) fn block_scale_with(&self, amax: u32, choice: u32) -> u32 {
        let largest_unit = match self.tables {
            Some(tables) => tables.0[self.table(choice) as usize].max(),
            None => self.largest_unit,
        };
        self.block_scale(amax, largest_unit, choice)
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

    /// The number q with the sign of x as a pattern, in the units that `pair` gives. An element beyond the largest number may be Inf or NaN.
    #[inline(always)]
    pub(crate) fn round_unit<R: RoundingRule>(&self, pair: ScalePair, x: u32, draw: u32) -> u32 {
        let (sign, abs) = (x & SIGN, x & ABS);
        // Every number is 0 beside the scale 0, as in P3109.
        let is_zero = pair.scale == 0 && abs == INFINITY;
        if let Some(rule) = self.conversion
            && abs >= INFINITY
            && !is_zero
        {
            return rule.special(sign, abs, self.element.max);
        }
        let abs = if is_zero { 0 } else { self.counted(abs) };
        match self.conversion {
            Some(rule) => {
                let limits = (self.element.emin, self.element.max);
                rule.element::<R, _>(sign, pair.scaled(abs), limits, draw)
            }
            None => sign | self.element.round_scaled::<R, _>(pair, abs, draw),
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
            None => self.pair(scale).words(),
        }
    }

    /// The pair of such a grid.
    #[inline(always)]
    pub(crate) fn pair_of(&self, grid: Grid) -> ScalePair {
        match self.tables {
            Some(_) => self.pair(grid[0]),
            None => ScalePair::of(grid),
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

    pub(crate) fn ordinary(&self) -> Range<u32> {
        let [magnitudes, scales] = self.ordinary_ranges();
        match scales.contains(&self.tensor_scale()) {
            true => magnitudes,
            false => 0..0,
        }
    }

    /// The largest magnitudes of ordinary blocks, and the tensor scales beside which they are ordinary.
    #[inline(always)]
    pub(super) fn ordinary_ranges(&self) -> [Range<u32>; 2] {
        match self.scale.min >= NARROW {
            _ if self.tables.is_some() || self.conversion.is_some() => [0..0, 0..0],
            _ if self.sign_scales => [0..0, 0..0],
            _ if self.element.flush_below > 0 || self.special_elements || self.divides => {
                [0..0, 0..0]
            }
            // A scale of more than float32 makes its block NaN.
            true => [0..bits::pow2(120), LARGE..INFINITY],
            // Neither a scale nor its reciprocal is very small or very large.
            false => [
                bits::pow2(-60)..bits::pow2(100),
                bits::pow2(-20)..bits::pow2(20),
            ],
        }
    }
}

impl AnyNumbers for FloatScaleRule {
    #[inline(always)]
    fn conversion(&self) -> Option<ConversionRule> {
        self.conversion
    }

    #[inline(always)]
    fn with_conversion(self, conversion: Option<ConversionRule>) -> Self {
        Self { conversion, ..self }
    }

    #[inline(always)]
    fn round<R: RoundingRule>(&self, grid: Grid, x: f32, draw: u32) -> f32 {
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
}

/// Ordinary blocks, for both.
impl<W: Word> FloatScaleRule<W> {
    /// The pair of an ordinary block.
    #[inline(always)]
    pub(crate) fn ordinary_pair(&self, amax: W, choice: W) -> ScalePair<W> {
        self.ordinary_pair_of(self.ordinary_scale(amax, self.largest_unit, choice))
    }

    /// [`block_scale`](Self::block_scale) of an ordinary block.
    ///
    /// A missing factor is 1 here. The number behind `None` is arbitrary, and compilers multiply by this number before they select. If the
    /// number is subnormal, each product takes a hundred cycles.
    #[inline(always)]
    fn ordinary_scale(&self, amax: W, largest_unit: u32, choice: W) -> W {
        let mut scale = amax.quotient(largest_unit.into());
        if let Some(tensor) = self.tensor {
            scale = scale.quotient(tensor.scale);
        }
        scale = scale.product(self.headroom.unwrap_or(ONE).into());
        if self.four_over_six {
            let is_four = choice.equals(FOUR_CHOICE.into());
            scale = scale.product(W::select(is_four, SIX_OVER_FOUR.into(), ONE.into()));
        }
        self.scale.round(scale)
    }

    /// [`pair`](Self::pair) of an ordinary block, where a missing factor is 1.
    #[inline(always)]
    fn ordinary_pair_of(&self, scale: W) -> ScalePair<W> {
        let [tensor, inverse] = match self.tensor {
            Some(tensor) => [tensor.scale, tensor.inverse],
            None => [ONE.into(); 2],
        };
        ScalePair {
            scale: match self.in_units {
                true => scale,
                false => tensor.product(scale),
            },
            inverse: inverse.quotient(scale),
        }
    }
}

/// Any block, for numbers and for the words of a device's kernel: the specification.
impl<W: Word> FloatScaleRule<W> {
    /// The same rule with results in units of the tensor scale: q · c instead of q · (t · c).
    pub fn in_units_of_the_scale(self) -> Self {
        Self {
            in_units: true,
            ..self
        }
    }

    /// The same rule with results that are not in units of the tensor scale.
    #[inline(always)]
    fn with_results_in_float32(self) -> Self {
        Self {
            in_units: false,
            ..self
        }
    }

    /// c as a pattern, where `largest_unit` is Q; NaN if the block or the tensor scale is not finite. The choice
    /// may make c larger.
    #[inline(always)]
    pub fn block_scale(&self, amax: W, largest_unit: W, choice: W) -> W {
        let mut scale = self.counted(amax).quotient(largest_unit);
        let mut is_finite = amax.is_below(INFINITY.into());
        if let Some(tensor) = self.tensor {
            scale = scale.quotient(TensorScale::divisor(tensor.scale));
            scale = W::select(tensor.scale.equals(0.into()), 0.into(), scale);
            is_finite = is_finite & tensor.scale.is_below(INFINITY.into());
        }
        scale = times(scale, self.headroom);
        if self.four_over_six {
            let is_four = choice.equals(FOUR_CHOICE.into());
            scale = scale.product(W::select(is_four, SIX_OVER_FOUR.into(), ONE.into()));
        }
        W::select(is_finite, self.scale.round(scale), NAN.into())
    }

    /// Zero for a magnitude that is flushed.
    #[inline(always)]
    fn counted(&self, abs: W) -> W {
        match self.element.flush_below {
            0 => abs,
            least => W::select(abs.is_below(least.into()), 0.into(), abs),
        }
    }

    /// The data that the elements of a block with the scale c need.
    #[inline(always)]
    pub fn pair(&self, scale: W) -> ScalePair<W> {
        let divisor = W::select(scale.equals(0.into()), ONE.into(), scale);
        let Some(tensor) = self.tensor else {
            let pair = ScalePair {
                scale,
                inverse: match self.divides {
                    true => INFINITY.into(),
                    false => W::from(ONE).quotient(divisor),
                },
            };
            return pair.or_nan(scale);
        };
        let both = tensor.scale.product(scale);
        let inverse = tensor.inverse.quotient(divisor);
        let pair = ScalePair {
            scale: if self.in_units { scale } else { both },
            inverse: match self.divides {
                true => INFINITY.into(),
                false => {
                    let fits = tensor.inverse.is_below(INFINITY.into());
                    W::select(fits, inverse, INFINITY.into())
                }
            },
        };
        // A scale that is too large with the tensor scale is NaN, also in units of the tensor scale.
        pair.or_nan(both)
    }

    /// MS-EDEN's u and q: u is an element in units of its scale, and q is the rounded u. Both are multiples of one power of two, at most
    /// 2^24. This cuts u to so few bits that sums over a group are exact in any order.
    #[inline(always)]
    pub fn eden_multiples(&self, scaled: W, rounded: W) -> [W; 2] {
        // No number of a block is much larger than the largest one in units of its scale.
        let largest = bits::product(self.element.max, bits::pow2(1));
        let exponent = bits::exponent(self.element.max) - 22;
        [scaled.smaller(largest.into()), rounded].map(
            #[inline(always)]
            |x| x.steps(exponent.into()),
        )
    }

    /// The factor of the elements of a block after MS-EDEN has corrected and rounded c; NaN where the block becomes NaN.
    #[inline(always)]
    pub fn eden_factor(&self, scale: W, correction: W, draw: W) -> W {
        let is_finite = scale.is_below(INFINITY.into());
        let corrected = W::select(is_finite, scale, ONE.into()).product(correction);
        let rounded = self.scale.round_stochastically(corrected, draw);
        let scale = W::select(is_finite, rounded, NAN.into());
        self.pair(scale).scale
    }

    /// The factors of a sub-block's elements, from c and what a second look says, and a bit for each level of sub-blocks that doubles
    /// the scale.
    pub fn pair_and_doubled(&self, scale: W, refinement: W) -> (ScalePair<W>, W) {
        let Some(sub_scales) = self.sub_scales else {
            return (self.pair(scale), 0.into());
        };
        let pair = self.pair(sub_scales.scale(scale, refinement));
        let [first, second] = sub_scales.doubled(scale, refinement);
        let bit = |doubled, bit: u32| W::select(doubled, bit.into(), 0.into());
        let doubled = bit(first, 1) | bit(second, 2);
        let is_finite = pair.scale.is_below(INFINITY.into());
        (pair, W::select(is_finite, doubled, 0.into()))
    }
}

// The patterns that are written as numbers.
const _: () = {
    assert!(LARGE == bits::pow2(-80) && NARROW == bits::pow2(-40));
    assert!(SIX_OVER_FOUR == 1.5_f32.to_bits());
};
