//! The pass over the elements.
//!
//! The tensor is cut into parts, by its shape alone, and the parts are shared among threads. In a part, blocks that lie
//! in contiguous memory are seen one after another, interleaved ones side by side, a lane for each.

use super::scales::{Scales, SeenScales};
use crate::quantize::instruction_set::{Kernel, dispatch};
use crate::quantize::largest::magnitude_max;
use crate::quantize::layout::{Layout, Runs};
use crate::quantize::threads::{Divide, share_all};
use crate::round::bits::{ABS, INFINITY};
use alloc::vec::Vec;
use core::array::from_fn;
use core::ops::Range;

/// The tensor before, as its blocks were given it, and after.
type Views<'a> = [&'a [f32]; 3];

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

/// What is seen of a tensor with at least one element, part by part.
pub(super) fn partials(views: Views<'_>, layout: Layout, scales: Option<&Scales>) -> Vec<Partial> {
    let runs = Runs::of(layout);
    let parts = Parts::of(runs, runs.all(views[0]).len());
    let mut partials: Vec<Partial> = (0..parts.count()).map(|_| Partial::default()).collect();
    let piece = Piece {
        partials: &mut partials,
        first: 0,
    };
    share_all(piece, &|Piece { partials, first }| {
        for (i, partial) in partials.iter_mut().enumerate() {
            dispatch(Look {
                views,
                runs,
                scales,
                part: parts.part(first + i),
                partial,
            });
        }
    });
    partials
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
    fn elements(&self) -> usize {
        self.partials.len() * PART
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

/// The work on a part.
struct Look<'a> {
    views: Views<'a>,
    runs: Runs,
    scales: Option<&'a Scales>,
    part: [Range<usize>; 2],
    partial: &'a mut Partial,
}

impl Kernel for Look<'_> {
    #[inline(always)]
    fn run(self) {
        let Self {
            views,
            runs,
            scales,
            part: [range, columns],
            partial,
        } = self;
        let Layout {
            axis, inner, block, ..
        } = runs.layout;
        if inner == 1 {
            let lines = Contiguous {
                views,
                runs,
                scales,
            };
            lines.look(range, partial);
            return;
        }
        let mut wide = Lanes::<WIDE>::new();
        let mut narrow = Lanes::<NARROW>::new();
        let mut single = Lanes::<1>::new();
        for run in range {
            let rows = block.min(axis - runs.at(run));
            let start = runs.start(run);
            let mut column = columns.start;
            while column < columns.end {
                let at = start + column;
                let views = views.map(|view| &view[at..]);
                let blocks = Interleaved { views, rows, inner };
                column += match columns.end - column {
                    WIDE.. => blocks.look(&mut wide, partial, scales),
                    NARROW.. => blocks.look(&mut narrow, partial, scales),
                    _ => blocks.look(&mut single, partial, scales),
                };
            }
        }
        wide.add_to(partial);
        narrow.add_to(partial);
        single.add_to(partial);
    }
}

/// Blocks that lie in contiguous memory, one after another.
struct Contiguous<'a> {
    views: Views<'a>,
    runs: Runs,
    scales: Option<&'a Scales>,
}

impl Contiguous<'_> {
    #[inline(always)]
    fn look(&self, range: Range<usize>, partial: &mut Partial) {
        let Layout { axis, block, .. } = self.runs.layout;
        let end = |run: usize| self.runs.start(run) + block.min(axis - self.runs.at(run));
        let all = self.runs.start(range.start)..end(range.end - 1);
        let [x, z, q] = self.views.map(|view| &view[all.clone()]);
        // What needs no block, in loops so simple that they are vectorized.
        let top = [x, z, q].map(magnitude_max);
        if top.iter().any(|top| *top >= INFINITY) {
            return self.look_at_each(range, partial);
        }
        partial.amax = top[0];
        let below = |smallest: u32, x: &f32| smallest.min((x.to_bits() & ABS).wrapping_sub(1));
        partial.smallest = x.iter().fold(u32::MAX, below).wrapping_add(1);
        let lost = |(x, q): (&f32, &f32)| (x.to_bits() & ABS != 0) & (q.to_bits() & ABS == 0);
        partial.underflow = x.iter().zip(q).map(|pair| u64::from(lost(pair))).sum();
        partial.product = sum_of(x, q, |x, q| x * q);
        partial.quantized_power = sum_of(q, q, |q, _| q * q);
        for run in range {
            let views = self.views.map(|view| &view[self.runs.start(run)..end(run)]);
            self.look_at_block(views, partial);
        }
    }

    /// A block of numbers: what needs the block.
    #[inline(always)]
    fn look_at_block(&self, [x, z, q]: Views<'_>, partial: &mut Partial) {
        let amax = magnitude_max(z);
        if let Some(scales) = self.scales {
            let sub_block = scales.sub_block().min(z.len());
            for piece in z.chunks(sub_block) {
                let sub_amax = match sub_block < z.len() {
                    true => magnitude_max(piece),
                    false => amax,
                };
                let limit = scales.limit(amax, sub_amax);
                let beyond = piece.iter().map(|z| u32::from(z.to_bits() & ABS > limit));
                partial.saturated += u64::from(beyond.sum::<u32>());
            }
        }
        let power = sum_of(x, x, |x, _| x * x);
        let error = sum_of(x, q, |x, q| (x - q) * (x - q));
        partial.block(amax, power, error, self.scales);
    }

    /// As [`look`](Self::look), where some elements are no numbers.
    #[inline(always)]
    fn look_at_each(&self, range: Range<usize>, partial: &mut Partial) {
        let Layout { axis, block, .. } = self.runs.layout;
        let mut lanes = Lanes::<1>::new();
        for run in range {
            let start = self.runs.start(run);
            let blocks = Interleaved {
                views: self.views.map(|view| &view[start..]),
                rows: block.min(axis - self.runs.at(run)),
                inner: 1,
            };
            blocks.look(&mut lanes, partial, self.scales);
        }
        lanes.add_to(partial);
    }
}

/// The sum of `term` of each pair, in lanes.
#[inline(always)]
fn sum_of(a: &[f32], b: &[f32], term: impl Fn(f64, f64) -> f64) -> f64 {
    const LANES: usize = 8;
    let term = |a: f32, b: f32| term(f64::from(a), f64::from(b));
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            lanes[i] += term(a[i], b[i]);
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += term(*a, *b);
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
    /// Looks at the first `W` blocks; returns `W`.
    #[inline(always)]
    fn look<const W: usize>(
        &self,
        lanes: &mut Lanes<W>,
        partial: &mut Partial,
        scales: Option<&Scales>,
    ) -> usize {
        let [x, z, q] = self.views;
        let row = |view: &'_ [f32], row: usize| -> [f32; W] {
            let start = row * self.inner;
            let row = view[start..start + W].first_chunk::<W>();
            *row.expect("it is as long")
        };
        let maxima = |rows: Range<usize>| {
            rows.fold([0; W], |amax: [u32; W], at| {
                let z = row(z, at);
                from_fn(|i| amax[i].max(finite(z[i].to_bits() & ABS)))
            })
        };
        let amax = maxima(0..self.rows);
        let sub_block = scales.map_or(usize::MAX, Scales::sub_block).min(self.rows);
        let mut sums = Sums::<W>::new();
        let mut at = 0;
        while at < self.rows {
            let end = (at + sub_block).min(self.rows);
            let limits = match scales {
                Some(scales) => {
                    let sub_amax = match sub_block < self.rows {
                        true => maxima(at..end),
                        false => amax,
                    };
                    from_fn(|i| scales.limit(amax[i], sub_amax[i]))
                }
                None => [INFINITY; W],
            };
            for at in at..end {
                lanes.see(&mut sums, [&row(x, at), &row(z, at), &row(q, at)], &limits);
            }
            at = end;
        }
        for i in 0..W {
            partial.block(amax[i], sums.power[i], sums.error[i], scales);
        }
        W
    }
}

impl Partial {
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
    fn see(&mut self, sums: &mut Sums<W>, [x, z, q]: [&[f32; W]; 3], limits: &[u32; W]) {
        let magnitude = |x: &[f32; W]| -> [u32; W] { from_fn(|i| x[i].to_bits() & ABS) };
        let [x_abs, z_abs, q_abs] = [x, z, q].map(magnitude);
        // All ones where both are numbers.
        let counts: [u32; W] =
            from_fn(|i| u32::from(x_abs[i].max(q_abs[i]) < INFINITY).wrapping_neg());
        let number = |x: &[f32; W]| -> [f64; W] {
            from_fn(|i| f64::from(f32::from_bits(x[i].to_bits() & counts[i])))
        };
        let (x, q) = (number(x), number(q));
        for i in 0..W {
            // The products of two float32 are exact.
            sums.power[i] += x[i] * x[i];
            self.product[i] += x[i] * q[i];
            self.quantized_power[i] += q[i] * q[i];
        }
        for i in 0..W {
            let difference = x[i] - q[i];
            sums.error[i] += difference * difference;
        }
        for i in 0..W {
            self.non_finite[i] += u32::from(counts[i] == 0);
        }
        for i in 0..W {
            let lost = (x_abs[i] != 0) & (q_abs[i] == 0);
            self.underflow[i] += u32::from(lost) & counts[i];
        }
        for i in 0..W {
            let beyond = (z_abs[i] > limits[i]) & (z_abs[i] < INFINITY);
            self.saturated[i] += u32::from(beyond) & counts[i];
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
