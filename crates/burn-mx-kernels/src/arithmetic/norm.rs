//! Layer and root-mean-square normalization.

use super::{Arithmetic, Rows};

/// A normalization of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Norm {
    /// By mean and variance.
    Layer,
    /// By the mean square.
    Rms,
}

impl Norm {
    /// The name of the op.
    pub fn name(self) -> &'static str {
        match self {
            Self::Layer => "layer_norm",
            Self::Rms => "rms_norm",
        }
    }
}

/// Normalized rows and their statistics.
pub struct Normalized<R: Rows> {
    /// The normalized row.
    pub values: R::Row,
    /// Mean square of the deviations plus ε.
    variance: R::Value,
    /// The factor of the deviations: 1 / sqrt(variance).
    scale: R::Value,
}

/// `c / sqrt(mean c² + ε)` with `c` the deviations from the mean, or `x` itself.
#[inline(always)]
pub fn normalize<R: Rows>(
    rows: &R,
    arith: &impl Arithmetic<Value = R::Value>,
    norm: Norm,
    x: R::Row,
    epsilon: f32,
) -> Normalized<R> {
    let deviations = match norm {
        Norm::Layer => {
            let mean = rows.mean(
                arith,
                R::view(&x),
                #[inline(always)]
                |x| x,
            );
            rows.map(
                x,
                #[inline(always)]
                |x| arith.sub(x, mean.clone()),
            )
        }
        Norm::Rms => x,
    };
    let variance = rows.mean(
        arith,
        R::view(&deviations),
        #[inline(always)]
        |c| arith.mul(c.clone(), c),
    );
    let variance = arith.add_scalar(variance, epsilon);
    let scale = arith.recip(arith.sqrt(variance.clone()));
    let values = rows.map(
        deviations,
        #[inline(always)]
        |c| arith.mul(c, scale.clone()),
    );
    Normalized {
        values,
        variance,
        scale,
    }
}

/// `γ n + β`
#[inline(always)]
pub fn scale_and_shift<R: Rows>(
    rows: &R,
    arith: &impl Arithmetic<Value = R::Value>,
    normalized: R::Row,
    gamma: &R::View,
    beta: Option<&R::View>,
) -> R::Row {
    let scaled = rows.zip(
        normalized,
        gamma,
        #[inline(always)]
        |n, gamma| arith.mul(gamma, n),
    );
    match beta {
        Some(beta) => rows.zip(
            scaled,
            beta,
            #[inline(always)]
            |x, beta| arith.add(x, beta),
        ),
        None => scaled,
    }
}

/// The gradient of the input, and the products `g n` that sum up to the gradient of γ. The normalized rows come from
/// the forward pass.
#[inline(always)]
pub fn backward<R: Rows>(
    rows: &R,
    arith: &impl Arithmetic<Value = R::Value>,
    norm: Norm,
    normalized: Normalized<R>,
    gamma: &R::View,
    g: R::Row,
    room: R::Room,
) -> (R::Row, R::Row) {
    let Normalized {
        values,
        variance,
        scale,
    } = normalized;
    let n = R::view(&values);
    let products = rows.zip_new(
        room,
        R::view(&g),
        n,
        #[inline(always)]
        |g, n| arith.mul(g, n),
    );
    let t = rows.zip(
        g,
        gamma,
        #[inline(always)]
        |g, gamma| arith.mul(g, gamma),
    );
    let dx = match norm {
        Norm::Layer => layer_backward(rows, arith, variance, n, t),
        Norm::Rms => rms_backward(rows, arith, scale, n, t),
    };
    (dx, products)
}

/// The gradient of a layer norm's input from `t = g γ`.
#[inline(always)]
fn layer_backward<R: Rows>(
    rows: &R,
    arith: &impl Arithmetic<Value = R::Value>,
    variance: R::Value,
    n: &R::View,
    t: R::Row,
) -> R::Row {
    let sigma = arith.sqrt(variance.clone());
    let inverse = arith.recip(sigma.clone());
    let q = rows.mean_of_two(
        arith,
        R::view(&t),
        n,
        #[inline(always)]
        |t, n| arith.mul(arith.mul(t, n), sigma.clone()),
    );
    let q = arith.neg(arith.mul(q, arith.recip(variance)));
    let d = rows.zip(
        t,
        n,
        #[inline(always)]
        |t, n| arith.add(arith.mul(t, inverse.clone()), arith.mul(q.clone(), n)),
    );
    let mean = rows.mean(
        arith,
        R::view(&d),
        #[inline(always)]
        |d| d,
    );
    rows.map(
        d,
        #[inline(always)]
        |d| arith.sub(d, mean.clone()),
    )
}

/// The gradient of a root-mean-square norm's input from `t = g γ`; `scale` is the forward pass's.
///
/// The last difference is not rounded, which is what the reference does here and nowhere else.
#[inline(always)]
fn rms_backward<R: Rows>(
    rows: &R,
    arith: &impl Arithmetic<Value = R::Value>,
    scale: R::Value,
    n: &R::View,
    t: R::Row,
) -> R::Row {
    let a = rows.map(
        t,
        #[inline(always)]
        |t| arith.mul(t, scale.clone()),
    );
    let q = rows.mean_of_two(
        arith,
        R::view(&a),
        n,
        #[inline(always)]
        |a, n| arith.mul(a, n),
    );
    rows.zip(
        a,
        n,
        #[inline(always)]
        |a, n| arith.sub_unrounded(a, arith.mul(n, q.clone())),
    )
}
