//! The kernels that pack: scales, codes, records.

use super::{Form, magnitude_bits, shift_bits};
use crate::kernels::cube::numbers::bits::{self, ABS, INFINITY, SIGN};
use crate::kernels::cube::numbers::element::element_code;
use crate::kernels::cube::numbers::random::{Stream, draw};
use crate::kernels::cube::quantize::rules::{self, Format, NAN_EXPONENT};
use crate::kernels::cube::quantize::{two_pass_scale, word_or_zero};
use crate::kernels::cube::statistics::blocks::{Blocks, block, block_of, position};
use cubecl::prelude::*;
use microscaling::Rounding;

/// A unit a block: the code of its scale, and the grids of its sub-blocks, two words each.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::kernels::cube) fn scales_kernel(
    values: &Array<u32>,
    tensor_amax: &ComptimeOption<Array<u32>>,
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
    let mut amax = 0u32.runtime();
    for i in 0..length {
        amax = max(
            amax,
            rules::counted(values[position(&block, i)] & ABS, format),
        );
    }
    let of_tensor = word_or_zero(tensor_amax);
    let mut both = Array::<u32>::new(two_pass_scale::GRIDS);
    let mut verdict = amax;
    if comptime!(format.looks_twice()) {
        two_pass_scale::write_grids(&mut both, amax, of_tensor, format);
        let mut sums = two_pass_scale::none();
        for i in 0..length {
            two_pass_scale::add(&mut sums, values[position(&block, i)], amax, &both, format);
        }
        verdict = two_pass_scale::verdict(&sums, amax, length as u32, format);
    }
    let grid = two_pass_scale::grid(&both, amax, verdict, of_tensor, format);
    let code = rules::scale_code(amax, verdict, of_tensor, grid, format);
    scales[ABSOLUTE_POS] = code;

    let own = ABSOLUTE_POS * comptime!(form.sub_blocks * 2);
    if comptime!(form.sub_blocks == 1) {
        grids[own] = grid.0;
        grids[own + 1] = grid.1;
    } else {
        let sub_block = comptime!(form.sub_block);
        for sub in 0..comptime!(form.sub_blocks) {
            let first = sub * sub_block;
            let mut sub_amax = 0u32.runtime();
            for i in first..min(first + sub_block, length) {
                let abs = values[position(&block, i)] & ABS;
                sub_amax = max(sub_amax, rules::counted(abs, format));
            }
            let (exponent, largest) = rules::grid(amax, sub_amax, of_tensor, format);
            // What is beyond the tensor is not shifted.
            let unshifted = (code as i32 - 127) as u32;
            grids[own + sub * 2] = select(first < length, exponent, unshifted);
            grids[own + sub * 2 + 1] = largest;
        }
    }
}

/// A unit a word of codes: those that begin in it, and the rest of one that begins in the word before.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::kernels::cube) fn codes_kernel(
    values: &Array<u32>,
    grids: &Array<u32>,
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
    // So many words have 32 codes.
    let begin = ABSOLUTE_POS % bits * 32;
    let first = ABSOLUTE_POS / bits * 32 + begin / bits;
    let skipped = (begin % bits) as u32;
    let mut word = 0u32.runtime();
    for i in 0..comptime!((31 + bits).div_ceil(bits)) {
        let at = i as u32 * comptime!(bits as u32);
        let element = first + i;
        if element < elements && at < 32 + skipped {
            let (number, row) = block_of(blocks, element);
            let grid = (number * sub_blocks + row / sub_block) * 2;
            let mut draws = 0u32.runtime();
            if comptime!(rounding == Rounding::Stochastic) {
                draws = draw(stream, element);
            }
            let grid = (grids[grid], grids[grid + 1]);
            let code = code(
                values[element],
                grid,
                draws,
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
pub(in crate::kernels::cube) fn records_kernel(
    grids: &Array<u32>,
    scales: &Array<u32>,
    tensor_amax: &ComptimeOption<Array<u32>>,
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
        words[codes + count] = word_or_zero(tensor_amax);
    }
    let record = comptime!(form.record);
    let mut word = 0u32.runtime();
    for i in 0..4usize {
        let number = ABSOLUTE_POS * 4 + i;
        let block = number / record;
        if block < blocks {
            let scale = scales[block];
            let mut byte = scale;
            if comptime!(record > 1) {
                let of_shifts = number % record;
                if of_shifts > 0 {
                    byte = shifts(grids, block, of_shifts - 1, scale, form);
                }
            }
            word |= byte << (i as u32 * 8);
        }
    }
    words[codes + ABSOLUTE_POS] = word;
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
            let exponent = grids[(block * sub_blocks + sub) * 2] as i32;
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
    grid: (u32, u32),
    draw: u32,
    #[comptime] format: Format,
    #[comptime] rounding: Rounding,
) -> u32 {
    let (first, second) = grid;
    match format {
        Format::Mx(mx) => {
            let rounded = rules::round(x, grid, draw, format, rounding);
            let exponent = first as i32 - comptime!(mx.element.emin());
            select(
                second > INFINITY,
                0,
                element_code(rounded, exponent, mx.element),
            )
        }
        Format::FloatScale(of_scale) => {
            let element = of_scale.element;
            let unit = rules::round_unit(x, first, second, draw, element, rounding);
            let code = element_code((x & SIGN) | unit, 0, element);
            select(first >= INFINITY, 0, code)
        }
        _ => {
            let rounded = rules::round(x, grid, draw, format, rounding);
            let magnitude_bits = comptime!(magnitude_bits(format));
            let unit = first as i32 + comptime!(1 - magnitude_bits as i32);
            let code = bits::steps(rounded & ABS, unit) | ((rounded >> 31) << magnitude_bits);
            select(second > INFINITY, 0, code)
        }
    }
}
