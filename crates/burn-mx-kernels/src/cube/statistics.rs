//! Statistics of quantization, summed up on a device: the figures of `microscaling`'s `Statistics`, with sums in float32.
//!
//! A unit a block, then a unit a part. The host reads some words for each part and two for each block, and adds the parts in
//! float64. About 2^14 terms are added one after the other, the elements of a part. So a float32 sum is within 2^-10 of the sum
//! of the terms' magnitudes.
//!
//! Squares of float32 may be beyond float32's range. So sums are in units of 4^n, where 2^n is the binade of the largest
//! magnitude of the block or part. Elements and errors below 2^(n - 63) count as 0.

pub(super) mod blocks;
mod parts;

use burn_backend::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use microscaling::{BlockFormat, StatisticsParts};

use super::launch;
use super::numbers::bits::{self, ABS, INFINITY, SIGN};
use super::numbers::float::{computed_by, number};
use super::quantize::known::{Known, KnownWords};
use super::quantize::rules::{self, Format};
use super::quantize::two_pass_scale;
use crate::statistics::{
    AMAX, BLOCK_WORDS, ERROR, NO_RATIO, NON_FINITE, NONZERO, OVERFLOW, PART_WORDS, POWER, PRODUCT,
    QUANTIZED_POWER, RATIO, SATURATED, SCALE, SMALLEST, UNDERFLOW, UNIT,
};
use blocks::{Block, Blocks, MOST_TURNS, block, largest_length, position};
pub(super) use parts::parts_kernel;

/// Where the parts and blocks lie, as [`StatisticsParts`] says.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct Places {
    blocks: Blocks,
    runs: usize,
    runs_together: usize,
    part_columns: usize,
    parts_of_a_run: usize,
}

impl Places {
    fn argument<R: CubeRuntime>(parts: &StatisticsParts) -> PlacesLaunch<R> {
        PlacesLaunch::new(
            Blocks::argument(parts),
            parts.runs(),
            parts.runs_together(),
            parts.columns(),
            parts.parts_of_a_run(),
        )
    }
}

/// Whether a unit's loops are short enough.
pub(super) fn is_short_enough(format: Option<BlockFormat>, parts: &StatisticsParts) -> bool {
    let [columns, stride] = parts.columns_of_blocks().unwrap_or([1, 1]);
    let blocks_of_a_part = parts.runs_together() * (parts.columns() / columns).max(stride);
    format.is_none_or(|format| two_pass_scale::is_short_enough(&format))
        && largest_length(parts).max(blocks_of_a_part) <= MOST_TURNS
}

/// The words of a tensor with elements before and after quantization.
pub(super) fn words<R: CubeRuntime>(
    [before, after]: [&CubeTensor<R>; 2],
    format: Option<BlockFormat>,
    parts: &StatisticsParts,
) -> CubeTensor<R> {
    let format = format.map(|format| Format::of(format).on(&before.client));
    let known = match format {
        Some(format) => KnownWords::of(before, format, None),
        None => KnownWords::nothing(),
    };
    let [before, after] = [before, after].map(launch::dense);
    let client = before.client.clone();
    let empty = |words: usize| {
        let device = before.device.clone();
        empty_device_contiguous_dtype(client.clone(), device, Shape::new([words]), DType::I32)
    };
    let (blocks, count) = (parts.blocks(), parts.count());
    let figures = empty(blocks * PART_WORDS);
    let words = empty(count * PART_WORDS + blocks * BLOCK_WORDS);
    let address_type = launch::address_type([&before, &after, &figures, &words]);

    // SAFETY: reads lie inside of the tensors, by their parts; each unit writes its own words, for which the buffers have room.
    unsafe {
        let (cubes, cube) = launch::units(&client, blocks);
        blocks_kernel::launch_unchecked(
            &client,
            cubes,
            cube,
            address_type,
            before.into_array_arg(),
            after.into_array_arg(),
            known.argument(),
            figures.clone().into_array_arg(),
            words.clone().into_array_arg(),
            Places::argument(parts),
            blocks,
            count * PART_WORDS,
            format,
        );
        let (cubes, cube) = launch::units(&client, count);
        parts_kernel::launch_unchecked(
            &client,
            cubes,
            cube,
            address_type,
            figures.into_array_arg(),
            words.clone().into_array_arg(),
            Places::argument(parts),
            count,
        );
    }
    words
}

/// More elements than a block has.
const ALL: usize = 1 << 30;

/// Elements that share a grid, if that are less than a block's.
fn sub_block_length(format: Option<Format>) -> usize {
    format.map_or(ALL, |format| format.sub_block_length(ALL))
}

/// Words of the grids among which a block chooses.
fn words_of_grids(format: Option<Format>) -> usize {
    format.map_or(1, two_pass_scale::words)
}

/// The largest magnitude of finite elements of a block.
#[cube]
fn largest_between(before: &Array<u32>, block: &Block, begin: usize, end: usize) -> u32 {
    let mut amax = 0u32.runtime();
    for i in begin..end {
        let place = position(block, i);
        let x = before[place] & ABS;
        amax = max(amax, select(x < INFINITY, x, 0));
    }
    amax
}

/// `other`, or zero if the pair is not finite.
#[cube]
fn finite(x: u32, q: u32, other: u32) -> u32 {
    let is_finite = x & ABS < INFINITY && q & ABS < INFINITY;
    select(is_finite, other, 0)
}

/// The float32 x · 2^-unit of a finite number, less than 2; 0 far below 2^-63.
#[cube]
fn in_units(x: u32, unit: i32) -> f32 {
    let (significand, own) = bits::normalized(x & ABS);
    let power = max(own - unit + 127, 0) as u32;
    number((x & SIGN) | (power << 23)) * significand as f32
}

/// One unit a block, which writes the words of a part for its block.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn blocks_kernel(
    before: &Array<u32>,
    after: &Array<u32>,
    known: &Known,
    figures: &mut Array<u32>,
    words: &mut Array<u32>,
    places: &Places,
    blocks: usize,
    first_word: usize,
    #[comptime] format: Option<Format>,
) {
    if ABSOLUTE_POS >= blocks {
        terminate!();
    }
    if comptime!(format.is_some()) {
        computed_by(comptime!(format.unwrap().float32));
    }
    let block = block(&places.blocks, ABSOLUTE_POS);
    let length = block.length;

    let mut amax = 0u32.runtime();
    let mut largest = 0u32.runtime();
    // The scale follows from the elements that are finite before.
    let mut of_scale = 0u32.runtime();
    let mut non_finite = 0u32.runtime();
    let mut overflow = 0u32.runtime();
    let mut nonzero = 0u32.runtime();
    let mut underflow = 0u32.runtime();
    // Less 1, so that zero is the largest.
    let mut smallest = u32::MAX.runtime();
    for i in 0..length {
        let place = position(&block, i);
        let x = before[place];
        let q = after[place];
        let abs = finite(x, q, x & ABS);
        amax = max(amax, abs);
        largest = max(largest, max(abs, finite(x, q, q & ABS)));
        smallest = min(smallest, abs - 1);
        nonzero += select(abs != 0, 1, 0);
        underflow += select(abs != 0 && q & ABS == 0, 1, 0);
        let before_is_finite = x & ABS < INFINITY;
        of_scale = max(of_scale, select(before_is_finite, x & ABS, 0));
        non_finite += select(before_is_finite && q & ABS < INFINITY, 0, 1);
        overflow += select(before_is_finite && q & ABS == INFINITY, 1, 0);
    }

    let mut grids = Array::<u32>::new(comptime!(words_of_grids(format)));
    let mut choice = of_scale;
    if comptime!(format.is_some()) {
        let format = comptime!(format.unwrap());
        if comptime!(format.looks_twice()) {
            two_pass_scale::write_grids(&mut grids, of_scale, known, format);
            let mut sums = two_pass_scale::none(format);
            for i in 0..length {
                let place = position(&block, i);
                let x = before[place];
                let x = select(x & ABS < INFINITY, x, 0);
                two_pass_scale::add(&mut sums, x, of_scale, &grids, known, format);
            }
            choice = two_pass_scale::choice(&sums, &grids, of_scale, length as u32, format);
        }
    }
    let sub_block = min(comptime!(sub_block_length(format)).runtime(), length);

    let unit = bits::exponent(largest);
    let mut power = 0.0f32.runtime();
    let mut quantized_power = 0.0f32.runtime();
    let mut error = 0.0f32.runtime();
    let mut product = 0.0f32.runtime();
    let mut saturated = 0u32.runtime();
    let mut above = 0u32.runtime();
    for sub in 0..length.div_ceil(sub_block) {
        let begin = sub * sub_block;
        let end = min(begin + sub_block, length);
        let mut limit = INFINITY.runtime();
        if comptime!(format.is_some()) {
            let format = comptime!(format.unwrap());
            let mut sub_amax = choice;
            if comptime!(format.has_sub_blocks(ALL)) {
                sub_amax = largest_between(before, &block, begin, end);
            }
            if comptime!(format.first_sub_block().is_some()) {
                let all = comptime!(format.first_sub_block().unwrap());
                let within = begin % all;
                if within == 0 {
                    let end = min(begin + all, length);
                    above = largest_between(before, &block, begin, end);
                }
                sub_amax = rules::both_levels(above, sub_amax);
            }
            let grid = two_pass_scale::grid(&grids, of_scale, sub_amax, known, format);
            let positive = rules::largest(0u32.runtime(), grid, known, format);
            let negative = rules::largest(SIGN.runtime(), grid, known, format);
            let largest = min(max(positive, negative), INFINITY);
            limit = select(largest == 0, INFINITY, largest);
        }
        for i in begin..end {
            let place = position(&block, i);
            let x_word = before[place];
            let q_word = after[place];
            let x_word = finite(x_word, q_word, x_word);
            saturated += select(x_word & ABS > limit, 1, 0);
            let x = in_units(x_word, unit);
            let q = in_units(finite(x_word, q_word, q_word), unit);
            power += x * x;
            quantized_power += q * q;
            error += (x - q) * (x - q);
            product += x * q;
        }
    }

    let own = ABSOLUTE_POS * PART_WORDS;
    figures[own + POWER] = u32::reinterpret(power);
    figures[own + QUANTIZED_POWER] = u32::reinterpret(quantized_power);
    figures[own + ERROR] = u32::reinterpret(error);
    figures[own + PRODUCT] = u32::reinterpret(product);
    figures[own + UNIT] = unit as u32;
    figures[own + NON_FINITE] = non_finite;
    figures[own + OVERFLOW] = overflow;
    figures[own + NONZERO] = nonzero;
    figures[own + UNDERFLOW] = underflow;
    figures[own + SATURATED] = saturated;
    figures[own + AMAX] = amax;
    figures[own + SMALLEST] = smallest + 1;

    let mut ratio = NO_RATIO.runtime();
    let mut scale = 0u32.runtime();
    if comptime!(format.is_some()) {
        let format = comptime!(format.unwrap());
        let of_block = rules::of_whole_block(choice, format);
        let grid = two_pass_scale::grid(&grids, of_scale, of_block, known, format);
        if amax != 0 {
            ratio = u32::reinterpret(error / power);
            scale = rules::scale(of_scale, grid, format);
        }
    }
    let own = first_word + ABSOLUTE_POS * BLOCK_WORDS;
    words[own + RATIO] = ratio;
    words[own + SCALE] = scale;
}
