//! Softmax and its logarithm over the last axis, in one pass over each row.

use super::loops::{row_pairs_in_place, rows_in_place};
use super::rounding::{FunctionRounding, with_arithmetic, with_passes};
use crate::arithmetic::{self, Arithmetic, LANES, ScalarArithmetic};
use crate::semantics::softmax::LN_2;

/// Softmax over the last axis.
#[derive(Clone, Copy, Debug)]
pub struct Softmax {
    pub(crate) steps: FunctionRounding,
    /// Powers of 2 instead of e.
    pub(crate) base2: bool,
    /// Division by a multiplication with the reciprocal.
    pub(crate) reciprocal: bool,
}

impl Softmax {
    /// Replaces every row of `length` elements, which need not be rounded.
    pub(crate) fn forward(self, data: &mut [f32], length: usize) {
        let Self {
            steps,
            base2,
            reciprocal,
        } = self;
        with_arithmetic!(steps, exp2, s => match base2 {
            false => rows_in_place(
                data,
                length,
                #[inline(always)]
                |row| forward_row::<_, _, false>(&s, row, reciprocal),
            ),
            true => rows_in_place(
                data,
                length,
                #[inline(always)]
                |row| forward_row::<_, _, true>(&s, row, reciprocal),
            ),
        });
    }

    /// Replaces every row of the output's gradient by the input's; `output` is rounded, the gradient need not be.
    pub(crate) fn backward(self, grad: &mut [f32], output: &[f32], length: usize) {
        let Self { steps, base2, .. } = self;
        let length = length.max(1);
        with_arithmetic!(steps, s => {
            for (g, y) in grad.chunks_exact_mut(length).zip(output.chunks_exact(length)) {
                rows_in_place(
                    g,
                    length,
                    #[inline(always)]
                    |g| backward_row(&s, g, y, base2),
                );
            }
        });
    }
}

/// Logarithm of the softmax over the last axis: the steps of Burn's composition `z - log(sum(exp(z)))` with
/// `z = x - max x`.
#[derive(Clone, Copy, Debug)]
pub struct LogSoftmax {
    pub(crate) steps: FunctionRounding,
    /// Division by a multiplication with the reciprocal.
    pub(crate) reciprocal: bool,
}

impl LogSoftmax {
    /// Replaces every row of `length` elements, which need not be rounded.
    pub(crate) fn forward(self, data: &mut [f32], length: usize) {
        with_arithmetic!(self.steps, exp2, s => rows_in_place(
            data,
            length,
            #[inline(always)]
            |row| {
                shift(&s, row);
                let sum = s.sum(
                    row.len(),
                    #[inline(always)]
                    |i| s.exp(row[i]),
                );
                let logarithm = s.round(sum.ln());
                for z in row.iter_mut() {
                    *z = s.sub(*z, logarithm);
                }
            },
        ));
    }

    /// Replaces every row of the output's gradient by the input's; neither that nor `input` need be rounded.
    pub(crate) fn backward(self, grad: &mut [f32], input: &[f32], length: usize) {
        let Self { steps, reciprocal } = self;
        let mut powers = input.to_vec();
        with_passes!(steps, exp2, (f, b) => row_pairs_in_place(
            grad,
            &mut powers,
            length,
            #[inline(always)]
            |g, powers| {
                shift(&f, powers);
                for power in powers.iter_mut() {
                    *power = f.exp(*power);
                }
                let count = powers.len().min(g.len());
                let sum = f.sum(
                    count,
                    #[inline(always)]
                    |i| powers[i],
                );
                for g in g.iter_mut() {
                    *g = b.round(*g);
                }
                let total = b.sum(
                    count,
                    #[inline(always)]
                    |i| -g[i],
                );
                let share = match reciprocal {
                    true => b.mul(total, b.recip(sum)),
                    false => b.div(total, sum),
                };
                for (g, power) in g.iter_mut().zip(powers) {
                    *g = b.add(*g, b.mul(share, *power));
                }
            },
        ));
    }
}

/// Rounds a row and takes its largest element from each.
#[inline(always)]
fn shift<R: Fn(f32) -> f32, const EXP2: bool>(s: &ScalarArithmetic<R, EXP2>, row: &mut [f32]) {
    for x in row.iter_mut() {
        *x = s.round(*x);
    }
    let max = max(row);
    for x in row.iter_mut() {
        *x = s.sub(*x, max);
    }
}

#[inline(always)]
fn forward_row<R: Fn(f32) -> f32, const EXP2: bool, const BASE2: bool>(
    s: &ScalarArithmetic<R, EXP2>,
    row: &mut [f32],
    reciprocal: bool,
) {
    shift(s, row);
    for x in row.iter_mut() {
        *x = match BASE2 {
            true => s.round(arithmetic::exp2(*x)),
            false => s.exp(*x),
        };
    }
    let sum = s.sum(
        row.len(),
        #[inline(always)]
        |i| row[i],
    );
    if reciprocal {
        let scale = s.recip(sum);
        for x in row.iter_mut() {
            *x = s.mul(*x, scale);
        }
    } else {
        for x in row.iter_mut() {
            *x = s.div(*x, sum);
        }
    }
}

#[inline(always)]
fn backward_row<R: Fn(f32) -> f32>(
    s: &ScalarArithmetic<R, false>,
    g: &mut [f32],
    y: &[f32],
    base2: bool,
) {
    let y = &y[..g.len()];
    for g in g.iter_mut() {
        *g = s.round(*g);
    }
    let weighted = s.sum(
        g.len(),
        #[inline(always)]
        |i| s.mul(g[i], y[i]),
    );
    for (g, y) in g.iter_mut().zip(y) {
        *g = s.mul(*y, s.sub(*g, weighted));
    }
    if base2 {
        for g in g.iter_mut() {
            *g = s.mul_scalar(*g, LN_2);
        }
    }
}

/// The largest element. With a NaN it may be any: the sum is NaN then, and with it the whole row.
#[inline(always)]
fn max(row: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = row.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, *x);
        }
    }
    let lanes = lanes.into_iter().chain(rest.iter().copied());
    lanes.fold(f32::NEG_INFINITY, larger)
}
