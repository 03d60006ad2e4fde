//! Blocks whose scale is a float: `microscaling`'s rules.

use super::Grid;
use super::known::{Known, tensor_amax};
use super::tables::{
    code_at, largest_of_sign, largest_unit, magnitude_at, round_in_table, table_number,
};
use crate::cube::numbers::bits::{self, ABS, INFINITY, NAN, ONE, SIGN};
use crate::cube::numbers::element::element_code;
use crate::cube::numbers::words::written_by_rules;
use cubecl::prelude::*;
use microscaling::internal::{
    FloatScaleRule, ScaleAbove, ScalePair, SubScaleRule, UnitElement, Word,
};
use microscaling::{BlockFormat, ElementFormat, Rounding, with_rule};

/// The scales that follow from the largest magnitudes of a block and of its tensor, or of the part that shares its outer scale.
#[derive(CubeType)]
pub(in crate::cube::quantize) struct FloatScales {
    /// t; 1 where there is none.
    pub(in crate::cube::quantize) tensor_scale: u32,
    /// c, or NaN.
    pub(in crate::cube::quantize) block_scale: u32,
    /// The factors of elements, and a bit for each level of sub-blocks that doubles the scale.
    grid: Grid,
}

fn rules_of(format: &BlockFormat) -> FloatScaleRule {
    FloatScaleRule::for_words(format).expect("the scale is a float")
}

/// The scales of a block. With an outer scale the first two arguments are the largest magnitudes of what shares that scale and of
/// a block in it.
#[cube]
pub(in crate::cube::quantize) fn float_scales(
    amax: u32,
    choice: u32,
    known: &Known,
    #[comptime] format: BlockFormat,
) -> FloatScales {
    let (amax, above) = if comptime!(format.outer.is_some()) {
        (choice, amax)
    } else {
        (amax, tensor_amax(known))
    };
    let table = table_number(choice, format.element);
    let largest_unit = largest_unit(table, known, format);
    let (tensor_scale, block_scale, grid) =
        scales_of_magnitudes(amax, above, choice, largest_unit, format);
    FloatScales {
        tensor_scale,
        block_scale,
        grid,
    }
}

written_by_rules! {
    fn scales_of_magnitudes(
        amax: u32, above: u32, choice: u32, largest_unit: u32; format: BlockFormat
    ) -> (u32, u32, Grid) {
        let tensor_scale = ScaleAbove::of(&format).map(|rule| rule.scale(above));
        let rule = match tensor_scale {
            Some(scale) => rules_of(&format).with_tensor_scale(scale),
            None => rules_of(&format).without_tensor_scale(),
        };
        let scale = rule.block_scale(amax, largest_unit, choice);
        let (pair, doubled) = rule.pair_and_doubled(scale, choice);
        let grid = (pair.scale, pair.inverse, doubled);
        (tensor_scale.unwrap_or(ONE.into()), scale, grid)
    }
}

/// t · c, or NaN, and (1 / t) / c, which may be Inf; c of the sub-block, if blocks have some.
#[cube]
pub(super) fn float_scale_grid(
    amax: u32,
    choice: u32,
    known: &Known,
    #[comptime] format: BlockFormat,
) -> Grid {
    let (scale, inverse, doubled) = float_scales(amax, choice, known, format).grid;
    let number = if comptime!(format.sub_scales.is_some()) {
        doubled
    } else {
        select(scale >= INFINITY, 0, table_number(choice, format.element))
    };
    (scale, inverse, number)
}

written_by_rules! {
    /// t, of a finite magnitude.
    pub(super) fn tensor_scale(tensor_amax: u32; format: BlockFormat) -> u32 {
        ScaleAbove::of(&format).map_or(ONE.into(), |rule| rule.scale(tensor_amax))
    }
}

/// c, the scale of a block without the tensor's, where the grid has both; NaN where all of the block becomes NaN.
#[cube]
pub(in crate::cube) fn scale_of_block(
    grid: Grid,
    amax: u32,
    choice: u32,
    known: &Known,
    #[comptime] format: BlockFormat,
) -> u32 {
    let scales = float_scales(amax, choice, known, format);
    select(grid.0 >= INFINITY, NAN, scales.block_scale)
}

/// The code of a scale, which may be NaN.
#[cube]
pub(super) fn float_scale_code(scale: u32, #[comptime] format: BlockFormat) -> u32 {
    match comptime!(format.scale.float()) {
        Some(float) => {
            let nan = comptime!((1u32 << format.scale.bits()) - 1).runtime();
            let is_nan = scale >= INFINITY;
            select(
                is_nan,
                nan,
                element_code(select(is_nan, 0, scale), 0, float),
            )
        }
        None => scale,
    }
}

/// The largest number with the sign of x.
#[cube]
pub(super) fn largest_number(
    x: u32,
    grid: Grid,
    known: &Known,
    #[comptime] element: ElementFormat,
) -> u32 {
    let unit = if comptime!(element.is_table()) {
        largest_of_sign(grid.2, x, known)
    } else {
        comptime!(element.max().to_bits()).runtime()
    };
    largest_of_unit(grid, unit)
}

written_by_rules! {
    fn largest_of_unit(grid: Grid, unit: u32) -> u32 {
        pair(grid).largest(unit)
    }
}

/// An element in units of the tensor's scale, in a block with this scale.
#[cube]
pub(in crate::cube::quantize) fn round_in_units(
    x: u32,
    grid: Grid,
    scale_of_block: u32,
    draw: u32,
    known: &Known,
    #[comptime] element: ElementFormat,
    #[comptime] rounding: Rounding,
) -> u32 {
    let is_nan = scale_of_block >= INFINITY;
    let unit = if comptime!(element.is_table()) {
        let scaled = scaled(x, grid);
        let place = round_in_table(x, scaled, grid.2, draw, known, element, rounding);
        magnitude_at(place, known, element)
    } else {
        round_unit(x, grid, draw, element, rounding)
    };
    let value = bits::product(unit, select(is_nan, 0, scale_of_block));
    select(is_nan, NAN, (x & SIGN) | value)
}

#[cube]
pub(super) fn round_float_scale(
    x: u32,
    grid: Grid,
    draw: u32,
    known: &Known,
    #[comptime] element: ElementFormat,
    #[comptime] rounding: Rounding,
) -> u32 {
    let (scale, _, _) = grid;
    round_in_units(x, grid, scale, draw, known, element, rounding)
}

/// The code of what an element becomes.
#[cube]
pub(in crate::cube) fn code_of_unit(
    x: u32,
    grid: Grid,
    draw: u32,
    known: &Known,
    #[comptime] element: ElementFormat,
    #[comptime] rounding: Rounding,
) -> u32 {
    let code = if comptime!(element.is_table()) {
        let scaled = scaled(x, grid);
        let place = round_in_table(x, scaled, grid.2, draw, known, element, rounding);
        code_at(place, known, element)
    } else {
        let unit = round_unit(x, grid, draw, element, rounding);
        element_code((x & SIGN) | unit, 0, element)
    };
    select(grid.0 >= INFINITY, 0, code)
}

/// The pair of a grid.
fn pair<W: Word>((scale, inverse, _): (W, W, W)) -> ScalePair<W> {
    ScalePair { scale, inverse }
}

/// The magnitude of an element, or 0 in a block that becomes NaN.
fn finite<W: Word>(x: W, pair: ScalePair<W>) -> W {
    let is_finite = pair.scale.is_below(INFINITY.into());
    W::select(is_finite, x & ABS.into(), 0.into())
}

written_by_rules! {
    /// The magnitude of an element's code, of elements without tables, as a pattern; 0 in a block that becomes NaN.
    pub(in crate::cube::quantize) fn round_unit(
        x: u32, grid: Grid, draw: u32; element: ElementFormat, rounding: Rounding
    ) -> u32 {
        let (pair, element) = (pair(grid), UnitElement::of(element));
        let abs = finite(x, pair);
        with_rule!(rounding, R => element.round_scaled::<R, _>(pair, abs, draw))
    }

    /// A magnitude in units of the scale; 0 in a block that becomes NaN.
    pub(in crate::cube::quantize) fn scaled(x: u32, grid: Grid) -> u32 {
        let pair = pair(grid);
        pair.scaled(finite(x, pair))
    }

    /// The scale of a sub-block, from the block's scale and a bit for each level that doubles it; Inf if it is too large.
    pub(in crate::cube) fn scale_of_sub_block(scale: u32, doubled: u32) -> u32 {
        SubScaleRule::times_of_bits(scale, doubled)
    }

    /// The word that refines the grid of a sub-block of the second level, from the largest magnitudes of the sub-blocks of both levels.
    pub(in crate::cube) fn both_levels(first: u32, second: u32) -> u32 {
        SubScaleRule::refinement([first, second])
    }

    /// MS-EDEN's multiples of an element in units of its scale, and of the rounded element.
    pub(in crate::cube::quantize) fn eden_multiples(scaled: u32, rounded: u32; format: BlockFormat) -> (u32, u32) {
        let rule = rules_of(&format).without_tensor_scale();
        let [scaled, rounded] = rule.eden_multiples(scaled, rounded);
        (scaled, rounded)
    }

    /// The factor of a block's elements after MS-EDEN's correction of its scale.
    pub(in crate::cube::quantize) fn eden_factor(
        scale: u32, tensor_scale: u32, correction: u32, draw: u32; format: BlockFormat, in_units: bool
    ) -> u32 {
        let rule = rules_of(&format).with_tensor_scale(tensor_scale);
        let rule = if in_units { rule.in_units_of_the_scale() } else { rule };
        rule.eden_factor(scale, correction, draw)
    }
}
