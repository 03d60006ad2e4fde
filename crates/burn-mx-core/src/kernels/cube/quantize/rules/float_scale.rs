//! Blocks whose scale is a float.

use super::FOUR;
use crate::kernels::cube::numbers::bits::{self, ABS, INFINITY, NAN, ONE, SIGN};
use crate::kernels::cube::numbers::element::element_code;
use crate::kernels::cube::numbers::round::round_magnitude;
use cubecl::prelude::*;
use microscaling::{ElementFormat, FloatScaleFormat, Rounding};

/// 6 / 4.
const SIX_OVER_FOUR: u32 = 0x3fc0_0000;

/// t · c, or NaN, and (1 / t) / c, which may be Inf.
#[cube]
pub(super) fn float_scale_grid(
    amax: u32,
    verdict: u32,
    tensor_amax: u32,
    #[comptime] format: FloatScaleFormat,
) -> (u32, u32) {
    let is_nan = amax >= INFINITY || tensor_amax >= INFINITY;
    let (tensor_scale, block_scale) = float_scales(
        select(is_nan, 0, amax),
        verdict,
        select(is_nan, 0, tensor_amax),
        format,
    );
    let (scale, inverse) = if comptime!(format.tensor_scale) {
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
        (block_scale, bits::quotient(ONE.runtime(), block_scale))
    };
    (select(is_nan, NAN, scale), select(is_nan, 0, inverse))
}

/// t and c, of finite magnitudes; t is used only where there is one.
#[cube]
pub(super) fn float_scales(
    amax: u32,
    verdict: u32,
    tensor_amax: u32,
    #[comptime] format: FloatScaleFormat,
) -> (u32, u32) {
    let element_scale = bits::quotient(amax, comptime!(format.element.max().to_bits()).runtime());
    let (tensor_scale, wanted) = if comptime!(format.tensor_scale) {
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
        chosen(with_headroom(wanted, format), verdict, format),
        format,
    );
    (tensor_scale, block_scale)
}

/// t, of a finite magnitude.
#[cube]
pub(super) fn tensor_scale(tensor_amax: u32, #[comptime] format: FloatScaleFormat) -> u32 {
    let max = comptime!(format.tensor_max().to_bits());
    with_headroom(bits::quotient(tensor_amax, max.runtime()), format)
}

/// A scale with headroom.
#[cube]
fn with_headroom(scale: u32, #[comptime] format: FloatScaleFormat) -> u32 {
    if comptime!(format.headroom.is_none()) {
        scale
    } else {
        bits::product(
            scale,
            comptime!(format.headroom.value().to_bits()).runtime(),
        )
    }
}

/// The scale that the verdict says, where there are two.
#[cube]
fn chosen(scale: u32, verdict: u32, #[comptime] format: FloatScaleFormat) -> u32 {
    if comptime!(format.four_over_six) {
        let factor = select(verdict == FOUR, SIX_OVER_FOUR, ONE);
        bits::product(scale, factor)
    } else {
        scale
    }
}

/// A block's scale: limited, and rounded to the numbers of its format, half to even. No carry leads beyond the limits.
#[cube]
fn to_scale(scale: u32, #[comptime] format: FloatScaleFormat) -> u32 {
    let least = comptime!(format.scale_min().to_bits()).runtime();
    let most = comptime!(format.scale.max().to_bits()).runtime();
    let limited = min(max(scale, least), most);
    let mantissa_bits = comptime!(format.scale.mantissa_bits() as i32);
    let emin = comptime!(format.scale.emin()).runtime();
    round_magnitude(limited, emin, 0, mantissa_bits, Rounding::NearestEven)
}

/// The code of a scale.
#[cube]
pub(super) fn float_scale_code(scale: u32, #[comptime] format: FloatScaleFormat) -> u32 {
    match comptime!(format.scale.float()) {
        Some(float) => element_code(scale, 0, float),
        None => scale,
    }
}

/// An element in units of the tensor's scale, in a block with this scale.
#[cube]
pub(in crate::kernels::cube::quantize) fn round_in_units(
    x: u32,
    grid: (u32, u32),
    scale_of_block: u32,
    draw: u32,
    #[comptime] element: ElementFormat,
    #[comptime] rounding: Rounding,
) -> u32 {
    let (scale, inverse) = grid;
    let is_nan = scale_of_block >= INFINITY;
    let unit = round_unit(x, scale, inverse, draw, element, rounding);
    let value = bits::product(unit, select(is_nan, 0, scale_of_block));
    select(is_nan, NAN, (x & SIGN) | value)
}

#[cube]
pub(super) fn round_float_scale(
    x: u32,
    scale: u32,
    inverse: u32,
    draw: u32,
    #[comptime] element: ElementFormat,
    #[comptime] rounding: Rounding,
) -> u32 {
    round_in_units(x, (scale, inverse), scale, draw, element, rounding)
}

/// The magnitude of an element's code, as a pattern; 0 in a block that becomes NaN.
#[cube]
pub(in crate::kernels::cube) fn round_unit(
    x: u32,
    scale: u32,
    inverse: u32,
    draw: u32,
    #[comptime] element: ElementFormat,
    #[comptime] rounding: Rounding,
) -> u32 {
    let is_nan = scale >= INFINITY;
    let abs = select(is_nan, 0, x & ABS);
    let is_tiny = inverse >= INFINITY;
    // Of both only one is used; the other gets what it can compute.
    let quotient = bits::quotient(abs, select(is_tiny && scale != 0, scale, ONE));
    let product = bits::product(abs, select(is_tiny, ONE, inverse));
    let scaled = select(scale == 0, 0, select(is_tiny, quotient, product));
    let limited = min(scaled, comptime!(element.max().to_bits()).runtime());
    let emin = comptime!(element.emin()).runtime();
    let mantissa_bits = comptime!(element.mantissa_bits() as i32);
    round_magnitude(limited, emin, draw, mantissa_bits, rounding)
}
