//! Layer and root-mean-square normalization over the last axis.

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;

use super::elementwise::{GradientOf, Passes, TensorArithmetic};
use super::rows::TensorRows;
use super::stored;
use crate::tensor::random_streams::OpNumber;
use crate::tensor::{Float, Meta, MxTensor, OpContext};
use burn_mx_kernels::internal::formulas::norm;
use burn_mx_kernels::internal::formulas::{as_row, plain_rms_norm};
use burn_mx_kernels::internal::{KernelOp, Norm, Normalization};
use burn_mx_kernels::{MxKernels, to_f32};

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
    let context = OpContext::of([
        Some(x.meta),
        Some(gamma.meta),
        beta.as_ref().map(|beta| beta.meta),
    ]);
    let Some(arith) = TensorArithmetic::<B>::emulated(&context, number) else {
        let (x, gamma, beta) = (x.inner, gamma.inner, beta.map(|beta| beta.inner));
        let output = match norm {
            Norm::Layer => B::layer_norm(x, gamma, beta, epsilon),
            Norm::Rms => plain_rms_norm::<B>(x, gamma, beta, epsilon),
        };
        return MxTensor::new(output, context.result);
    };
    let compute = |arith: &TensorArithmetic<B>, x: Float<B>, gamma: Float<B>, beta| {
        compute::<B>(arith, norm, x, gamma, beta, epsilon)
    };
    let (name, x, gamma) = (norm.name(), ("input", x), ("gamma", gamma));
    let output = match beta {
        Some(beta) => arith.function(
            name,
            [x, gamma, ("beta", beta)],
            |arith, [x, gamma, beta]| compute(arith, x, gamma, Some(beta)),
        ),
        None => arith.function(name, [x, gamma], |arith, [x, gamma]| {
            compute(arith, x, gamma, None)
        }),
    };
    arith.finish(output, &context)
}

/// [`forward`] of tensors that are emulated.
fn compute<B: MxKernels>(
    arith: &TensorArithmetic<B>,
    norm: Norm,
    x: Float<B>,
    gamma: Float<B>,
    beta: Option<Float<B>>,
    epsilon: f64,
) -> FloatTensor<B> {
    if let Some(rounding) = arith.in_one_pass() {
        let op = KernelOp::Norm(Normalization::new(norm, epsilon, rounding));
        let others = [Some(gamma), beta].map(|tensor| Some(to_f32::<B>(tensor?.inner)));
        return B::kernels().run(op, to_f32::<B>(x.inner), others).0;
    }
    let (rank, rows) = (x.rank(), TensorRows::<B>::along(x.rank() - 1));
    // In this order, which the backward pass draws again from the start.
    let normalized = norm::normalize(&rows, arith, norm, arith.operand(x), epsilon as f32);
    let gamma = as_row::<B>(arith.operand(gamma), rank);
    let beta = beta.map(|beta| as_row::<B>(arith.operand(beta), rank));
    norm::scale_and_shift(&rows, arith, normalized.values, &gamma, beta.as_ref())
}

/// The gradients of x, γ and β from the output's gradient. `number` is the op's number in the forward pass, and `layer`
/// its layer, as the recorder names it. `beta` is the meta of β.
pub(crate) fn backward<B: MxKernels>(
    number: OpNumber,
    layer: Option<&'static str>,
    norm: Norm,
    [x, gamma]: [Float<B>; 2],
    beta: Option<Meta>,
    grad: Float<B>,
    epsilon: f64,
) -> NormGrads<B> {
    let context = OpContext::of([Some(x.meta), Some(gamma.meta), beta]);
    let Some(shared) = context.emulation() else {
        unreachable!("a norm has a backward op of its own only where something is emulated")
    };
    let pass = Passes::<B>::of_backward(shared, &context, Some(number));
    let arith = &pass.backward;
    let (x_join, gamma_join) = (
        OpContext::of([Some(x.meta)]),
        OpContext::of([Some(gamma.meta)]),
    );
    let features = gamma.shape();
    let of = GradientOf {
        op: norm.name(),
        layer,
    };
    let rounded = |[x, gamma]: [Float<B>; 2]| {
        let (rows, forward) = (TensorRows::<B>::along(x.rank() - 1), pass.forward());
        let x = forward.operand(x);
        // The random numbers come after the normalization's.
        norm::normalize(&rows, &forward, norm, x.clone(), epsilon as f32);
        [x, forward.operand(gamma)]
    };
    let [d_x, d_gamma, d_beta] = pass.gradients_by(
        of,
        ["input gradient", "gamma gradient", "beta gradient"],
        [x, gamma],
        rounded,
        grad,
        |pass, [x, gamma], grad| gradients::<B>(pass, norm, x, gamma, grad, epsilon),
    );
    let of_parameter =
        |gradient| arith.finish(B::float_reshape(gradient, features.clone()), &gamma_join);
    NormGrads {
        x: match norm {
            Norm::Layer => arith.finish(d_x, &x_join),
            Norm::Rms => stored::<B>(d_x, x_join.result),
        },
        gamma: of_parameter(d_gamma),
        beta: of_parameter(d_beta),
    }
}

/// The gradients of x, γ and β, the latter two [1, .., 1, D].
fn gradients<B: MxKernels>(
    pass: &Passes<B>,
    norm: Norm,
    x: Float<B>,
    gamma: Float<B>,
    grad: Float<B>,
    epsilon: f64,
) -> [FloatTensor<B>; 3] {
    let arith = &pass.backward;
    let (rank, last) = (x.rank(), x.rank() - 1);
    let d_beta = arith.sum_dims(pass.gradient(grad.clone()), 0..last);
    let (d_x, products) = match arith.backward_in_one_pass() {
        Some(rounding) => {
            let op = KernelOp::NormBackward(Normalization::new(norm, epsilon, rounding));
            let [grad, x, gamma] = [grad, x, gamma].map(|tensor| to_f32::<B>(tensor.inner));
            let (d_x, products) = B::kernels().run(op, grad, [Some(x), Some(gamma)]);
            (d_x, products.expect("the op has two results"))
        }
        None => {
            let (rows, forward) = (TensorRows::<B>::along(last), pass.forward());
            let x = forward.operand(x);
            let normalized = norm::normalize(&rows, &forward, norm, x, epsilon as f32);
            let gamma = match arith.is_exact() {
                false => forward.operand(gamma),
                true => to_f32::<B>(gamma.inner),
            };
            let (gamma, g) = (as_row::<B>(gamma, rank), pass.gradient(grad));
            norm::backward(&rows, arith, norm, normalized, &gamma, g, ())
        }
    };
    [d_x, arith.sum_dims(products, 0..last), d_beta]
}
