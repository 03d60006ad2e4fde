//! The steps after a product's sums, while these are in the cache.

use crate::PanelsError;
use core::ops::Range;
use microscaling::FloatFormat;
use microscaling::Rounding;
use microscaling::internal::with_rule;
use microscaling_processor::instruction_set::{Kernel, dispatch};

/// The steps that follow a complete sum of a product: rounding, and a bias.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Epilogue<'a> {
    /// Rounding to a float format, as [`FloatFormat::round_slice`] does: of the sum, and again of the sum with a bias. No
    /// stochastic rounding is allowed.
    pub rounding: Option<(FloatFormat, Rounding)>,
    /// A number for each column, which is added to the rounded sum.
    pub bias: Option<&'a [f32]>,
}

impl Epilogue<'_> {
    pub(super) fn check(&self, columns: usize) -> Result<(), PanelsError> {
        if let Some((_, Rounding::Stochastic)) = self.rounding {
            return Err(PanelsError::Stochastic);
        }
        match self.bias {
            Some(bias) if bias.len() != columns => Err(PanelsError::Bias {
                expected: columns,
                got: bias.len(),
            }),
            _ => Ok(()),
        }
    }

    /// Does the steps for some columns of rows that lie `stride` apart from `result` on.
    ///
    /// # Safety
    /// The rows must be there and have been written, and nobody else may access these columns of theirs.
    pub(super) unsafe fn apply(
        &self,
        result: *mut f32,
        stride: usize,
        rows: usize,
        columns: Range<usize>,
    ) {
        let place = ResultPart {
            result,
            stride,
            rows,
            columns: columns.len(),
            bias: self.bias.map(|bias| &bias[columns]),
        };
        let rounding = (self.rounding).filter(|(format, _)| !format.is_identity());
        let Some((format, rounding)) = rounding else {
            if place.bias.is_some() {
                finish(
                    place,
                    #[inline(always)]
                    |x| x,
                );
            }
            return;
        };
        with_rule!(rounding, R => match format.is_bfloat() {
            true => finish(
                place,
                #[inline(always)]
                move |x| format.round_bfloat::<R>(x, 0),
            ),
            false => finish(
                place,
                #[inline(always)]
                move |x| format.round_fp::<R>(x, 0),
            ),
        })
    }
}

/// A part of a result, and the part of the bias for its columns.
struct ResultPart<'a> {
    result: *mut f32,
    stride: usize,
    rows: usize,
    columns: usize,
    bias: Option<&'a [f32]>,
}

fn finish(place: ResultPart<'_>, round: impl Fn(f32) -> f32) {
    dispatch(Finish { place, round });
}

struct Finish<'a, F> {
    place: ResultPart<'a>,
    round: F,
}

impl<F: Fn(f32) -> f32> Kernel for Finish<'_, F> {
    #[inline(always)]
    fn run(self) {
        let Self { place, round } = self;
        for row in 0..place.rows {
            let first = place.result.wrapping_add(row * place.stride);
            // SAFETY: the caller of `apply` says that the row is there and that nobody else accesses it.
            let row = unsafe { core::slice::from_raw_parts_mut(first, place.columns) };
            match place.bias {
                Some(bias) => {
                    for (x, bias) in row.iter_mut().zip(bias) {
                        *x = round(round(*x) + *bias);
                    }
                }
                None => {
                    for x in row {
                        *x = round(*x);
                    }
                }
            }
        }
    }
}
