//! Blocks along a strided axis, interleaved in memory.

use super::block_rule::{BlockRule, SIGHT};
use super::blocks::{Job, make_grids, round_each};
use super::instruction_set::Kernel;
use super::layout::{Layout, Pool};
use crate::round::RoundingRule;
use crate::round::bits::ABS;
use crate::round::draws::{Draws, WINDOW};
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ops::Range;

/// Columns of interleaved blocks that are worked on together. What a kernel keeps of them fits the
/// caches near the core, and rows up to this length are read from front to back, which is fastest.
pub(crate) const TILE: usize = 4096;

/// Shorter rows than this are worked on several at a time.
const NARROW: usize = 64;

/// Quantizes interleaved blocks.
#[inline(always)]
pub(crate) fn quantize_run<G: BlockRule, R: RoundingRule>(
    job: &Job<G, R>,
    layout: &Layout,
    run: &mut [f32],
    start: u64,
    tile: &mut Tile,
    draws: &mut Draws,
) {
    let inner = layout.inner;
    let rows = run.len() / inner;
    let sub_rows = job.block_rule.sub_block();
    if sub_rows >= rows {
        let lines = Lines::of(layout, rows);
        for columns in lines.tiles(TILE) {
            see::<G>(tile.reset(columns.len()), run, &lines, columns.clone());
            tile.make_grids(job, run, &lines, columns.clone());
            tile.apply(job, run, start, &lines, columns, draws);
        }
        return;
    }
    debug_assert!(
        layout.pool.is_none(),
        "no format of square blocks has sub-blocks"
    );
    let lines = Lines::of(layout, sub_rows);
    for columns in lines.tiles(WINDOW) {
        see::<G>(tile.reset(columns.len()), run, &lines, columns.clone());
        tile.keep_for_blocks(&lines);
        for (i, part) in run.chunks_mut(sub_rows * inner).enumerate() {
            see::<G>(tile.reset(columns.len()), part, &lines, columns.clone());
            tile.make_sub_grids(job, &lines);
            let start = start + (i * sub_rows * inner) as u64;
            tile.apply(job, part, start, &lines, columns.clone(), draws);
        }
    }
}

/// Rows of interleaved blocks as lines of memory: a line is one row, or several where rows are short.
#[derive(Clone)]
pub(crate) struct Lines {
    /// Elements of a row: the columns.
    inner: usize,
    /// Which of them share blocks.
    pool: Option<Pool>,
    /// Elements of a line, a multiple of `inner`; the last line may be shorter.
    pub(crate) width: usize,
}

impl Lines {
    #[inline(always)]
    pub(crate) fn of(layout: &Layout, rows: usize) -> Self {
        let inner = layout.inner;
        // A power of two, so that they can be folded into one by halves.
        let together = 1 << NARROW.div_ceil(inner).min(rows).ilog2();
        Self {
            inner,
            pool: layout.pool,
            width: inner * together,
        }
    }

    /// How many lines some rows are.
    pub(crate) fn count(&self, data: &[f32]) -> usize {
        data.len().div_ceil(self.width)
    }

    /// Where some rows are divided between lines: how many elements come before, 0 if there is one line.
    pub(crate) fn middle(&self, data: &[f32]) -> usize {
        self.count(data) / 2 * self.width
    }

    /// The columns of the lines, in tiles of a width, or a little less or as much more as whole blocks take. Lines of more
    /// than one row are narrow, hence one tile.
    #[inline(always)]
    pub(crate) fn tiles(&self, tile: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let width = self.width;
        let together = self.pool.map_or(1, |pool| pool.width());
        let tile = (tile / together).max(1) * together;
        (0..width)
            .step_by(tile)
            .map(move |first| first..width.min(first + tile))
    }
}

/// Takes the counted magnitudes of some columns of some lines into the largest ones.
#[inline(always)]
fn see<G: BlockRule>(maxima: &mut [u32], data: &[f32], lines: &Lines, columns: Range<usize>) {
    for line in data.chunks(lines.width) {
        let line = &line[columns.start..columns.end.min(line.len())];
        for (max, x) in maxima.iter_mut().zip(line) {
            *max = (*max).max(G::counted(x.to_bits() & ABS));
        }
    }
}

/// What is known of the blocks of some columns.
pub(crate) struct Tile {
    /// Number of columns in use.
    columns: usize,
    /// Largest magnitude so far, as a pattern. As long as the widest columns were so far, like all that follows:
    /// there is no room before it is needed, for small tensors do not need much.
    maxima: Vec<u32>,
    /// Those of the blocks, where `maxima` are those of sub-blocks.
    of_blocks: Vec<u32>,
    /// Where blocks are looked at twice: what is known of them before, their sums, and what these say.
    sights: [Vec<u32>; SIGHT],
    sums: Vec<i64>,
    verdicts: Vec<u32>,
    /// The grids, word by word.
    grids: [Vec<u32>; 2],
    /// Whether all are [tame](BlockRule::tame).
    tame: bool,
}

impl Tile {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {
            columns: 0,
            maxima: Vec::new(),
            of_blocks: Vec::new(),
            sights: [const { Vec::new() }; SIGHT],
            sums: Vec::new(),
            verdicts: Vec::new(),
            grids: [Vec::new(), Vec::new()],
            tame: false,
        }
    }

    /// Starts over with `columns` columns, of which nothing was seen. Returns their largest
    /// magnitudes.
    #[inline(always)]
    pub(crate) fn reset(&mut self, columns: usize) -> &mut [u32] {
        self.columns = columns;
        if columns > self.maxima.len() {
            self.maxima.resize(columns, 0);
            for words in &mut self.grids {
                words.resize(columns, 0);
            }
        }
        let maxima = &mut self.maxima[..columns];
        maxima.fill(0);
        maxima
    }

    /// From the largest magnitudes to those of the rows of a line together. Returns how many there are.
    #[inline(always)]
    fn fold(&mut self, lines: &Lines) -> usize {
        // Several rows in a line: the same blocks over and over.
        let mut width = self.columns;
        while width > lines.inner {
            width /= 2;
            let (low, high) = self.maxima[..2 * width].split_at_mut(width);
            for (max, other) in low.iter_mut().zip(high) {
                *max = (*max).max(*other);
            }
        }
        width
    }

    /// Makes the largest magnitudes those of the blocks.
    #[inline(always)]
    fn keep_for_blocks(&mut self, lines: &Lines) {
        let width = self.fold(lines);
        self.of_blocks.clear();
        self.of_blocks.extend_from_slice(&self.maxima[..width]);
    }

    /// From the largest magnitudes of some columns of some lines, all that there are of the blocks, to the grids.
    #[inline(always)]
    pub(crate) fn make_grids<G: BlockRule, R: RoundingRule>(
        &mut self,
        job: &Job<G, R>,
        data: &[f32],
        lines: &Lines,
        columns: Range<usize>,
    ) {
        let width = self.fold(lines);
        let blocks = match lines.pool {
            Some(pool) => pool.fold(&mut self.maxima[..width], u32::max),
            None => width,
        };
        if G::LOOKS_TWICE {
            self.look_twice(job.block_rule, data, lines, columns, [width, blocks]);
        }
        let [first, second] = self.grids.each_mut().map(|words| &mut words[..blocks]);
        let maxima = &self.maxima[..blocks];
        let seconds = if G::LOOKS_TWICE {
            &self.verdicts
        } else {
            maxima
        };
        self.tame = make_grids::<G, R>(job.block_rule, maxima, seconds, [first, second]);
        if let Some(pool) = lines.pool {
            for words in &mut self.grids {
                pool.spread(&mut words[..width]);
            }
        }
        self.repeat_grids(width);
    }

    /// Looks a second time at blocks, whose largest magnitudes are known: `width` columns of `blocks` blocks.
    #[inline(always)]
    fn look_twice<G: BlockRule>(
        &mut self,
        block_rule: G,
        data: &[f32],
        lines: &Lines,
        columns: Range<usize>,
        [width, blocks]: [usize; 2],
    ) {
        for words in &mut self.sights {
            words.clear();
            words.resize(width, 0);
        }
        for (i, amax) in self.maxima[..blocks].iter().enumerate() {
            let sight = block_rule.sight(*amax);
            for (words, word) in self.sights.iter_mut().zip(sight) {
                words[i] = word;
            }
        }
        if let Some(pool) = lines.pool {
            for words in &mut self.sights {
                pool.spread(words);
            }
        }
        self.sums.clear();
        self.sums.resize(width, 0);
        let [first, second, third, fourth, fifth] = self.sights.each_ref();
        for line in data.chunks(lines.width) {
            let line = &line[columns.start..columns.end.min(line.len())];
            for row in line.chunks(width) {
                let sights = first.iter().zip(second).zip(third).zip(fourth).zip(fifth);
                for ((sum, x), ((((a, b), c), d), e)) in self.sums.iter_mut().zip(row).zip(sights) {
                    let weight = block_rule.weight([*a, *b, *c, *d, *e], *x);
                    *sum = sum.wrapping_add(weight);
                }
            }
        }
        if let Some(pool) = lines.pool {
            pool.fold(&mut self.sums, i64::wrapping_add);
        }
        let rows = data.len() / lines.inner;
        self.verdicts.clear();
        for (i, (amax, sum)) in self.maxima[..blocks].iter().zip(&self.sums).enumerate() {
            let columns = lines.pool.map_or(1, |pool| pool.columns(i, width));
            let verdict = block_rule.verdict(*amax, *sum, rows * columns);
            self.verdicts.push(verdict);
        }
    }

    /// From the largest magnitudes, of sub-blocks, and those of the blocks to the grids.
    #[inline(always)]
    fn make_sub_grids<G: BlockRule, R: RoundingRule>(&mut self, job: &Job<G, R>, lines: &Lines) {
        let width = self.fold(lines);
        let [first, second] = self.grids.each_mut().map(|words| &mut words[..width]);
        let (maxima, sub_maxima) = (&self.of_blocks[..width], &self.maxima[..width]);
        self.tame = make_grids::<G, R>(job.block_rule, maxima, sub_maxima, [first, second]);
        self.repeat_grids(width);
    }

    /// From the grids of a row to those of a line.
    #[inline(always)]
    fn repeat_grids(&mut self, row: usize) {
        let mut width = row;
        while width < self.columns {
            for words in &mut self.grids {
                words.copy_within(..width, width);
            }
            width *= 2;
        }
    }

    /// Rounds the columns of some lines, the first of which begins at position `start` of the tensor.
    /// `draws` are of the job's stream.
    #[inline(always)]
    pub(crate) fn apply<G: BlockRule, R: RoundingRule>(
        &self,
        job: &Job<G, R>,
        data: &mut [f32],
        start: u64,
        lines: &Lines,
        columns: Range<usize>,
        draws: &mut Draws,
    ) {
        let [first, second] = &self.grids;
        for (i, line) in data.chunks_mut(lines.width).enumerate() {
            let end = columns.end.min(line.len());
            let line = &mut line[columns.start..end];
            let start = start + (i * lines.width + columns.start) as u64;
            let grids = first.chunks(WINDOW).zip(second.chunks(WINDOW));
            for (j, (chunk, (first, second))) in line.chunks_mut(WINDOW).zip(grids).enumerate() {
                let draws = draws.get::<R>(start + (j * WINDOW) as u64, chunk.len());
                round_each(
                    job.block_rule,
                    job.rule,
                    chunk,
                    self.tame,
                    [first, second],
                    draws,
                );
            }
        }
    }
}

/// [`see`] as a kernel.
pub(crate) struct BlockMax<'a, G> {
    pub(crate) block_rule: PhantomData<G>,
    pub(crate) maxima: &'a mut [u32],
    pub(crate) data: &'a [f32],
    pub(crate) lines: &'a Lines,
    pub(crate) columns: Range<usize>,
}

impl<G: BlockRule> Kernel for BlockMax<'_, G> {
    #[inline(always)]
    fn run(self) {
        see::<G>(self.maxima, self.data, self.lines, self.columns);
    }
}

/// [`Tile::apply`] as a kernel.
pub(crate) struct Apply<'a, G, R> {
    pub(crate) job: Job<G, R>,
    pub(crate) tile: &'a Tile,
    pub(crate) data: &'a mut [f32],
    pub(crate) start: u64,
    pub(crate) lines: &'a Lines,
    pub(crate) columns: Range<usize>,
}

impl<G: BlockRule, R: RoundingRule> Kernel for Apply<'_, G, R> {
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
        let mut draws = Draws::new(job.stream, start + data.len() as u64);
        tile.apply(&job, data, start, lines, columns, &mut draws);
    }
}
