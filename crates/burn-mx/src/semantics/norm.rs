//! Layer and root-mean-square normalization over the last axis.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, Shape, TensorMetadata};

use super::elementwise::{Passes, TensorArithmetic};
use super::{Float, stored};
use crate::arithmetic::Arithmetic;
use crate::kernels::{MxKernels, Norm, Normalization, to_f32};
use crate::random::OpNumber;
use crate::tensor::{Join, MxTensor};

/// Gradients of [`forward`].
pub(crate) struct NormGrads<B: MxKernels> {
    pub(crate) x: Float<B>,
    pub(crate) gamma: Float<B>,
    pub(crate) beta: Float<B>,
}

/// `γ c / sqrt(mean c² + ε) + β` with `c` the deviations from the mean, or `x` itself; `x` [.., D], `gamma` and
/// `beta` [D].
///
/// `number` is the op's number where its random numbers are to be drawn again.
pub(crate) fn forward<B: MxKernels>(
    number: Option<OpNumber>,
    norm: Norm,
    x: Float<B>,
    gamma: Float<B>,
    beta: Option<Float<B>>,
    epsilon: f64,
) -> Float<B> {
    let x = x.into_activation();
    let join = Join::of([
        Some(x.meta),
        Some(gamma.meta),
        beta.as_ref().map(|beta| beta.meta),
    ]);
    let Some(v) = TensorArithmetic::<B>::emulated(&join, number) else {
        let (x, gamma, beta) = (x.inner, gamma.inner, beta.map(|beta| beta.inner));
        let output = match norm {
            Norm::Layer => B::layer_norm(x, gamma, beta, epsilon),
            Norm::Rms => plain_rms_norm::<B>(x, gamma, beta, epsilon),
        };
        return MxTensor::new(output, join.result);
    };
    if let Some(steps) = v.in_one_pass() {
        let output = B::rounded_norm(
            Normalization::new(norm, epsilon, steps),
            to_f32::<B>(x.inner),
            to_f32::<B>(gamma.inner),
            beta.map(|beta| to_f32::<B>(beta.inner)),
        );
        return v.finish(output, &join);
    }
    let rank = x.rank();
    // In this order, which the backward pass draws again from the start.
    let normalized = Moments::new(norm, &v, v.operand(x), epsilon).normalized(&v);
    let gamma = as_row::<B>(v.operand(gamma), rank);
    let scaled = v.mul(gamma, normalized.values);
    let output = match beta {
        Some(beta) => v.add(scaled, as_row::<B>(v.operand(beta), rank)),
        None => scaled,
    };
    v.finish(output, &join)
}

/// As Burn's own module composes it, of the ops of `B`.
pub(crate) fn plain_rms_norm<B: Backend>(
    x: FloatTensor<B>,
    gamma: FloatTensor<B>,
    beta: Option<FloatTensor<B>>,
    epsilon: f64,
) -> FloatTensor<B> {
    let rank = x.rank();
    let square = B::float_mul(x.clone(), x.clone());
    let mean = B::float_mean_dim(square, rank - 1);
    let rms = B::float_sqrt(B::float_add_scalar(mean, epsilon.into()));
    let scaled = B::float_mul(B::float_div(x, rms), as_row::<B>(gamma, rank));
    match beta {
        Some(beta) => B::float_add(scaled, as_row::<B>(beta, rank)),
        None => scaled,
    }
}

/// The gradients of x, γ and β from that of the output; `number` is that of the op in the forward pass.
pub(crate) fn backward<B: MxKernels>(
    number: OpNumber,
    norm: Norm,
    x: Float<B>,
    gamma: Float<B>,
    grad: Float<B>,
    epsilon: f64,
) -> NormGrads<B> {
    let join = Join::of([Some(x.meta), Some(gamma.meta)]);
    let Some(interned) = join.emulation() else {
        unreachable!("a norm has a step of its own only where something is emulated")
    };
    let pass = Passes::<B>::of_backward(interned, &join, Some(number));
    let v = &pass.backward;
    let (x_join, gamma_join) = (Join::of([Some(x.meta)]), Join::of([Some(gamma.meta)]));
    let (rank, last) = (x.rank(), x.rank() - 1);
    let features = gamma.shape();

    let d_beta = v.sum_dims(pass.gradient(grad.clone()), 0..last);
    let (d_x, products) = match v.backward_in_one_pass() {
        Some(steps) => B::rounded_norm_backward(
            Normalization::new(norm, epsilon, steps),
            to_f32::<B>(x.inner),
            to_f32::<B>(gamma.inner),
            to_f32::<B>(grad.inner),
        ),
        None => {
            let forward = pass.forward();
            let normalized =
                Moments::new(norm, &forward, forward.operand(x), epsilon).normalized(&forward);
            let gamma = match v.is_exact() {
                false => forward.operand(gamma),
                true => to_f32::<B>(gamma.inner),
            };
            let g = pass.gradient(grad);
            let products = v.mul(g.clone(), normalized.values.clone());
            let t = v.mul(g, as_row::<B>(gamma, rank));
            (normalized.backward(norm, v, t), products)
        }
    };
    let d_gamma = v.sum_dims(products, 0..last);
    let of_parameter =
        |gradient| v.finish(B::float_reshape(gradient, features.clone()), &gamma_join);
    NormGrads {
        x: match norm {
            Norm::Layer => v.finish(d_x, &x_join),
            Norm::Rms => stored::<B>(d_x, x_join.result),
        },
        gamma: of_parameter(d_gamma),
        beta: of_parameter(d_beta),
    }
}

/// Mean and mean square of rows, which forward and backward share.
struct Moments<B: MxKernels> {
    /// What is normalized: x, less its mean where that is taken out.
    deviations: FloatTensor<B>,
    /// Mean square of the deviations plus ε.
    variance: FloatTensor<B>,
}

/// Normalized rows and what they are made of.
struct Normalized<B: MxKernels> {
    values: FloatTensor<B>,
    variance: FloatTensor<B>,
    /// What the deviations were multiplied by: 1 / sqrt(variance).
    scale: FloatTensor<B>,
}

impl<B: MxKernels> Moments<B> {
    fn new(norm: Norm, v: &TensorArithmetic<B>, x: FloatTensor<B>, epsilon: f64) -> Self {
        let last = x.rank() - 1;
        let deviations = match norm {
            Norm::Layer => {
                let mean = v.mean_dim(x.clone(), last);
                v.sub(x, mean)
            }
            Norm::Rms => x,
        };
        let variance = v.mean_dim(v.mul(deviations.clone(), deviations.clone()), last);
        let variance = v.add_scalar(variance, epsilon as f32);
        Self {
            deviations,
            variance,
        }
    }

    fn normalized(self, v: &TensorArithmetic<B>) -> Normalized<B> {
        let scale = v.recip(v.sqrt(self.variance.clone()));
        Normalized {
            values: v.mul(self.deviations, scale.clone()),
            variance: self.variance,
            scale,
        }
    }
}

impl<B: MxKernels> Normalized<B> {
    /// The gradient of x, from `t = g γ`.
    fn backward(self, norm: Norm, v: &TensorArithmetic<B>, t: FloatTensor<B>) -> FloatTensor<B> {
        let last = t.rank() - 1;
        match norm {
            Norm::Layer => {
                let sigma = v.sqrt(self.variance.clone());
                let a = v.mul(t.clone(), v.recip(sigma.clone()));
                let q = v.mean_dim(v.mul(v.mul(t, self.values.clone()), sigma), last);
                let q = v.mul(q, v.recip(self.variance));
                let d = v.add(a, v.mul(v.neg(q), self.values));
                v.sub(d.clone(), v.mean_dim(d, last))
            }
            Norm::Rms => {
                let a = v.mul(t, self.scale);
                let q = v.mean_dim(v.mul(a.clone(), self.values.clone()), last);
                // Not rounded, which is what the reference does here and nowhere else.
                B::float_sub(a, v.mul(self.values, q))
            }
        }
    }
}

/// A vector [D] as a tensor [1, .., 1, D].
fn as_row<B: Backend>(vector: FloatTensor<B>, rank: usize) -> FloatTensor<B> {
    let mut dims = vec![1; rank];
    dims[rank - 1] = vector.shape()[0];
    B::float_reshape(vector, Shape::from(dims))
}
