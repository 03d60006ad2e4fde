//! Recipes in one pass over memory: the functions of an element that are a dozen rounded steps each.

use super::loops::{map_in_place, row_pairs_in_place, rows_in_place, zip_in_place};
use super::rounding::{FunctionRounding, with_arithmetic, with_passes};
use crate::arithmetic::{self, Arithmetic, ScalarArithmetic};
use crate::semantics::activation;

/// A recipe of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryFunction {
    /// e to the power of x.
    Exp,
    /// 2 to the power of x.
    Exp2,
    /// The sigmoid of x.
    Sigmoid,
    /// The gelu of x.
    Gelu,
    /// The first-order gelu of x.
    GeluFirstOrder,
    /// The silu of x.
    Silu,
}

/// A recipe of two tensors of the same shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryFunction {
    /// The gradient of a sigmoid from its input and its output's gradient.
    SigmoidBackward,
    /// The gradient of a gelu from its input and its output's gradient.
    GeluBackward,
    /// The gradient of a first-order gelu from its input and its output's gradient.
    GeluFirstOrderBackward,
    /// The gradient of a silu from its input and its output's gradient.
    SiluBackward,
}

/// A normalization of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// By mean and variance.
    Layer,
    /// By the mean square.
    Rms,
}

/// Normalization over the last axis.
#[derive(Clone, Copy, Debug)]
pub struct Normalization {
    norm: Norm,
    epsilon: f32,
    steps: FunctionRounding,
}

impl UnaryFunction {
    /// Replaces every element, which need not be rounded.
    pub(crate) fn apply(self, data: &mut [f32], steps: FunctionRounding) {
        with_arithmetic!(steps, exp2, s => match self {
            Self::Exp => map_in_place(
                data,
                #[inline(always)]
                move |x| s.exp(s.round(x)),
            ),
            Self::Exp2 => map_in_place(
                data,
                #[inline(always)]
                move |x| s.round(arithmetic::exp2(s.round(x))),
            ),
            Self::Sigmoid => map_in_place(
                data,
                #[inline(always)]
                move |x| activation::sigmoid_steps(&s, s.round(x)),
            ),
            Self::GeluFirstOrder => map_in_place(
                data,
                #[inline(always)]
                move |x| activation::gelu_first_order_steps(&s, s.round(x)),
            ),
            Self::Silu => map_in_place(
                data,
                #[inline(always)]
                move |x| activation::silu_steps(&s, s.round(x)),
            ),
            Self::Gelu => map_in_place(
                data,
                #[inline(always)]
                move |x| activation::gelu_steps(&s, s.round(x)),
            ),
        });
    }
}

impl BinaryFunction {
    /// Replaces every gradient by the gradient of the input; neither need be rounded.
    pub(crate) fn apply(self, grad: &mut [f32], input: &[f32], steps: FunctionRounding) {
        with_passes!(steps, exp2, (f, b) => match self {
            Self::SigmoidBackward => zip_in_place(
                grad,
                input,
                #[inline(always)]
                move |g, x| {
                    let y = activation::sigmoid_steps(&f, f.round(x));
                    activation::sigmoid_backward_steps(&b, y, b.round(g))
                },
            ),
            Self::GeluFirstOrderBackward => zip_in_place(
                grad,
                input,
                #[inline(always)]
                move |g, x| {
                    let (forward_x, x, g) = (f.round(x), b.round(x), b.round(g));
                    activation::gelu_first_order_backward_steps(&f, &b, forward_x, x, g)
                },
            ),
            Self::SiluBackward => zip_in_place(
                grad,
                input,
                #[inline(always)]
                move |g, x| activation::silu_backward_steps(&f, &b, f.round(x), b.round(g)),
            ),
            Self::GeluBackward => zip_in_place(
                grad,
                input,
                #[inline(always)]
                move |g, x| activation::gelu_backward_steps(&f, &b, f.round(x), b.round(x), b.round(g)),
            ),
        });
    }
}

impl Normalization {
    pub(crate) fn new(norm: Norm, epsilon: f64, steps: FunctionRounding) -> Self {
        Self {
            norm,
            epsilon: epsilon as f32,
            steps,
        }
    }

    /// Replaces every row by `γ n + β`, with n the normalized row.
    pub(crate) fn forward(self, data: &mut [f32], gamma: &[f32], beta: Option<&[f32]>) {
        match self.norm {
            Norm::Layer => self.forward_of::<true>(data, gamma, beta),
            Norm::Rms => self.forward_of::<false>(data, gamma, beta),
        }
    }

    fn forward_of<const CENTERED: bool>(
        self,
        data: &mut [f32],
        gamma: &[f32],
        beta: Option<&[f32]>,
    ) {
        let epsilon = self.epsilon;
        with_arithmetic!(self.steps, s => rows_in_place(
            data,
            gamma.len(),
            #[inline(always)]
            move |row| {
                let variance = variance::<_, CENTERED>(&s, row, epsilon);
                let scale = s.recip(s.sqrt(variance));
                for (x, gamma) in row.iter_mut().zip(gamma) {
                    *x = s.mul(s.round(*gamma), s.mul(*x, scale));
                }
                for (x, beta) in row.iter_mut().zip(beta.unwrap_or_default()) {
                    *x = s.add(*x, s.round(*beta));
                }
            },
        ));
    }

    /// Replaces the output's gradient by the input's, and the input x by the products `g n`.
    pub(crate) fn backward(self, grad: &mut [f32], x: &mut [f32], gamma: &[f32]) {
        match self.norm {
            Norm::Layer => self.layer_backward(grad, x, gamma),
            Norm::Rms => self.rms_backward(grad, x, gamma),
        }
    }

    fn layer_backward(self, grad: &mut [f32], x: &mut [f32], gamma: &[f32]) {
        let epsilon = self.epsilon;
        with_passes!(self.steps, (f, b) => row_pairs_in_place(
            grad,
            x,
            gamma.len(),
            #[inline(always)]
            move |g, x| {
                let variance = variance::<_, true>(&f, x, epsilon);
                let scale = f.recip(f.sqrt(variance));
                let sigma = b.sqrt(variance);
                let inverse = b.recip(sigma);
                for x in x.iter_mut() {
                    *x = f.mul(*x, scale);
                }
                let count = x.len().min(g.len()).min(gamma.len());
                let q = b.mean(
                    count,
                    #[inline(always)]
                    |i| b.mul(b.mul(weighted(&b, g[i], gamma[i]), x[i]), sigma),
                );
                let q = b.mul(q, b.recip(variance));
                for i in 0..count {
                    let product = b.mul(b.round(g[i]), x[i]);
                    g[i] = b.add(b.mul(weighted(&b, g[i], gamma[i]), inverse), b.mul(-q, x[i]));
                    x[i] = product;
                }
                let mean = b.mean(
                    count,
                    #[inline(always)]
                    |i| g[i],
                );
                for d in g.iter_mut() {
                    *d = b.sub(*d, mean);
                }
            },
        ));
    }

    /// The last difference is not rounded, which is what the reference does here and nowhere else.
    fn rms_backward(self, grad: &mut [f32], x: &mut [f32], gamma: &[f32]) {
        let epsilon = self.epsilon;
        with_passes!(self.steps, (f, b) => row_pairs_in_place(
            grad,
            x,
            gamma.len(),
            #[inline(always)]
            move |g, x| {
                let variance = variance::<_, false>(&f, x, epsilon);
                let scale = f.recip(f.sqrt(variance));
                for x in x.iter_mut() {
                    *x = f.mul(*x, scale);
                }
                let count = x.len().min(g.len()).min(gamma.len());
                let q = b.mean(
                    count,
                    #[inline(always)]
                    |i| b.mul(b.mul(weighted(&b, g[i], gamma[i]), scale), x[i]),
                );
                for i in 0..count {
                    let product = b.mul(b.round(g[i]), x[i]);
                    g[i] = b.mul(weighted(&b, g[i], gamma[i]), scale) - b.mul(x[i], q);
                    x[i] = product;
                }
            },
        ));
    }
}

/// `g γ`, neither of which need be rounded.
#[inline(always)]
fn weighted<R: Fn(f32) -> f32>(s: &ScalarArithmetic<R, false>, g: f32, gamma: f32) -> f32 {
    s.mul(s.round(g), s.round(gamma))
}

/// Rounds a row and, if `CENTERED`, replaces it by its deviations from the mean; returns the mean square of that
/// plus ε.
#[inline(always)]
fn variance<R: Fn(f32) -> f32, const CENTERED: bool>(
    s: &ScalarArithmetic<R, false>,
    row: &mut [f32],
    epsilon: f32,
) -> f32 {
    for x in row.iter_mut() {
        *x = s.round(*x);
    }
    if CENTERED {
        let mean = s.mean(
            row.len(),
            #[inline(always)]
            |i| row[i],
        );
        for x in row.iter_mut() {
            *x = s.sub(*x, mean);
        }
    }
    let variance = s.mean(
        row.len(),
        #[inline(always)]
        |i| s.mul(row[i], row[i]),
    );
    s.add_scalar(variance, epsilon)
}
