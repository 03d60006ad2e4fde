//! Softmax and its logarithm.

use super::{Arithmetic, Rows};

/// ln 2 rounded down to what the reference uses for the derivative of a base-2 softmax.
const LN_2: f32 = 0.69140625;

/// `p / sum p` with `p = exp(x - max x)`, in powers of 2 if `base2`.
#[inline(always)]
pub fn softmax<R: Rows>(
    rows: &R,
    arith: &impl Arithmetic<Value = R::Value>,
    x: R::Row,
    base2: bool,
) -> R::Row {
    let shifted = shift(rows, arith, x);
    let powers = match base2 {
        true => rows.map(
            shifted,
            #[inline(always)]
            |z| arith.exp2(z),
        ),
        false => rows.map(
            shifted,
            #[inline(always)]
            |z| arith.exp(z),
        ),
    };
    let sum = arith.round(rows.sum(
        R::view(&powers),
        #[inline(always)]
        |p| p,
    ));
    match arith.divides_by_reciprocal() {
        true => {
            let scale = arith.recip(sum);
            rows.map(
                powers,
                #[inline(always)]
                |p| arith.mul(p, scale.clone()),
            )
        }
        false => rows.map(
            powers,
            #[inline(always)]
            |p| arith.quotient(p, sum.clone()),
        ),
    }
}

/// `y (g - sum (g y))`, where `y` is [`softmax`]'s result.
#[inline(always)]
pub fn softmax_backward<R: Rows>(
    rows: &R,
    arith: &impl Arithmetic<Value = R::Value>,
    y: &R::View,
    g: R::Row,
    base2: bool,
) -> R::Row {
    let weighted = arith.round(rows.sum_of_two(
        R::view(&g),
        y,
        #[inline(always)]
        |g, y| arith.mul(g, y),
    ));
    let dx = rows.zip(
        g,
        y,
        #[inline(always)]
        |g, y| arith.mul(y, arith.sub(g, weighted.clone())),
    );
    match base2 {
        true => rows.map(
            dx,
            #[inline(always)]
            |dx| arith.mul_scalar(dx, LN_2),
        ),
        false => dx,
    }
}

/// `z - ln(sum(exp(z)))` with `z = x - max x`: the rounded ops of Burn's composition.
#[inline(always)]
pub fn log_softmax<R: Rows>(
    rows: &R,
    arith: &impl Arithmetic<Value = R::Value>,
    x: R::Row,
) -> R::Row {
    let shifted = shift(rows, arith, x);
    let sum = arith.round(rows.sum(
        R::view(&shifted),
        #[inline(always)]
        |z| arith.exp(z),
    ));
    let logarithm = arith.ln(sum);
    rows.map(
        shifted,
        #[inline(always)]
        |z| arith.sub(z, logarithm.clone()),
    )
}

/// `g - exp(z) (sum g) / sum(exp(z))`; `x` is as the forward pass rounded it.
#[inline(always)]
pub fn log_softmax_backward<R: Rows>(
    rows: &R,
    forward: &impl Arithmetic<Value = R::Value>,
    arith: &impl Arithmetic<Value = R::Value>,
    x: R::Row,
    g: R::Row,
) -> R::Row {
    let powers = rows.map(
        shift(rows, forward, x),
        #[inline(always)]
        |z| forward.exp(z),
    );
    let sum = forward.round(rows.sum(
        R::view(&powers),
        #[inline(always)]
        |p| p,
    ));
    let total = arith.round(rows.sum(
        R::view(&g),
        #[inline(always)]
        |g| arith.neg(g),
    ));
    let share = arith.div(total, sum);
    rows.zip(
        g,
        R::view(&powers),
        #[inline(always)]
        |g, p| arith.add(g, arith.mul(share.clone(), p)),
    )
}

/// `x - max x`. With a NaN any maximum will do: the sum is NaN then, and with it the whole row.
#[inline(always)]
fn shift<R: Rows>(rows: &R, arith: &impl Arithmetic<Value = R::Value>, x: R::Row) -> R::Row {
    let max = rows.max(R::view(&x));
    rows.map(
        x,
        #[inline(always)]
        |x| arith.sub(x, max.clone()),
    )
}
