//! The block formats on a device. The largest magnitudes of a block and a sub-block give a grid, and the grid rounds
//! each element, by `microscaling`'s rules for one element.

use cubecl::prelude::*;
use microscaling::{
    BfpFormat, BlockFormat, ElementFormat, FloatScaleFormat, MicroexponentFormat, MxFormat,
    Rounding, ScaleMode, SharedExpMethod,
};

use super::bits::{self, ABS, IMPLICIT, INFINITY, NAN, ONE, SIGN};
use super::pack::element_code;
use super::round::round_magnitude;
use super::two_pass_scale::{self, has_kernel};

/// The block formats that there are kernels for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Format {
    Mx(MxFormat),
    Microexponent(MicroexponentFormat),
    Bfp(BfpFormat),
    FloatScale(FloatScaleFormat),
}

impl Format {
    /// # Panics
    ///
    /// At a format that came later than this crate's kernels.
    pub(super) fn of(format: BlockFormat) -> Self {
        match format {
            BlockFormat::Mx(format) => {
                use ScaleMode::{Ceil, Even, Floor, Rceil, Rms};
                let mode = format.scale_mode;
                assert!(
                    matches!(mode, Floor | Ceil | Even | Rceil | Rms),
                    "burn-mx: no kernel for scale mode {mode}"
                );
                Self::Mx(format)
            }
            BlockFormat::Microexponent(format) => Self::Microexponent(format),
            BlockFormat::Bfp(format) => Self::Bfp(format),
            BlockFormat::Nvfp4(format) => Self::FloatScale(format.into()),
            BlockFormat::FloatScale(format) if has_kernel(&format) => Self::FloatScale(format),
            other => panic!("burn-mx: no kernel for {other}"),
        }
    }

    /// Elements in a block along an axis of this length.
    pub(super) fn block_length(self, axis_length: usize) -> usize {
        let length = match self {
            Self::Mx(format) if format.shared_exp_method == SharedExpMethod::None => 1,
            Self::Mx(format) => format.block_size,
            Self::Microexponent(format) => format.block_size,
            Self::Bfp(format) => format.block_size,
            Self::FloatScale(format) => format.block_size,
        };
        match length {
            0 => axis_length,
            length => length.min(axis_length),
        }
    }

    /// The two axes of square blocks along an axis; `None` where blocks are not square.
    pub(super) fn square_axes(self, axis: usize) -> Option<[usize; 2]> {
        match self {
            Self::Mx(format) => BlockFormat::Mx(format).square_axes(axis),
            Self::FloatScale(format) => BlockFormat::FloatScale(format).square_axes(axis),
            Self::Microexponent(_) | Self::Bfp(_) => None,
        }
    }

    /// Whether the grid follows from all elements of a block, in a second look at them.
    pub(super) fn looks_twice(self) -> bool {
        let has_mean = matches!(self, Self::Mx(format) if format.scale_mode == ScaleMode::Rms);
        has_mean || self.has_two_grids()
    }

    /// Whether the second look chooses between two grids.
    pub(super) fn has_two_grids(self) -> bool {
        matches!(self, Self::FloatScale(format) if format.four_over_six)
    }

    /// Whether a factor of all elements follows from the tensor's largest magnitude.
    pub(super) fn has_tensor_scale(self) -> bool {
        matches!(self, Self::FloatScale(format) if format.tensor_scale)
    }

    /// The elements of a format whose scale is a float.
    pub(super) fn element_of_float_scale(self) -> ElementFormat {
        match self {
            Self::FloatScale(format) => format.element,
            other => unreachable!("{other:?} has a scale that is a power of two"),
        }
    }

    /// Elements that share a grid: a sub-block's, or all of a block.
    pub(super) fn sub_block_length(self, block: usize) -> usize {
        match self {
            Self::Microexponent(format) => format.sub_block_size.min(block),
            _ => block,
        }
    }
}

/// The part of a magnitude that counts for the largest one.
#[cube]
pub(super) fn counted(abs: u32, #[comptime] format: Format) -> u32 {
    match format {
        Format::Bfp(_) => select(abs < INFINITY, abs, 0),
        _ => abs,
    }
}

/// The grid of a sub-block, in two words. The arguments are the largest counted magnitudes of its block, of the sub-block,
/// and of a tensor with a scale. For blocks that are looked at twice, the verdict takes the sub-block's place.
#[cube]
pub(super) fn grid(
    amax: u32,
    sub_amax: u32,
    tensor_amax: u32,
    #[comptime] format: Format,
) -> (u32, u32) {
    match format {
        Format::Mx(format) => mx_grid(amax, sub_amax, format),
        Format::Microexponent(format) => microexponent_grid(amax, sub_amax, format),
        Format::Bfp(format) => bfp_grid(amax, format),
        Format::FloatScale(format) => float_scale_grid(amax, sub_amax, tensor_amax, format),
    }
}

/// An element, rounded.
#[cube]
pub(super) fn round(
    x: u32,
    grid: (u32, u32),
    draw: u32,
    #[comptime] format: Format,
    #[comptime] rounding: Rounding,
) -> u32 {
    let (first, second) = grid;
    match format {
        Format::Mx(format) => {
            let mantissa_bits = comptime!(format.element.mantissa_bits() as i32);
            round_to_grid(x, first, second, draw, mantissa_bits, rounding)
        }
        Format::Microexponent(format) => {
            let abs = x & ABS;
            let normal = (x & SIGN) | select(abs < IMPLICIT, 0, abs);
            let fraction_bits = comptime!(format.mantissa_bits() as i32 - 1);
            round_to_grid(normal, first, second, draw, fraction_bits, rounding)
        }
        Format::Bfp(format) => {
            let special = x & ABS >= INFINITY;
            let fraction_bits = comptime!(format.mantissa_bits() as i32 - 1);
            let finite = select(special, 0, x);
            let rounded = round_to_grid(finite, first, second, draw, fraction_bits, rounding);
            select(special, x, rounded)
        }
        Format::FloatScale(format) => {
            round_float_scale(x, first, second, draw, format.element, rounding)
        }
    }
}

/// Rounds to the grid of the exponent of the smallest number with all its mantissa bits and the pattern of the largest
/// number, or NaN.
#[cube]
fn round_to_grid(
    x: u32,
    emin: u32,
    largest: u32,
    draw: u32,
    #[comptime] mantissa_bits: i32,
    #[comptime] rounding: Rounding,
) -> u32 {
    let is_nan = largest > INFINITY;
    let abs = select(is_nan, 0, x & ABS);
    let magnitude = round_magnitude(abs, emin as i32, draw, mantissa_bits, rounding);
    select(is_nan, NAN, (x & SIGN) | min(magnitude, largest))
}

#[cube]
fn mx_grid(amax: u32, verdict: u32, #[comptime] format: MxFormat) -> (u32, u32) {
    let largest_exponent = comptime!((1i32 << (format.scale_bits - 1)) - 1);
    let wanted = mx_scale(amax, verdict, format);
    let is_nan = amax >= INFINITY || wanted > largest_exponent;
    let exponent = max(wanted, -largest_exponent);
    let scaled = bits::scale(
        comptime!(format.element.max().to_bits()).runtime(),
        select(is_nan, 0, exponent),
    );
    let flush_below = comptime!(if format.flush_fp32_subnorms {
        IMPLICIT
    } else {
        0
    });
    let largest = select(is_nan, NAN, select(amax < flush_below, 0, scaled));
    let emin = comptime!(format.element.emin()) + exponent;
    (emin as u32, largest)
}

/// The exponent of the scale of a block, before it is limited to what the scale can hold.
#[cube]
fn mx_scale(amax: u32, verdict: u32, #[comptime] format: MxFormat) -> i32 {
    let emax = comptime!(format.element.emax()).runtime();
    let mode = comptime!(format.scale_mode);
    let exponent = if comptime!(mode == ScaleMode::Rms) {
        verdict as i32 - two_pass_scale::VERDICT
    } else if comptime!(!format.headroom.is_none()) {
        scale_with_headroom(amax, format)
    } else if comptime!(mode == ScaleMode::Floor) {
        bits::exponent(amax) - emax
    } else if comptime!(mode == ScaleMode::Ceil) {
        let exponent = bits::exponent(amax);
        let is_above = amax != bits::scale(ONE.runtime(), exponent);
        exponent + select(is_above, 1, 0) - emax
    } else if comptime!(mode == ScaleMode::Even) {
        let half_ulp = comptime!(IMPLICIT >> (format.element.mantissa_bits() + 1));
        ((amax + half_ulp) >> 23) as i32 - 127 - emax
    } else {
        let inverse = comptime!((1.0 / format.element.max()).to_bits());
        ceil_log2_of_product(amax, inverse.runtime())
    };
    select(amax == 0, -126 - emax, exponent)
}

/// The exponent of the scale with headroom: the exponent of the magnitude after an addition to its significand.
#[cube]
fn scale_with_headroom(amax: u32, #[comptime] format: MxFormat) -> i32 {
    let is_rceil = comptime!(format.scale_mode == ScaleMode::Rceil);
    let emax = comptime!(if is_rceil { 0 } else { format.element.emax() }).runtime();
    let magnitude = if comptime!(is_rceil) {
        let inverse = comptime!((1.0 / format.element.max()).to_bits());
        bits::product(amax, inverse.runtime())
    } else {
        amax
    };
    let (significand, base) = bits::split(magnitude);
    let log2 = bits::log2(significand);
    let normal = significand << (min(max(23 - log2, 0), 31) as u32);
    let addend = comptime!(headroom_addend(format)).runtime();
    (base >> 23) as i32 - 149 + log2 + ((normal + addend) >> 23) as i32 - 1 - emax
}

/// The addend of the significand, in units of 2^−23. The exponent of the sum goes up by one where the largest magnitude
/// times h passes a threshold of the scale mode.
fn headroom_addend(format: MxFormat) -> u32 {
    const NEXT: u64 = 1 << 24;
    let numerator = u64::from(format.headroom.numerator());
    let denominator = u64::from(format.headroom.denominator());
    let addend = match format.scale_mode {
        ScaleMode::Ceil | ScaleMode::Rceil => {
            NEXT / 2 + NEXT - (NEXT * denominator / numerator + 1)
        }
        ScaleMode::Even => {
            let from = (NEXT - (1 << (22 - format.element.mantissa_bits()))) * denominator;
            match from.div_ceil(numerator) {
                first if first >= NEXT / 2 => NEXT - first,
                _ => NEXT / 2 + NEXT - (2 * from).div_ceil(numerator),
            }
        }
        _ => NEXT - (NEXT * denominator).div_ceil(numerator),
    };
    addend as u32
}

/// ceil(log2(p)) with p the float32 product a · b, rounded half to even, with subnormals, of two positive finite numbers.
#[cube]
fn ceil_log2_of_product(a: u32, b: u32) -> i32 {
    let rounded = bits::product(a, b);
    // Zero is below every scale.
    let exponent = select(rounded == 0, -150, bits::exponent(rounded));
    let is_power = rounded == bits::scale(ONE.runtime(), exponent);
    exponent + select(is_power || rounded == 0, 0, 1)
}

#[cube]
fn microexponent_grid(
    amax: u32,
    sub_amax: u32,
    #[comptime] format: MicroexponentFormat,
) -> (u32, u32) {
    let shared = (amax >> 23) as i32;
    let below = shared - (sub_amax >> 23) as i32;
    let largest_shift = comptime!((1i32 << format.shift_bits) - 1);
    let exponent = shared - min(below, largest_shift) - 127;
    let largest = comptime!(largest_fixed(format.mantissa_bits() as i32 - 1)).runtime();
    let is_nan = amax >= INFINITY;
    let scaled = bits::scale(largest, select(is_nan, 0, exponent));
    (exponent as u32, select(is_nan, NAN, scaled))
}

#[cube]
fn bfp_grid(amax: u32, #[comptime] format: BfpFormat) -> (u32, u32) {
    let exponent = (amax >> 23) as i32 - 127;
    let largest = comptime!(largest_fixed(format.mantissa_bits() as i32 - 1)).runtime();
    (exponent as u32, bits::scale(largest, exponent))
}

/// The pattern of the largest number with exponent 0 and this number of bits below the point.
fn largest_fixed(fraction_bits: i32) -> u32 {
    (2.0 - (-fraction_bits as f32).exp2()).to_bits()
}

/// 6 / 4.
const SIX_OVER_FOUR: u32 = 0x3fc0_0000;
/// The code of the scale NaN, of exponents.
pub(super) const NAN_EXPONENT: u32 = 255;

/// t · c, or NaN, and (1 / t) / c, which may be Inf.
#[cube]
fn float_scale_grid(
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
fn float_scales(
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

/// The factor of all elements of a tensor with this largest magnitude, which is finite; 1 if the format has none.
#[cube]
pub(super) fn scale_of_tensor(tensor_amax: u32, #[comptime] format: Format) -> u32 {
    match format {
        Format::FloatScale(format) => tensor_scale(tensor_amax, format),
        _ => ONE.runtime(),
    }
}

/// t, of a finite magnitude.
#[cube]
fn tensor_scale(tensor_amax: u32, #[comptime] format: FloatScaleFormat) -> u32 {
    let max = comptime!(format.tensor_max().to_bits());
    with_headroom(bits::quotient(tensor_amax, max.runtime()), format)
}

/// c, the scale of a block without the tensor's, where the grid has both; NaN where all of the block becomes NaN.
#[cube]
pub(super) fn scale_of_block(
    grid: (u32, u32),
    amax: u32,
    verdict: u32,
    tensor_amax: u32,
    #[comptime] format: Format,
) -> u32 {
    let (first, _) = grid;
    match format {
        Format::FloatScale(format) => {
            let is_nan = first >= INFINITY;
            let (_, scale) = float_scales(
                select(is_nan, 0, amax),
                verdict,
                select(is_nan, 0, tensor_amax),
                format,
            );
            select(is_nan, NAN, scale)
        }
        _ => first,
    }
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
        let factor = select(verdict == two_pass_scale::FOUR, SIX_OVER_FOUR, ONE);
        bits::product(scale, factor)
    } else {
        scale
    }
}

/// The largest number that an element of a grid can become; NaN where all of the block becomes NaN.
#[cube]
pub(super) fn largest(grid: (u32, u32), #[comptime] format: Format) -> u32 {
    let (first, second) = grid;
    match format {
        Format::FloatScale(format) => {
            let is_nan = first >= INFINITY;
            let max = comptime!(format.element.max().to_bits()).runtime();
            let limit = bits::product(select(is_nan, ONE, first), max);
            select(is_nan, NAN, limit)
        }
        _ => second,
    }
}

/// The scale of a block with this largest magnitude and this grid, 0 if it has none.
#[cube]
pub(super) fn scale(amax: u32, grid: (u32, u32), #[comptime] format: Format) -> u32 {
    let (first, second) = grid;
    let scale = match format {
        Format::Mx(format) => {
            let exponent = first as i32 - comptime!(format.element.emin());
            select(second > INFINITY, 0, bits::scale(ONE.runtime(), exponent))
        }
        Format::FloatScale(_) => first,
        // As the rules take it: a block of subnormals has the exponent below that of the smallest normal number.
        _ => bits::scale(ONE.runtime(), (amax >> 23) as i32 - 127),
    };
    select(amax == 0 || scale >= INFINITY, 0, scale)
}

/// The code of the scale of a block with this largest magnitude and this grid.
#[cube]
pub(super) fn scale_code(
    amax: u32,
    verdict: u32,
    tensor_amax: u32,
    grid: (u32, u32),
    #[comptime] format: Format,
) -> u32 {
    let (first, second) = grid;
    match format {
        Format::Mx(format) => {
            let exponent = first as i32 - comptime!(format.element.emin());
            select(second > INFINITY, NAN_EXPONENT, (exponent + 127) as u32)
        }
        Format::FloatScale(of_scale) => {
            let is_nan = first >= INFINITY;
            let scale = scale_of_block(grid, amax, verdict, tensor_amax, format);
            let nan = comptime!((1u32 << of_scale.scale.bits()) - 1).runtime();
            select(is_nan, nan, float_scale_code(scale, of_scale))
        }
        // Inf has the code of NaN; of a block that passes it, its finite numbers alone are counted.
        _ => amax >> 23,
    }
}

/// 1 if an element is clipped, else 0: if it is finite and at least the largest number that an element of its grid can become.
#[cube]
pub(super) fn clipped(x: u32, grid: (u32, u32), #[comptime] format: Format) -> u32 {
    let largest = largest(grid, format);
    let abs = x & ABS;
    select(largest != 0 && abs >= largest && abs < INFINITY, ONE, 0)
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
fn float_scale_code(scale: u32, #[comptime] format: FloatScaleFormat) -> u32 {
    match comptime!(format.scale.float()) {
        Some(float) => element_code(scale, 0, float),
        None => scale,
    }
}

/// An element in units of the tensor's scale, in a block with this scale.
#[cube]
pub(super) fn round_in_units(
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
pub(super) fn round_unit(
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
