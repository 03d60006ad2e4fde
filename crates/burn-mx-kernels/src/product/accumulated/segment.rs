//! Segments of a summed axis that is several axes: each index of the outer ones begins with a block. A matrix unit gets zeros for
//! the rest of a segment's last block.

use microscaling_product::{Accumulator, ScaleAt};

use super::blocks::{block_of_segments, common_multiple, given, has_blocks};
use super::form::AccumulatedForm;
use crate::product::convolution::{Convolution, ConvolutionProduct};

/// A segment as a matrix unit gets it.
pub(super) struct Segment {
    /// Elements with the zeros.
    pub(super) length: usize,
    /// Elements after which the unit promotes, the zeros among them.
    pub(super) promote_every: usize,
}

impl Segment {
    /// Whole blocks of both operands. Only a part of a block that is longer than the segment is given: up to the last addition and
    /// promotion that the segment needs. Additions of nothing but zeros are left out, and promotions stay at the same elements.
    pub(super) fn of(
        accumulator: &Accumulator,
        forms: &[AccumulatedForm; 2],
        shapes: &[Vec<usize>; 2],
        convolution: Option<&(Convolution, ConvolutionProduct)>,
    ) -> Self {
        let (given, has_segments) = match convolution {
            Some((convolution, product)) => {
                (given(convolution, product, shapes), has_blocks(forms))
            }
            None => {
                let several = |i: usize| has_segments(&forms[i], &shapes[i]);
                (shapes[0][forms[0].sums.summed], several(0) || several(1))
            }
        };
        let every = accumulator.promote_every;
        if !has_segments || given == 0 {
            return Self {
                length: given,
                promote_every: every,
            };
        }
        let of_form = |(form, shape): (&AccumulatedForm, &Vec<usize>)| {
            let block = match convolution {
                Some(_) => block_of_segments(*form, shape, given),
                None => form.kind.block,
            };
            form.kind.scale.map(|_| [form.kind.block, block])
        };
        let blocks = forms.iter().zip(shapes).filter_map(of_form);
        let blocks: Vec<[usize; 2]> = blocks.collect();
        let is_of_all = blocks.iter().any(|[own, _]| *own == 0);
        let is_long = blocks.iter().any(|[own, _]| *own > given);

        // No length is beyond all memory.
        let whole = blocks
            .iter()
            .filter(|[own, _]| *own > 0)
            .try_fold(1, |whole, [own, _]| common_multiple(whole, *own))
            .and_then(|whole| given.checked_next_multiple_of(whole))
            .unwrap_or(usize::MAX);
        // A block of all elements ends with the segment, and must be whole groups or parts that are promoted.
        let with_scales = match accumulator.scale_at {
            ScaleAt::Product => accumulator.order.group(),
            ScaleAt::Promotion => every,
        };
        let is_whole = !is_of_all || with_scales > 0 && whole.is_multiple_of(with_scales);
        if is_whole && !is_long {
            return Self {
                length: whole,
                promote_every: every,
            };
        }

        let within = blocks.iter().map(|[own, block]| match *own {
            own if own > 0 && own <= given => own,
            _ if *block > 0 && *block <= given => *block,
            _ => 1,
        });
        let step = match every {
            1.. if every <= given => every,
            _ => accumulator.order.terms(),
        };
        let short = within
            .chain([step])
            .try_fold(1, common_multiple)
            .and_then(|unit| given.checked_next_multiple_of(unit))
            .unwrap_or(usize::MAX);
        let length = if is_whole { short.min(whole) } else { short };
        let promote_every = match every {
            0 if accumulator.scale_at == ScaleAt::Product => 0,
            0 => length,
            every if every <= given => every,
            every if is_whole && length == whole => every,
            // Once in each segment, or once in several.
            every if accumulator.scale_at == ScaleAt::Promotion || whole >= every => length,
            every => (every / whole).saturating_mul(length),
        };
        Self {
            length,
            promote_every,
        }
    }
}

/// Whether the summed axis of a matrix is several axes of its tensor.
fn has_segments(form: &AccumulatedForm, shape: &[usize]) -> bool {
    let is_last = form.sums.summed + 1 == shape.len();
    let leading = shape.len().saturating_sub(2);
    form.sums.flat && !is_last && shape[..leading].iter().product::<usize>() > 1
}
