//! The kernel that unpacks.

use super::{Form, shift_bits};
use crate::cube::numbers::bits::{self, ABS, INFINITY, NAN, SIGN};
use crate::cube::numbers::element::element_value;
use crate::cube::quantize::known::Known;
use crate::cube::quantize::rules::tables::table_value;
use crate::cube::quantize::rules::{self, Format, NAN_EXPONENT};
use crate::cube::statistics::blocks::{Blocks, block_of};
use cubecl::prelude::*;
use microscaling::BlockFormat;

/// A unit an element.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::cube) fn values_kernel(
    words: &Array<u32>,
    known: &Known,
    values: &mut Array<u32>,
    blocks: &Blocks,
    codes: usize,
    tensor_scale: u32,
    elements: usize,
    #[comptime] form: Form,
) {
    if ABSOLUTE_POS >= elements {
        terminate!();
    }
    let code = code_at(words, ABSOLUTE_POS, form.bits);

    let (number, row) = block_of(blocks, ABSOLUTE_POS);
    let record = number * comptime!(form.record);
    let mut scale = byte(words, codes, record);
    let mut number = 0u32.runtime();
    if comptime!(form.scale > 1) {
        for i in 1..comptime!(form.scale.min(4)) {
            scale |= byte(words, codes, record + i) << (i as u32 * 8);
        }
    }
    if comptime!(form.has_tables()) {
        number = if comptime!(form.scale_bits < 32) {
            scale >> comptime!(form.scale_bits)
        } else {
            byte(words, codes, record + 4)
        };
        // There may be codes for more tables than there are.
        number = min(number, comptime!(form.format.grids() as u32 - 1));
        scale &= comptime!(u32::MAX >> (32 - form.scale_bits));
    } else if comptime!(form.record > form.scale) {
        let bits = record + comptime!(form.scale);
        number = if comptime!(form.format.shifts.is_some()) {
            shift(words, codes, bits, row, form)
        } else {
            doublings(words, codes, bits, row, form)
        };
    }
    let number = value(
        code,
        scale,
        number,
        tensor_scale,
        known,
        comptime!(form.format),
    );
    values[ABSOLUTE_POS] = number;
}

/// By how much a sub-block shifts the scale of its block, whose shifts begin at this byte.
#[cube]
fn shift(words: &Array<u32>, codes: usize, bits: usize, row: usize, #[comptime] form: Form) -> u32 {
    let shift_bits = comptime!(shift_bits(form.format));
    let first = row / comptime!(form.sub_block) * shift_bits;
    let mut shift = 0u32.runtime();
    for i in 0..shift_bits {
        shift |= bit(words, codes, bits, first + i) << i as u32;
    }
    shift
}

/// Which levels of sub-blocks double the scale of a block, whose bits begin at this byte.
#[cube]
fn doublings(
    words: &Array<u32>,
    codes: usize,
    bits: usize,
    row: usize,
    #[comptime] form: Form,
) -> u32 {
    let levels = comptime!(form.levels());
    let second = row / comptime!(form.sub_block);
    let of_first = bit(words, codes, bits, second / comptime!(levels[1]));
    let of_second = bit(words, codes, bits, second + comptime!(levels[0]));
    of_first | (of_second << 1)
}

#[cube]
fn bit(words: &Array<u32>, codes: usize, bits: usize, number: usize) -> u32 {
    (byte(words, codes, bits + number / 8) >> (number % 8) as u32) & 1
}

/// The code of the element at a position.
#[cube]
pub(in crate::cube) fn code_at(
    words: &Array<u32>,
    position: usize,
    #[comptime] bits: usize,
) -> u32 {
    let bit = position % 32 * bits;
    let first = position / 32 * bits + bit / 32;
    let skipped = (bit % 32) as u32;
    let mut code = words[first] >> skipped;
    if skipped > comptime!(32 - bits as u32) {
        code |= words[first + 1] << (32 - skipped);
    }
    code & comptime!((1u32 << bits) - 1)
}

/// A byte of the words behind the codes.
#[cube]
pub(in crate::cube) fn byte(words: &Array<u32>, codes: usize, number: usize) -> u32 {
    (words[codes + number / 4] >> ((number % 4) as u32 * 8)) & 0xff
}

/// The number of a code, as a pattern: by the number of the block's table, or what its sub-block has.
#[cube]
fn value(
    code: u32,
    scale: u32,
    number: u32,
    tensor_scale: u32,
    known: &Known,
    #[comptime] format: Format,
) -> u32 {
    let exponent = scale as i32 - 127;
    if comptime!(!format.has_exponent()) {
        let block_scale = float_scale_value(scale, comptime!(format.block()));
        let is_nan = block_scale & ABS >= INFINITY || tensor_scale >= INFINITY;
        let mut block_abs = select(is_nan, 0, block_scale & ABS);
        if comptime!(format.sub_scales.is_some()) {
            block_abs = rules::scale_of_sub_block(block_abs, number);
        }
        let product = bits::product(select(is_nan, 0, tensor_scale), block_abs);
        let unit = if comptime!(format.element.is_table()) {
            table_value(code, number, known, format.element)
        } else {
            element_value(code, 0, format.element)
        };
        let abs = unit & ABS;
        let is_infinite = product >= INFINITY;
        let finite = select(abs >= INFINITY, 0, abs);
        let number = bits::product(finite, select(is_infinite, 0, product));
        // For a tensor scale or an element that no tensor has; 0 times a finite number is 0.
        let is_large = (is_infinite && abs != 0) || abs == INFINITY;
        let magnitude = select(is_large, INFINITY, number);
        let sign = (block_scale ^ unit) & SIGN;
        let no_number = abs > INFINITY || (abs == INFINITY && product == 0);
        select(is_nan || no_number, NAN, sign | magnitude)
    } else {
        // 0 where there are no shifts.
        let shift = number as i32;
        let number = element_value(code, exponent - shift, format.element);
        select(scale == NAN_EXPONENT, NAN, number)
    }
}

/// The scale of a code, as a pattern, and its sign: codes of a byte may have one.
#[cube]
pub(in crate::cube) fn float_scale_value(code: u32, #[comptime] format: BlockFormat) -> u32 {
    match comptime!(format.scale.float()) {
        Some(float) => element_value(code, 0, float),
        None => code,
    }
}
