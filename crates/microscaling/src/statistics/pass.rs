//! The pass over the elements.
//!
//! The tensor is cut into parts, by its shape alone, and the parts are shared among threads. In a part, blocks that lie
//! in contiguous memory are seen one after another, interleaved ones side by side, a lane for each.

use super::quantizer::Quantizer;
use super::scales::{Scales, SeenScales};
use crate::quantize::instruction_set::{Kernel, dispatch};
use crate::quantize::largest::magnitude_max;
use crate::quantize::layout::{Layout, Runs};
use crate::quantize::threads::{Divide, share_all};
use crate::round::bits::{ABS, INFINITY};
use alloc::vec::Vec;
use core::array::from_fn;
use core::ops::Range;

/// The tensor before and after.
type Views<'a> = [&'a [f32]; 2];

/// Elements of a part, about.
const PART: usize = 1 << 14;
/// Interleaved blocks that are seen side by side, and how many of them if there are fewer.
const WIDE: usize = 16;
const NARROW: usize = 4;

/// What is seen of a part.
#[derive(Default)]
pub(super) struct Partial {
    pub(super) non_finite: u64,
    pub(super) blocks: u64,
    pub(super) power: f64,
    pub(super) quantized_power: f64,
    pub(super) error: f64,
    pub(super) product: f64,
    pub(super) underflow: u64,
    pub(super) saturated: u64,
    pub(super) amax: u32,
    /// 0 if there is none.
    pub(super) smallest: u32,
    /// Error over power, of each block that has power.
    pub(super) ratios: Vec<f32>,
    /// Of the same blocks.
    pub(super) scales: SeenScales,
}

/// A tensor with at least one element before and after, as it lies in memory, or made part by part.
pub(super) enum Source<'a> {
    Given(Views<'a>),
    Quantized(&'a [f32], Quantizer),
}

impl Source<'_> {
    fn original(&self) -> &[f32] {
        match self {
            Self::Given([original, ..]) => original,
            Self::Quantized(original, _) => original,
        }
    }
}

/// What is seen of a tensor, part by part.
pub(super) fn partials(
    source: &Source<'_>,
    layout: Layout,
    scales: Option<&Scales>,
) -> Vec<Partial> {
    let runs = Runs::of(layout);
    let parts = Parts::of(runs, runs.all(source.original()).len());
    let mut partials: Vec<Partial> = (0..parts.count()).map(|_| Partial::default()).collect();
    let piece = Piece {
        partials: &mut partials,
        first: 0,
    };
    share_all(piece, &|Piece { partials, first }| {
        let mut scratch = [const { Vec::new() }; 2];
        for (i, partial) in partials.iter_mut().enumerate() {
            let part = parts.part(first + i);
            let (views, layout, at) = part_of(source, runs, part, &mut scratch);
            dispatch(Look {
                views,
                layout,
                at,
                scales,
                partial,
            });
        }
    });
    partials
}

/// A part of the tensor without gaps, its layout, and its position on the axis.
fn part_of<'a>(
    source: &Source<'a>,
    runs: Runs,
    [range, columns]: [Range<usize>; 2],
    scratch: &'a mut [Vec<f32>; 2],
) -> (Views<'a>, Layout, usize) {
    let Layout { axis, inner, block } = runs.layout;
    let last = range.end - 1;
    let rows = block.min(axis - runs.at(last));
    let place = runs.start(range.start)..runs.start(last) + rows * inner;
    let is_whole = columns.len() == inner;
    let (layout, at) = match is_whole {
        true => (runs.layout, runs.at(range.start)),
        false => (
            Layout {
                axis: rows,
                inner: columns.len(),
                block: rows,
            },
            0,
        ),
    };
    let gather = |view: &[f32], to: &mut Vec<f32>| {
        to.clear();
        let view = &view[place.clone()];
        match is_whole {
            true => to.extend_from_slice(view),
            false => view
                .chunks_exact(inner)
                .for_each(|row| to.extend_from_slice(&row[columns.clone()])),
        }
    };
    let views = match source {
        Source::Given(views) if is_whole => views.map(|view| &view[place.clone()]),
        Source::Given(views) => {
            let gathered = views.iter().zip(scratch.iter_mut());
            gathered.for_each(|(view, to)| gather(view, to));
            scratch.each_ref().map(Vec::as_slice)
        }
        Source::Quantized(tensor, quantizer) => {
            let [original, quantized] = scratch;
            gather(tensor, original);
            quantizer.round(original);
            quantized.clear();
            quantized.extend_from_slice(original);
            quantizer.quantize(quantized, layout, at);
            [original.as_slice(), quantized.as_slice()]
        }
    };
    (views, layout, at)
}

/// How the runs of a tensor are cut: several together, or one into ranges of columns.
#[derive(Clone, Copy)]
struct Parts {
    runs: usize,
    inner: usize,
    runs_together: usize,
    columns: usize,
}

impl Parts {
    fn of(runs: Runs, count: usize) -> Self {
        let Layout { inner, block, .. } = runs.layout;
        let together = PART / (block * inner).max(1);
        Self {
            runs: count,
            inner,
            runs_together: together.max(1),
            columns: match together {
                0 => (PART / block).next_multiple_of(WIDE).max(WIDE).min(inner),
                _ => inner,
            },
        }
    }

    /// Parts of the columns of a run.
    fn of_a_run(&self) -> usize {
        self.inner.div_ceil(self.columns)
    }

    fn count(&self) -> usize {
        self.runs.div_ceil(self.runs_together) * self.of_a_run()
    }

    /// The runs and the columns of a part.
    fn part(&self, index: usize) -> [Range<usize>; 2] {
        let range = |index: usize, step: usize, end: usize| {
            let start = index * step;
            start..(start + step).min(end)
        };
        [
            range(index / self.of_a_run(), self.runs_together, self.runs),
            range(index % self.of_a_run(), self.columns, self.inner),
        ]
    }
}

/// Some of the parts.
struct Piece<'a> {
    partials: &'a mut [Partial],
    first: usize,
}

impl Divide for Piece<'_> {
    /// As many as take as long to be quantized.
    fn elements(&self) -> usize {
        self.partials.len() * PART * 4
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let Self { partials, first } = self;
        let middle = partials.len() / 2;
        if middle == 0 {
            return Err(Self { partials, first });
        }
        let (low, high) = partials.split_at_mut(middle);
        let halves = [(low, first), (high, first + middle)];
        Ok(halves.map(|(partials, first)| Self { partials, first }))
    }
}

/// The work on a part, which is of whole blocks, without gaps.
struct Look<'a> {
    views: Views<'a>,
    layout: Layout,
    /// Position on the axis.
    at: usize,
    scales: Option<&'a Scales>,
    partial: &'a mut Partial,
}

impl Kernel for Look<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { layout, scales, .. } = self;
        let [x, q] = self.views;
        let [amax, after] = [magnitude_max(x), magnitude_max(q)];
        if amax.max(after) < INFINITY {
            // What needs no block, in loops so simple that they are vectorized.
            let partial = &mut *self.partial;
            partial.amax = amax;
            partial.smallest = smallest(x);
            partial.underflow = lost(x, q);
            partial.product = sum_of(x, q, product);
            partial.quantized_power = sum_of(q, q, product);
            self.each_run(
                #[inline(always)]
                |partial, views, rows| {
                    let inner = layout.inner;
                    if inner == 1 {
                        return contiguous(partial, views, scales);
                    }
                    each_column(
                        views,
                        inner,
                        #[inline(always)]
                        |views, left| {
                            let blocks = Interleaved { views, rows, inner };
                            match left {
                                WIDE.. => blocks.look_at_numbers::<WIDE>(partial, scales),
                                NARROW.. => blocks.look_at_numbers::<NARROW>(partial, scales),
                                _ => blocks.look_at_numbers::<1>(partial, scales),
                            }
                        },
                    );
                },
            );
            return;
        }
        let mut wide = Lanes::<WIDE>::new();
        let mut narrow = Lanes::<NARROW>::new();
        let mut single = Lanes::<1>::new();
        // Rare, and so not written to be fast.
        let partial = self.each_run(|partial, views, rows| {
            let inner = layout.inner;
            each_column(views, inner, |views, left| {
                let blocks = Interleaved { views, rows, inner };
                match left {
                    WIDE.. => blocks.look(&mut wide, partial, scales),
                    NARROW.. => blocks.look(&mut narrow, partial, scales),
                    _ => blocks.look(&mut single, partial, scales),
                }
            });
        });
        wide.add_to(partial);
        narrow.add_to(partial);
        single.add_to(partial);
    }
}

impl<'a> Look<'a> {
    /// Calls `look` with each run, and its number of rows.
    #[inline(always)]
    fn each_run(self, mut look: impl FnMut(&mut Partial, Views<'a>, usize)) -> &'a mut Partial {
        let Layout { axis, inner, block } = self.layout;
        let (mut at, mut start) = (self.at, 0);
        while start < self.views[0].len() {
            let rows = block.min(axis - at);
            let end = start + rows * inner;
            let views = self.views.map(|view| &view[start..end]);
            look(self.partial, views, rows);
            start = end;
            at = if at + rows == axis { 0 } else { at + rows };
        }
        self.partial
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

/// One block of numbers in contiguous memory: what needs the block.
#[inline(always)]
fn contiguous(partial: &mut Partial, [x, q]: Views<'_>, scales: Option<&Scales>) {
    let amax = magnitude_max(x);
    if let Some(scales) = scales {
        let sub_block = scales.sub_block().min(x.len());
        for piece in x.chunks(sub_block) {
            let sub_amax = match sub_block < x.len() {
                true => magnitude_max(piece),
                false => amax,
            };
            partial.saturated += beyond(piece, scales.limit(amax, sub_amax));
        }
    }
    let power = sum_of(x, x, product);
    let error = sum_of(x, q, square_of_difference);
    partial.block(amax, power, error, scales);
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

#[inline(always)]
fn product(a: f64, b: f64) -> f64 {
    // Exact, of two float32.
    a * b
}

#[inline(always)]
fn square_of_difference(a: f64, b: f64) -> f64 {
    (a - b) * (a - b)
}

/// The sum of `term` of each pair, in lanes.
#[inline(always)]
fn sum_of(a: &[f32], b: &[f32], term: impl Fn(f64, f64) -> f64) -> f64 {
    const LANES: usize = 8;
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            lanes[i] += term(f64::from(a[i]), f64::from(b[i]));
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += term(f64::from(*a), f64::from(*b));
    }
    fold(lanes)
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

    /// The largest finite magnitudes of some rows of the first `W` blocks.
    #[inline(always)]
    fn maxima<const W: usize>(&self, rows: Range<usize>) -> [u32; W] {
        let mut amax = [0; W];
        for at in rows {
            let x = self.row::<W>(self.views[0], at);
            for i in 0..W {
                amax[i] = amax[i].max(finite(x[i].to_bits() & ABS));
            }
        }
        amax
    }

    /// Calls `look` with the rows of each sub-block of the first `W` blocks, and with the patterns of the magnitudes beyond
    /// which elements of them saturate. Returns the largest magnitudes of the blocks.
    #[inline(always)]
    fn each_sub_block<const W: usize>(
        &self,
        scales: Option<&Scales>,
        mut look: impl FnMut(Range<usize>, &[u32; W]),
    ) -> [u32; W] {
        let amax = self.maxima::<W>(0..self.rows);
        let sub_block = scales.map_or(usize::MAX, Scales::sub_block).min(self.rows);
        let mut at = 0;
        while at < self.rows {
            let rows = at..(at + sub_block).min(self.rows);
            let limits = match scales {
                Some(scales) => {
                    let sub_amax = match sub_block < self.rows {
                        true => self.maxima::<W>(rows.clone()),
                        false => amax,
                    };
                    from_fn(|i| scales.limit(amax[i], sub_amax[i]))
                }
                None => [INFINITY; W],
            };
            at = rows.end;
            look(rows, &limits);
        }
        amax
    }

    /// Looks at the first `W` blocks, all of numbers: at what needs the block. Returns `W`.
    #[inline(always)]
    fn look_at_numbers<const W: usize>(
        &self,
        partial: &mut Partial,
        scales: Option<&Scales>,
    ) -> usize {
        let [x, q] = self.views;
        let mut sums = Sums::<W>::new();
        let mut saturated = [0; W];
        let amax = self.each_sub_block::<W>(
            scales,
            #[inline(always)]
            |rows, limits| {
                for at in rows {
                    let (x, q) = (self.row::<W>(x, at), self.row::<W>(q, at));
                    for i in 0..W {
                        saturated[i] += u32::from(x[i].to_bits() & ABS > limits[i]);
                    }
                    for i in 0..W {
                        sums.power[i] += product(f64::from(x[i]), f64::from(x[i]));
                    }
                    for i in 0..W {
                        sums.error[i] += square_of_difference(f64::from(x[i]), f64::from(q[i]));
                    }
                }
            },
        );
        partial.saturated += saturated.iter().map(|count| u64::from(*count)).sum::<u64>();
        partial.blocks(amax, &sums, scales);
        W
    }

    /// Looks at the first `W` blocks: at all that there is to see. Returns `W`.
    #[inline(always)]
    fn look<const W: usize>(
        &self,
        lanes: &mut Lanes<W>,
        partial: &mut Partial,
        scales: Option<&Scales>,
    ) -> usize {
        let mut sums = Sums::<W>::new();
        let amax = self.each_sub_block::<W>(scales, |rows, limits| {
            for at in rows {
                let [x, q] = self.views.map(|view| self.row::<W>(view, at));
                lanes.see(&mut sums, [&x, &q], limits);
            }
        });
        partial.blocks(amax, &sums, scales);
        W
    }
}

impl Partial {
    /// Adds blocks.
    #[inline(always)]
    fn blocks<const W: usize>(&mut self, amax: [u32; W], sums: &Sums<W>, scales: Option<&Scales>) {
        for i in 0..W {
            self.block(amax[i], sums.power[i], sums.error[i], scales);
        }
    }

    /// Adds a block.
    #[inline(always)]
    fn block(&mut self, amax: u32, power: f64, error: f64, scales: Option<&Scales>) {
        self.power += power;
        self.error += error;
        let Some(scales) = scales else { return };
        self.blocks += 1;
        // A block that became NaN has none, as one of zeros.
        if power == 0.0 {
            return;
        }
        self.ratios.push((error / power) as f32);
        if amax > 0
            && let Some(scale) = scales.scale(amax)
        {
            self.scales.see(scale);
        }
    }
}

/// The sums of blocks, lane by lane.
struct Sums<const W: usize> {
    power: [f64; W],
    error: [f64; W],
}

impl<const W: usize> Sums<W> {
    #[inline(always)]
    fn new() -> Self {
        Self {
            power: [0.0; W],
            error: [0.0; W],
        }
    }
}

/// What is seen of all blocks of a part, lane by lane.
struct Lanes<const W: usize> {
    product: [f64; W],
    quantized_power: [f64; W],
    non_finite: [u32; W],
    underflow: [u32; W],
    saturated: [u32; W],
    amax: [u32; W],
    /// Of the smallest magnitude but zero, less 1, so that zero is the largest.
    smallest: [u32; W],
}

impl<const W: usize> Lanes<W> {
    #[inline(always)]
    fn new() -> Self {
        Self {
            product: [0.0; W],
            quantized_power: [0.0; W],
            non_finite: [0; W],
            underflow: [0; W],
            saturated: [0; W],
            amax: [0; W],
            smallest: [u32::MAX; W],
        }
    }

    /// Sees one element a lane; `limits` are patterns of magnitudes beyond which it saturates.
    #[inline(always)]
    fn see(&mut self, sums: &mut Sums<W>, [x, q]: [&[f32; W]; 2], limits: &[u32; W]) {
        let magnitude = |x: &[f32; W]| -> [u32; W] { from_fn(|i| x[i].to_bits() & ABS) };
        let [x_abs, q_abs] = [x, q].map(magnitude);
        // All ones where both are numbers.
        let counts: [u32; W] =
            from_fn(|i| u32::from(x_abs[i].max(q_abs[i]) < INFINITY).wrapping_neg());
        let number = |x: &[f32; W]| -> [f64; W] {
            from_fn(|i| f64::from(f32::from_bits(x[i].to_bits() & counts[i])))
        };
        let (x, q) = (number(x), number(q));
        for i in 0..W {
            sums.power[i] += product(x[i], x[i]);
            self.product[i] += product(x[i], q[i]);
            self.quantized_power[i] += product(q[i], q[i]);
        }
        for i in 0..W {
            sums.error[i] += square_of_difference(x[i], q[i]);
        }
        for i in 0..W {
            self.non_finite[i] += u32::from(counts[i] == 0);
        }
        for i in 0..W {
            let lost = (x_abs[i] != 0) & (q_abs[i] == 0);
            self.underflow[i] += u32::from(lost) & counts[i];
        }
        for i in 0..W {
            self.saturated[i] += u32::from(x_abs[i] > limits[i]) & counts[i];
        }
        for i in 0..W {
            let counted = x_abs[i] & counts[i];
            self.amax[i] = self.amax[i].max(counted);
            self.smallest[i] = self.smallest[i].min(counted.wrapping_sub(1));
        }
    }

    #[inline(always)]
    fn add_to(&self, partial: &mut Partial) {
        let count = |lanes: &[u32; W]| lanes.iter().map(|lane| u64::from(*lane)).sum::<u64>();
        partial.product += fold(self.product);
        partial.quantized_power += fold(self.quantized_power);
        partial.non_finite += count(&self.non_finite);
        partial.underflow += count(&self.underflow);
        partial.saturated += count(&self.saturated);
        for (&amax, smallest) in self.amax.iter().zip(self.smallest) {
            partial.amax = partial.amax.max(amax);
            let smallest = smallest.wrapping_add(1);
            if smallest != 0 && (partial.smallest == 0 || smallest < partial.smallest) {
                partial.smallest = smallest;
            }
        }
    }
}

/// The sum of lanes, by halves.
#[inline(always)]
fn fold<const W: usize>(mut lanes: [f64; W]) -> f64 {
    let mut width = W;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    lanes[0]
}

/// The pattern of a magnitude, of zero if it is no number.
#[inline(always)]
fn finite(abs: u32) -> u32 {
    if abs < INFINITY { abs } else { 0 }
}
