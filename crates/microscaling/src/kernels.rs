//! The loops over memory: blocks along a contiguous axis, and blocks along a strided one.

use crate::RandomStream;
use crate::bits::ABS;
use crate::dispatch::Kernel;
use crate::draws::{Draws, WINDOW};
use crate::groups::{GroupRule, Words, counted_max};
use crate::round::Rule;
use core::marker::PhantomData;
use core::ops::Range;

/// Columns of interleaved blocks that are worked on together. What a kernel keeps of them fits the
/// caches near the core, and rows up to this length are read from front to back, which is fastest.
pub(crate) const TILE: usize = 4096;

/// Shorter rows than this are worked on several at a time.
const NARROW: usize = 64;

/// Contiguous blocks of this length or more are worked on one by one.
const LONG: usize = 128;

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
        let mut window = Window::new(job);
        let mut rest = data;
        while !rest.is_empty() {
            let length = if layout.axis.is_multiple_of(layout.block) {
                rest.len()
            } else {
                (layout.axis - at).min(rest.len())
            };
            let (line, tail) = rest.split_at_mut(length);
            window.line(line, layout.block, start);
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

/// Contiguous blocks, and room for what is known of [`WINDOW`] neighbours.
struct Window<G, R> {
    job: Job<G, R>,
    draws: Draws,
    /// The magnitudes, then the larger ones of pairs of them, then of pairs of those, and so on.
    tree: [u32; 2 * WINDOW],
    /// The largest magnitude of the block of each sub-block.
    maxima: [u32; WINDOW],
    /// The grids of sub-blocks, word by word, and those of elements.
    sub_grids: [[u32; WINDOW]; 2],
    grids: [[u32; WINDOW]; 2],
}

impl<G: GroupRule, R: Rule> Window<G, R> {
    #[inline(always)]
    fn new(job: Job<G, R>) -> Self {
        Self {
            job,
            draws: Draws::new(job.stream),
            tree: [0; _],
            maxima: [0; _],
            sub_grids: [[0; _]; 2],
            grids: [[0; _]; 2],
        }
    }

    /// Quantizes contiguous blocks; the last one may be shorter.
    #[inline(always)]
    fn line(&mut self, line: &mut [f32], block: usize, start: u64) {
        let sub_block = self.job.group.sub_block().min(block);
        let powers_of_two = block.is_power_of_two() && sub_block.is_power_of_two();
        let together = if powers_of_two && block < LONG {
            line.len() / block * block
        } else {
            0
        };
        let (blocks, others) = line.split_at_mut(together);
        for (i, piece) in blocks.chunks_mut(WINDOW).enumerate() {
            self.blocks(piece, block, sub_block, start + (i * WINDOW) as u64);
        }
        let start = start + together as u64;
        for (i, piece) in others.chunks_mut(block).enumerate() {
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
            let grid = group.grid(amax, sub_amax);
            if !R::USES_DRAWS && group.is_tame(amax, grid) {
                for x in data {
                    *x = group.round_tame(grid, rule, *x);
                }
                continue;
            }
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

    /// Quantizes whole blocks, at most [`WINDOW`] elements. The lengths are powers of two.
    ///
    /// One step after the other for all of them: each is a loop over neighbours, which has vectors.
    #[inline(always)]
    fn blocks(&mut self, data: &mut [f32], block: usize, sub_block: usize, start: u64) {
        let Job { group, rule, .. } = self.job;
        let count = data.len() / sub_block;
        for (max, x) in self.tree.iter_mut().zip(data.iter()) {
            *max = G::counted(x.to_bits() & ABS);
        }
        let (mut level, mut below) = (data.len(), 0);
        while level > data.len() / block {
            let (from, to) = self.tree[below..].split_at_mut(level);
            larger_of_pairs(from, &mut to[..level / 2]);
            (level, below) = (level / 2, below + level);
        }
        // A level of n numbers begins where those of more than n end.
        let level = |n: usize| &self.tree[2 * (data.len() - n)..][..n];
        let sub_maxima = level(count);
        let maxima = if sub_block < block {
            let maxima = &mut self.maxima[..count];
            spread(level(data.len() / block), maxima, block / sub_block);
            maxima
        } else {
            sub_maxima
        };
        let [first, second] = self.sub_grids.each_mut().map(|words| &mut words[..count]);
        group.grids(maxima, sub_maxima, [first, second]);
        let tame = all_tame::<G, R>(group, maxima, [first, second]);
        for (of_sub_blocks, of_elements) in self.sub_grids.iter().zip(&mut self.grids) {
            spread(
                &of_sub_blocks[..count],
                &mut of_elements[..data.len()],
                sub_block,
            );
        }
        let draws = self.draws.get::<R>(start, data.len());
        let [first, second] = &self.grids;
        round_each(group, rule, data, tame, [first, second], draws);
    }
}

/// The larger ones of pairs of neighbours.
#[inline(always)]
fn larger_of_pairs(from: &[u32], to: &mut [u32]) {
    const N: usize = 16;
    let (chunks, rest) = from.as_chunks::<{ 2 * N }>();
    let (larger, rest_larger) = to.as_chunks_mut::<N>();
    for (to, from) in larger.iter_mut().zip(chunks) {
        // Not in place: a loop over two slices of one array has no vectors.
        let mut larger = [0; N];
        for (larger, [a, b]) in larger.iter_mut().zip(from.as_chunks().0) {
            *larger = *a.max(b);
        }
        *to = larger;
    }
    for (larger, [a, b]) in rest_larger.iter_mut().zip(rest.as_chunks().0) {
        *larger = *a.max(b);
    }
}

/// Repeats every number so many times.
#[inline(always)]
fn spread(from: &[u32], to: &mut [u32], times: usize) {
    #[inline(always)]
    fn repeat<const N: usize>(from: &[u32], to: &mut [u32]) {
        for (to, x) in to.as_chunks_mut().0.iter_mut().zip(from) {
            *to = [*x; N];
        }
    }
    // The usual numbers as constants, so that there are vectors for them.
    match times {
        1 => repeat::<1>(from, to),
        2 => repeat::<2>(from, to),
        8 => repeat::<8>(from, to),
        16 => {
            // Two at a time: of 16 stores at a distance the compiler makes a scatter.
            let (pairs, last) = from.as_chunks();
            let (chunks, rest) = to.as_chunks_mut::<32>();
            for (to, [a, b]) in chunks.iter_mut().zip(pairs) {
                *to = core::array::from_fn(|i| if i < 16 { *a } else { *b });
            }
            if let [last] = last {
                rest.fill(*last);
            }
        }
        32 => repeat::<32>(from, to),
        _ => {
            for (to, x) in to.chunks_exact_mut(times).zip(from) {
                to.fill(*x);
            }
        }
    }
}

/// Whether [`GroupRule::round_tame`] may be used for all of these blocks.
#[inline(always)]
fn all_tame<G: GroupRule, R: Rule>(group: G, maxima: &[u32], [first, second]: [&[u32]; 2]) -> bool {
    let grids = first.iter().zip(second).map(|(a, b)| G::Grid::of([*a, *b]));
    let tame = |(amax, grid): (&u32, _)| group.is_tame(*amax, grid);
    // All are looked at, without a branch.
    !R::USES_DRAWS
        && maxima
            .iter()
            .zip(grids)
            .map(tame)
            .fold(true, |all, tame| all & tame)
}

/// Rounds neighbours, each with its grid; `tame` is [`all_tame`] of them.
#[inline(always)]
fn round_each<G: GroupRule, R: Rule>(
    group: G,
    rule: R,
    data: &mut [f32],
    tame: bool,
    [first, second]: [&[u32]; 2],
    draws: &[u32],
) {
    let grids = first.iter().zip(second).map(|(a, b)| G::Grid::of([*a, *b]));
    if tame && !R::USES_DRAWS {
        for (x, grid) in data.iter_mut().zip(grids) {
            *x = group.round_tame(grid, rule, *x);
        }
        return;
    }
    for ((x, grid), draw) in data.iter_mut().zip(grids).zip(draws) {
        *x = group.round(grid, rule, *x, *draw);
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
    /// Whether all are [tame](GroupRule::is_tame).
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
        job.group.grids(maxima, maxima, [first, second]);
        self.tame = all_tame::<G, R>(job.group, maxima, [first, second]);
        self.repeat_grids(width);
    }

    /// From the largest magnitudes, of sub-blocks, and those of the blocks to the grids.
    #[inline(always)]
    fn make_sub_grids<G: GroupRule, R: Rule>(&mut self, job: &Job<G, R>, lines: &Lines) {
        let width = self.fold(lines);
        let [first, second] = self.grids.each_mut().map(|words| &mut words[..width]);
        let (maxima, sub_maxima) = (&self.of_blocks[..width], &self.maxima[..width]);
        job.group.grids(maxima, sub_maxima, [first, second]);
        self.tame = all_tame::<G, R>(job.group, maxima, [first, second]);
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
