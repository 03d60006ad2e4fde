//! Contiguous blocks of usual lengths, sixteen at a time.

use super::magnitudes::{across, lanes, largest_of_block};
use crate::quantize::blocks::{Elements, Grids, Job, TameSeconds, Units, Way};
use crate::quantize::rules::{BlockRule, ElementRule, LANES, ScalePair, TOGETHER};
use crate::round::draws::Draws;
use core::hint::black_box;
use microscaling_processor::instruction_set::{Kernel, Level};

/// Elements of the longest blocks that are worked on together.
const LONGEST: usize = 64 * TOGETHER;

/// Elements of the sub-blocks of both levels, in blocks of 64 that are worked on together.
pub(super) const SUB_SCALES: [usize; 2] = [8, 4];

/// Works on windows of [`TOGETHER`] blocks of B elements, which are vectors. A sub-block has S lanes; a format without
/// sub-blocks has S = B. The work ends before a window that has a block which is not ordinary.
///
/// A block alone is one long chain of operations that wait for each other. [`TOGETHER`] blocks at once keep the
/// processor busy: first all largest magnitudes, then all scales, then all elements. They are few enough that the
/// processor begins to read the next blocks while it rounds these.
pub(super) struct Windows<'a, R, const B: usize, const S: usize> {
    pub(super) job: &'a Job<R>,
    pub(super) level: Level,
    pub(super) data: &'a mut [f32],
    /// Position of the data in the tensor.
    pub(super) start: u64,
    pub(super) draws: &'a mut Draws,
    pub(super) units: Option<&'a mut Units>,
    /// To be increased by the elements that were worked on.
    pub(super) done: &'a mut usize,
}

impl<R: ElementRule, const B: usize, const S: usize> Kernel for Windows<'_, R, B, S> {
    #[inline(always)]
    fn run(mut self) {
        // By value: loops without branches need their operands in registers.
        let (job, level) = (*self.job, self.level);
        let rule = &job.rule;
        let looks_twice = rule.looks_twice();
        let way = match self.units {
            Some(_) => Way::Units,
            None => Way::Ordinary,
        };
        // The grid of each element, word by word, if the rule reads the grid there.
        let mut of_elements = [[0; LONGEST]; 2];
        let mut of_elements = of_elements
            .each_mut()
            .map(|words| &mut words[..TOGETHER * B]);
        let windows = self.data.chunks_exact_mut(TOGETHER * B);
        for (window, start) in windows.zip((self.start..).step_by(TOGETHER * B)) {
            let mut maxima = [0; TOGETHER];
            largest_of_blocks::<B>(window, &mut maxima);
            if !rule.are_ordinary(&maxima) {
                return;
            }
            let mut refinements = maxima;
            if looks_twice {
                level.run(TameSeconds::<B> {
                    rule,
                    maxima: &maxima,
                    blocks: window,
                    refinements: &mut refinements,
                });
            }
            let draws = self.draws.get(R::USES_DRAWS, start, window.len());
            let draws = draws.as_chunks().0;
            if (B, S) == (64, SUB_SCALES[1]) {
                let mut of_blocks = [[0; TOGETHER]; 2];
                rule.ordinary_blocks(&maxima, of_blocks.each_mut().map(|words| &mut words[..]));
                if !R::USES_DRAWS {
                    sub_scaled::<R, B>(&job, window, &of_blocks);
                    *self.done += TOGETHER * B;
                    continue;
                }
                spread_sub_pairs::<B>(&job.rule, window, &of_blocks, &mut of_elements);
            } else if way.is_unscaled(rule) && S < B {
                unscaled::<R, B, S>(&job, window, draws, &maxima);
                *self.done += TOGETHER * B;
                continue;
            } else if S < B {
                // The longest blocks with sub-blocks are a vector.
                let [scales, inverses] = of_elements
                    .each_mut()
                    .map(|words| words.as_chunks_mut::<LANES>().0);
                for i in 0..TOGETHER {
                    // Hidden for the same reason.
                    let i = black_box(i) % TOGETHER;
                    let own = across::<S>(&window.as_chunks().0[i]);
                    let of_block = [maxima[i]; LANES];
                    [scales[i], inverses[i]] =
                        rule.ordinary_sub_pairs([&of_block, &of_block], &own, &own);
                }
                if let Some(units) = &mut self.units {
                    units.take(&maxima, of_elements[0]);
                }
            } else {
                let mut pairs = [[0; TOGETHER]; 2];
                let words = pairs.each_mut().map(|words| &mut words[..]);
                rule.ordinary_pairs(&maxima, &refinements, words);
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

/// The largest magnitudes of a window's blocks.
#[inline(always)]
fn largest_of_blocks<const B: usize>(window: &[f32], maxima: &mut [u32; TOGETHER]) {
    for (amax, block) in maxima.iter_mut().zip(window.as_chunks::<B>().0) {
        *amax = largest_of_block(block);
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
            [scales, _] = rule.ordinary_sub_pairs([&scales, &scales], &own, &own);
        }
        if !R::USES_DRAWS {
            for (x, scale) in vector.iter_mut().zip(scales) {
                *x = job.element_rule.ordinary_unscaled(&element, scale, *x, 0);
            }
            continue;
        }
        for ((x, scale), draw) in vector.iter_mut().zip(scales).zip(draws[j]) {
            *x = job
                .element_rule
                .ordinary_unscaled(&element, scale, *x, draw);
        }
    }
}

/// The pairs of the elements of a window's vector number `j`, whose sub-blocks may double the scales of their blocks.
#[inline(always)]
fn sub_pairs<const B: usize>(
    rule: &BlockRule,
    window: &[f32],
    of_blocks: &[[u32; TOGETHER]; 2],
    j: usize,
) -> [[u32; LANES]; 2] {
    // Hidden, lest blocks become lanes.
    let j = black_box(j);
    let vector = &window.as_chunks::<LANES>().0[j];
    let words = of_blocks
        .each_ref()
        .map(|words| lanes::<B>(words, j * LANES / B));
    let first = across::<{ SUB_SCALES[0] }>(vector);
    let own = across::<{ SUB_SCALES[1] }>(vector);
    rule.ordinary_sub_pairs(words.each_ref(), &first, &own)
}

/// [`sub_pairs`] of all vectors.
#[inline(always)]
fn spread_sub_pairs<const B: usize>(
    rule: &BlockRule,
    window: &[f32],
    of_blocks: &[[u32; TOGETHER]; 2],
    of_elements: &mut [&mut [u32]; 2],
) {
    let [scales, inverses] = of_elements
        .each_mut()
        .map(|words| words.as_chunks_mut::<LANES>().0);
    for (j, (scales, inverses)) in scales.iter_mut().zip(inverses).enumerate() {
        [*scales, *inverses] = sub_pairs::<B>(rule, window, of_blocks, j);
    }
}

/// Works by a rule without draws on a window whose sub-blocks may double the scales of their blocks, vector by vector.
#[inline(always)]
fn sub_scaled<R: ElementRule, const B: usize>(
    job: &Job<R>,
    window: &mut [f32],
    of_blocks: &[[u32; TOGETHER]; 2],
) {
    let element = job.rule.unit_element();
    for j in 0..window.len() / LANES {
        let [scales, inverses] = sub_pairs::<B>(&job.rule, window, of_blocks, j);
        let vector = &mut window.as_chunks_mut::<LANES>().0[j];
        for i in 0..LANES {
            let pair = ScalePair::of([scales[i], inverses[i]]);
            vector[i] = job.element_rule.ordinary(&element, pair, vector[i], 0);
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
            *x = job.element_rule.ordinary(&element, pair, *x, 0);
        }
    }
}
