//! The look at a part: contiguous blocks are seen one after another, interleaved blocks side by side, with a lane for
//! each block.

mod interleaved;
mod neighbours;

use super::lanes::{PART_LANES, add_to, fold, product};
use super::partial::Partial;
use super::scales::Scales;
use crate::quantize::largest::magnitude_max;
use crate::quantize::layout::{Layout, Pool};
use crate::round::bits::{ABS, INFINITY};
use alloc::vec::Vec;
use interleaved::{Interleaved, each_column};
use microscaling_processor::instruction_set::Kernel;
use neighbours::Neighbours;

/// Interleaved blocks that are seen side by side, and how many of them if there are fewer.
pub(super) const WIDE: usize = 16;

/// The tensor before and after.
pub(super) type Views<'a> = [&'a [f32]; 2];

/// The tensor before and after, and before as its scales follow from it.
type Seen<'a> = [&'a [f32]; 3];
const NARROW: usize = 4;

/// The work on a part, which is of whole blocks, without gaps.
pub(super) struct Look<'a> {
    pub(super) views: Views<'a>,
    pub(super) layout: Layout,
    /// Position on the axis.
    pub(super) at: usize,
    pub(super) scales: Option<&'a Scales>,
    pub(super) partial: &'a mut Partial,
}

/// Elements that are gone over several times while they are near the processor.
const TILE: usize = 1 << 10;

impl Kernel for Look<'_> {
    #[inline(always)]
    fn run(self) {
        let [x, q] = self.views;
        if self.partial.elementwise(x, q) {
            return self.look_at_blocks([x, q, x]);
        }
        // Rare, and so written to be short: NaN counts as zero.
        let mut numbers = [x, q, x].map(<[f32]>::to_vec);
        let [x, q, of_scale] = &mut numbers;
        for ((x, q), of_scale) in x.iter_mut().zip(q).zip(of_scale) {
            if !(x.is_finite() && q.is_finite()) {
                self.partial.non_finite += 1;
                self.partial.overflow += u64::from(x.is_finite() && q.is_infinite());
                *of_scale = if x.is_finite() { *x } else { 0.0 };
                [*x, *q] = [0.0; 2];
            }
        }
        let seen = numbers.each_ref().map(Vec::as_slice);
        self.partial.elementwise(seen[0], seen[1]);
        self.look_at_blocks(seen);
    }
}

impl Partial {
    /// Adds the figures that need no blocks, in loops simple enough to be vectorized. Returns `false`, and adds
    /// nothing, if a number is not finite.
    #[inline(always)]
    fn elementwise(&mut self, x: &[f32], q: &[f32]) -> bool {
        let [mut amax, mut quantized_amax, mut zeros, mut underflow] = [0; 4];
        let mut smallest = 0_u32;
        let [mut products, mut squares] = [[0.0; PART_LANES]; 2];
        for (x, q) in x.chunks(TILE).zip(q.chunks(TILE)) {
            amax = amax.max(magnitude_max(x));
            quantized_amax = quantized_amax.max(magnitude_max(q));
            // Less 1, so that zero is the largest.
            smallest = smallest
                .wrapping_sub(1)
                .min(smallest_less_1(x))
                .wrapping_add(1);
            zeros += count_zeros(x);
            underflow += lost(x, q);
            add_to(&mut products, x, q, product);
            add_to(&mut squares, q, q, product);
        }
        if amax.max(quantized_amax) >= INFINITY {
            return false;
        }
        self.amax = amax;
        self.smallest = smallest;
        self.nonzero = x.len() as u64 - u64::from(zeros);
        self.underflow = u64::from(underflow);
        self.product = fold(products);
        self.quantized_power = fold(squares);
        true
    }
}

impl Look<'_> {
    /// Looks at the blocks of a part of finite numbers.
    #[inline(always)]
    fn look_at_blocks(self, seen: Seen<'_>) {
        let Self { layout, scales, .. } = self;
        let inner = layout.inner;
        if inner == 1 {
            let mut neighbours = Neighbours::default();
            // Where no block is shorter than others, the ends of axes are none to be seen.
            let line = match layout.axis.is_multiple_of(layout.block) {
                true => usize::MAX,
                false => layout.axis,
            };
            self.each_run(
                seen,
                line,
                #[inline(always)]
                |partial, views, _| {
                    neighbours.look(partial, views, layout.block, scales);
                },
            );
        } else if let Some(pool) = layout.pool {
            let mut neighbours = Neighbours::default();
            self.each_run(
                seen,
                layout.block,
                #[inline(always)]
                |partial, views, _| {
                    each_pooled(
                        views,
                        inner,
                        pool,
                        #[inline(always)]
                        |views| neighbours.look(partial, views, views[0].len(), scales),
                    );
                },
            );
        } else {
            self.each_run(
                seen,
                layout.block,
                #[inline(always)]
                |partial, views, rows| {
                    each_column(
                        views,
                        inner,
                        #[inline(always)]
                        |views, left| {
                            let blocks = Interleaved { views, rows, inner };
                            match left {
                                WIDE.. => blocks.look::<WIDE>(partial, scales),
                                NARROW.. => blocks.look::<NARROW>(partial, scales),
                                _ => blocks.look::<1>(partial, scales),
                            }
                        },
                    );
                },
            );
        }
    }

    /// Calls `look` with each run of at most this number of rows, and its number of rows.
    #[inline(always)]
    fn each_run<'b>(
        self,
        seen: Seen<'b>,
        most: usize,
        mut look: impl FnMut(&mut Partial, Seen<'b>, usize),
    ) {
        let Layout { axis, inner, .. } = self.layout;
        let (mut at, mut start) = (self.at, 0);
        let end = seen[0].len();
        while start < end {
            let rows = match most {
                usize::MAX => (end - start) / inner,
                most => most.min(axis - at),
            };
            let run = start..end.min(start + rows * inner);
            start = run.end;
            look(self.partial, seen.map(|view| &view[run.clone()]), rows);
            at = if at + rows == axis { 0 } else { at + rows };
        }
    }
}

/// Calls `look` with each block of a run whose columns share blocks, in contiguous memory, row by row.
#[inline(always)]
fn each_pooled(views: Seen<'_>, inner: usize, pool: Pool, mut look: impl FnMut(Seen<'_>)) {
    let mut block = [const { Vec::new() }; 3];
    for start in (0..inner).step_by(pool.width()) {
        let end = inner.min(start + pool.width());
        for first in start..start + pool.stride {
            for (block, view) in block.iter_mut().zip(views) {
                block.clear();
                for row in view.chunks_exact(inner) {
                    block.extend(row[first..end].iter().step_by(pool.stride));
                }
            }
            look(block.each_ref().map(Vec::as_slice));
        }
    }
}

/// Pattern of the smallest magnitude of numbers but zero, less 1; all ones if there is none.
#[inline(always)]
fn smallest_less_1(data: &[f32]) -> u32 {
    let mut smallest = u32::MAX;
    for x in data {
        smallest = smallest.min((x.to_bits() & ABS).wrapping_sub(1));
    }
    smallest
}

/// How many numbers are zero.
#[inline(always)]
fn count_zeros(data: &[f32]) -> u32 {
    let mut count = 0_u32;
    for x in data {
        count += u32::from(x.to_bits() & ABS == 0);
    }
    count
}

/// How many numbers are not zero and became zero.
#[inline(always)]
fn lost(before: &[f32], after: &[f32]) -> u32 {
    let mut count = 0_u32;
    for (x, q) in before.iter().zip(after) {
        count += u32::from((x.to_bits() & ABS != 0) & (q.to_bits() & ABS == 0));
    }
    count
}

/// How many numbers have a magnitude beyond that with this pattern.
#[inline(always)]
fn beyond(data: &[f32], limit: u32) -> u32 {
    let mut count = 0_u32;
    for x in data {
        count += u32::from(x.to_bits() & ABS > limit);
    }
    count
}
