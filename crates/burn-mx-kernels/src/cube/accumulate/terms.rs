//! The factors of a product in the order in which they are added, one word each: 12 bits of exponent, a sign, and 19 bits of
//! significand, as an integer.

use cubecl::prelude::*;

use crate::cube::numbers::bits::{self, ABS, INFINITY, NAN, ONE, SIGN};
use crate::cube::numbers::element::element_value;
use crate::cube::pack::{Form, byte, code_at, float_scale_value};
use crate::cube::quantize::rules::{Format, NAN_EXPONENT};
use crate::cube::statistics::blocks::{Blocks, block_of};
use crate::product::accumulated::convolution::OUTSIDE;
use crate::product::accumulated::layout::Steps;

/// Bits of a significand.
pub(super) const SIGNIFICAND_BITS: i32 = 19;
/// The exponent of zeros. With any other exponent the sum is less than [`NONZERO`] and than every floor.
const ZERO: i32 = -1000;
/// The exponent of Inf, whose significand is 1, and of NaN, whose significand is 0.
const SPECIAL: i32 = 2047;
/// The sum of the exponents of two factors is above this if one is Inf or NaN, and never otherwise.
pub(super) const FINITE: i32 = 600;
/// The sum of the exponents of two factors is below this if one is 0, and never otherwise.
pub(super) const NONZERO: i32 = -600;
/// The factor 1 of a type without mantissa bits.
pub(super) const UNIT: u32 = 1;

#[cube]
fn word(sign: u32, significand: u32, exponent: i32) -> u32 {
    ((exponent as u32) << 20) | ((sign & SIGN) >> 12) | significand
}

#[cube]
pub(super) fn exponent(word: u32) -> i32 {
    word as i32 >> 20
}

#[cube]
pub(super) fn significand(word: u32) -> u32 {
    word & comptime!((1u32 << SIGNIFICAND_BITS) - 1)
}

/// The sign of a word, or of the exclusive or of two, as a float has it.
#[cube]
pub(super) fn sign(word: u32) -> u32 {
    (word << 12) & SIGN
}

#[cube]
pub(super) fn is_special(word: u32) -> bool {
    exponent(word) == SPECIAL
}

/// The numbers of a type.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(in crate::cube) struct Type {
    emin: i32,
    mantissa_bits: i32,
    /// The largest magnitude, as a pattern.
    max: u32,
    /// The smallest magnitude that does not become +0, as a pattern.
    smallest: u32,
}

/// The words of a line of an operand.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(in crate::cube) struct Slots {
    /// All of a line.
    count: usize,
    of_an_addition: usize,
    of_a_group: usize,
    /// Elements of a group, an addition and a part, the last of which may have fewer.
    group: usize,
    terms: usize,
    part: usize,
    /// Additions of a part.
    additions: usize,
    /// The sign of the zeros behind an addition, a pattern.
    padding: u32,
}

/// The lines of an operand whose words are made.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(in crate::cube) struct Lines {
    first: usize,
    count: usize,
    /// Elements of a segment, and the length of a line.
    given: usize,
    length: usize,
    /// From one matrix to the next.
    matrix: usize,
}

/// The two axes that make an axis of an operand, as [`Layout`](crate::product::accumulated::layout::Layout) has them.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(in crate::cube) struct Nested {
    /// Elements of the inner axis.
    inner: usize,
    outer_stride: usize,
    inner_stride: usize,
    /// In the table of windows.
    outer_window: usize,
    inner_window: usize,
}

impl Nested {
    pub(super) fn argument<R: Runtime>([outer, inner]: [Steps; 2]) -> NestedLaunch<R> {
        NestedLaunch::new(
            inner.count,
            outer.stride,
            inner.stride,
            outer.window,
            inner.window,
        )
    }
}

/// The content of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::cube) enum Content {
    /// An element.
    Element,
    /// An element times the scale of its block.
    Scaled,
    /// An element in units of the smallest one; the exponent only tells zeros.
    Fixed,
    /// The scale of the block of an element.
    Scale,
}

/// The compile-time parameters of [`terms_kernel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::cube) struct Terms {
    pub(in crate::cube) content: Content,
    /// How the source is packed; without it the source is a tensor of elements.
    pub(in crate::cube) form: Option<Form>,
    /// Whether neighbouring words belong to neighbouring lines, `[matrix, slot, line]` and not `[matrix, line, slot]`.
    pub(in crate::cube) across: bool,
}

/// A unit a word. `windows` has the place of each element that a window reads, within its plane, and [`OUTSIDE`] for zeros.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::cube) fn terms_kernel(
    source: &Array<u32>,
    windows: &ComptimeOption<Array<u32>>,
    words: &mut Array<u32>,
    blocks: &Blocks,
    codes: usize,
    slots: &Slots,
    lines: &Lines,
    free: &Nested,
    summed: &Nested,
    element: &Type,
    scale: &Type,
    count: usize,
    #[comptime] terms: Terms,
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let (line, slot, before) = if comptime!(terms.across) {
        let before = ABSOLUTE_POS / lines.count;
        (
            ABSOLUTE_POS % lines.count,
            before % slots.count,
            before / slots.count,
        )
    } else {
        let before = ABSOLUTE_POS / slots.count;
        (
            before % lines.count,
            ABSOLUTE_POS % slots.count,
            before / lines.count,
        )
    };
    let addition = slot / slots.of_an_addition;
    let in_addition = slot % slots.of_an_addition;
    let in_group = in_addition % slots.of_a_group;
    let term = in_addition / slots.of_a_group * slots.group + in_group;
    let in_part = addition % slots.additions * slots.terms + term;
    let at = addition / slots.additions * slots.part + in_part;
    let is_term =
        in_group < slots.group && term < slots.terms && in_part < slots.part && at < lines.length;
    let is_given = is_term && at % summed.inner < lines.given;
    let line = lines.first + line;
    let of_line = line / free.inner * free.outer_stride + line % free.inner * free.inner_stride;
    let of_term = at / summed.inner * summed.outer_stride + at % summed.inner * summed.inner_stride;
    let position = before * lines.matrix + of_line + of_term;
    let (of_window, is_inside) = window(windows, free, summed, line, at, is_given);
    let position = position + of_window;

    let zero = select(is_term, 0, slots.padding);
    let mut result = word(zero, 0u32.runtime(), ZERO.runtime());
    if comptime!(terms.content == Content::Scale) {
        // The scale of zeros can be any.
        result = UNIT.runtime();
    }
    if is_inside {
        match comptime!(terms.form) {
            Some(form) => {
                if comptime!(terms.content != Content::Scale) {
                    let code = code_at(source, position, form.bits);
                    let of_element = comptime!(form.format.element);
                    let pattern = element_value(code, 0i32.runtime(), of_element);
                    let is_fixed = comptime!(terms.content == Content::Fixed);
                    result = of_pattern(pattern, element, is_fixed);
                }
                if comptime!(terms.content == Content::Scaled || terms.content == Content::Scale) {
                    let (block, _) = block_of(blocks, position);
                    let code = byte(source, codes, block);
                    let of_block = of_pattern(scale_value(code, form.format), scale, false);
                    if comptime!(terms.content == Content::Scale) {
                        result = of_block;
                    } else {
                        result = product(result, of_block);
                    }
                }
            }
            None => result = of_pattern(source[position], element, false),
        }
    }
    words[ABSOLUTE_POS] = result;
}

/// The place of the element that a window reads, within its plane, and whether there is an element.
#[cube]
fn window(
    windows: &ComptimeOption<Array<u32>>,
    free: &Nested,
    summed: &Nested,
    line: usize,
    at: usize,
    is_given: bool,
) -> (usize, bool) {
    #[comptime]
    match windows {
        ComptimeOption::Some(windows) => {
            let of_line =
                line / free.inner * free.outer_window + line % free.inner * free.inner_window;
            let of_term =
                at / summed.inner * summed.outer_window + at % summed.inner * summed.inner_window;
            let entry = windows[select(is_given, of_line + of_term, 0)];
            let is_inside = is_given && entry != OUTSIDE;
            (select(is_inside, entry, 0) as usize, is_inside)
        }
        ComptimeOption::None => (0usize.runtime(), is_given),
    }
}

/// The scale of a code, as a pattern.
#[cube]
fn scale_value(code: u32, #[comptime] format: Format) -> u32 {
    if comptime!(format.has_exponent()) {
        select(
            code == NAN_EXPONENT,
            NAN,
            bits::scale(ONE.runtime(), code as i32 - 127),
        )
    } else {
        float_scale_value(code, comptime!(format.block()))
    }
}

/// The word of a number of the type; of any other number it is NaN. A fixed one is in units of the type's smallest number.
#[cube]
fn of_pattern(pattern: u32, of: &Type, #[comptime] is_fixed: bool) -> u32 {
    let pattern = select(pattern & ABS < of.smallest, 0, pattern);
    let abs = pattern & ABS;
    let (whole, base) = bits::split(abs);
    let own = max(bits::exponent(abs), of.emin);
    let exponent = select(is_fixed.runtime(), of.emin, own);
    // The significand's, down to the type's last bit.
    let down = exponent - of.mantissa_bits - ((base >> 23) as i32 - 149);
    let right = min(max(down, 0), 31) as u32;
    let left = min(max(-down, 0), 31) as u32;
    let steps = (whole >> right) << left;
    let is_exact = (steps >> left) << right == whole && abs <= of.max;
    let is_special = abs == INFINITY || !is_exact;
    let special = select(abs == INFINITY, 1, 0);
    let of_finite = if comptime!(is_fixed) {
        0i32.runtime()
    } else {
        exponent
    };
    let of_number = select(whole == 0, ZERO, of_finite);
    word(
        pattern,
        select(is_special, special, steps),
        select(is_special, SPECIAL, of_number),
    )
}

/// The product of two words, whose exponents and significands have room for it.
#[cube]
fn product(a: u32, b: u32) -> u32 {
    let significand = significand(a) * significand(b);
    let sum = exponent(a) + exponent(b);
    let of_number = select(significand == 0, ZERO, sum);
    let is_special = is_special(a) || is_special(b);
    let of_special = select(significand == 0, 0, 1);
    word(
        sign(a ^ b),
        select(is_special, of_special, significand),
        select(is_special, SPECIAL, of_number),
    )
}
