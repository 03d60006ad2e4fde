//! Blocks along a contiguous axis.

mod magnitudes;
mod short_table;
mod windows;

use super::exchange::exchange_at;
use super::interleaved::{Run, Tile};
use super::table_lanes::ContiguousTables;
use super::{Elements, Grids, Job, Second, TamePairs, TameSeconds, Units, Way, largest_at};
use crate::quantize::layout::Layout;
pub(crate) use crate::quantize::rules::LANES;
use crate::quantize::rules::{
    BlockRule, ElementRule, Grid, OuterScaleRule, SubScaleRule, TOGETHER,
};
use crate::round::bits::INFINITY;
use crate::round::draws::{Draws, WINDOW};
use alloc::vec;
pub(crate) use magnitudes::lanes;
pub use magnitudes::largest_of_block;
use microscaling_processor::instruction_set::Level;
use short_table::ShortTableWindows;
use windows::{SUB_SCALES, Windows};

/// How many blocks are worked on as columns.
const COLUMNS: [usize; 2] = [64, LANES];

/// The longest blocks that are worked on as columns. Longer ones are enough vectors as they are, and many of them exceed the caches.
const LONGEST: usize = 512;

/// Whether [`Line::windows`] are of such blocks.
pub(crate) fn is_usual(rule: &BlockRule, block: usize) -> bool {
    if let BlockRule::OuterScale(_) = rule {
        return false;
    }
    let sub_block = rule.sub_block().min(block);
    match (block, rule.first_sub_block()) {
        (64, Some(first)) => [first, sub_block] == SUB_SCALES,
        (_, Some(_)) => false,
        (16, None) => matches!(sub_block, 2 | 4 | 8 | 16),
        (8 | 32 | 64, None) => sub_block == block,
        _ => false,
    }
}

/// Contiguous blocks, with the draws of the elements.
pub(crate) struct Line<'a, R> {
    pub(crate) job: &'a Job<R>,
    pub(crate) level: Level,
    pub(crate) draws: &'a mut Draws,
}

impl<R: ElementRule> Line<'_, R> {
    /// Works on contiguous blocks; the last one may be shorter.
    pub(in crate::quantize) fn quantize(&mut self, line: &mut [f32], block: usize, start: u64) {
        let mut done = match block <= LONGEST && self.job.rule.is_of_columns(block) {
            true => self.columns(line, block, start),
            false => 0,
        };
        if let BlockRule::OuterScale(rule) = &self.job.rule {
            return self.parts(rule, &mut line[done..], block, start + done as u64);
        }
        loop {
            let (left, at) = (&mut line[done..], start + done as u64);
            done += self.windows(left, block, at, None);
            // Few blocks, or blocks of another length, or a window with a block that is not ordinary.
            let (left, at) = (&mut line[done..], start + done as u64);
            let window = TOGETHER * block.min(left.len());
            if left.len() <= window || !is_usual(&self.job.rule, block) {
                return self.blocks(left, block, at);
            }
            self.blocks(&mut left[..window], block, at);
            done += window;
        }
    }

    /// Works on blocks as columns, many at a time. Returns on how many elements.
    fn columns(&mut self, line: &mut [f32], block: usize, start: u64) -> usize {
        // Short blocks are neighbours in a row, whose length is a vector's.
        let length = match LANES.is_multiple_of(block) {
            true => LANES,
            false => block,
        };
        let uses_draws = R::USES_DRAWS && self.job.rule.own_rounding().is_none();
        let level = self.level;
        let mut tile = Tile::new();
        let mut done = 0;
        for columns in COLUMNS {
            let count = columns * length;
            let windows = line[done..].chunks_exact_mut(count);
            if windows.len() == 0 {
                continue;
            }
            let layout = Layout {
                axis: block,
                inner: columns,
                block,
                pool: None,
            };
            let mut turned = vec![0.0; count];
            let draws = if uses_draws { count } else { 0 };
            let (mut words, mut turned_words) = (vec![0; draws], vec![0; draws]);
            for window in windows {
                let (there, back) = ([length, columns], [columns, length]);
                exchange_at(level, window, there, back, &mut turned);
                if uses_draws {
                    let (from, at) = (&mut *self.draws, start + done as u64);
                    level.run(
                        #[inline(always)]
                        || fill(&mut words, from, at),
                    );
                    exchange_at(level, &words, there, back, &mut turned_words);
                }
                let mut draws = Draws::of(turned_words);
                for (data, at) in turned
                    .chunks_exact_mut(columns * block)
                    .zip((0..).step_by(columns * block))
                {
                    let run = Run {
                        data,
                        layout: &layout,
                        start: at,
                        goes_on: false,
                    };
                    run.quantize(self.job, level, &mut tile, &mut draws, None);
                }
                turned_words = draws.into_words();
                exchange_at(level, &turned, back, there, window);
                done += count;
            }
        }
        done
    }

    /// Works on parts that have an outer scale, each as on a tensor with this scale.
    fn parts(&mut self, rule: &OuterScaleRule, line: &mut [f32], part: usize, start: u64) {
        for (i, data) in line.chunks_mut(part).enumerate() {
            let job = Job {
                rule: BlockRule::FloatScale(rule.within(self.largest(data))),
                ..*self.job
            };
            let mut line = Line {
                job: &job,
                level: self.level,
                draws: self.draws,
            };
            line.quantize(data, rule.block, start + (i * part) as u64);
        }
    }

    fn largest(&self, data: &[f32]) -> u32 {
        largest_at(self.level, data)
    }

    /// Works on windows of [`TOGETHER`] blocks, up to one with a block that is not ordinary. Returns on how many elements. With
    /// `units`, which only blocks with sub-blocks may have, the results are divided by the scales of their sub-blocks.
    pub(crate) fn windows(
        &mut self,
        data: &mut [f32],
        block: usize,
        start: u64,
        units: Option<&mut Units>,
    ) -> usize {
        if !is_usual(&self.job.rule, block) {
            return 0;
        }
        // The usual lengths as constants, so that a block is a few vectors.
        match (block, self.job.rule.sub_block().min(block)) {
            (16, 2) => self.windows_of::<16, 2>(data, start, units),
            (16, 4) => self.windows_of::<16, 4>(data, start, units),
            (16, 8) => self.windows_of::<16, 8>(data, start, units),
            (8, 8) => self.windows_of::<8, 8>(data, start, units),
            (16, 16) => self.windows_of::<16, 16>(data, start, units),
            (32, 32) => self.windows_of::<32, 32>(data, start, units),
            (64, 4) => self.windows_of::<64, 4>(data, start, units),
            (64, 64) => self.windows_of::<64, 64>(data, start, units),
            _ => 0,
        }
    }

    fn windows_of<const B: usize, const S: usize>(
        &mut self,
        data: &mut [f32],
        start: u64,
        units: Option<&mut Units>,
    ) -> usize {
        let mut done = 0;
        if self.job.rule.has_short_tables() {
            if S != B {
                return 0;
            }
            if B.is_multiple_of(LANES) {
                self.level.run(ContiguousTables::<_, B> {
                    job: self.job,
                    data: &mut *data,
                    start,
                    draws: self.draws,
                    done: &mut done,
                });
            }
            self.level.run(ShortTableWindows::<_, B> {
                job: self.job,
                data: &mut data[done..],
                start: start + done as u64,
                draws: self.draws,
                done: &mut done,
            });
            return done;
        }
        self.level.run(Windows::<_, B, S> {
            job: self.job,
            level: self.level,
            data,
            start,
            draws: self.draws,
            units,
            done: &mut done,
        });
        done
    }

    /// Works on blocks of any length; the last one may be shorter.
    fn blocks(&mut self, data: &mut [f32], block: usize, start: u64) {
        for (i, piece) in data.chunks_mut(block).enumerate() {
            self.block(piece, start + (i * block) as u64);
        }
    }

    /// Works on one block of any length.
    pub(in crate::quantize) fn block(&mut self, block: &mut [f32], start: u64) {
        let (rule, level) = (&self.job.rule, self.level);
        // A NaN or Inf is rare.
        let counted = |largest: u32, data: &[f32]| match largest {
            INFINITY.. => rule.counted_max(data.iter().copied()),
            amax => amax,
        };
        let largest = self.largest(block);
        let ordinary = rule.are_ordinary(&[largest]);
        let amax = counted(largest, block);
        let mut refinement = amax;
        if rule.looks_twice() && ordinary {
            level.run(TameSeconds::<0> {
                rule,
                maxima: &[amax],
                blocks: block,
                refinements: core::slice::from_mut(&mut refinement),
            });
        } else if rule.looks_twice() {
            level.run(Second {
                rule,
                amax,
                block,
                refinement: &mut refinement,
            });
        }
        let length = block.len();
        let sub_block = rule.sub_block().min(length);
        let first_level = rule.first_sub_block();
        let mut of_first = 0;
        for i in 0..length.div_ceil(sub_block) {
            let range = i * sub_block..length.min((i + 1) * sub_block);
            if rule.has_sub_blocks(length) {
                let own = counted(self.largest(&block[range.clone()]), &block[range.clone()]);
                refinement = match first_level {
                    Some(level) => {
                        if range.start.is_multiple_of(level) {
                            let all = &block[range.start..length.min(range.start + level)];
                            of_first = counted(self.largest(all), all);
                        }
                        SubScaleRule::refinement([of_first, own])
                    }
                    None => own,
                };
            }
            let data = &mut block[range];
            let grid = self.grid(ordinary, amax, refinement);
            Elements {
                job: self.job,
                grids: Grids::One(grid),
                way: if ordinary { Way::Ordinary } else { Way::Any },
                data,
                start: start + (i * sub_block) as u64,
                draws: self.draws,
            }
            .work(level);
        }
    }

    /// The grid of one sub-block.
    fn grid(&self, ordinary: bool, amax: u32, refinement: u32) -> Grid {
        let rule = &self.job.rule;
        if !ordinary {
            return rule.grid(amax, refinement);
        }
        let mut words = [[0]; 2];
        self.level.run(TamePairs {
            rule,
            maxima: &[amax],
            refinements: &[refinement],
            pairs: words.each_mut().map(|word| &mut word[..]),
        });
        words.map(|[word]| word)
    }
}

/// Writes the draws of the elements from a position on.
#[inline(always)]
fn fill(words: &mut [u32], draws: &mut Draws, start: u64) {
    for (words, at) in words.chunks_mut(WINDOW).zip((start..).step_by(WINDOW)) {
        words.copy_from_slice(draws.get(true, at, words.len()));
    }
}
