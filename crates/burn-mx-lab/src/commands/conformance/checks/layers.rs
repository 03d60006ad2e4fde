//! `layers`: matrix products and convolutions with their gradients.
//!
//! Products of MX-quantized operands are summed in float32 in any order. Values that are rounded elementwise afterwards
//! may differ by one step on 0.5 % of the elements. Other values may differ by 1e-6 of the largest value.

use burn::tensor::{Tensor, module, ops::ConvOptions};
use burn_mx::MxKernels;
use burn_mx::module::MxTensorOps;
use serde::Deserialize;

use super::compare::AgreementRule;
use super::golden::{Case, Golden, GoldenError, Specs};
use super::ops::{OpCase, check_cases};
use super::report::CheckReport;
use super::tensors::{Op, OpInputs, same_rank};

#[derive(Debug, Deserialize)]
struct LayerParams {
    /// matmul: which operand is an activation (`a`) and which a weight (`w`).
    #[serde(default)]
    mode: String,
    #[serde(default)]
    stride: Vec<usize>,
    #[serde(default)]
    padding: Vec<usize>,
    #[serde(default)]
    dilation: Vec<usize>,
    #[serde(default)]
    groups: usize,
}

/// Checks every case on `MxAutodiff<B>` and `MxBackend<B>`.
pub(crate) fn check<B: MxKernels>(
    file: &Golden,
    specs: &Specs,
    backend: &str,
) -> Result<CheckReport, GoldenError> {
    let report = CheckReport::new("layers", backend);
    check_cases::<B, LayerCase, LayerParams>(file, specs, report, LayerCase::of, |_, compared| {
        match compared.format() {
            Some(format) => AgreementRule::OneStep {
                format,
                share: 0.005,
            },
            None => AgreementRule::OfLargest(1e-6),
        }
    })
}

enum LayerCase {
    Linear,
    /// Whether each operand is a weight.
    Matmul([bool; 2]),
    Conv1d(ConvOptions<1>),
    Conv2d(ConvOptions<2>),
    Conv3d(ConvOptions<3>),
}

impl LayerCase {
    /// The layer of a case, none if it is not built.
    fn of(file: &Golden, case: &Case<OpCase<LayerParams>>) -> Result<Vec<Self>, GoldenError> {
        let params = &case.params.more;
        Ok(vec![match case.params.op.as_str() {
            "linear" => Self::Linear,
            "bmm" => Self::Matmul([false, false]),
            "matmul" => Self::Matmul(match params.mode.as_str() {
                "aa" => [false, false],
                "aw" => [false, true],
                "wa" => [true, false],
                "ww" => [true, true],
                other => {
                    let reason = format!("`mode` is {other:?}, expected aa, aw, wa or ww");
                    return Err(file.bad_case(&case.id, reason));
                }
            }),
            "conv1d" => Self::Conv1d(options(file, &case.id, params)?),
            "conv2d" => Self::Conv2d(options(file, &case.id, params)?),
            "conv3d" => Self::Conv3d(options(file, &case.id, params)?),
            _ => return Ok(Vec::new()),
        }])
    }
}

fn options<const N: usize>(
    file: &Golden,
    id: &str,
    params: &LayerParams,
) -> Result<ConvOptions<N>, GoldenError> {
    let axes = |name: &str, values: &[usize]| {
        <[usize; N]>::try_from(values)
            .map_err(|_| file.bad_case(id, format!("`{name}` has not {N} entries")))
    };
    Ok(ConvOptions::new(
        axes("stride", &params.stride)?,
        axes("padding", &params.padding)?,
        axes("dilation", &params.dilation)?,
        params.groups,
    ))
}

impl Op for LayerCase {
    fn forward<B: MxTensorOps, const D: usize>(&self, inputs: &OpInputs<B>) -> Tensor<B, D> {
        let bias = inputs.has("bias").then(|| inputs.weight::<1>("bias"));
        match self {
            Self::Linear => {
                module::linear::<B, D>(inputs.activation("input"), inputs.weight("weight"), bias)
            }
            Self::Matmul([first, second]) => {
                let operand = |name, is_weight| match is_weight {
                    true => inputs.weight::<D>(name),
                    false => inputs.activation(name),
                };
                operand("in1", *first).matmul(operand("in2", *second))
            }
            Self::Conv1d(options) => same_rank(module::conv1d(
                inputs.activation("input"),
                inputs.weight("weight"),
                bias,
                options.clone(),
            )),
            Self::Conv2d(options) => same_rank(module::conv2d(
                inputs.activation("input"),
                inputs.weight("weight"),
                bias,
                options.clone(),
            )),
            Self::Conv3d(options) => same_rank(module::conv3d(
                inputs.activation("input"),
                inputs.weight("weight"),
                bias,
                options.clone(),
            )),
        }
    }

    fn transposed(&self) -> &'static [&'static str] {
        match self {
            Self::Linear => &["weight"],
            _ => &[],
        }
    }
}
