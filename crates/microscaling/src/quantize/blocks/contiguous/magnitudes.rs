//! The largest magnitudes of short blocks, side by side.

use crate::quantize::rules::{LANES, TOGETHER};
use crate::round::bits::ABS;
use core::hint::black_box;

/// The word of a block in its lanes. If blocks of B elements leave lanes, these have the word of the next block.
#[inline(always)]
pub(crate) fn lanes<const B: usize>(of_blocks: &[u32; TOGETHER], block: usize) -> [u32; LANES] {
    // The remainders only show that the indices are less.
    let mut lanes = [of_blocks[block % TOGETHER]; LANES];
    if B < LANES {
        lanes[B..].fill(of_blocks[(block + 1) % TOGETHER]);
    }
    lanes
}

/// The largest magnitude of a block.
#[inline(always)]
pub fn largest_of_block<const B: usize>(block: &[f32; B]) -> u32 {
    // Hidden, lest blocks become lanes, with one load for each element.
    black_box(if B < LANES {
        largest::<8>(block.as_chunks().0)
    } else {
        largest::<LANES>(block.as_chunks().0)
    })
}

/// The largest magnitude of some vectors.
#[inline(always)]
fn largest<const L: usize>(vectors: &[[f32; L]]) -> u32 {
    let mut magnitudes = [0; L];
    for vector in vectors {
        for (max, x) in magnitudes.iter_mut().zip(vector) {
            *max = (*max).max(x.to_bits() & ABS);
        }
    }
    magnitudes.into_iter().fold(0, u32::max)
}

/// In each lane the largest magnitude of the S neighbours that it is one of; S is 2, 4 or 8.
#[inline(always)]
pub(super) fn across<const S: usize>(vector: &[f32; LANES]) -> [u32; LANES] {
    /// In each lane the larger number of this lane and the lane at the given distance.
    #[inline(always)]
    fn fold<const DISTANCE: usize>(x: [u32; LANES]) -> [u32; LANES] {
        let mut larger = x;
        for i in 0..LANES {
            larger[i] = x[i].max(x[i ^ DISTANCE]);
        }
        larger
    }
    let mut x = [0; LANES];
    for (magnitude, x) in x.iter_mut().zip(vector) {
        *magnitude = x.to_bits() & ABS;
    }
    x = fold::<1>(x);
    if S > 2 {
        x = fold::<2>(x);
    }
    if S > 4 {
        x = fold::<4>(x);
    }
    x
}
