//! The largest magnitudes and the grids of the blocks of some columns.

use super::lines::{ColumnMax, Lines};
use crate::quantize::blocks::contiguous::LANES;
use crate::quantize::blocks::{AnyPairs, Elements, Grids, Job, TameBlocks, TamePairs, Units, Way};
use crate::quantize::rules::{BlockRule, ElementRule, LOOK_WORDS};
use crate::round::bits::INFINITY;
use crate::round::draws::Draws;
use alloc::vec::Vec;
use core::ops::Range;
use microscaling_processor::instruction_set::{Kernel, Level};
use microscaling_processor::prefetch;

/// Known properties of the blocks of some columns.
pub(crate) struct Tile {
    /// Number of columns in use.
    columns: usize,
    /// Largest magnitude so far, as a pattern. This vector and the following ones grow to the widest number of columns
    /// so far, because small tensors need little room.
    maxima: Vec<u32>,
    /// The largest magnitudes of the blocks, where `maxima` belong to sub-blocks.
    of_blocks: Vec<u32>,
    /// For blocks that are looked at twice: their properties before the second look, their sums, and the choices of
    /// the sums.
    looks: [Vec<u32>; LOOK_WORDS],
    sums: Vec<i64>,
    choices: Vec<u32>,
    /// The grids, word by word.
    grids: [Vec<u32>; 2],
    /// The kind of grids.
    pub(super) way: Way,
}

impl Tile {
    pub(crate) fn new() -> Self {
        Self {
            columns: 0,
            maxima: Vec::new(),
            of_blocks: Vec::new(),
            looks: [const { Vec::new() }; LOOK_WORDS],
            sums: Vec::new(),
            choices: Vec::new(),
            grids: [Vec::new(), Vec::new()],
            way: Way::Any,
        }
    }

    /// Starts over with `columns` columns, of which nothing was seen. Returns their largest
    /// magnitudes.
    pub(in crate::quantize) fn reset(&mut self, columns: usize) -> &mut [u32] {
        self.columns = columns;
        if columns > self.maxima.len() {
            self.maxima.resize(columns, 0);
            for words in &mut self.grids {
                words.resize(columns.next_multiple_of(LANES), 0);
            }
        }
        let maxima = &mut self.maxima[..columns];
        maxima.fill(0);
        maxima
    }

    /// Sees some columns of some lines.
    pub(super) fn see(&mut self, level: Level, data: &[f32], lines: &Lines, columns: Range<usize>) {
        level.run(ColumnMax {
            maxima: &mut self.maxima[..self.columns],
            data,
            lines,
            columns,
        });
    }

    /// Joins the largest magnitudes of the rows of a line. Returns the number of magnitudes that remain.
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

    /// Keeps the largest magnitudes as the blocks'.
    pub(super) fn keep_for_blocks(&mut self, lines: &Lines, units: &mut Option<Units>) {
        let width = self.fold(lines);
        self.of_blocks.clear();
        self.of_blocks.extend_from_slice(&self.maxima[..width]);
        if let Some(units) = units {
            units.take(&self.of_blocks, &mut []);
        }
    }

    /// A tile that knows the largest magnitudes of its blocks, given the largest magnitudes of the columns of their lines.
    pub(in crate::quantize) fn of_blocks(maxima: &[u32], lines: &Lines) -> Self {
        let mut tile = Self::new();
        tile.reset(maxima.len()).copy_from_slice(maxima);
        tile.keep_for_blocks(lines, &mut None);
        tile
    }

    /// [`BlockRule::ordinary_blocks`] in whole vectors, if all blocks are ordinary.
    pub(super) fn ordinary_blocks(
        &mut self,
        rule: &BlockRule,
        level: Level,
    ) -> Option<[&[u32]; 2]> {
        if !rule.are_ordinary(&self.of_blocks) {
            return None;
        }
        let count = self.of_blocks.len();
        let [first, second] = &mut self.grids;
        level.run(TameBlocks {
            rule,
            maxima: &self.of_blocks,
            words: [&mut first[..count], &mut second[..count]],
        });
        let count = count.next_multiple_of(LANES);
        Some([&first[..count], &second[..count]])
    }

    /// From the largest magnitudes to the grids. The columns of the lines hold whole blocks.
    pub(in crate::quantize) fn make_grids(
        &mut self,
        rule: &BlockRule,
        level: Level,
        data: &[f32],
        lines: &Lines,
        columns: Range<usize>,
        units: &mut Option<Units>,
    ) {
        let width = self.fold(lines);
        let blocks = match lines.pool {
            Some(pool) => pool.fold(&mut self.maxima[..width], u32::max),
            None => width,
        };
        let (maxima, mut ordinary) = (&self.maxima[..blocks], false);
        level.run(
            #[inline(always)]
            || ordinary = rule.are_ordinary(maxima),
        );
        self.way = way(ordinary, units);
        let rows = Rows {
            data,
            lines,
            columns,
            width,
        };
        if rule.looks_twice() && (ordinary || rule.looks_alike()) {
            self.look_twice(rule, level, &rows, blocks);
        } else if !ordinary {
            self.look_again(rule, &rows, blocks);
        }
        let maxima = &self.maxima[..blocks];
        let refinements = match rule.looks_twice() {
            true => &self.choices,
            false => maxima,
        };
        let grids = self.grids.each_mut().map(|words| &mut words[..blocks]);
        make_grids(rule, level, ordinary, [maxima, refinements], grids);
        if let Some(units) = units {
            units.take(maxima, &mut self.grids[0][..blocks]);
        }
        if let Some(pool) = lines.pool {
            for words in &mut self.grids {
                pool.spread(&mut words[..width]);
            }
        }
        self.repeat_grids(width);
    }

    /// Looks a second time at ordinary blocks, whose largest magnitudes are known.
    fn look_twice(&mut self, rule: &BlockRule, level: Level, rows: &Rows<'_>, blocks: usize) {
        let Rows { lines, width, .. } = rows;
        for words in &mut self.looks {
            words.clear();
            words.resize(*width, 0);
        }
        level.run(Looks {
            rule,
            maxima: &self.maxima[..blocks],
            looks: self.looks.each_mut().map(|words| &mut words[..blocks]),
        });
        if let Some(pool) = lines.pool {
            for words in &mut self.looks {
                pool.spread(words);
            }
        }
        self.sums.clear();
        self.sums.resize(*width, 0);
        level.run(Sums {
            rule,
            rows,
            looks: self.looks.each_ref().map(|words| &words[..]),
            sums: &mut self.sums,
        });
        if let Some(pool) = lines.pool {
            pool.fold(&mut self.sums, i64::wrapping_add);
        }
        let count = rows.data.len() / lines.inner;
        self.choices.clear();
        for (i, (amax, sum)) in self.maxima[..blocks].iter().zip(&self.sums).enumerate() {
            let columns = lines.pool.map_or(1, |pool| pool.columns(i, *width));
            self.choices.push(rule.choice(*amax, *sum, count * columns));
        }
    }

    /// Looks at blocks again of which not all are ordinary: at what counts, and a second time where that is to be.
    fn look_again(&mut self, rule: &BlockRule, rows: &Rows<'_>, blocks: usize) {
        self.choices.clear();
        for block in 0..blocks {
            let amax = self.maxima[block];
            if amax >= INFINITY {
                self.maxima[block] = rule.counted_max(rows.block(block));
            }
            if rule.looks_twice() {
                self.choices.push(rule.refinement(amax, rows.block(block)));
            }
        }
    }

    /// From the largest magnitudes of sub-blocks and of blocks to the grids.
    pub(super) fn make_sub_grids(
        &mut self,
        rule: &BlockRule,
        level: Level,
        lines: &Lines,
        units: &mut Option<Units>,
    ) {
        let width = self.fold(lines);
        let grids = self.grids.each_mut().map(|words| &mut words[..width]);
        let (maxima, sub_maxima) = (&self.of_blocks[..width], &self.maxima[..width]);
        let ordinary = rule.are_ordinary(maxima);
        self.way = way(ordinary, units);
        make_grids(rule, level, ordinary, [maxima, sub_maxima], grids);
        if let Some(units) = units {
            units.take(&[], &mut self.grids[0][..width]);
        }
        self.repeat_grids(width);
    }

    /// Repeats the grids of a row for all rows of a line.
    fn repeat_grids(&mut self, row: usize) {
        let mut width = row;
        while width < self.columns {
            for words in &mut self.grids {
                words.copy_within(..width, width);
            }
            width *= 2;
        }
    }

    /// Works on some columns of whole sub-blocks of the blocks that were [kept](Self::keep_for_blocks). With `units` the work ends
    /// at a block that is not ordinary. Returns whether all sub-blocks were worked on.
    #[expect(clippy::too_many_arguments, reason = "all that a kernel needs")]
    pub(in crate::quantize) fn sub_blocks<R: ElementRule>(
        &mut self,
        job: &Job<R>,
        level: Level,
        data: &mut [f32],
        start: u64,
        lines: &Lines,
        columns: Range<usize>,
        draws: &mut Draws,
        units: &mut Option<Units>,
    ) -> bool {
        let length = job.rule.sub_block() * lines.inner;
        for (i, part) in data.chunks_mut(length).enumerate() {
            self.reset(columns.len());
            self.see(level, part, lines, columns.clone());
            self.make_sub_grids(&job.rule, level, lines, units);
            if units.is_some() && self.way == Way::Any {
                return false;
            }
            let start = start + (i * length) as u64;
            self.apply(job, level, part, start, lines, columns.clone(), 0, draws);
        }
        true
    }

    /// Works on the columns of some lines, the first of which begins at position `start` of the tensor.
    /// `ahead` is how many elements lie between these columns and the ones that are worked on next, or 0. `draws` are of the job's
    /// stream.
    #[expect(clippy::too_many_arguments, reason = "all that a kernel needs")]
    pub(in crate::quantize) fn apply<R: ElementRule>(
        &self,
        job: &Job<R>,
        level: Level,
        data: &mut [f32],
        start: u64,
        lines: &Lines,
        columns: Range<usize>,
        ahead: usize,
        draws: &mut Draws,
    ) {
        let [first, second] = &self.grids;
        for (i, line) in data.chunks_mut(lines.width).enumerate() {
            let end = columns.end.min(line.len());
            let data = &mut line[columns.start..end];
            let count = data.len();
            if ahead > 0 {
                prefetch(data.as_ptr().wrapping_add(ahead), count);
            }
            Elements {
                job,
                grids: Grids::Each([&first[..count], &second[..count]]),
                way: self.way,
                data,
                start: start + (i * lines.width + columns.start) as u64,
                draws,
            }
            .work(level);
        }
    }
}

/// The kind of grids that blocks have.
pub(super) fn way(ordinary: bool, units: &Option<Units>) -> Way {
    match (ordinary, units) {
        (false, _) => Way::Any,
        (true, None) => Way::Ordinary,
        (true, Some(_)) => Way::Units,
    }
}

/// The grids of many sub-blocks, word by word, from the largest magnitudes of their blocks and their own, or what second
/// looks say.
fn make_grids(
    rule: &BlockRule,
    level: Level,
    ordinary: bool,
    [maxima, refinements]: [&[u32]; 2],
    pairs: [&mut [u32]; 2],
) {
    let pairs = TamePairs {
        rule,
        maxima,
        refinements,
        pairs,
    };
    match ordinary {
        true => level.run(pairs),
        false => level.run(AnyPairs(pairs)),
    }
}

/// Some columns of some lines, `width` of a row.
struct Rows<'a> {
    data: &'a [f32],
    lines: &'a Lines,
    columns: Range<usize>,
    width: usize,
}

impl Rows<'_> {
    /// The rows.
    #[inline(always)]
    fn each(&self) -> impl Iterator<Item = &[f32]> + Clone {
        let Self {
            data,
            lines,
            columns,
            width,
        } = self;
        data.chunks(lines.width).flat_map(
            #[inline(always)]
            |line| line[columns.start..columns.end.min(line.len())].chunks(*width),
        )
    }

    /// The elements of a block, given its number.
    fn block(&self, block: usize) -> impl Iterator<Item = f32> {
        let (columns, step) = match self.lines.pool {
            Some(pool) => pool.range(block, self.width),
            None => (block..block + 1, 1),
        };
        self.each()
            .flat_map(move |row| row[columns.clone()].iter().step_by(step).copied())
    }
}

/// [`BlockRule::ordinary_looks`].
struct Looks<'a> {
    rule: &'a BlockRule,
    maxima: &'a [u32],
    looks: [&'a mut [u32]; LOOK_WORDS],
}

impl Kernel for Looks<'_> {
    #[inline(always)]
    fn run(self) {
        self.rule.ordinary_looks(self.maxima, self.looks);
    }
}

/// [`BlockRule::add_to_sums`] of all rows.
struct Sums<'a> {
    rule: &'a BlockRule,
    rows: &'a Rows<'a>,
    looks: [&'a [u32]; LOOK_WORDS],
    sums: &'a mut [i64],
}

impl Kernel for Sums<'_> {
    #[inline(always)]
    fn run(self) {
        for row in self.rows.each() {
            self.rule.add_to_sums(self.looks, row, self.sums);
        }
    }
}
