//! The pass over the elements.
//!
//! The parts of the tensor are shared among threads.

use super::look::{Look, Views};
use super::partial::Partial;
use super::parts::{PART, StatisticsParts};
use super::quantizer::Quantizer;
use super::scales::Scales;
use crate::quantize::layout::{Layout, Runs};
use alloc::vec::Vec;
use core::ops::Range;
use microscaling_processor::instruction_set::dispatch;
use microscaling_processor::threads::{Divide, share_all};

/// A tensor with at least one element before and after, as it lies in memory, or made part by part.
pub(super) enum Source<'a> {
    Given(Views<'a>),
    Quantized(&'a [f32], &'a Quantizer),
}

impl Source<'_> {
    fn original(&self) -> &[f32] {
        match self {
            Self::Given([original, ..]) => original,
            Self::Quantized(original, _) => original,
        }
    }
}

/// The sums over a tensor, part by part.
pub(super) fn partials(
    source: &Source<'_>,
    layout: Layout,
    scales: Option<&Scales>,
) -> Vec<Partial> {
    let runs = Runs::of(layout);
    let parts = StatisticsParts::of_layout(layout, source.original().len());
    let mut partials: Vec<Partial> = (0..parts.count()).map(|_| Partial::default()).collect();
    let piece = SomeParts {
        partials: &mut partials,
        first: 0,
    };
    share_all(piece, &|SomeParts { partials, first }| {
        let mut scratch = [const { Vec::new() }; 2];
        for (i, partial) in partials.iter_mut().enumerate() {
            let part = parts.runs_and_columns(first + i);
            let (views, layout, at) = part_of(source, runs, part, &mut scratch);
            dispatch(Look {
                views,
                layout,
                at,
                scales,
                partial,
            });
        }
    });
    partials
}

/// A part of the tensor without gaps, its layout, and its position on the axis.
fn part_of<'a>(
    source: &Source<'a>,
    runs: Runs,
    [range, columns]: [Range<usize>; 2],
    scratch: &'a mut [Vec<f32>; 2],
) -> (Views<'a>, Layout, usize) {
    let Layout {
        axis,
        inner,
        block,
        pool,
    } = runs.layout;
    let last = range.end - 1;
    let rows = block.min(axis - runs.at(last));
    let place = runs.start(range.start)..runs.start(last) + rows * inner;
    let is_whole = columns.len() == inner;
    let (layout, at) = match is_whole {
        true => (runs.layout, runs.at(range.start)),
        false => (
            Layout {
                axis: rows,
                inner: columns.len(),
                block: rows,
                pool,
            },
            0,
        ),
    };
    let gather = |view: &[f32], to: &mut Vec<f32>| {
        to.clear();
        let view = &view[place.clone()];
        match is_whole {
            true => to.extend_from_slice(view),
            false => view
                .chunks_exact(inner)
                .for_each(|row| to.extend_from_slice(&row[columns.clone()])),
        }
    };
    let views = match source {
        Source::Given(views) if is_whole => views.map(|view| &view[place.clone()]),
        Source::Given(views) => {
            let gathered = views.iter().zip(scratch.iter_mut());
            gathered.for_each(|(view, to)| gather(view, to));
            scratch.each_ref().map(Vec::as_slice)
        }
        Source::Quantized(tensor, quantizer) => {
            let [original, quantized] = scratch;
            gather(tensor, original);
            quantizer.round(original);
            quantized.clear();
            quantized.extend_from_slice(original);
            quantizer.quantize(quantized, layout, at);
            [original.as_slice(), quantized.as_slice()]
        }
    };
    (views, layout, at)
}

/// Some of the parts.
struct SomeParts<'a> {
    partials: &'a mut [Partial],
    first: usize,
}

impl Divide for SomeParts<'_> {
    /// As many as take as long to be quantized.
    fn elements(&self) -> usize {
        self.partials.len() * PART * 4
    }

    fn halves(self) -> Result<[Self; 2], Self> {
        let Self { partials, first } = self;
        let middle = partials.len() / 2;
        if middle == 0 {
            return Err(Self { partials, first });
        }
        let (low, high) = partials.split_at_mut(middle);
        let halves = [(low, first), (high, first + middle)];
        Ok(halves.map(|(partials, first)| Self { partials, first }))
    }
}
