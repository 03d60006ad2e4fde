//! The look at a part: contiguous blocks are seen one after another, interleaved blocks side by side, with a lane for
//! each block.

use super::lanes::{
    BLOCK_LANES, PART_LANES, VECTOR, add_to, fold, product, square_of_difference, sum_of, vector,
};
use super::partial::Partial;
use super::pass::Views;
use super::scales::Scales;
use crate::quantize::instruction_set::Kernel;
use crate::quantize::largest::magnitude_max;
use crate::quantize::layout::{Layout, Pool};
use crate::round::bits::{ABS, INFINITY};
use alloc::vec::Vec;
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

/// Elements that are gone over several times while they are near the processor.
const TILE: usize = 1 << 10;

impl Kernel for Look<'_> {
    #[inline(always)]
    fn run(self) {
        let [x, q] = self.views;
        if self.partial.elementwise(x, q) {
            return self.look_at_blocks();
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
        self.partial.elementwise(views[0], views[1]);
        Look { views, ..self }.look_at_blocks();
    }
}

impl Partial {
    /// Adds the figures that need no blocks, in loops simple enough to be vectorized. Returns `false`, and adds
    /// nothing, if a number is not finite.
    #[inline(always)]
    fn elementwise(&mut self, x: &[f32], q: &[f32]) -> bool {
        let [mut amax, mut quantized_amax, mut underflow] = [0; 3];
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
            underflow += lost(x, q);
            add_to(&mut products, x, q, product);
            add_to(&mut squares, q, q, product);
        }
        if amax.max(quantized_amax) >= INFINITY {
            return false;
        }
        self.amax = amax;
        self.smallest = smallest;
        self.underflow = u64::from(underflow);
        self.product = fold(products);
        self.quantized_power = fold(squares);
        true
    }
}

impl<'a> Look<'a> {
    /// Looks at the blocks of a part of finite numbers.
    #[inline(always)]
    fn look_at_blocks(self) {
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
                line,
                #[inline(always)]
                |partial, views, _| {
                    neighbours.look(partial, views, layout.block, scales);
                },
            );
        } else if let Some(pool) = layout.pool {
            let mut neighbours = Neighbours::default();
            self.each_run(
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
    fn each_run(self, most: usize, mut look: impl FnMut(&mut Partial, Views<'a>, usize)) {
        let Layout { axis, inner, .. } = self.layout;
        let (mut at, mut start) = (self.at, 0);
        let end = self.views[0].len();
        while start < end {
            let rows = match most {
                usize::MAX => (end - start) / inner,
                most => most.min(axis - at),
            };
            let run = start..end.min(start + rows * inner);
            start = run.end;
            look(
                self.partial,
                self.views.map(|view| &view[run.clone()]),
                rows,
            );
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

/// Blocks in contiguous memory, one after the other: what needs the blocks, of several at a time, as one alone is a chain of
/// operations that wait for each other.
#[derive(Default)]
struct Neighbours {
    /// For each sub-block, the largest magnitude of its block and the verdict of the second look.
    maxima: [Vec<u32>; 2],
    limits: Vec<u32>,
    scales: Vec<u32>,
    /// Of each block.
    power: Vec<f64>,
    error: Vec<f64>,
}

impl Neighbours {
    /// Looks at blocks of numbers, all but the last one with this number of elements.
    #[inline(always)]
    fn look(
        &mut self,
        partial: &mut Partial,
        [x, q]: Views<'_>,
        block: usize,
        scales: Option<&Scales>,
    ) {
        let together = (TILE / block).max(1) * block;
        for (x, q) in x.chunks(together).zip(q.chunks(together)) {
            let blocks = x.chunks(block).zip(q.chunks(block));
            self.look_at_each(partial, blocks, scales);
        }
    }

    #[inline(always)]
    fn look_at_each<'a>(
        &mut self,
        partial: &mut Partial,
        blocks: impl Iterator<Item = (&'a [f32], &'a [f32])> + Clone,
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
        let [amax, second] = maxima;
        amax.clear();
        second.clear();
        let sub_block = scales.0.sub_block();
        for (x, _) in blocks.clone() {
            let of_block = magnitude_max(x);
            if scales.0.first_sub_block().is_some() {
                let elements = x.iter().copied();
                second.extend(
                    (0..x.len().div_ceil(sub_block))
                        .map(|index| scales.0.second_of_sub_block(index, elements.clone())),
                );
            } else if sub_block < x.len() {
                sub_maxima(x, sub_block, second);
            } else {
                second.push(scales.0.second(of_block, x.iter().copied()));
            }
            amax.resize(second.len(), of_block);
        }
        limits.resize(amax.len(), 0);
        of_blocks.resize(amax.len(), 0);
        scales.limits_and_scales([amax, second], [limits, of_blocks]);
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

/// Pattern of the smallest magnitude of numbers but zero, less 1; all ones if there is none.
#[inline(always)]
fn smallest_less_1(data: &[f32]) -> u32 {
    let mut smallest = u32::MAX;
    for x in data {
        smallest = smallest.min((x.to_bits() & ABS).wrapping_sub(1));
    }
    smallest
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
    fn column(&self, index: usize) -> impl Iterator<Item = f32> + Clone {
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
    /// which elements of them saturate. Returns the patterns of the blocks' scales.
    #[inline(always)]
    fn each_sub_block<const W: usize>(
        &self,
        scales: &Scales,
        mut look: impl FnMut(Range<usize>, &[u32; W]),
    ) -> [u32; W] {
        let amax = self.maxima::<W>(0..self.rows);
        let mut second = amax;
        if scales.0.looks_twice() {
            for (i, second) in second.iter_mut().enumerate() {
                *second = scales.0.second(amax[i], self.column(i));
            }
        }
        let sub_block = scales.0.sub_block().min(self.rows);
        let mut of_blocks = [0; W];
        let mut at = 0;
        while at < self.rows {
            let rows = at..(at + sub_block).min(self.rows);
            if scales.0.first_sub_block().is_some() {
                for (i, second) in second.iter_mut().enumerate() {
                    *second = scales.0.second_of_sub_block(at / sub_block, self.column(i));
                }
            } else if sub_block < self.rows {
                second = self.maxima::<W>(rows.clone());
            }
            let mut limits = [0; W];
            scales.limits_and_scales([&amax, &second], [&mut limits, &mut of_blocks]);
            at = rows.end;
            look(rows, &limits);
        }
        of_blocks
    }

    /// Looks at the first `W` blocks: at what needs the block. Returns `W`.
    #[inline(always)]
    fn look<const W: usize>(&self, partial: &mut Partial, scales: Option<&Scales>) -> usize {
        let [x, q] = self.views;
        let [mut power, mut error] = [[0.0; W]; 2];
        if W < VECTOR {
            for at in 0..self.rows {
                let (x, q) = (self.row::<W>(x, at), self.row::<W>(q, at));
                for i in 0..W {
                    let (x, q) = (f64::from(x[i]), f64::from(q[i]));
                    power[i] += product(x, x);
                    error[i] += square_of_difference(x, q);
                }
            }
        }
        // One vector of blocks after the other: of more at once the compiler makes less.
        let vectors = power.as_chunks_mut::<VECTOR>().0.iter_mut();
        let vectors = vectors.zip(error.as_chunks_mut().0);
        for (i, (power, error)) in vectors.enumerate() {
            let [mut powers, mut errors] = [[0.0; VECTOR]; 2];
            for at in 0..self.rows {
                let start = at * self.inner + i * VECTOR;
                let (x, q) = (vector(x, start), vector(q, start));
                for i in 0..VECTOR {
                    let (x, q) = (f64::from(x[i]), f64::from(q[i]));
                    powers[i] += product(x, x);
                    errors[i] += square_of_difference(x, q);
                }
            }
            (*power, *error) = (powers, errors);
        }
        let Some(scales) = scales else {
            partial.blocks(&power, &error, None);
            return W;
        };
        let mut saturated = [0; W];
        let of_blocks = self.each_sub_block::<W>(
            scales,
            #[inline(always)]
            |rows, limits| {
                for at in rows {
                    let x = self.row::<W>(x, at);
                    for (i, limit) in limits.iter().enumerate() {
                        saturated[i] += u32::from(x[i].to_bits() & ABS > *limit);
                    }
                }
            },
        );
        partial.saturated += saturated.iter().map(|count| u64::from(*count)).sum::<u64>();
        partial.blocks(&power, &error, Some(&of_blocks));
        W
    }
}
