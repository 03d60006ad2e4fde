//! Softmax and its logarithm over the last axis, in one pass over each row.

use super::loops::{row_pairs_in_place, rows_in_place};
use super::rounding::{FunctionRounding, with_arithmetic, with_passes};
use crate::arithmetic::{SliceRows, softmax};
use crate::dense::round_each;

/// Softmax over the last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Softmax {
    /// How its ops round.
    pub rounding: FunctionRounding,
    /// Powers of 2 instead of e.
    pub base2: bool,
}

impl Softmax {
    /// Replaces every row of `length` elements, which need not be rounded.
    pub fn forward(self, data: &mut [f32], length: usize) {
        let Self { rounding, base2 } = self;
        with_arithmetic!(rounding, exp2, arith => rows_in_place(
            data,
            length,
            #[inline(always)]
            |row| {
                let x = round_each(&arith, row);
                softmax::softmax(&SliceRows::default(), &arith, x, base2);
            },
        ));
    }

    /// Replaces every row of the output's gradient by the input's; `output` is rounded, the gradient need not be.
    pub fn backward(self, grad: &mut [f32], output: &[f32], length: usize) {
        let Self { rounding, base2 } = self;
        let length = length.max(1);
        with_arithmetic!(rounding, arith => {
            for (g, y) in grad.chunks_exact_mut(length).zip(output.chunks_exact(length)) {
                rows_in_place(
                    g,
                    length,
                    #[inline(always)]
                    |g| {
                        let g = round_each(&arith, g);
                        softmax::softmax_backward(&SliceRows::default(), &arith, y, g, base2);
                    },
                );
            }
        });
    }
}

/// Logarithm of the softmax over the last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogSoftmax {
    /// How its ops round.
    pub rounding: FunctionRounding,
}

impl LogSoftmax {
    /// Replaces every row of `length` elements, which need not be rounded.
    pub fn forward(self, data: &mut [f32], length: usize) {
        with_arithmetic!(self.rounding, exp2, arith => rows_in_place(
            data,
            length,
            #[inline(always)]
            |row| {
                let x = round_each(&arith, row);
                softmax::log_softmax(&SliceRows::default(), &arith, x);
            },
        ));
    }

    /// Replaces every row of the output's gradient by the input's; neither that nor `input` need be rounded.
    pub fn backward(self, grad: &mut [f32], input: &[f32], length: usize) {
        let mut input = input.to_vec();
        with_passes!(self.rounding, exp2, (forward, arith) => row_pairs_in_place(
            grad,
            &mut input,
            length,
            #[inline(always)]
            |g, x, _| {
                let (x, g) = (round_each(&forward, x), round_each(&arith, g));
                softmax::log_softmax_backward(&SliceRows::default(), &forward, &arith, x, g);
            },
        ));
    }
}
