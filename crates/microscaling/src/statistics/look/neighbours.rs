//! The look at contiguous blocks, one after another.

use super::{TILE, beyond};
use crate::quantize::largest::magnitude_max;
use crate::statistics::lanes::{BLOCK_LANES, product, square_of_difference, sum_of};
use crate::statistics::look::Seen;
use crate::statistics::partial::Partial;
use crate::statistics::scales::Scales;
use alloc::vec::Vec;

/// Blocks in contiguous memory, one after the other: what needs the blocks, of several at a time, as one alone is a chain of
/// operations that wait for each other.
#[derive(Default)]
pub(super) struct Neighbours {
    /// For each sub-block, the largest magnitude of its block and the choice of the second look.
    maxima: [Vec<u32>; 2],
    limits: Vec<u32>,
    pub(super) scales: Vec<u32>,
    /// Of each block.
    power: Vec<f64>,
    error: Vec<f64>,
}

impl Neighbours {
    /// Looks at blocks of numbers, all but the last one with this number of elements.
    #[inline(always)]
    pub(super) fn look(
        &mut self,
        partial: &mut Partial,
        [x, q, of_scale]: Seen<'_>,
        block: usize,
        scales: Option<&Scales>,
    ) {
        let together = (TILE / block).max(1) * block;
        let parts = x.chunks(together).zip(q.chunks(together));
        for ((x, q), of_scale) in parts.zip(of_scale.chunks(together)) {
            let blocks = x.chunks(block).zip(q.chunks(block));
            self.look_at_each(partial, blocks, of_scale.chunks(block), scales);
        }
    }

    #[inline(always)]
    fn look_at_each<'a>(
        &mut self,
        partial: &mut Partial,
        blocks: impl Iterator<Item = (&'a [f32], &'a [f32])> + Clone,
        of_scales: impl Iterator<Item = &'a [f32]>,
        scales: Option<&Scales>,
    ) {
        let Self {
            maxima,
            limits,
            scales: of_blocks,
            power,
            error,
        } = self;
        power.clear();
        error.clear();
        for (x, q) in blocks.clone() {
            power.push(sum_of::<BLOCK_LANES>(x, x, product));
            error.push(sum_of::<BLOCK_LANES>(x, q, square_of_difference));
        }
        let Some(scales) = scales else {
            return partial.blocks(power, error, None);
        };
        let [amax, refinement] = maxima;
        amax.clear();
        refinement.clear();
        let sub_block = scales.0.sub_block();
        for x in of_scales {
            let of_block = magnitude_max(x);
            if scales.0.first_sub_block().is_some() {
                let elements = x.iter().copied();
                refinement.extend(
                    (0..x.len().div_ceil(sub_block))
                        .map(|index| scales.0.refinement_of_sub_block(index, elements.clone())),
                );
            } else if sub_block < x.len() {
                sub_maxima(x, sub_block, refinement);
            } else {
                refinement.push(scales.0.refinement(of_block, x.iter().copied()));
            }
            amax.resize(refinement.len(), of_block);
        }
        limits.resize(amax.len(), 0);
        of_blocks.resize(amax.len(), 0);
        scales.limits_and_scales([amax, refinement], [limits, of_blocks]);
        let mut at = 0;
        for (i, (x, _)) in blocks.enumerate() {
            of_blocks[i] = of_blocks[at];
            if sub_block < x.len() {
                let count = x.len().div_ceil(sub_block);
                partial.saturated += beyond_each(x, sub_block, &limits[at..at + count]);
                at += count;
            } else {
                partial.saturated += u64::from(beyond(x, limits[at]));
                at += 1;
            }
        }
        partial.blocks(power, error, Some(&of_blocks[..power.len()]));
    }
}

/// Pushes the largest magnitude of each sub-block.
#[inline(always)]
fn sub_maxima(x: &[f32], sub_block: usize, to: &mut Vec<u32>) {
    if sub_block != 2 {
        for x in x.chunks(sub_block) {
            to.push(magnitude_max(x));
        }
        return;
    }
    // The one that there is.
    let (pairs, rest) = x.as_chunks::<2>();
    for pair in pairs {
        to.push(magnitude_max(pair));
    }
    if !rest.is_empty() {
        to.push(magnitude_max(rest));
    }
}

/// How many numbers have a magnitude beyond that with their sub-block's pattern.
#[inline(always)]
fn beyond_each(x: &[f32], sub_block: usize, limits: &[u32]) -> u64 {
    let mut count = 0;
    if sub_block != 2 {
        for (x, limit) in x.chunks(sub_block).zip(limits) {
            count += beyond(x, *limit);
        }
        return u64::from(count);
    }
    let (pairs, rest) = x.as_chunks::<2>();
    for (pair, limit) in pairs.iter().zip(limits) {
        count += beyond(pair, *limit);
    }
    if let Some(limit) = limits.last() {
        count += beyond(rest, *limit);
    }
    u64::from(count)
}
