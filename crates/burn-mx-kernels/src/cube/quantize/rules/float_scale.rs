//! Blocks whose scale is a float.

use super::known::{Known, tensor_amax};
use super::sub_scales::{doubled, scale_of_sub_block};
use super::tables::{
    code_at, largest_of_sign, largest_unit, magnitude_at, round_in_table, table_number,
};
use super::{FOUR, Grid};
use crate::cube::numbers::bits::{self, ABS, INFINITY, NAN, ONE, SIGN};
use crate::cube::numbers::element::element_code;
use crate::cube::numbers::round::round_magnitude;
use cubecl::prelude::*;
use microscaling::{BlockFormat, ElementFormat, Rounding, ScaleFormat};

/// 6 / 4.
const SIX_OVER_FOUR: u32 = 0x3fc0_0000;

/// t · c, or NaN, and (1 / t) / c, which may be Inf; c of the sub-block, if blocks have some. With an outer scale the arguments are
/// the largest magnitudes of what shares that scale and of a block in it.
#[cube]
pub(super) fn float_scale_grid(
    amax: u32,
    choice: u32,
    known: &Known,
    #[comptime] format: BlockFormat,
) -> Grid {
    let (amax, tensor_amax) = if comptime!(format.outer.is_some()) {
        (choice, amax)
    } else {
        (amax, tensor_amax(known))
    };
    let is_nan = amax >= INFINITY || tensor_amax >= INFINITY;
    let (tensor_scale, block_scale) = float_scales(
        select(is_nan, 0, amax),
        choice,
        select(is_nan, 0, tensor_amax),
        known,
        format,
    );
    let mut number = table_number(choice, format.element);
    let (scale, inverse) = if comptime!(has_scale_above(format)) {
        let is_zero = tensor_scale == 0;
        let divisor = select(is_zero, ONE, tensor_scale);
        let tensor_inverse = select(is_zero, 0, bits::quotient(ONE.runtime(), divisor));
        let finite = select(tensor_inverse >= INFINITY, ONE, tensor_inverse);
        let inverse = bits::quotient(finite, block_scale);
        (
            bits::product(tensor_scale, block_scale),
            select(tensor_inverse >= INFINITY, INFINITY, inverse),
        )
    } else {
        let mut scale = block_scale;
        if comptime!(format.sub_scales.is_some()) {
            number = doubled(block_scale, choice, format.element);
            scale = scale_of_sub_block(block_scale, number);
        }
        (scale, bits::quotient(ONE.runtime(), scale))
    };
    (
        select(is_nan, NAN, scale),
        select(is_nan, 0, inverse),
        select(is_nan, 0, number),
    )
}

/// Whether blocks share a scale t: the tensor scale, or an outer scale.
fn has_scale_above(format: BlockFormat) -> bool {
    format.tensor_scale || format.outer.is_some()
}

/// t and c, of finite magnitudes; t is used only where there is one.
#[cube]
pub(in crate::cube::quantize) fn float_scales(
    amax: u32,
    choice: u32,
    tensor_amax: u32,
    known: &Known,
    #[comptime] format: BlockFormat,
) -> (u32, u32) {
    let table = table_number(choice, format.element);
    let element_scale = bits::quotient(amax, largest_unit(table, known, format));
    let (tensor_scale, wanted) = if comptime!(has_scale_above(format)) {
        let tensor_scale = tensor_scale(tensor_amax, format);
        let is_zero = tensor_scale == 0;
        // Of a tensor scale of zero nothing but that is used.
        let divisor = select(is_zero, ONE, tensor_scale);
        let wanted = select(is_zero, 0, bits::quotient(element_scale, divisor));
        (tensor_scale, wanted)
    } else {
        (ONE.runtime(), element_scale)
    };
    let block_scale = to_scale(
        chosen(with_headroom(wanted, format), choice, format),
        comptime!(format.scale_min()),
        format.scale,
    );
    (tensor_scale, block_scale)
}

/// t, of a finite magnitude.
#[cube]
pub(super) fn tensor_scale(tensor_amax: u32, #[comptime] format: BlockFormat) -> u32 {
    let max = comptime!(format.tensor_max().to_bits());
    let scale = with_headroom(bits::quotient(tensor_amax, max.runtime()), format);
    match comptime!(format.outer) {
        Some(outer) => to_scale(scale, comptime!(outer.scale.min()), outer.scale),
        None => scale,
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
    let is_nan = grid.0 >= INFINITY;
    let (_, scale) = float_scales(
        select(is_nan, 0, amax),
        choice,
        select(is_nan, 0, tensor_amax(known)),
        known,
        format,
    );
    select(is_nan, NAN, scale)
}

/// A scale with headroom.
#[cube]
fn with_headroom(scale: u32, #[comptime] format: BlockFormat) -> u32 {
    if comptime!(format.headroom.is_none()) {
        scale
    } else {
        bits::product(
            scale,
            comptime!(format.headroom.value().to_bits()).runtime(),
        )
    }
}

/// The scale that the choice says, where there are two.
#[cube]
fn chosen(scale: u32, choice: u32, #[comptime] format: BlockFormat) -> u32 {
    if comptime!(format.four_over_six) {
        let factor = select(choice == FOUR, SIX_OVER_FOUR, ONE);
        bits::product(scale, factor)
    } else {
        scale
    }
}

/// A scale: limited, and rounded to the numbers of its format, half to even. No carry leads beyond the limits.
#[cube]
fn to_scale(scale: u32, #[comptime] least: f32, #[comptime] format: ScaleFormat) -> u32 {
    let least = comptime!(least.to_bits()).runtime();
    let most = comptime!(format.max().to_bits()).runtime();
    let limited = min(max(scale, least), most);
    let mantissa_bits = comptime!(format.mantissa_bits() as i32);
    let emin = comptime!(format.emin()).runtime();
    round_magnitude(limited, emin, 0, mantissa_bits, Rounding::NearestEven)
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

/// The largest number with the sign of x. Where there is but 0 it is the smallest number, beyond which all is clipped.
#[cube]
pub(super) fn largest_number(
    x: u32,
    grid: Grid,
    known: &Known,
    #[comptime] element: ElementFormat,
) -> u32 {
    let (scale, _, table) = grid;
    let is_nan = scale >= INFINITY;
    let unit = if comptime!(element.is_table()) {
        largest_of_sign(table, x, known)
    } else {
        comptime!(element.max().to_bits()).runtime()
    };
    let limit = bits::product(select(is_nan, ONE, scale), unit);
    let limit = select(unit == 0 && scale > 0, 1, limit);
    select(is_nan, NAN, limit)
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

/// The magnitude of an element's code, of elements without tables, as a pattern; 0 in a block that becomes NaN.
#[cube]
pub(in crate::cube::quantize) fn round_unit(
    x: u32,
    grid: Grid,
    draw: u32,
    #[comptime] element: ElementFormat,
    #[comptime] rounding: Rounding,
) -> u32 {
    let limited = min(
        scaled(x, grid),
        comptime!(element.max().to_bits()).runtime(),
    );
    let emin = comptime!(element.emin()).runtime();
    let mantissa_bits = comptime!(element.mantissa_bits() as i32);
    round_magnitude(limited, emin, draw, mantissa_bits, rounding)
}

/// A magnitude in units of the scale; 0 in a block that becomes NaN.
#[cube]
pub(in crate::cube::quantize) fn scaled(x: u32, grid: Grid) -> u32 {
    let (scale, inverse, _) = grid;
    let is_nan = scale >= INFINITY;
    let abs = select(is_nan, 0, x & ABS);
    let is_tiny = inverse >= INFINITY;
    // Of both only one is used; the other gets what it can compute.
    let quotient = bits::quotient(abs, select(is_tiny && scale != 0, scale, ONE));
    let product = bits::product(abs, select(is_tiny, ONE, inverse));
    select(scale == 0, 0, select(is_tiny, quotient, product))
}
