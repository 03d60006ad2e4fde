//! The loops over memory: blocks along a contiguous axis, and blocks along a strided one.

use crate::RandomStream;
use crate::bits::ABS;
use crate::dispatch::Kernel;
use crate::draws::{Draws, WINDOW};
use crate::groups::{GroupRule, Words, counted_max};
use crate::round::Rule;
use core::hint::black_box;
use core::marker::PhantomData;
use core::ops::Range;

/// Columns of interleaved blocks that are worked on together. What a kernel keeps of them fits the
/// caches near the core, and rows up to this length are read from front to back, which is fastest.
pub(crate) const TILE: usize = 4096;

/// Shorter rows than this are worked on several at a time.
const NARROW: usize = 64;

/// Elements of the longest vector.
const LANES: usize = 16;

/// Contiguous blocks that are worked on together.
const TOGETHER: usize = 16;

/// How to round, the same for all blocks of a tensor.
#[derive(Clone, Copy)]
pub(crate) struct Job<G, R> {
    pub(crate) group: G,
    pub(crate) rule: R,
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
pub(crate) struct Blocks<'a, G, R> {
    pub(crate) job: Job<G, R>,
    pub(crate) layout: Layout,
    pub(crate) data: &'a mut [f32],
    /// Position of the data on the axis, a multiple of the block length.
    pub(crate) at: usize,
    /// Position of the data in the tensor.
    pub(crate) start: u64,
}

impl<G: GroupRule, R: Rule> Kernel for Blocks<'_, G, R> {
    #[inline(always)]
    fn run(self) {
        if self.layout.inner == 1 {
            self.run_contiguous();
        } else {
            self.run_strided();
        }
    }
}

impl<G: GroupRule, R: Rule> Blocks<'_, G, R> {
    #[inline(always)]
    fn run_contiguous(self) {
        let Self {
            job,
            layout,
            data,
            mut at,
            mut start,
        } = self;
        let draws = Draws::new(job.stream);
        let mut blocks = Line { job, draws };
        let mut rest = data;
        while !rest.is_empty() {
            let length = if layout.axis.is_multiple_of(layout.block) {
                rest.len()
            } else {
                (layout.axis - at).min(rest.len())
            };
            let (line, tail) = rest.split_at_mut(length);
            blocks.quantize(line, layout.block, start);
            (at, start, rest) = (0, start + length as u64, tail);
        }
    }

    #[inline(always)]
    fn run_strided(self) {
        let Self {
            job,
            layout,
            data,
            mut at,
            mut start,
        } = self;
        let mut draws = Draws::new(job.stream);
        let mut tile = Tile::new();
        let mut rest = data;
        while !rest.is_empty() {
            let length = layout.block.min(layout.axis - at);
            let (run, tail) = rest.split_at_mut(length * layout.inner);
            quantize_run(&job, layout.inner, run, start, &mut tile, &mut draws);
            at += length;
            if at == layout.axis {
                at = 0;
            }
            start += run.len() as u64;
            rest = tail;
        }
    }
}

/// Contiguous blocks, with the draws of the elements.
struct Line<G, R> {
    job: Job<G, R>,
    draws: Draws,
}

impl<G: GroupRule, R: Rule> Line<G, R> {
    /// Quantizes contiguous blocks; the last one may be shorter.
    #[inline(always)]
    fn quantize(&mut self, line: &mut [f32], block: usize, start: u64) {
        let sub_block = self.job.group.sub_block().min(block);
        // The usual lengths as constants, so that a block is a few vectors.
        let done = match (block, sub_block) {
            (16, 2) if G::HAS_SUB_BLOCKS => self.together::<16, 16, 2>(line, start),
            (16, 4) if G::HAS_SUB_BLOCKS => self.together::<16, 16, 4>(line, start),
            (16, 8) if G::HAS_SUB_BLOCKS => self.together::<16, 16, 8>(line, start),
            _ if G::HAS_SUB_BLOCKS => 0,
            (8, _) => self.together::<8, 8, 8>(line, start),
            (16, _) => self.together::<16, 16, 16>(line, start),
            (32, _) => self.together::<32, 16, 16>(line, start),
            (64, _) => self.together::<64, 16, 16>(line, start),
            _ => 0,
        };
        self.blocks(&mut line[done..], block, start + done as u64);
    }

    /// Quantizes blocks of any length; the last one may be shorter.
    #[inline(always)]
    fn blocks(&mut self, data: &mut [f32], block: usize, start: u64) {
        for (i, piece) in data.chunks_mut(block).enumerate() {
            self.block(piece, start + (i * block) as u64);
        }
    }

    /// Quantizes one block of any length.
    #[inline(always)]
    fn block(&mut self, block: &mut [f32], start: u64) {
        let Job { group, rule, .. } = self.job;
        let amax = counted_max::<G>(block);
        let length = block.len();
        let sub_block = group.sub_block().min(length);
        for (i, data) in block.chunks_mut(sub_block).enumerate() {
            let sub_amax = if sub_block == length {
                amax
            } else {
                counted_max::<G>(data)
            };
            let (mut first, mut second) = ([0], [0]);
            let tame = make_grids::<G, R>(group, &[amax], &[sub_amax], [&mut first, &mut second]);
            let ([first], [second]) = (first, second);
            if tame && !R::USES_DRAWS {
                for x in data {
                    *x = group.round_tame([first, second], rule, *x);
                }
                continue;
            }
            let grid = G::Grid::of([first, second]);
            let start = start + (i * sub_block) as u64;
            for (j, piece) in data.chunks_mut(WINDOW).enumerate() {
                let draws = self
                    .draws
                    .get::<R>(start + (j * WINDOW) as u64, piece.len());
                for (x, draw) in piece.iter_mut().zip(draws) {
                    *x = group.round(grid, rule, *x, *draw);
                }
            }
        }
    }

    /// Quantizes blocks of B elements, which are vectors of L lanes, with sub-blocks of S lanes unless
    /// S = L. Returns how many elements: some at the end may be left.
    ///
    /// A block alone is one long chain of operations that wait for each other. [`TOGETHER`] of them, first
    /// the largest magnitudes of all, then their grids, then all elements, keep the processor busy, and
    /// are few enough that reading the next ones begins while these are rounded.
    #[inline(always)]
    fn together<const B: usize, const L: usize, const S: usize>(
        &mut self,
        data: &mut [f32],
        start: u64,
    ) -> usize {
        let Job { group, rule, .. } = self.job;
        let windows = data.chunks_exact_mut(TOGETHER * B);
        let count = windows.len();
        for (i, window) in windows.enumerate() {
            let (mut maxima, mut first, mut second) = ([0; TOGETHER], [0; TOGETHER], [0; TOGETHER]);
            for (amax, block) in maxima.iter_mut().zip(window.chunks_exact(B)) {
                // Hidden, lest blocks become lanes, each element a load of its own.
                *amax = black_box(largest::<G, L>(block.as_chunks().0));
            }
            let tame = make_grids::<G, R>(group, &maxima, &maxima, [&mut first, &mut second]);
            let draws = self
                .draws
                .get::<R>(start + (i * TOGETHER * B) as u64, window.len());
            let vectors = window.as_chunks_mut::<LANES>().0;
            let draws = draws.as_chunks::<LANES>().0;
            for (j, (vector, draws)) in vectors.iter_mut().zip(draws).enumerate() {
                // Hidden for the same reason.
                let block = black_box(j) * LANES / B;
                let (mut first, mut second) =
                    (lanes::<B>(&first, block), lanes::<B>(&second, block));
                if S < L {
                    let sub_maxima = across::<G, S>(vector);
                    let grids = [&mut first[..], &mut second[..]];
                    each_grid(group, tame, &lanes::<B>(&maxima, block), &sub_maxima, grids);
                }
                round_each(group, rule, vector, tame, [&first, &second], draws);
            }
        }
        count * TOGETHER * B
    }
}

/// The word of a block in its lanes, and that of the next one in the others if blocks of B elements leave
/// some.
#[inline(always)]
fn lanes<const B: usize>(of_blocks: &[u32; TOGETHER], block: usize) -> [u32; LANES] {
    // The remainders only show that the indices are less.
    let mut lanes = [of_blocks[block % TOGETHER]; LANES];
    if B < LANES {
        lanes[B..].fill(of_blocks[(block + 1) % TOGETHER]);
    }
    lanes
}

/// The largest counted magnitude of some vectors.
#[inline(always)]
fn largest<G: GroupRule, const L: usize>(vectors: &[[f32; L]]) -> u32 {
    let mut magnitudes = [0; L];
    for vector in vectors {
        for (max, x) in magnitudes.iter_mut().zip(vector) {
            *max = (*max).max(G::counted(x.to_bits() & ABS));
        }
    }
    if !G::COUNTS_ALL {
        // Hidden, lest the choice of what counts becomes a branch for each lane.
        magnitudes = black_box(magnitudes);
    }
    magnitudes.into_iter().fold(0, u32::max)
}

/// In each lane the largest counted magnitude of the S neighbours that it is one of; S is 2, 4 or 8.
#[inline(always)]
fn across<G: GroupRule, const S: usize>(vector: &[f32; LANES]) -> [u32; LANES] {
    /// In each lane the larger one of it and the lane at that distance.
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
        *magnitude = G::counted(x.to_bits() & ABS);
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

/// The grids of many sub-blocks, word by word, from the largest magnitudes of their blocks and their own.
/// Returns whether all are tame; the grids are those of tame blocks then.
#[inline(always)]
fn make_grids<G: GroupRule, R: Rule>(
    group: G,
    maxima: &[u32],
    sub_maxima: &[u32],
    grids: [&mut [u32]; 2],
) -> bool {
    let range = group.tame();
    // All are looked at, without a branch.
    let all = maxima.iter().fold(true, |all, amax| {
        all & (*amax < range.end) & ((*amax >= range.start) | (*amax == 0))
    });
    let tame = all && !R::USES_DRAWS;
    each_grid(group, tame, maxima, sub_maxima, grids);
    tame
}

/// The grids of many sub-blocks, all tame or not.
#[inline(always)]
fn each_grid<G: GroupRule>(
    group: G,
    tame: bool,
    maxima: &[u32],
    sub_maxima: &[u32],
    [first, second]: [&mut [u32]; 2],
) {
    let least = group.tame().start;
    let grids = first.iter_mut().zip(second);
    let maxima = maxima.iter().zip(sub_maxima);
    if tame {
        for ((first, second), (amax, sub_amax)) in grids.zip(maxima) {
            [*first, *second] = group.tame_grid((*amax).max(least), *sub_amax);
        }
    } else {
        for ((first, second), (amax, sub_amax)) in grids.zip(maxima) {
            [*first, *second] = group.grid(*amax, *sub_amax).words();
        }
    }
}

/// Rounds neighbours, each with its grid; `tame` is what [`make_grids`] said of them.
#[inline(always)]
fn round_each<G: GroupRule, R: Rule>(
    group: G,
    rule: R,
    data: &mut [f32],
    tame: bool,
    [first, second]: [&[u32]; 2],
    draws: &[u32],
) {
    let grids = first.iter().zip(second).map(|(a, b)| [*a, *b]);
    if tame && !R::USES_DRAWS {
        for (x, grid) in data.iter_mut().zip(grids) {
            *x = group.round_tame(grid, rule, *x);
        }
        return;
    }
    for ((x, grid), draw) in data.iter_mut().zip(grids).zip(draws) {
        *x = group.round(G::Grid::of(grid), rule, *x, *draw);
    }
}

/// Quantizes interleaved blocks.
#[inline(always)]
fn quantize_run<G: GroupRule, R: Rule>(
    job: &Job<G, R>,
    inner: usize,
    run: &mut [f32],
    start: u64,
    tile: &mut Tile,
    draws: &mut Draws,
) {
    let rows = run.len() / inner;
    let sub_rows = job.group.sub_block();
    if sub_rows >= rows {
        let lines = Lines::of(inner, rows);
        for columns in lines.tiles(TILE) {
            see::<G>(tile.reset(columns.len()), run, &lines, columns.clone());
            tile.make_grids(job, &lines);
            tile.apply(job, run, start, &lines, columns, draws);
        }
        return;
    }
    let lines = Lines::of(inner, sub_rows);
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

    /// The columns of the lines, in tiles of a width. Lines of more than one row are narrow, hence one
    /// tile.
    #[inline(always)]
    pub(crate) fn tiles(&self, tile: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let width = self.width;
        (0..width)
            .step_by(tile)
            .map(move |first| first..width.min(first + tile))
    }
}

/// Takes the counted magnitudes of some columns of some lines into the largest ones.
#[inline(always)]
fn see<G: GroupRule>(maxima: &mut [u32], data: &[f32], lines: &Lines, columns: Range<usize>) {
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
    /// Largest magnitude so far, as a pattern.
    maxima: [u32; TILE],
    /// Those of the blocks, where `maxima` are those of sub-blocks.
    of_blocks: [u32; WINDOW],
    /// The grids, word by word.
    grids: [[u32; TILE]; 2],
    /// Whether all are [tame](GroupRule::tame).
    tame: bool,
}

impl Tile {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {
            columns: 0,
            maxima: [0; _],
            of_blocks: [0; _],
            grids: [[0; _]; 2],
            tame: false,
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
        self.of_blocks[..width].copy_from_slice(&self.maxima[..width]);
    }

    /// From the largest magnitudes to the grids.
    #[inline(always)]
    pub(crate) fn make_grids<G: GroupRule, R: Rule>(&mut self, job: &Job<G, R>, lines: &Lines) {
        let width = self.fold(lines);
        let [first, second] = self.grids.each_mut().map(|words| &mut words[..width]);
        let maxima = &self.maxima[..width];
        self.tame = make_grids::<G, R>(job.group, maxima, maxima, [first, second]);
        self.repeat_grids(width);
    }

    /// From the largest magnitudes, of sub-blocks, and those of the blocks to the grids.
    #[inline(always)]
    fn make_sub_grids<G: GroupRule, R: Rule>(&mut self, job: &Job<G, R>, lines: &Lines) {
        let width = self.fold(lines);
        let [first, second] = self.grids.each_mut().map(|words| &mut words[..width]);
        let (maxima, sub_maxima) = (&self.of_blocks[..width], &self.maxima[..width]);
        self.tame = make_grids::<G, R>(job.group, maxima, sub_maxima, [first, second]);
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
    pub(crate) fn apply<G: GroupRule, R: Rule>(
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
                    job.group,
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
pub(crate) struct See<'a, G> {
    pub(crate) group: PhantomData<G>,
    pub(crate) maxima: &'a mut [u32],
    pub(crate) data: &'a [f32],
    pub(crate) lines: &'a Lines,
    pub(crate) columns: Range<usize>,
}

impl<G: GroupRule> Kernel for See<'_, G> {
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

impl<G: GroupRule, R: Rule> Kernel for Apply<'_, G, R> {
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
        let mut draws = Draws::new(job.stream);
        tile.apply(&job, data, start, lines, columns, &mut draws);
    }
}
