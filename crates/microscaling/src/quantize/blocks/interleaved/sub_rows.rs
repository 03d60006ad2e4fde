//! Rows of interleaved ordinary blocks with sub-blocks, in one pass after the pass for the blocks' largest magnitudes.

use crate::quantize::blocks::Job;
use crate::quantize::blocks::contiguous::LANES;
use crate::quantize::rules::{BlockRule, ElementRule, FixedPointRule, ScalePair};
use crate::round::bits::ABS;
use crate::round::draws::WINDOW;
use core::ops::Range;
use microscaling_processor::instruction_set::Kernel;
use microscaling_processor::prefetch;

/// The most sub-blocks of the second level in one of the first level.
const MOST: usize = 2;

/// Columns between requests for the next ones: few, so that the processor need not wait until all requests are made.
const PIECE: usize = 64;

/// Some columns of the rows of ordinary blocks. Works by rules without draws.
pub(super) struct SubRows<'a, R> {
    pub(super) job: &'a Job<R>,
    /// [`BlockRule::ordinary_blocks`] of the columns.
    pub(super) of_blocks: [&'a [u32]; 2],
    pub(super) data: &'a mut [f32],
    /// Elements of a row.
    pub(super) inner: usize,
    /// At most [`WINDOW`] of them.
    pub(super) columns: Range<usize>,
    /// Elements from these columns to the ones that are worked on next, or 0.
    pub(super) ahead: usize,
}

/// Whether [`SubRows`] works on blocks of this rule. Another rule there would slow the others down.
pub(super) fn has_few_sub_blocks(rule: &BlockRule) -> bool {
    if let BlockRule::OuterScale(_) = rule {
        return false;
    }
    let first = rule.first_sub_block();
    first.is_none_or(|first| first <= MOST * rule.sub_block())
}

/// Words of the columns, and of as many more as fill the last vector.
type Words = [[u32; LANES]; WINDOW / LANES];

impl<R: ElementRule> Kernel for SubRows<'_, R> {
    #[inline(always)]
    fn run(self) {
        let Self {
            job,
            of_blocks,
            data,
            inner,
            columns,
            ahead,
        } = self;
        // By value: loops without branches need their operands in registers.
        let job = *job;
        let sub_rows = job.rule.sub_block();
        let first_rows = job.rule.first_sub_block().unwrap_or(sub_rows);
        let [a, b] = of_blocks.map(|words| words.as_chunks().0);
        let mut own: [Words; MOST] = [[[0; LANES]; _]; MOST];
        let mut first: Words = [[0; LANES]; _];
        for part in data.chunks_mut(first_rows * inner) {
            if let BlockRule::FixedPoint(rule) = &job.rule
                && part.len() == 2 * inner
            {
                let (one, other) = part.split_at_mut(inner);
                let rows = [one, other].map(|row| &mut row[columns.clone()]);
                two_rows(&job, rule, of_blocks[0], rows, ahead);
                continue;
            }
            let mut sub_blocks = 0;
            for (own, rows) in own.iter_mut().zip(part.chunks(sub_rows * inner)) {
                largest(rows, inner, &columns, own.as_flattened_mut());
                sub_blocks += 1;
            }
            if sub_blocks > 1 {
                let [one, other] = own.each_ref().map(|own| own.as_flattened());
                let both = one.iter().zip(other).take(columns.len());
                for (first, (one, other)) in first.as_flattened_mut().iter_mut().zip(both) {
                    *first = *one.max(other);
                }
            }
            for (own, rows) in own.iter().zip(part.chunks_mut(sub_rows * inner)) {
                let first = if sub_blocks > 1 { &first } else { own };
                for row in rows.chunks_mut(inner) {
                    let (vectors, rest) = row[columns.clone()].as_chunks_mut();
                    let words = a.iter().zip(b).zip(first.iter().zip(own));
                    for (x, ((a, b), (first, own))) in vectors.iter_mut().zip(words) {
                        vector(&job, [a, b], first, own, x);
                    }
                    let j = vectors.len();
                    if !rest.is_empty() {
                        let mut x = [0.0; LANES];
                        x[..rest.len()].copy_from_slice(rest);
                        vector(&job, [&a[j], &b[j]], &first[j], &own[j], &mut x);
                        rest.copy_from_slice(&x[..rest.len()]);
                    }
                }
            }
        }
    }
}

/// Works on the columns of sub-blocks of two rows in one pass. The largest magnitude and the scale of both stay in registers.
#[inline(always)]
fn two_rows<R: ElementRule>(
    job: &Job<R>,
    rule: &FixedPointRule,
    of_blocks: &[u32],
    [one, other]: [&mut [f32]; 2],
    ahead: usize,
) {
    let element = job.rule.unit_element();
    let rows = one.chunks_mut(PIECE).zip(other.chunks_mut(PIECE));
    for (of_blocks, (one, other)) in of_blocks.chunks(PIECE).zip(rows) {
        for row in [&*one, &*other] {
            prefetch(row.as_ptr().wrapping_add(ahead), row.len());
        }
        for (amax, (x, y)) in of_blocks.iter().zip(one.iter_mut().zip(other)) {
            let own = (x.to_bits() & ABS).max(y.to_bits() & ABS);
            let scale = rule.ordinary_scale(*amax, own);
            *x = job.element_rule.ordinary_unscaled(&element, scale, *x, 0);
            *y = job.element_rule.ordinary_unscaled(&element, scale, *y, 0);
        }
    }
}

/// The largest magnitudes of the columns of some rows, two rows at a time.
#[inline(always)]
fn largest(rows: &[f32], inner: usize, columns: &Range<usize>, maxima: &mut [u32]) {
    let maxima = &mut maxima[..columns.len()];
    for (i, rows) in rows.chunks(2 * inner).enumerate() {
        let row = &rows[columns.clone()];
        // A last row without a second one is its own second.
        let next = &rows[rows.len() - inner..][columns.clone()];
        let both = row.iter().zip(next);
        if i == 0 {
            for (max, (x, next)) in maxima.iter_mut().zip(both) {
                *max = (x.to_bits() & ABS).max(next.to_bits() & ABS);
            }
        } else {
            for (max, (x, next)) in maxima.iter_mut().zip(both) {
                *max = (*max).max(x.to_bits() & ABS).max(next.to_bits() & ABS);
            }
        }
    }
}

/// Works on neighbours in a row.
#[inline(always)]
fn vector<R: ElementRule>(
    job: &Job<R>,
    of_blocks: [&[u32; LANES]; 2],
    first: &[u32; LANES],
    own: &[u32; LANES],
    x: &mut [f32; LANES],
) {
    let (rule, element) = (job.rule, job.rule.unit_element());
    let [scales, inverses] = rule.ordinary_sub_pairs(of_blocks, first, own);
    if rule.has_powers_of_two() {
        for i in 0..LANES {
            let scale = scales[i];
            x[i] = job.element_rule.ordinary_unscaled(&element, scale, x[i], 0);
        }
    } else {
        for i in 0..LANES {
            let pair = ScalePair::of([scales[i], inverses[i]]);
            x[i] = job.element_rule.ordinary(&element, pair, x[i], 0);
        }
    }
}
