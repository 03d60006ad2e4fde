//! The loops over memory: blocks along a contiguous axis, and blocks along a strided one.

use crate::bits::ABS;
use crate::block::{BlockRule, Grid};
use crate::dispatch::Kernel;
use crate::round::Rule;
use crate::{RandomStream, ScaleMode};
use core::ops::Range;

/// Columns of interleaved blocks that are worked on together. What a kernel keeps of them fits the
/// caches near the core, and rows up to this length are read from front to back, which is fastest.
pub(crate) const TILE: usize = 4096;

/// Random words that are made at a time.
pub(crate) const WINDOW: usize = 1024;

/// Shorter rows than this are worked on several at a time.
const NARROW: usize = 64;

/// How to round, the same for all blocks of a tensor.
#[derive(Clone, Copy)]
pub(crate) struct Job<R> {
    pub(crate) rule: R,
    pub(crate) block: BlockRule,
    pub(crate) stream: RandomStream,
}

/// Where blocks lie: a tensor seen as [outer, axis, inner] with blocks along the middle axis.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// Length of the axis.
    pub(crate) axis: usize,
    /// Elements between neighbours on the axis.
    pub(crate) inner: usize,
    /// Elements in a block, at most the length of the axis; the last one of an axis may be shorter.
    pub(crate) block: usize,
}

/// Quantizes consecutive runs of whole blocks. A run is `inner` interleaved blocks, contiguous in
/// memory as a whole.
pub(crate) struct Blocks<'a, R> {
    pub(crate) job: Job<R>,
    pub(crate) layout: Layout,
    pub(crate) data: &'a mut [f32],
    /// Position of the data on the axis, a multiple of the block length.
    pub(crate) at: usize,
    /// Position of the data in the tensor.
    pub(crate) start: u64,
}

impl<R: Rule> Kernel for Blocks<'_, R> {
    #[inline(always)]
    fn run(self) {
        let mut draws = Draws::new(self.job.stream);
        let Self { job, layout, .. } = self;
        if layout.inner == 1 {
            self.for_each_run(
                #[inline(always)]
                |block, start| quantize_block(&job, block, start, &mut draws),
            );
        } else {
            let mut tile = Tile::new();
            self.for_each_run(
                #[inline(always)]
                |run, start| quantize_run(&job, layout.inner, run, start, &mut tile, &mut draws),
            );
        }
    }
}

impl<R: Rule> Blocks<'_, R> {
    /// Calls `quantize` with every run and its position in the tensor.
    #[inline(always)]
    fn for_each_run(self, mut quantize: impl FnMut(&mut [f32], u64)) {
        let Self {
            layout,
            data,
            mut at,
            mut start,
            ..
        } = self;
        let mut rest = data;
        while !rest.is_empty() {
            let length = layout.block.min(layout.axis - at);
            let (run, tail) = rest.split_at_mut(length * layout.inner);
            quantize(run, start);
            at = if at + length == layout.axis {
                0
            } else {
                at + length
            };
            start += run.len() as u64;
            rest = tail;
        }
    }
}

/// A window of random words that moves along the tensor.
pub(crate) struct Draws {
    stream: RandomStream,
    /// Index of the first word, and one past the last.
    window: Range<u64>,
    words: [u32; WINDOW],
}

impl Draws {
    #[inline(always)]
    pub(crate) fn new(stream: RandomStream) -> Self {
        Self {
            stream,
            window: 0..0,
            words: [0; WINDOW],
        }
    }

    /// The words from `start` on, at most [`WINDOW`]; zeros if the rule wants none.
    #[inline(always)]
    pub(crate) fn get<R: Rule>(&mut self, start: u64, count: usize) -> &[u32] {
        if !R::USES_DRAWS {
            return &self.words[..count];
        }
        if start < self.window.start || start + count as u64 > self.window.end {
            self.stream.fill(start, &mut self.words);
            self.window = start..start + WINDOW as u64;
        }
        let first = (start - self.window.start) as usize;
        &self.words[first..first + count]
    }
}

/// Quantizes one contiguous block.
#[inline(always)]
fn quantize_block<R: Rule>(job: &Job<R>, block: &mut [f32], start: u64, draws: &mut Draws) {
    let mut amax = 0;
    for x in block.iter() {
        amax = amax.max(x.to_bits() & ABS);
    }
    let grid = job.block.grid(amax);
    let mantissa_bits = job.block.row.mantissa_bits;
    for (i, chunk) in block.chunks_mut(WINDOW).enumerate() {
        let draws = draws.get::<R>(start + (i * WINDOW) as u64, chunk.len());
        for (x, draw) in chunk.iter_mut().zip(draws) {
            *x = grid.round(job.rule, mantissa_bits, *x, *draw);
        }
    }
}

/// Quantizes interleaved blocks.
#[inline(always)]
fn quantize_run<R: Rule>(
    job: &Job<R>,
    inner: usize,
    run: &mut [f32],
    start: u64,
    tile: &mut Tile,
    draws: &mut Draws,
) {
    let lines = Lines::of(inner, run.len() / inner);
    for columns in lines.tiles() {
        see(tile.reset(columns.len()), run, &lines, columns.clone());
        tile.make_grids(&job.block, &lines);
        tile.apply(job, run, start, &lines, columns, draws);
    }
}

/// Rows of interleaved blocks as lines of memory: a line is one row, or several where rows are short.
#[derive(Clone)]
pub(crate) struct Lines {
    /// Elements of a row: the blocks.
    inner: usize,
    /// Elements of a line, a multiple of `inner`; the last line may be shorter.
    pub(crate) width: usize,
}

impl Lines {
    #[inline(always)]
    pub(crate) fn of(inner: usize, rows: usize) -> Self {
        // A power of two, so that they can be folded into one by halves.
        let together = 1 << NARROW.div_ceil(inner).min(rows).ilog2();
        Self {
            inner,
            width: inner * together,
        }
    }

    /// The columns of the lines, in tiles. Lines of more than one row are narrow, hence one tile.
    #[inline(always)]
    pub(crate) fn tiles(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let width = self.width;
        (0..width)
            .step_by(TILE)
            .map(move |first| first..width.min(first + TILE))
    }
}

/// Takes the magnitudes of some columns of some lines into the largest ones.
#[inline(always)]
fn see(maxima: &mut [u32], data: &[f32], lines: &Lines, columns: Range<usize>) {
    for line in data.chunks(lines.width) {
        let line = &line[columns.start..columns.end.min(line.len())];
        for (max, x) in maxima.iter_mut().zip(line) {
            *max = (*max).max(x.to_bits() & ABS);
        }
    }
}

/// What is known of the blocks of some columns.
pub(crate) struct Tile {
    /// Number of columns in use.
    columns: usize,
    /// Largest magnitude so far, as a pattern.
    maxima: [u32; TILE],
    /// The grids, field by field.
    emin: [i32; TILE],
    max: [u32; TILE],
}

impl Tile {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {
            columns: 0,
            maxima: [0; TILE],
            emin: [0; TILE],
            max: [0; TILE],
        }
    }

    /// Starts over with `columns` columns, of which nothing was seen. Returns their largest
    /// magnitudes.
    #[inline(always)]
    pub(crate) fn reset(&mut self, columns: usize) -> &mut [u32] {
        self.columns = columns;
        let maxima = &mut self.maxima[..columns];
        maxima.fill(0);
        maxima
    }

    /// From the largest magnitudes to the grids.
    #[inline(always)]
    pub(crate) fn make_grids(&mut self, rule: &BlockRule, lines: &Lines) {
        let blocks = self.columns.min(lines.inner);
        // Several rows in a line: the same blocks over and over.
        let mut width = self.columns;
        while width > blocks {
            width /= 2;
            let (low, high) = self.maxima[..2 * width].split_at_mut(width);
            for (max, other) in low.iter_mut().zip(high) {
                *max = (*max).max(*other);
            }
        }
        // The mode as a constant, so that there is one branch-free loop for the usual one.
        match rule.scale_mode {
            ScaleMode::Floor => {
                let rule = BlockRule {
                    scale_mode: ScaleMode::Floor,
                    ..*rule
                };
                self.make_first_grids(&rule, blocks);
            }
            _ => self.make_first_grids(rule, blocks),
        }
        while width < self.columns {
            self.emin.copy_within(..width, width);
            self.max.copy_within(..width, width);
            width *= 2;
        }
    }

    #[inline(always)]
    fn make_first_grids(&mut self, rule: &BlockRule, blocks: usize) {
        let emin = &mut self.emin[..blocks];
        let max = &mut self.max[..blocks];
        for ((emin, max), amax) in emin.iter_mut().zip(max).zip(&self.maxima[..blocks]) {
            let grid = rule.grid(*amax);
            (*emin, *max) = (grid.emin, grid.max);
        }
    }

    /// Rounds the columns of some lines, the first of which begins at position `start` of the tensor.
    /// `draws` are of the job's stream.
    #[inline(always)]
    pub(crate) fn apply<R: Rule>(
        &self,
        job: &Job<R>,
        data: &mut [f32],
        start: u64,
        lines: &Lines,
        columns: Range<usize>,
        draws: &mut Draws,
    ) {
        let mantissa_bits = job.block.row.mantissa_bits;
        for (i, line) in data.chunks_mut(lines.width).enumerate() {
            let end = columns.end.min(line.len());
            let line = &mut line[columns.start..end];
            let start = start + (i * lines.width + columns.start) as u64;
            let grids = self.emin.chunks(WINDOW).zip(self.max.chunks(WINDOW));
            for (j, (chunk, (emin, max))) in line.chunks_mut(WINDOW).zip(grids).enumerate() {
                let draws = draws.get::<R>(start + (j * WINDOW) as u64, chunk.len());
                let grids = emin.iter().zip(max).zip(draws);
                for (x, ((&emin, &max), draw)) in chunk.iter_mut().zip(grids) {
                    *x = Grid { emin, max }.round(job.rule, mantissa_bits, *x, *draw);
                }
            }
        }
    }
}

/// [`see`] as a kernel.
pub(crate) struct See<'a> {
    pub(crate) maxima: &'a mut [u32],
    pub(crate) data: &'a [f32],
    pub(crate) lines: &'a Lines,
    pub(crate) columns: Range<usize>,
}

impl Kernel for See<'_> {
    #[inline(always)]
    fn run(self) {
        see(self.maxima, self.data, self.lines, self.columns);
    }
}

/// [`Tile::apply`] as a kernel.
pub(crate) struct Apply<'a, R> {
    pub(crate) job: Job<R>,
    pub(crate) tile: &'a Tile,
    pub(crate) data: &'a mut [f32],
    pub(crate) start: u64,
    pub(crate) lines: &'a Lines,
    pub(crate) columns: Range<usize>,
}

impl<R: Rule> Kernel for Apply<'_, R> {
    #[inline(always)]
    fn run(self) {
        let Self {
            job,
            tile,
            data,
            start,
            lines,
            columns,
        } = self;
        tile.apply(
            &job,
            data,
            start,
            lines,
            columns,
            &mut Draws::new(job.stream),
        );
    }
}
