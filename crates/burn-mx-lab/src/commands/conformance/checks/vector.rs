//! `vector`: elementwise ops, activations, reductions and norms with their gradients.
//!
//! Where nothing but + − × ÷ √ happens on rounded values, bits are compared. exp, log and tanh differ by an
//! ulp between libraries, and a float32 sum by its order: after rounding, by one step on few elements.

use burn::module::Param;
use burn::nn::LayerNormConfig;
use burn::tensor::{Tensor, activation};
use burn_mx::MxKernels;
use burn_mx::module::{MxTensorOps, gelu_first_order, rms_norm, silu};
use serde::Deserialize;

use super::compare::AgreementRule;
use super::composition::Composition;
use super::golden::{Case, Golden, GoldenError, Specs};
use super::ops::{Compared, OpCase, check_cases};
use super::report::CheckReport;
use super::tensors::{Op, OpInputs, same_rank};

#[derive(Debug, Deserialize)]
struct VectorParams {
    eps: Option<f64>,
}

/// Checks every case on `MxAutodiff<B>` and `MxBackend<B>`.
pub(crate) fn check<B: MxKernels>(
    file: &Golden,
    specs: &Specs,
    backend: &str,
) -> Result<CheckReport, GoldenError> {
    let report = CheckReport::new("vector", backend);
    check_cases::<B, VectorOp, VectorParams>(file, specs, report, VectorOp::of, rule)
}

/// How closely a result has to agree, see [`check_cases`].
fn rule(op: &VectorOp, compared: Compared<'_>) -> AgreementRule {
    if let VectorOp::Composed(op) = op {
        return op.rule(compared);
    }
    let step_on = |format, share| AgreementRule::OneStep { format, share };
    match (op.arithmetic(compared.grad), compared.format()) {
        (Arithmetic::Exact, _) | (Arithmetic::Sum, Some(_)) => AgreementRule::Bits,
        (Arithmetic::Library, Some(format)) => step_on(format, 0.01),
        (Arithmetic::Sums, Some(format)) => step_on(format, 0.02),
        (_, None) => AgreementRule::OfLargest(1e-6),
    }
}

/// The operations that compute a result.
enum Arithmetic {
    /// + − × ÷ √ alone.
    Exact,
    /// A sum, too. The order of an unrounded sum shows.
    Sum,
    /// exp, log or tanh.
    Library,
    /// Several sums, for a gradient.
    Sums,
}

#[derive(Debug)]
enum VectorOp {
    Relu,
    Gelu,
    GeluFirstOrder,
    LeakyRelu,
    Silu,
    Sigmoid,
    Tanh,
    Exp,
    Log,
    Sqrt,
    Square,
    Add,
    Sub,
    Mul,
    Div,
    Softmax {
        dim: Option<usize>,
    },
    /// Along the one axis that the output has not.
    Reduce {
        dim: usize,
        mean: bool,
    },
    LayerNorm {
        eps: f64,
    },
    RmsNorm {
        eps: f64,
    },
    /// The same function as Burn, or a program that uses Burn, composes it.
    Composed(Composition),
}

impl VectorOp {
    /// The op of a case, and Burn's own composition if it differs; none if the op is not implemented.
    fn of(file: &Golden, case: &Case<OpCase<VectorParams>>) -> Result<Vec<Self>, GoldenError> {
        let name = case.params.op.as_str();
        let eps = || {
            let eps = case.params.more.eps;
            eps.ok_or_else(|| file.bad_case(&case.id, "has no `eps`"))
        };
        let op = match name {
            "relu" => Self::Relu,
            "gelu" => Self::Gelu,
            "gelu_first_order" => Self::GeluFirstOrder,
            "leaky_relu" => Self::LeakyRelu,
            "silu" => Self::Silu,
            "sigmoid" => Self::Sigmoid,
            "tanh" => Self::Tanh,
            "exp" => Self::Exp,
            "log" => Self::Log,
            "sqrt" => Self::Sqrt,
            "square" => Self::Square,
            "add" => Self::Add,
            "sub" => Self::Sub,
            "mul" => Self::Mul,
            "div" => Self::Div,
            "softmax" => Self::Softmax { dim: None },
            "softmax_dim1" => Self::Softmax { dim: Some(1) },
            "reduce_sum" | "reduce_mean" => {
                let mean = name == "reduce_mean";
                match reduced_axis(file, &case.id)? {
                    Some(dim) => Self::Reduce { dim, mean },
                    None => return Ok(Vec::new()),
                }
            }
            "layer_norm" => Self::LayerNorm { eps: eps()? },
            "rms_norm" => Self::RmsNorm { eps: eps()? },
            _ => return Ok(Vec::new()),
        };
        let composed = match op {
            Self::Silu => Some(Composition::Silu),
            Self::GeluFirstOrder => Some(Composition::GeluFirstOrder),
            Self::RmsNorm { eps } => Some(Composition::RmsNorm { eps }),
            _ => None,
        };
        Ok([Some(op), composed.map(Self::Composed)]
            .into_iter()
            .flatten()
            .collect())
    }

    /// The rule for the gradient of an input, or (`None`) for the output.
    fn arithmetic(&self, grad: Option<&str>) -> Arithmetic {
        match (self, grad) {
            (Self::Relu | Self::LeakyRelu | Self::Sqrt | Self::Square, _) => Arithmetic::Exact,
            // The gradient of an operand that may be broadcast is summed.
            (Self::Add | Self::Sub | Self::Mul | Self::Div, Some("b")) => Arithmetic::Sum,
            (Self::Add | Self::Sub | Self::Mul | Self::Div, _) => Arithmetic::Exact,
            // The gradient of a mean is g / n here and g · (1 / n) in the reference.
            (Self::Reduce { .. }, _) | (Self::LayerNorm { .. }, None) => Arithmetic::Sum,
            (Self::RmsNorm { .. }, _) => Arithmetic::Sum,
            (Self::Softmax { .. } | Self::LayerNorm { .. }, Some(_)) => Arithmetic::Sums,
            // A quotient of rounded values.
            (Self::Log, Some(_)) => Arithmetic::Exact,
            (Self::Softmax { .. } | Self::Log, None) => Arithmetic::Library,
            (Self::Gelu | Self::GeluFirstOrder | Self::Silu, _) => Arithmetic::Library,
            (Self::Sigmoid | Self::Tanh | Self::Exp, _) => Arithmetic::Library,
            (Self::Composed(_), _) => unreachable!("a composition has rules of its own"),
        }
    }
}

/// The one axis along which the output has length 1 and the input has not; `None` if there are several.
fn reduced_axis(file: &Golden, id: &str) -> Result<Option<usize>, GoldenError> {
    let input = &file.floats(&format!("{id}/in/x"))?.shape;
    let output = &file.floats(&format!("{id}/out"))?.shape;
    let mut axes = (0..input.len()).filter(|&axis| output.get(axis) != Some(&input[axis]));
    Ok(axes
        .next()
        .filter(|_| axes.next().is_none() && input.len() == output.len()))
}

impl Op for VectorOp {
    fn name(&self, golden: &str) -> String {
        match self {
            Self::Composed(op) => op.name(golden),
            _ => golden.to_owned(),
        }
    }

    fn forward<B: MxTensorOps, const D: usize>(&self, inputs: &OpInputs<B>) -> Tensor<B, D> {
        let x = || inputs.activation::<D>("x");
        let a = || inputs.activation::<D>("a");
        let b = || broadcast_operand::<B, D>(inputs, "b");
        match *self {
            Self::Relu => activation::relu(x()),
            Self::Gelu => activation::gelu(x()),
            Self::GeluFirstOrder => gelu_first_order(x()),
            // The default slope of PyTorch.
            Self::LeakyRelu => activation::leaky_relu(x(), 0.01),
            Self::Silu => silu(x()),
            Self::Sigmoid => activation::sigmoid(x()),
            Self::Tanh => activation::tanh(x()),
            Self::Exp => x().exp(),
            Self::Log => x().log(),
            Self::Sqrt => x().sqrt(),
            Self::Square => x().square(),
            Self::Add => a() + b(),
            Self::Sub => a() - b(),
            Self::Mul => a() * b(),
            Self::Div => a() / b(),
            Self::Softmax { dim } => activation::softmax(x(), dim.unwrap_or(D - 1)),
            Self::Reduce { dim, mean: false } => x().sum_dim(dim),
            Self::Reduce { dim, mean: true } => x().mean_dim(dim),
            Self::LayerNorm { eps } => {
                let gamma = inputs.weight::<1>("weight");
                let config = LayerNormConfig::new(gamma.dims()[0]).with_epsilon(eps);
                let mut norm = config.init::<B>(&gamma.device());
                norm.gamma = Param::from_tensor(gamma);
                norm.beta = Some(Param::from_tensor(inputs.weight("bias")));
                norm.forward(x())
            }
            Self::RmsNorm { eps } => rms_norm(
                x(),
                inputs.weight("weight"),
                Some(inputs.weight("bias")),
                eps,
            ),
            Self::Composed(op) => op.forward(inputs),
        }
    }
}

/// An operand of lower rank than the other, with axes of length 1 put in front as PyTorch does by itself.
fn broadcast_operand<B: MxTensorOps, const D: usize>(
    inputs: &OpInputs<B>,
    name: &str,
) -> Tensor<B, D> {
    match inputs.rank(name) {
        1 => inputs.activation::<1>(name).unsqueeze(),
        2 => inputs.activation::<2>(name).unsqueeze(),
        3 => inputs.activation::<3>(name).unsqueeze(),
        _ => same_rank(inputs.activation::<D>(name)),
    }
}
