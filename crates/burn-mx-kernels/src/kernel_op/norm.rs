//! Normalization over the last axis, in one pass over each row.

use super::loops::{row_pairs_in_place, rows_in_place};
use super::rounding::{FunctionRounding, with_arithmetic, with_passes};
pub use crate::arithmetic::norm::Norm;
use crate::arithmetic::{Arithmetic, SliceRows, norm};
use crate::dense::round_each;

/// Normalization over the last axis.
#[derive(Clone, Copy, Debug)]
pub struct Normalization {
    pub(crate) norm: Norm,
    pub(crate) epsilon: f32,
    pub(crate) rounding: FunctionRounding,
}

impl Normalization {
    /// A normalization with `epsilon` added to the variance, or to the mean of the squares.
    pub fn new(norm: Norm, epsilon: f64, rounding: FunctionRounding) -> Self {
        Self {
            norm,
            epsilon: epsilon as f32,
            rounding,
        }
    }

    /// Replaces every row by `γ n + β`, with n the normalized row; nothing need be rounded.
    pub fn forward(self, data: &mut [f32], gamma: &[f32], beta: Option<&[f32]>) {
        let Self { norm, epsilon, .. } = self;
        with_arithmetic!(self.rounding, arith => {
            let rounded = |row: &[f32]| -> Vec<f32> { row.iter().map(|x| arith.round(*x)).collect() };
            let (gamma, beta) = (rounded(gamma), beta.map(rounded));
            let (gamma, beta) = (&gamma[..], beta.as_deref());
            rows_in_place(
                data,
                gamma.len(),
                #[inline(always)]
                |row| {
                    let rows = SliceRows::default();
                    let x = round_each(&arith, row);
                    let normalized = norm::normalize(&rows, &arith, norm, x, epsilon);
                    norm::scale_and_shift(&rows, &arith, normalized.values, gamma, beta);
                },
            );
        });
    }

    /// Replaces the output's gradient by the input's, and the input x by the products `g n`; nothing need be rounded.
    pub fn backward(self, grad: &mut [f32], x: &mut [f32], gamma: &[f32]) {
        let Self { norm, epsilon, .. } = self;
        with_passes!(self.rounding, (forward, arith) => {
            let gamma: Vec<f32> = gamma.iter().map(|x| arith.round(*x)).collect();
            let gamma = &gamma[..];
            row_pairs_in_place(
                grad,
                x,
                gamma.len(),
                #[inline(always)]
                |g, x, spare| {
                    let rows = SliceRows::default();
                    for (copy, x) in spare.iter_mut().zip(x.iter()) {
                        *copy = forward.round(*x);
                    }
                    let normalized = norm::normalize(&rows, &forward, norm, spare, epsilon);
                    let g = round_each(&arith, g);
                    norm::backward(&rows, &arith, norm, normalized, gamma, g, x);
                },
            );
        });
    }
}
