//! Layer and root-mean-square normalization over the last axis.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, Shape, TensorMetadata};

use super::elementwise::{Passes, TensorArithmetic};
use super::{Float, stored};
use crate::arithmetic::Arithmetic;
use crate::kernels::{MxKernels, Norm, Normalization, to_f32};
use crate::tensor::{Join, MxTensor};

/// Gradients of [`forward`].
pub(crate) struct NormGrads<B: MxKernels> {
    pub(crate) x: Float<B>,
    pub(crate) gamma: Float<B>,
    pub(crate) beta: Float<B>,
}

/// `γ c / sqrt(mean c² + ε) + β` with `c` the deviations from the mean, or `x` itself; `x` [.., D], `gamma` and
/// `beta` [D].
pub(crate) fn forward<B: MxKernels>(
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
    let Some(v) = TensorArithmetic::<B>::emulated(&join) else {
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
    let moments = Moments::new(norm, &v, v.operand(x), epsilon);
    let gamma = as_row::<B>(v.operand(gamma), rank);
    let scaled = v.mul(gamma, moments.normalized(&v));
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

/// The gradients of x, γ and β from that of the output.
pub(crate) fn backward<B: MxKernels>(
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
    let passes = Passes::<B>::of_backward(interned, &join);
    let v = &passes.backward;
    let (x_join, gamma_join) = (Join::of([Some(x.meta)]), Join::of([Some(gamma.meta)]));
    let (rank, last) = (x.rank(), x.rank() - 1);
    let features = gamma.shape();

    let d_beta = v.sum_dims(v.operand(grad.clone()), 0..last);
    let (d_x, products) = match v.backward_in_one_pass() {
        Some(steps) => B::rounded_norm_backward(
            Normalization::new(norm, epsilon, steps),
            to_f32::<B>(x.inner),
            to_f32::<B>(gamma.inner),
            to_f32::<B>(grad.inner),
        ),
        None => {
            let moments = Moments::new(norm, &passes.forward, passes.forward.operand(x), epsilon);
            let normalized = moments.normalized(&passes.forward);
            let g = v.operand(grad);
            let products = v.mul(g.clone(), normalized.clone());
            let t = v.mul(g, as_row::<B>(v.operand(gamma), rank));
            (moments.backward(&passes, normalized, t), products)
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

/// What forward and backward share.
struct Moments<B: MxKernels> {
    norm: Norm,
    /// What is normalized: x, less its mean where that is taken out.
    deviations: FloatTensor<B>,
    /// Mean square of the deviations plus ε.
    variance: FloatTensor<B>,
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
            norm,
            deviations,
            variance,
        }
    }

    fn scale(&self, v: &TensorArithmetic<B>) -> FloatTensor<B> {
        v.recip(v.sqrt(self.variance.clone()))
    }

    fn normalized(&self, v: &TensorArithmetic<B>) -> FloatTensor<B> {
        v.mul(self.deviations.clone(), self.scale(v))
    }

    /// The gradient of x, from `t = g γ`.
    fn backward(
        self,
        passes: &Passes<B>,
        normalized: FloatTensor<B>,
        t: FloatTensor<B>,
    ) -> FloatTensor<B> {
        let v = &passes.backward;
        let last = t.rank() - 1;
        match self.norm {
            Norm::Layer => {
                let sigma = v.sqrt(self.variance.clone());
                let a = v.mul(t.clone(), v.recip(sigma.clone()));
                let q = v.mean_dim(v.mul(v.mul(t, normalized.clone()), sigma), last);
                let q = v.mul(q, v.recip(self.variance));
                let d = v.add(a, v.mul(v.neg(q), normalized));
                v.sub(d.clone(), v.mean_dim(d, last))
            }
            Norm::Rms => {
                let a = v.mul(t, self.scale(&passes.forward));
                let q = v.mean_dim(v.mul(a.clone(), normalized.clone()), last);
                // Not rounded, which is what the reference does here and nowhere else.
                B::float_sub(a, v.mul(normalized, q))
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
