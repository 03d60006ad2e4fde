//! Functions that the reference has as one and Burn composes of smaller ops.
//!
//! The steps of the forward pass are the same, or nearly so; the gradient is rounded at other places. Each rounding is off
//! by up to half a relative step of what it rounds, and the largest of that are the terms that add up to the result, which
//! may cancel. So a result may be off by as many relative steps of its largest term as the rule says.

use burn::module::Param;
use burn::nn::RmsNormConfig;
use burn::tensor::{Tensor, activation};
use burn_mx::module::MxTensorOps;

use super::compare::Rule;
use super::golden::Array;
use super::ops::Compared;
use super::tensors::{Example, Inputs, Op};

/// A function as Burn, or a user of it, composes it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Composition {
    /// `activation::silu`: a product with a sigmoid.
    Silu,
    /// A product with a sigmoid, written by hand: Burn has none.
    GeluFirstOrder,
    /// `nn::RmsNorm`, which divides by the root and has no bias.
    RmsNorm { eps: f64 },
}

/// The slope of the first-order gelu in the reference: 1.702 in bfloat16.
const SLOPE: f64 = 1.703125;

/// Relative steps of the largest term. Measured over all cases: up to 1.8.
const STEPS: f64 = 2.0;

impl Composition {
    /// How closely a result has to agree.
    pub(crate) fn rule(self, compared: Compared<'_>) -> Rule {
        let specs = compared.specs;
        let format = specs
            .float_format()
            .expect("every spec of `vector` has an elementwise format");
        match (self, compared.grad) {
            (Self::Silu | Self::GeluFirstOrder, None) => Rule::OneStep {
                format,
                share: 0.01,
            },
            _ => Rule::StepsOfTerm {
                format,
                steps: STEPS,
                terms: self.terms(compared.example, compared.grad),
            },
        }
    }

    /// Magnitude of the largest term of each element of the output or of a gradient.
    fn terms(self, example: &Example<'_>, grad: Option<&str>) -> Vec<f64> {
        let x = numbers(example.inputs["x"]);
        let g = numbers(example.grad_out);
        match self {
            Self::Silu => gated(&x, &g, 1.0),
            Self::GeluFirstOrder => gated(&x, &g, SLOPE),
            Self::RmsNorm { eps } => {
                let gamma = numbers(example.inputs["weight"]);
                match grad {
                    None => numbers(example.out),
                    Some(grad) => rms_norm(&x, &gamma, &g, eps, grad),
                }
            }
        }
    }
}

fn numbers(array: &Array<f32>) -> Vec<f64> {
    array.values.iter().map(|&x| f64::from(x)).collect()
}

/// Of the gradient `g σ + g x s σ (1 - σ)` of `x σ(s x)`.
fn gated(x: &[f64], g: &[f64], slope: f64) -> Vec<f64> {
    let term = |(&x, &g): (&f64, &f64)| {
        let sigmoid = 1.0 / (1.0 + (-slope * x).exp());
        let inner = x * slope * sigmoid * (1.0 - sigmoid);
        (g * sigmoid).abs().max((g * inner).abs())
    };
    x.iter().zip(g).map(term).collect()
}

/// Of the gradients of `γ x / r` with `r` the root mean square: `g γ / r - n mean(g γ n) / r` of x, with n the
/// normalized x, and `Σ g n` of γ. The mean counts as that of its terms' magnitudes, since those are what is rounded.
fn rms_norm(x: &[f64], gamma: &[f64], g: &[f64], eps: f64, grad: &str) -> Vec<f64> {
    let features = gamma.len();
    let mut of_x = Vec::new();
    let mut of_gamma = vec![0.0_f64; features];
    for (x, g) in x.chunks(features).zip(g.chunks(features)) {
        let square: f64 = x.iter().map(|x| x * x).sum();
        let root = (square / features as f64 + eps).sqrt();
        let products: Vec<f64> = (0..features)
            .map(|i| g[i] * gamma[i] * x[i] / root)
            .collect();
        let mean = products.iter().map(|product| product.abs()).sum::<f64>() / features as f64;
        for i in 0..features {
            let own = (g[i] * gamma[i] / root).abs();
            of_x.push(own.max((x[i] / root * mean / root).abs()));
            of_gamma[i] = of_gamma[i].max((g[i] * x[i] / root).abs());
        }
    }
    match grad {
        "x" => of_x,
        _ => of_gamma,
    }
}

impl Op for Composition {
    fn forward<B: MxTensorOps, const D: usize>(&self, inputs: &Inputs<B>) -> Tensor<B, D> {
        let x = inputs.activation::<D>("x");
        match *self {
            Self::Silu => activation::silu(x),
            Self::GeluFirstOrder => x.clone() * activation::sigmoid(x * SLOPE),
            Self::RmsNorm { eps } => {
                let gamma = inputs.weight::<1>("weight");
                let config = RmsNormConfig::new(gamma.dims()[0]).with_epsilon(eps);
                let mut norm = config.init::<B>(&gamma.device());
                norm.gamma = Param::from_tensor(gamma);
                norm.forward(x) + inputs.weight::<1>("bias").unsqueeze()
            }
        }
    }

    fn name(&self, golden: &str) -> String {
        match self {
            Self::GeluFirstOrder => format!("{golden} (composed)"),
            Self::Silu | Self::RmsNorm { .. } => format!("{golden} (Burn's own)"),
        }
    }
}
