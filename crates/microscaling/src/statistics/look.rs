//! The look at a part: contiguous blocks are seen one after another, interleaved ones side by side, a lane for each.

use super::lanes::{BLOCK_LANES, PART_LANES, Sums, product, square_of_difference, sum_of};
use super::partial::Partial;
use super::pass::Views;
use super::scales::Scales;
use crate::quantize::instruction_set::Kernel;
use crate::quantize::largest::magnitude_max;
use crate::quantize::layout::{Layout, Pool};
use crate::round::bits::{ABS, INFINITY};
use alloc::vec::Vec;
use core::array::from_fn;
use core::ops::Range;

/// Interleaved blocks that are seen side by side, and how many of them if there are fewer.
pub(super) const WIDE: usize = 16;
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

impl Kernel for Look<'_> {
    #[inline(always)]
    fn run(self) {
        let [x, q] = self.views;
        if magnitude_max(x).max(magnitude_max(q)) < INFINITY {
            return self.look_at_numbers();
        }
        // Rare, and so written to be short: what is no number counts as zeros.
        let mut numbers = self.views.map(<[f32]>::to_vec);
        let [x, q] = &mut numbers;
        for (x, q) in x.iter_mut().zip(q) {
            if !(x.is_finite() && q.is_finite()) {
                self.partial.non_finite += 1;
                self.partial.overflow += u64::from(x.is_finite() && q.is_infinite());
                [*x, *q] = [0.0; 2];
            }
        }
        let views = numbers.each_ref().map(Vec::as_slice);
        Look { views, ..self }.look_at_numbers();
    }
}

impl<'a> Look<'a> {
    /// Looks at a part of finite numbers.
    #[inline(always)]
    fn look_at_numbers(self) {
        let Self { layout, scales, .. } = self;
        let [x, q] = self.views;
        // What needs no block, in loops so simple that they are vectorized.
        let partial = &mut *self.partial;
        partial.amax = magnitude_max(x);
        partial.smallest = smallest(x);
        partial.underflow = lost(x, q);
        partial.product = sum_of::<PART_LANES>(x, q, product);
        partial.quantized_power = sum_of::<PART_LANES>(q, q, product);
        self.each_run(
            #[inline(always)]
            |partial, views, rows| {
                let inner = layout.inner;
                if inner == 1 {
                    return contiguous(partial, views, scales);
                }
                if let Some(pool) = layout.pool {
                    return each_pooled(
                        views,
                        inner,
                        pool,
                        #[inline(always)]
                        |views| contiguous(partial, views, scales),
                    );
                }
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

    /// Calls `look` with each run, and its number of rows.
    #[inline(always)]
    fn each_run(self, mut look: impl FnMut(&mut Partial, Views<'a>, usize)) {
        let Layout {
            axis, inner, block, ..
        } = self.layout;
        let (mut at, mut start) = (self.at, 0);
        while start < self.views[0].len() {
            let rows = block.min(axis - at);
            let end = start + rows * inner;
            let views = self.views.map(|view| &view[start..end]);
            look(self.partial, views, rows);
            start = end;
            at = if at + rows == axis { 0 } else { at + rows };
        }
    }
}

/// Calls `look` with the columns from some on, and how many are left, until there are none; it returns how many it looked
/// at.
#[inline(always)]
fn each_column<'a>(
    views: Views<'a>,
    columns: usize,
    mut look: impl FnMut(Views<'a>, usize) -> usize,
) {
    let mut column = 0;
    while column < columns {
        column += look(views.map(|view| &view[column..]), columns - column);
    }
}

/// Calls `look` with each block of a run whose columns share blocks, in contiguous memory, row by row.
#[inline(always)]
fn each_pooled(views: Views<'_>, inner: usize, pool: Pool, mut look: impl FnMut(Views<'_>)) {
    let mut block = [const { Vec::new() }; 2];
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

/// One block of numbers in contiguous memory: what needs the block.
#[inline(always)]
fn contiguous(partial: &mut Partial, [x, q]: Views<'_>, scales: Option<&Scales>) {
    let amax = magnitude_max(x);
    let second = scales.map_or(amax, |scales| scales.second(amax, x.iter().copied()));
    if let Some(scales) = scales {
        let sub_block = scales.sub_block().min(x.len());
        for piece in x.chunks(sub_block) {
            let sub_amax = match sub_block < x.len() {
                true => magnitude_max(piece),
                false => second,
            };
            partial.saturated += beyond(piece, scales.limit(amax, sub_amax));
        }
    }
    let power = sum_of::<BLOCK_LANES>(x, x, product);
    let error = sum_of::<BLOCK_LANES>(x, q, square_of_difference);
    partial.block([amax, second], power, error, scales);
}

/// Pattern of the smallest magnitude of numbers but zero; 0 if there is none.
#[inline(always)]
fn smallest(data: &[f32]) -> u32 {
    let mut smallest = u32::MAX;
    for x in data {
        // Less 1, so that zero is the largest.
        smallest = smallest.min((x.to_bits() & ABS).wrapping_sub(1));
    }
    smallest.wrapping_add(1)
}

/// How many numbers are not zero and became zero.
#[inline(always)]
fn lost(before: &[f32], after: &[f32]) -> u64 {
    let mut count = 0_u32;
    for (x, q) in before.iter().zip(after) {
        count += u32::from((x.to_bits() & ABS != 0) & (q.to_bits() & ABS == 0));
    }
    u64::from(count)
}

/// How many numbers have a magnitude beyond that with this pattern.
#[inline(always)]
fn beyond(data: &[f32], limit: u32) -> u64 {
    let mut count = 0_u32;
    for x in data {
        count += u32::from(x.to_bits() & ABS > limit);
    }
    u64::from(count)
}

/// Blocks that lie side by side: `rows` rows, `inner` elements apart.
struct Interleaved<'a> {
    views: Views<'a>,
    rows: usize,
    inner: usize,
}

impl Interleaved<'_> {
    /// A row of the first `W` blocks.
    #[inline(always)]
    fn row<const W: usize>(&self, view: &[f32], row: usize) -> [f32; W] {
        let start = row * self.inner;
        *view[start..start + W].first_chunk().expect("it is as long")
    }

    /// The elements of a block before.
    #[inline(always)]
    fn column(&self, index: usize) -> impl Iterator<Item = f32> {
        let column = self.views[0][index..].iter().step_by(self.inner);
        column.take(self.rows).copied()
    }

    /// The largest magnitudes of some rows of the first `W` blocks.
    #[inline(always)]
    fn maxima<const W: usize>(&self, rows: Range<usize>) -> [u32; W] {
        let mut amax = [0; W];
        for at in rows {
            let x = self.row::<W>(self.views[0], at);
            for (amax, x) in amax.iter_mut().zip(x) {
                *amax = (*amax).max(x.to_bits() & ABS);
            }
        }
        amax
    }

    /// Calls `look` with the rows of each sub-block of the first `W` blocks, and with the patterns of the magnitudes beyond
    /// which elements of them saturate. Returns the largest magnitudes of the blocks, and what their elements
    /// [say](Scales::second).
    #[inline(always)]
    fn each_sub_block<const W: usize>(
        &self,
        scales: Option<&Scales>,
        mut look: impl FnMut(Range<usize>, &[u32; W]),
    ) -> [[u32; W]; 2] {
        let amax = self.maxima::<W>(0..self.rows);
        let second = match scales {
            Some(scales) => from_fn(
                #[inline(always)]
                |i| scales.second(amax[i], self.column(i)),
            ),
            None => amax,
        };
        let sub_block = scales.map_or(usize::MAX, Scales::sub_block).min(self.rows);
        let mut at = 0;
        while at < self.rows {
            let rows = at..(at + sub_block).min(self.rows);
            let limits = match scales {
                Some(scales) => {
                    let sub_amax = match sub_block < self.rows {
                        true => self.maxima::<W>(rows.clone()),
                        false => second,
                    };
                    from_fn(|i| scales.limit(amax[i], sub_amax[i]))
                }
                None => [INFINITY; W],
            };
            at = rows.end;
            look(rows, &limits);
        }
        [amax, second]
    }

    /// Looks at the first `W` blocks: at what needs the block. Returns `W`.
    #[inline(always)]
    fn look<const W: usize>(&self, partial: &mut Partial, scales: Option<&Scales>) -> usize {
        let [x, q] = self.views;
        let mut sums = Sums::<W>::new();
        let mut saturated = [0; W];
        let maxima = self.each_sub_block::<W>(
            scales,
            #[inline(always)]
            |rows, limits| {
                for at in rows {
                    let (x, q) = (self.row::<W>(x, at), self.row::<W>(q, at));
                    for (i, limit) in limits.iter().enumerate() {
                        saturated[i] += u32::from(x[i].to_bits() & ABS > *limit);
                    }
                    for (power, x) in sums.power.iter_mut().zip(x) {
                        *power += product(f64::from(x), f64::from(x));
                    }
                    for (i, error) in sums.error.iter_mut().enumerate() {
                        *error += square_of_difference(f64::from(x[i]), f64::from(q[i]));
                    }
                }
            },
        );
        partial.saturated += saturated.iter().map(|count| u64::from(*count)).sum::<u64>();
        partial.blocks(maxima, &sums, scales);
        W
    }
}
