//! Contiguous blocks whose elements are of tables with few numbers.

use super::magnitudes::largest_of_block;
use crate::quantize::blocks::Job;
use crate::quantize::rules::{BlockRule, ElementRule, ScalePair, TOGETHER, are_within};
use crate::round::bits::{ABS, product};
use crate::round::draws::Draws;
use core::hint::black_box;
use microscaling_processor::instruction_set::Kernel;

/// Works on windows of [`TOGETHER`] blocks of B elements, up to one with a block that is not ordinary.
pub(super) struct ShortTableWindows<'a, R, const B: usize> {
    pub(super) job: &'a Job<R>,
    pub(super) data: &'a mut [f32],
    /// Position of the data in the tensor.
    pub(super) start: u64,
    pub(super) draws: &'a mut Draws,
    /// To be increased by the elements that were worked on.
    pub(super) done: &'a mut usize,
}

impl<R: ElementRule, const B: usize> Kernel for ShortTableWindows<'_, R, B> {
    #[inline(always)]
    fn run(self) {
        let BlockRule::FloatScale(rule) = self.job.rule else {
            return;
        };
        let Some(tables) = rule.tables else { return };
        let (element_rule, ordinary) = (self.job.element_rule, rule.ordinary_range_of_few());
        let windows = self.data.chunks_exact_mut(TOGETHER * B);
        for (window, start) in windows.zip((self.start..).step_by(TOGETHER * B)) {
            let mut maxima = [0; TOGETHER];
            for (amax, block) in maxima.iter_mut().zip(window.as_chunks::<B>().0) {
                *amax = largest_of_block(block);
            }
            if !are_within(ordinary.clone(), &maxima) {
                return;
            }
            let draws = self.draws.get(R::USES_DRAWS, start, window.len());
            let draws = draws.as_chunks::<B>().0;
            let blocks = window.as_chunks_mut::<B>().0;
            let (chosen, [scales, inverses]) = rule.ordinary_few(tables, &maxima, blocks);
            for (i, block) in blocks.iter_mut().enumerate() {
                // Hidden, lest blocks become lanes.
                let i = black_box(i) % TOGETHER;
                // By value, like the rule.
                let Some(short) = tables.0[chosen[i]].short_table().copied() else {
                    return;
                };
                let pair = ScalePair::of([scales[i], inverses[i]]);
                for (x, draw) in block.iter_mut().zip(&draws[i]) {
                    let scaled = product(x.to_bits() & ABS, pair.inverse);
                    *x = element_rule.short_table(&short, pair, scaled, *x, *draw);
                }
            }
            *self.done += TOGETHER * B;
        }
    }
}
