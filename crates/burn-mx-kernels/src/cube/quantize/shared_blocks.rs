//! Several units for each block, along an axis whose elements lie side by side.

use cubecl::prelude::*;

use super::BlockLayout;
use super::job::{Job, UNITS, WORDS, element, rounded, scale_of_results, word_at, words_at};
use super::known::Known;
use super::places::place;
use super::rules::{self, Format, tame};
use crate::cube::launch;
use crate::cube::numbers::bits::ABS;
use crate::cube::numbers::float::computed_by;
use crate::cube::numbers::random::Stream;

/// Elements that a unit works on.
pub(super) const EACH: usize = 4;
const _: () = assert!(
    EACH == WORDS,
    "a unit draws the words of its elements at once"
);

/// The length of blocks for [`shared_kernel`]: a power of two, to which an axis that is one block is extended. `None` where a
/// block is too short or too long, or looked at twice. Sub-blocks lie within the elements of one unit, or are of whole units.
pub(super) fn shared_block(format: Format, block: usize, is_one_block: bool) -> Option<usize> {
    let length = match is_one_block {
        true => block.next_power_of_two(),
        false => block,
    };
    let sub_block = format.sub_block_length(length);
    let fits = !format.looks_twice()
        && length.is_power_of_two()
        && (EACH..=UNITS * EACH).contains(&length);
    let is_of_a_unit = match format.first_sub_block() {
        Some(first) => {
            let is_of_units = first.is_multiple_of(EACH) && length.is_multiple_of(first);
            EACH.is_multiple_of(sub_block) && is_of_units
        }
        None if format.has_outer_scale() => EACH.is_multiple_of(sub_block),
        None => sub_block == length || EACH.is_multiple_of(sub_block),
    };
    (fits && is_of_a_unit).then_some(length)
}

/// Where the elements of a unit are in their block.
#[derive(CubeType)]
pub(super) struct Spot {
    /// The unit's place in the cube, where the units of a block follow on one another.
    pub(super) at: usize,
    /// Where the block begins in the output, and in the stream of random words.
    pub(super) to: usize,
    pub(super) start: usize,
    /// The place of the first element in the block, and the step to the next one.
    pub(super) first: usize,
    pub(super) step: usize,
    /// From one element of the block to the next in the output, and in the stream.
    pub(super) step_of_output: usize,
    pub(super) step_of_position: usize,
    /// Elements of the block. A unit beyond the last block has 0.
    pub(super) length: usize,
}

/// The elements of a unit.
#[derive(CubeType)]
struct Own {
    spot: Spot,
    /// As they are in memory, or as they go into their block.
    elements: Array<u32>,
    /// The random words, if the kernel draws them together.
    words: Array<u32>,
    /// The largest magnitudes of the block, and of the unit's sub-block of the first level.
    amax: u32,
    above: u32,
}

/// Each unit reads its elements once, and neighbouring units read neighbouring elements. Shared memory joins their largest magnitudes.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::cube) fn shared_kernel<O: Int>(
    input: &Tensor<u32>,
    output: &mut Tensor<O>,
    known: &Known,
    stream: &Stream,
    blocks: usize,
    #[comptime] layout: BlockLayout,
    #[comptime] job: Job,
) {
    let BlockLayout {
        axis,
        rank,
        block,
        whole,
        ..
    } = comptime!(layout);
    computed_by(comptime!(job.format.float32));
    let units = comptime!(block / EACH);
    let mut maxima = SharedMemory::<u32>::new(UNITS);
    let unit = UNIT_POS as usize;
    let number = CUBE_POS * comptime!(UNITS * EACH / block) + unit / units;
    let (from, to, start, step_of_position, rest) = if comptime!(whole) {
        let from = number * block;
        (from, from, from, 1usize.runtime(), block.runtime())
    } else {
        let place = place::<O>(input, output, number, axis, rank, block);
        let rest = input.shape(axis) - place.start;
        (place.from, place.to, place.position, place.step, rest)
    };
    let length = select(number < blocks, min(rest, block), 0);
    // A sub-block's elements belong to one unit, and so do those that share four random words; otherwise neighbours have
    // neighbouring ones.
    let own = unit % units;
    let (first, step) = if comptime!(job.format.has_sub_blocks(block) || whole) {
        (own * EACH, 1usize.runtime())
    } else {
        (own, units.runtime())
    };

    let mut elements = Array::<u32>::new(EACH);
    #[unroll]
    for i in 0..EACH {
        let at = first + i * step;
        let mut x = 0u32.runtime();
        if at < length {
            x = input[from + at];
        }
        elements[i] = x;
    }
    let spot = Spot {
        at: unit,
        to,
        start,
        first,
        step,
        step_of_output: 1usize.runtime(),
        step_of_position,
        length,
    };
    quantize_elements::<O>(
        output,
        elements,
        spot,
        &mut maxima,
        known,
        stream,
        layout,
        job,
    );
}

/// Quantizes a unit's elements, which are as in memory, together with the other units of the cube.
#[cube]
pub(super) fn quantize_elements<O: Int>(
    output: &mut Tensor<O>,
    mut elements: Array<u32>,
    spot: Spot,
    maxima: &mut SharedMemory<u32>,
    known: &Known,
    stream: &Stream,
    #[comptime] layout: BlockLayout,
    #[comptime] job: Job,
) {
    let units = comptime!(layout.block / EACH);
    let has_tame_blocks = comptime!(tame::has_tame_blocks(job));
    let mut raw = 0u32.runtime();
    #[unroll]
    for i in 0..EACH {
        raw = max(raw, elements[i] & ABS);
    }
    let may_be_tame = tame::may_be_tame(raw);
    let mut amax = if comptime!(has_tame_blocks) {
        largest_as_read(raw, may_be_tame, &elements, job)
    } else {
        into_block(&mut elements, job);
        largest(&elements, 0usize, EACH, job)
    };
    let at = spot.at;
    maxima[at] = amax;
    sync_cube();
    let mut above = 0u32.runtime();
    if comptime!(job.format.first_sub_block().is_some()) {
        let joined = comptime!(job.format.first_sub_block().unwrap() / EACH);
        for i in 0..joined {
            above = max(above, maxima[at / joined * joined + i]);
        }
    }
    for i in 0..units {
        amax = max(amax, maxima[at / units * units + i]);
    }

    let words = if comptime!(layout.whole) {
        words_at(stream, spot.start + spot.first, job)
    } else {
        Array::<u32>::new(EACH)
    };
    let mut own = Own {
        spot,
        elements,
        words,
        amax,
        above,
    };
    if comptime!(has_tame_blocks) {
        let scale_above = tame::scale_above(known, job.format);
        if may_be_tame && tame::is_tame(amax, scale_above, job.format) {
            write_tame::<O>(output, &own, scale_above, stream, layout, job);
        } else {
            into_block(&mut own.elements, job);
            write::<O>(output, &own, known, stream, layout, job);
        }
    } else {
        write::<O>(output, &own, known, stream, layout, job);
    }
}

/// Rounds elements as they go into their block.
#[cube]
fn into_block(elements: &mut Array<u32>, #[comptime] job: Job) {
    #[unroll]
    for i in 0..EACH {
        elements[i] = element(elements[i], job);
    }
}

/// The largest counted magnitude of the elements as they are in memory, of which `raw` is the largest magnitude.
#[cube]
fn largest_as_read(
    raw: u32,
    may_be_tame: bool,
    elements: &Array<u32>,
    #[comptime] job: Job,
) -> u32 {
    let mut amax = element(raw, job);
    if !may_be_tame {
        amax = 0u32;
        #[unroll]
        for i in 0..EACH {
            let x = element(elements[i], job);
            amax = max(amax, rules::counted(x & ABS, job.format));
        }
    }
    amax
}

/// The largest counted magnitude of some elements of a block.
#[cube]
fn largest(
    elements: &Array<u32>,
    #[comptime] first: usize,
    #[comptime] length: usize,
    #[comptime] job: Job,
) -> u32 {
    let mut amax = 0u32.runtime();
    #[unroll]
    for i in 0..length {
        let x = elements[comptime!(first + i)];
        amax = max(amax, rules::counted(x & ABS, job.format));
    }
    amax
}

/// Elements of a unit that share a grid.
fn sub_length(layout: BlockLayout, job: Job) -> usize {
    match job.format.has_sub_blocks(layout.block) {
        true => layout.sub_block,
        false => EACH,
    }
}

/// The magnitude that a sub-block's grid follows from, of elements as they are in their block, or in a tame block in memory.
#[cube]
fn largest_of_sub_block(
    own: &Own,
    #[comptime] first: usize,
    #[comptime] is_tame: bool,
    #[comptime] layout: BlockLayout,
    #[comptime] job: Job,
) -> u32 {
    let length = comptime!(sub_length(layout, job));
    let mut amax = own.amax;
    if comptime!(job.format.has_sub_blocks(layout.block)) {
        if comptime!(is_tame) {
            amax = 0u32;
            #[unroll]
            for i in 0..length {
                amax = max(amax, own.elements[comptime!(first + i)] & ABS);
            }
            amax = element(amax, job);
        } else {
            amax = largest(&own.elements, first, length, job);
        }
    }
    if comptime!(job.format.first_sub_block().is_some()) {
        amax = rules::both_levels(own.above, amax);
    }
    amax
}

/// Rounds the elements of any block.
#[cube]
fn write<O: Int>(
    output: &mut Tensor<O>,
    own: &Own,
    known: &Known,
    stream: &Stream,
    #[comptime] layout: BlockLayout,
    #[comptime] job: Job,
) {
    let length = comptime!(sub_length(layout, job));
    #[unroll]
    for sub in 0..comptime!(EACH / length) {
        let first = comptime!(sub * length);
        let sub_amax = largest_of_sub_block(own, first, false, layout, job);
        let grid = rules::grid(own.amax, sub_amax, known, job.format);
        let scale = scale_of_results(grid, own.amax, sub_amax, known, job);
        #[unroll]
        for i in 0..length {
            let index = comptime!(first + i);
            let at = own.spot.first + index * own.spot.step;
            if at < own.spot.length {
                let word = word(own, at, index, stream, layout, job);
                let value = rounded(own.elements[index], grid, scale, word, known, job);
                output[own.spot.to + at * own.spot.step_of_output] = launch::upper_bits::<O>(value);
            }
        }
    }
}

/// Rounds the elements of a tame block, as they are in memory.
#[cube]
fn write_tame<O: Int>(
    output: &mut Tensor<O>,
    own: &Own,
    scale_above: u32,
    stream: &Stream,
    #[comptime] layout: BlockLayout,
    #[comptime] job: Job,
) {
    let length = comptime!(sub_length(layout, job));
    #[unroll]
    for sub in 0..comptime!(EACH / length) {
        let first = comptime!(sub * length);
        let sub_amax = largest_of_sub_block(own, first, true, layout, job);
        let factors = tame::factors(own.amax, sub_amax, scale_above, job);
        #[unroll]
        for i in 0..length {
            let index = comptime!(first + i);
            let at = own.spot.first + index * own.spot.step;
            if at < own.spot.length {
                let word = word(own, at, index, stream, layout, job);
                let value = tame::round(own.elements[index], factors, word, job);
                output[own.spot.to + at * own.spot.step_of_output] = launch::upper_bits::<O>(value);
            }
        }
    }
}

/// The random word of an element at a place in its block.
#[cube]
fn word(
    own: &Own,
    at: usize,
    #[comptime] index: usize,
    stream: &Stream,
    #[comptime] layout: BlockLayout,
    #[comptime] job: Job,
) -> u32 {
    if comptime!(layout.whole) {
        own.words[index]
    } else {
        word_at(stream, own.spot.start + at * own.spot.step_of_position, job)
    }
}
