//! Layer normalization over the last axis.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::Float;
use super::arithmetic::Arithmetic;
use super::elementwise::{Passes, Vector};
use crate::kernels::{LayerNormRecipe, MxKernels, to_f32};
use crate::tensor::{Join, MxTensor};

/// Gradients of [`layer_norm`].
pub(crate) struct LayerNormGrads<B: MxKernels> {
    pub(crate) x: Float<B>,
    pub(crate) gamma: Float<B>,
    pub(crate) beta: Float<B>,
}

/// `γ (x - mean) / sqrt(var + ε) + β`; `x` [.., D], `gamma` and `beta` [D].
pub(crate) fn layer_norm<B: MxKernels>(
    x: Float<B>,
    gamma: Float<B>,
    beta: Option<Float<B>>,
    epsilon: f64,
) -> Float<B> {
    let join = Join::of([
        Some(x.meta),
        Some(gamma.meta),
        beta.as_ref().map(|beta| beta.meta),
    ]);
    let Some(v) = Vector::<B>::recipe(&join) else {
        let beta = beta.map(|beta| beta.inner);
        return MxTensor::new(
            B::layer_norm(x.inner, gamma.inner, beta, epsilon),
            join.result,
        );
    };
    if let Some(steps) = v.in_one_pass() {
        let recipe = LayerNormRecipe::new(epsilon, steps);
        let output = B::layer_norm_recipe(
            recipe,
            to_f32::<B>(x.inner),
            to_f32::<B>(gamma.inner),
            beta.map(|beta| to_f32::<B>(beta.inner)),
        );
        return v.finish(output, &join);
    }
    let rank = x.rank();
    let moments = Moments::new(&v, v.operand(x), epsilon);
    let gamma = as_row::<B>(v.operand(gamma), rank);
    let scaled = v.mul(gamma, moments.normalized(&v));
    let output = match beta {
        Some(beta) => v.add(scaled, as_row::<B>(v.operand(beta), rank)),
        None => scaled,
    };
    v.finish(output, &join)
}

/// The gradients of x, γ and β from that of the output.
pub(crate) fn layer_norm_backward<B: MxKernels>(
    x: Float<B>,
    gamma: Float<B>,
    grad: Float<B>,
    epsilon: f64,
) -> LayerNormGrads<B> {
    let join = Join::of([Some(x.meta), Some(gamma.meta)]);
    let Some(interned) = join.emulation() else {
        unreachable!("layer_norm has a step of its own only where something is emulated")
    };
    let Passes {
        forward,
        backward: v,
    } = Passes::<B>::steps(interned, &join);
    let (x_join, gamma_join) = (Join::of([Some(x.meta)]), Join::of([Some(gamma.meta)]));
    let (rank, last) = (x.rank(), x.rank() - 1);
    let features = gamma.shape();

    let of_parameter =
        |gradient| v.finish(B::float_reshape(gradient, features.clone()), &gamma_join);

    if let Some(steps) = v.backward_in_one_pass() {
        let recipe = LayerNormRecipe::new(epsilon, steps);
        let d_beta = v.sum_dims(v.operand(grad.clone()), 0..last);
        let (d_x, products) = B::layer_norm_backward_recipe(
            recipe,
            to_f32::<B>(x.inner),
            to_f32::<B>(gamma.inner),
            to_f32::<B>(grad.inner),
        );
        let d_gamma = v.sum_dims(products, 0..last);
        return LayerNormGrads {
            x: v.finish(d_x, &x_join),
            gamma: of_parameter(d_gamma),
            beta: of_parameter(d_beta),
        };
    }
    let moments = Moments::new(&forward, forward.operand(x), epsilon);
    let normalized = moments.normalized(&forward);
    let g = v.operand(grad);
    let d_beta = v.sum_dims(g.clone(), 0..last);
    let d_gamma = v.sum_dims(v.mul(g.clone(), normalized.clone()), 0..last);

    let t = v.mul(g, as_row::<B>(v.operand(gamma), rank));
    let sigma = v.sqrt(moments.variance.clone());
    let a = v.mul(t.clone(), v.recip(sigma.clone()));
    let q = v.mean_dim(v.mul(v.mul(t, normalized.clone()), sigma), last);
    let q = v.mul(q, v.recip(moments.variance));
    let d = v.add(a, v.mul(v.neg(q), normalized));
    let d_x = v.sub(d.clone(), v.mean_dim(d, last));
    LayerNormGrads {
        x: v.finish(d_x, &x_join),
        gamma: of_parameter(d_gamma),
        beta: of_parameter(d_beta),
    }
}

/// What forward and backward share.
struct Moments<B: MxKernels> {
    centered: FloatTensor<B>,
    /// Variance plus ε.
    variance: FloatTensor<B>,
}

impl<B: MxKernels> Moments<B> {
    fn new(v: &Vector<B>, x: FloatTensor<B>, epsilon: f64) -> Self {
        let last = x.rank() - 1;
        let mean = v.mean_dim(x.clone(), last);
        let centered = v.sub(x, mean);
        let variance = v.mean_dim(v.mul(centered.clone(), centered.clone()), last);
        let variance = v.add_scalar(variance, epsilon as f32);
        Self { centered, variance }
    }

    fn normalized(&self, v: &Vector<B>) -> FloatTensor<B> {
        let scale = v.recip(v.sqrt(self.variance.clone()));
        v.mul(self.centered.clone(), scale)
    }
}

/// A vector [D] as a tensor [1, .., 1, D].
fn as_row<B: MxKernels>(vector: FloatTensor<B>, rank: usize) -> FloatTensor<B> {
    let mut dims = vec![1; rank];
    dims[rank - 1] = vector.shape()[0];
    B::float_reshape(vector, Shape::from(dims))
}
