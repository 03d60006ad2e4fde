//! The kernels that pack: scales, codes, records.

use super::{Form, shift_bits};
use crate::cube::numbers::bits::{ABS, INFINITY};
use crate::cube::numbers::element::element_code;
use crate::cube::numbers::random::{Stream, draw};
use crate::cube::quantize::known::{Known, tensor_amax};
use crate::cube::quantize::rules::{self, Format, Grid, NAN_EXPONENT};
use crate::cube::quantize::two_pass_scale;
use crate::cube::statistics::blocks::{Block, Blocks, block, block_of, position};
use cubecl::prelude::*;
use microscaling::Rounding;

/// A unit a block: the code of its scale, and the grids of its sub-blocks, two words each.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::cube) fn scales_kernel(
    values: &Array<u32>,
    known: &Known,
    grids: &mut Array<u32>,
    scales: &mut Array<u32>,
    blocks: &Blocks,
    count: usize,
    #[comptime] form: Form,
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let format = comptime!(form.format);
    let block = block(blocks, ABSOLUTE_POS);
    let length = block.length;
    let amax = largest_between(values, &block, 0usize, length, form);
    let mut all = Array::<u32>::new(comptime!(two_pass_scale::words(format)));
    let mut choice = amax;
    if comptime!(format.looks_twice()) {
        two_pass_scale::write_grids(&mut all, amax, known, format);
        let mut sums = two_pass_scale::none(format);
        for i in 0..length {
            let x = values[position(&block, i)];
            two_pass_scale::add(&mut sums, x, amax, &all, known, format);
        }
        choice = two_pass_scale::choice(&sums, &all, amax, length as u32, format);
    }

    let own = ABSOLUTE_POS * comptime!(form.sub_blocks * form.grid);
    if comptime!(!form.has_sub_blocks()) {
        let grid = two_pass_scale::grid(&all, amax, choice, known, format);
        scales[ABSOLUTE_POS] = rules::scale_code(amax, choice, grid, known, format);
        write_grid(grids, own, grid, form);
    } else {
        let sub_block = comptime!(form.sub_block);
        let of_block = rules::grid(amax, rules::of_whole_block(amax, format), known, format);
        let code = rules::scale_code(amax, amax, of_block, known, format);
        scales[ABSOLUTE_POS] = code;
        let mut above = 0u32.runtime();
        for sub in 0..comptime!(form.sub_blocks) {
            let first = sub * sub_block;
            let mut sub_amax =
                largest_between(values, &block, first, min(first + sub_block, length), form);
            if comptime!(format.first_sub_block().is_some()) {
                let of_first = comptime!(format.first_sub_block().unwrap());
                let within = first % of_first;
                if within == 0 {
                    let end = min(first + of_first, length);
                    above = largest_between(values, &block, first, end, form);
                }
                sub_amax = rules::both_levels(above, sub_amax);
            }
            let grid = rules::grid(amax, sub_amax, known, format);
            write_grid(grids, own + sub * comptime!(form.grid), grid, form);
            // Numbers beyond the tensor are not shifted.
            if first >= length {
                let unshifted = (code as i32 - 127) as u32;
                let grid = (unshifted, 0u32.runtime(), 0u32.runtime());
                write_grid(grids, own + sub * comptime!(form.grid), grid, form);
            }
        }
    }
}

/// The largest counted magnitude of some elements of a block.
#[cube]
fn largest_between(
    values: &Array<u32>,
    block: &Block,
    first: usize,
    end: usize,
    #[comptime] form: Form,
) -> u32 {
    let mut amax = 0u32.runtime();
    for i in first..end {
        let abs = values[position(block, i)] & ABS;
        amax = max(amax, rules::counted(abs, form.format));
    }
    amax
}

#[cube]
fn write_grid(grids: &mut Array<u32>, at: usize, grid: Grid, #[comptime] form: Form) {
    grids[at] = grid.0;
    grids[at + 1] = grid.1;
    if comptime!(form.grid > 2) {
        grids[at + 2] = grid.2;
    }
}

/// The last word of the grid at a place.
#[cube]
fn number_of_grid(grids: &Array<u32>, at: usize, #[comptime] form: Form) -> u32 {
    if comptime!(form.grid > 2) {
        grids[at + 2]
    } else {
        0u32.runtime()
    }
}

/// A unit a word of codes: those that begin in it, and the rest of one that begins in the word before.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::cube) fn codes_kernel(
    values: &Array<u32>,
    grids: &Array<u32>,
    known: &Known,
    words: &mut Array<u32>,
    stream: &Stream,
    blocks: &Blocks,
    elements: usize,
    count: usize,
    #[comptime] form: Form,
    #[comptime] rounding: Rounding,
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    let bits = comptime!(form.bits);
    let sub_block = comptime!(form.sub_block);
    let sub_blocks = comptime!(form.sub_blocks);
    // This number of words has 32 codes.
    let begin = ABSOLUTE_POS % bits * 32;
    let first = ABSOLUTE_POS / bits * 32 + begin / bits;
    let skipped = (begin % bits) as u32;
    let mut word = 0u32.runtime();
    for i in 0..comptime!((31 + bits).div_ceil(bits)) {
        let at = i as u32 * comptime!(bits as u32);
        let element = first + i;
        if element < elements && at < 32 + skipped {
            let (number, row) = block_of(blocks, element);
            let grid = (number * sub_blocks + row / sub_block) * comptime!(form.grid);
            let mut draws = 0u32.runtime();
            if comptime!(rounding == Rounding::Stochastic) {
                draws = draw(stream, element);
            }
            let last = number_of_grid(grids, grid, form);
            let grid = (grids[grid], grids[grid + 1], last);
            let code = code(
                values[element],
                grid,
                draws,
                known,
                comptime!(form.format),
                rounding,
            );
            let up = select(at >= skipped, at - skipped, 0);
            let down = select(at >= skipped, 0, skipped - at);
            word |= (code << up) >> down;
        }
    }
    words[ABSOLUTE_POS] = word;
}

/// A unit a word of records, behind the codes; the last word is the tensor's largest magnitude.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::cube) fn records_kernel(
    grids: &Array<u32>,
    scales: &Array<u32>,
    known: &Known,
    words: &mut Array<u32>,
    codes: usize,
    blocks: usize,
    count: usize,
    #[comptime] form: Form,
) {
    if ABSOLUTE_POS >= count {
        terminate!();
    }
    if ABSOLUTE_POS == 0 {
        words[codes + count] = tensor_amax(known);
    }
    let record = comptime!(form.record);
    let mut word = 0u32.runtime();
    for i in 0..4usize {
        let number = ABSOLUTE_POS * 4 + i;
        let block = number / record;
        if block < blocks {
            let byte = byte_of_record(grids, scales[block], block, number % record, form);
            word |= byte << (i as u32 * 8);
        }
    }
    words[codes + ABSOLUTE_POS] = word;
}

/// A byte of the record of a block with this scale's code: the code and above it the number of the table, then the bits of
/// sub-blocks.
#[cube]
fn byte_of_record(
    grids: &Array<u32>,
    scale: u32,
    block: usize,
    byte: usize,
    #[comptime] form: Form,
) -> u32 {
    let of_scale = comptime!(form.scale);
    let mut result = (scale >> (min(byte, 3) as u32 * 8)) & 0xff;
    result = select(byte > 3, 0, result);
    if comptime!(form.record > form.scale) {
        let is_of_scale = byte < of_scale;
        let behind = select(is_of_scale, 0, byte - of_scale);
        let other = if comptime!(form.format.shifts.is_some()) {
            shifts(grids, block, behind, scale, form)
        } else {
            doublings(grids, block, behind, form)
        };
        result = select(is_of_scale, result, other);
    }
    if comptime!(form.has_tables()) {
        let table = grids[block * comptime!(form.grid) + 2];
        // Where the number begins, in bits from this byte on.
        let from = comptime!(form.scale_bits as i32).runtime() - byte as i32 * 8;
        let up = min(max(from, 0), 31) as u32;
        let down = min(max(-from, 0), 31) as u32;
        result |= ((table << up) >> down) & 0xff;
    }
    result
}

/// A byte of the bits of sub-blocks that double the scale: bits of the first level, then bits of the second level.
#[cube]
fn doublings(grids: &Array<u32>, block: usize, byte: usize, #[comptime] form: Form) -> u32 {
    let levels = comptime!(form.levels());
    let mut bits = 0u32.runtime();
    for i in 0..8usize {
        let bit = byte * 8 + i;
        let is_second = bit >= comptime!(levels[0]);
        let sub = select(
            is_second,
            bit - comptime!(levels[0]),
            bit * comptime!(levels[1]),
        );
        if sub < comptime!(form.sub_blocks) {
            let at = (block * comptime!(form.sub_blocks) + sub) * comptime!(form.grid);
            let both = grids[at + 2];
            let of_level = select(is_second, both >> 1, both & 1);
            bits |= of_level << i as u32;
        }
    }
    bits
}

/// A byte of the shifts of a block with this scale.
#[cube]
pub(super) fn shifts(
    grids: &Array<u32>,
    block: usize,
    byte: usize,
    scale: u32,
    #[comptime] form: Form,
) -> u32 {
    let shift_bits = comptime!(shift_bits(form.format));
    let sub_blocks = comptime!(form.sub_blocks);
    let mut bits = 0u32.runtime();
    for i in 0..8usize {
        let bit = byte * 8 + i;
        let sub = bit / shift_bits;
        if sub < sub_blocks {
            let exponent = grids[(block * sub_blocks + sub) * comptime!(form.grid)] as i32;
            let shift = (scale as i32 - 127 - exponent) as u32;
            bits |= ((shift >> (bit % shift_bits) as u32) & 1) << i as u32;
        }
    }
    select(scale == NAN_EXPONENT, 0, bits)
}

/// The code of an element, rounded to its grid.
#[cube]
pub(super) fn code(
    x: u32,
    grid: Grid,
    draw: u32,
    known: &Known,
    #[comptime] format: Format,
    #[comptime] rounding: Rounding,
) -> u32 {
    let (first, second, _) = grid;
    if comptime!(!format.has_exponent()) {
        rules::code_of_unit(x, grid, draw, known, format.element, rounding)
    } else {
        let rounded = rules::round(x, grid, draw, known, format, rounding);
        let exponent = first as i32 - comptime!(format.element.emin());
        let code = element_code(rounded, exponent, format.element);
        select(second > INFINITY, 0, code)
    }
}
