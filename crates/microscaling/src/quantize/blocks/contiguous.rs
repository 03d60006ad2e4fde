//! Blocks along a contiguous axis.

mod few;
mod magnitudes;

use super::{Elements, Grids, Job, Second, TamePairs, TameSeconds, Units, Way};
use crate::processor::instruction_set::{Kernel, Level};
use crate::quantize::largest::MagnitudeMax;
pub(crate) use crate::quantize::rules::LANES;
use crate::quantize::rules::{BlockRule, ElementRule, Grid, ScalePair, SubScaleRule, TOGETHER};
use crate::round::bits::INFINITY;
use crate::round::draws::Draws;
use core::hint::black_box;
use few::FewWindows;
use magnitudes::across;
pub(crate) use magnitudes::{lanes, largest_of_block};

/// Elements of the longest blocks that are worked on together.
const LONGEST: usize = 64 * TOGETHER;

/// Elements of the sub-blocks of both levels, in blocks of 64 that are worked on together.
const SUB_SCALES: [usize; 2] = [8, 4];

/// Whether [`Line::windows`] are of such blocks.
pub(crate) fn is_usual(rule: &BlockRule, block: usize) -> bool {
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
        let mut done = 0;
        loop {
            let (left, at) = (&mut line[done..], start + done as u64);
            done += self.windows(left, block, at, None);
            // Few blocks, or blocks of another length, or a window with a block that is not tame.
            let (left, at) = (&mut line[done..], start + done as u64);
            let window = TOGETHER * block.min(left.len());
            if left.len() <= window || !is_usual(&self.job.rule, block) {
                return self.blocks(left, block, at);
            }
            self.blocks(&mut left[..window], block, at);
            done += window;
        }
    }

    /// Works on windows of [`TOGETHER`] blocks, up to one with a block that is not tame. Returns on how many elements. With
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
        if self.job.rule.has_few() {
            if !R::USES_DRAWS && S == B {
                self.level.run(FewWindows::<_, B> {
                    job: self.job,
                    data,
                    done: &mut done,
                });
            }
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
        let max = |data: &[f32]| {
            let mut amax = 0;
            level.run(MagnitudeMax {
                data,
                amax: &mut amax,
            });
            amax
        };
        // A NaN or Inf is rare.
        let counted = |largest: u32, data: &[f32]| match largest {
            INFINITY.. => rule.counted_max(data.iter().copied()),
            amax => amax,
        };
        let largest = max(block);
        let tame = rule.are_tame(&[largest]);
        let amax = counted(largest, block);
        let mut second = amax;
        if rule.looks_twice() && tame {
            level.run(TameSeconds::<0> {
                rule,
                maxima: &[amax],
                blocks: block,
                seconds: core::slice::from_mut(&mut second),
            });
        } else if rule.looks_twice() {
            level.run(Second {
                rule,
                amax,
                block,
                second: &mut second,
            });
        }
        let length = block.len();
        let sub_block = rule.sub_block().min(length);
        let first_level = rule.first_sub_block();
        let mut of_first = 0;
        for i in 0..length.div_ceil(sub_block) {
            let range = i * sub_block..length.min((i + 1) * sub_block);
            if rule.has_sub_blocks(length) {
                let own = counted(max(&block[range.clone()]), &block[range.clone()]);
                second = match first_level {
                    Some(level) => {
                        if range.start.is_multiple_of(level) {
                            let all = &block[range.start..length.min(range.start + level)];
                            of_first = counted(max(all), all);
                        }
                        SubScaleRule::second([of_first, own])
                    }
                    None => own,
                };
            }
            let data = &mut block[range];
            let grid = self.grid(tame, amax, second);
            level.run(Elements {
                job: self.job,
                grids: Grids::One(grid),
                way: if tame { Way::Tame } else { Way::Any },
                data,
                start: start + (i * sub_block) as u64,
                draws: self.draws,
            });
        }
    }

    /// The grid of one sub-block.
    fn grid(&self, tame: bool, amax: u32, second: u32) -> Grid {
        let rule = &self.job.rule;
        if !tame {
            return rule.grid(amax, second);
        }
        let mut words = [[0]; 2];
        self.level.run(TamePairs {
            rule,
            maxima: &[amax],
            seconds: &[second],
            pairs: words.each_mut().map(|word| &mut word[..]),
        });
        words.map(|[word]| word)
    }
}

/// Works on windows of [`TOGETHER`] blocks of B elements, which are vectors. A sub-block has S lanes; a format without
/// sub-blocks has S = B. The work ends before a window that has a block which is not tame.
///
/// A block alone is one long chain of operations that wait for each other. [`TOGETHER`] blocks at once keep the
/// processor busy: first all largest magnitudes, then all scales, then all elements. They are few enough that the
/// processor begins to read the next blocks while it rounds these.
struct Windows<'a, R, const B: usize, const S: usize> {
    job: &'a Job<R>,
    level: Level,
    data: &'a mut [f32],
    /// Position of the data in the tensor.
    start: u64,
    draws: &'a mut Draws,
    units: Option<&'a mut Units>,
    /// To be increased by the elements that were worked on.
    done: &'a mut usize,
}

impl<R: ElementRule, const B: usize, const S: usize> Kernel for Windows<'_, R, B, S> {
    #[inline(always)]
    fn run(mut self) {
        // By value: loops without branches need what they look at in registers.
        let (job, level) = (*self.job, self.level);
        let rule = &job.rule;
        let looks_twice = rule.looks_twice();
        let way = match self.units {
            Some(_) => Way::Units,
            None => Way::Tame,
        };
        // The grid of each element, word by word, where it is needed.
        let mut of_elements = [[0; LONGEST]; 2];
        let mut of_elements = of_elements
            .each_mut()
            .map(|words| &mut words[..TOGETHER * B]);
        let windows = self.data.chunks_exact_mut(TOGETHER * B);
        for (window, start) in windows.zip((self.start..).step_by(TOGETHER * B)) {
            let mut maxima = [0; TOGETHER];
            for (amax, block) in maxima.iter_mut().zip(window.as_chunks::<B>().0) {
                *amax = largest_of_block(block);
            }
            if !rule.are_tame(&maxima) {
                return;
            }
            let mut seconds = maxima;
            if looks_twice {
                level.run(TameSeconds::<B> {
                    rule,
                    maxima: &maxima,
                    blocks: window,
                    seconds: &mut seconds,
                });
            }
            let draws = self.draws.get(R::USES_DRAWS, start, window.len());
            let draws = draws.as_chunks().0;
            if (B, S) == (64, SUB_SCALES[1]) {
                let mut of_blocks = [[0; TOGETHER]; 2];
                rule.tame_blocks(&maxima, of_blocks.each_mut().map(|words| &mut words[..]));
                sub_scaled::<R, B>(&job, window, draws, &of_blocks);
                *self.done += TOGETHER * B;
                continue;
            }
            let mut of_blocks = maxima;
            if S < B {
                rule.tame_blocks(&maxima, [&mut of_blocks, &mut []]);
            }
            if way.is_unscaled(rule) && S < B {
                unscaled::<R, B, S>(&job, window, draws, &of_blocks);
                *self.done += TOGETHER * B;
                continue;
            }
            if S < B {
                // The longest blocks with sub-blocks are a vector.
                let [scales, inverses] = of_elements
                    .each_mut()
                    .map(|words| words.as_chunks_mut::<LANES>().0);
                for i in 0..TOGETHER {
                    // Hidden for the same reason.
                    let i = black_box(i) % TOGETHER;
                    let own = across::<S>(&window.as_chunks().0[i]);
                    let of_block = [of_blocks[i]; LANES];
                    [scales[i], inverses[i]] =
                        rule.tame_sub_pairs([&of_block, &of_block], &own, &own);
                }
                if let Some(units) = &mut self.units {
                    units.take(&maxima, of_elements[0]);
                }
            } else {
                let mut pairs = [[0; TOGETHER]; 2];
                let words = pairs.each_mut().map(|words| &mut words[..]);
                rule.tame_pairs(&maxima, &seconds, words);
                if way.is_unscaled(rule) || !R::USES_DRAWS {
                    match way.is_unscaled(rule) {
                        true => unscaled::<R, B, S>(&job, window, draws, &pairs[0]),
                        false => scaled::<R, B>(&job, window, &pairs),
                    }
                    *self.done += TOGETHER * B;
                    continue;
                }
                spread::<B>(&pairs, &mut of_elements);
            }
            level.run(Elements {
                job: self.job,
                grids: Grids::Each(of_elements.each_ref().map(|words| &**words)),
                way,
                data: window,
                start,
                draws: self.draws,
            });
            *self.done += TOGETHER * B;
        }
    }
}

/// From the pairs of blocks to the pairs of their elements.
#[inline(always)]
fn spread<const B: usize>(pairs: &[[u32; TOGETHER]; 2], of_elements: &mut [&mut [u32]; 2]) {
    for (words, pairs) in of_elements.iter_mut().zip(pairs) {
        let blocks = words.as_chunks_mut::<B>().0;
        for i in 0..TOGETHER {
            // Hidden, lest blocks become lanes.
            let i = black_box(i) % TOGETHER;
            blocks[i] = [pairs[i]; B];
        }
    }
}

/// Works on a window, vector by vector, where scales are powers of two: given the scale of each block, or the largest magnitude
/// of each block with sub-blocks.
#[inline(always)]
fn unscaled<R: ElementRule, const B: usize, const S: usize>(
    job: &Job<R>,
    window: &mut [f32],
    draws: &[[u32; LANES]],
    of_blocks: &[u32; TOGETHER],
) {
    let (rule, element) = (job.rule, job.rule.unit_element());
    for (j, vector) in window.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        // Hidden, lest blocks become lanes.
        let j = black_box(j);
        let mut scales = lanes::<B>(of_blocks, j * LANES / B);
        if S < B {
            let own = across::<S>(vector);
            [scales, _] = rule.tame_sub_pairs([&scales, &scales], &own, &own);
        }
        if !R::USES_DRAWS {
            for (x, scale) in vector.iter_mut().zip(scales) {
                *x = job.element_rule.tame_unscaled(&element, scale, *x, 0);
            }
            continue;
        }
        for ((x, scale), draw) in vector.iter_mut().zip(scales).zip(draws[j]) {
            *x = job.element_rule.tame_unscaled(&element, scale, *x, draw);
        }
    }
}

/// Works on a window whose sub-blocks may double the scales of their blocks, vector by vector.
#[inline(always)]
fn sub_scaled<R: ElementRule, const B: usize>(
    job: &Job<R>,
    window: &mut [f32],
    draws: &[[u32; LANES]],
    of_blocks: &[[u32; TOGETHER]; 2],
) {
    let (rule, element) = (job.rule, job.rule.unit_element());
    for (j, vector) in window.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        // Hidden, lest blocks become lanes.
        let j = black_box(j);
        let words = of_blocks
            .each_ref()
            .map(|words| lanes::<B>(words, j * LANES / B));
        let first = across::<{ SUB_SCALES[0] }>(vector);
        let own = across::<{ SUB_SCALES[1] }>(vector);
        let [scales, inverses] = rule.tame_sub_pairs(words.each_ref(), &first, &own);
        for i in 0..LANES {
            let pair = ScalePair::of([scales[i], inverses[i]]);
            let draw = if R::USES_DRAWS { draws[j][i] } else { 0 };
            vector[i] = job.element_rule.tame(&element, pair, vector[i], draw);
        }
    }
}

/// Works on a window by a rule without draws, vector by vector.
#[inline(always)]
fn scaled<R: ElementRule, const B: usize>(
    job: &Job<R>,
    window: &mut [f32],
    pairs: &[[u32; TOGETHER]; 2],
) {
    let element = job.rule.unit_element();
    for (j, vector) in window.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        // Hidden, lest blocks become lanes.
        let block = black_box(j) * LANES / B;
        let (scales, inverses) = (lanes::<B>(&pairs[0], block), lanes::<B>(&pairs[1], block));
        for ((x, scale), inverse) in vector.iter_mut().zip(scales).zip(inverses) {
            let pair = ScalePair { scale, inverse };
            *x = job.element_rule.tame(&element, pair, *x, 0);
        }
    }
}
