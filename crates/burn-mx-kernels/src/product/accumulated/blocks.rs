//! Blocks within the segments of a summed axis.

use super::form::AccumulatedForm;
use crate::product::convolution::{Convolution, ConvolutionProduct};

/// Elements of a segment without zeros.
pub(super) fn given(
    convolution: &Convolution,
    product: &ConvolutionProduct,
    shapes: &[Vec<usize>; 2],
) -> usize {
    match product {
        ConvolutionProduct::WeightGradient(_) => shapes[1][0],
        _ => shapes[1][1] / convolution.groups,
    }
}

/// Whether an operand has scales.
pub(super) fn has_blocks(forms: &[AccumulatedForm; 2]) -> bool {
    forms.iter().any(|form| form.kind.scale.is_some())
}

/// Elements of a block of a segment of `given` elements, which begins at a multiple of that along the summed axis. Where blocks of the
/// operand begin within a segment, its own are so short that each has one scale. A block that holds the whole axis begins in none.
pub(super) fn block_of_segments(form: AccumulatedForm, shape: &[usize], given: usize) -> usize {
    match form.kind.block {
        0 => 0,
        block if given.is_multiple_of(block) || block.is_multiple_of(given) => block,
        block if shape[form.sums.summed] == given || shape[form.sums.summed] <= block => block,
        block => greatest_common_divisor(block, given),
    }
}

/// Elements of a block where segments of `given` elements have this length with the zeros: one that is longer, or of all elements (0),
/// ends with the segment.
pub(super) fn block_within(block: usize, given: usize, length: usize) -> usize {
    match block {
        _ if length == 0 => block,
        block if block > 0 && block <= given => block,
        _ => length,
    }
}

/// The least common multiple; `None` if no `usize` is so large.
pub(super) fn common_multiple(a: usize, b: usize) -> Option<usize> {
    (a / greatest_common_divisor(a, b)).checked_mul(b)
}

pub(super) fn greatest_common_divisor(a: usize, b: usize) -> usize {
    match b {
        0 => a,
        b => greatest_common_divisor(b, a % b),
    }
}
