//! `reuse`: a weight that is used several times, the gradients of whose uses are summed in float32.
//!
//! Output and the gradient of x as in `layers`. A weight's gradient is a float32 sum of rounded terms. If a term is off by a
//! step, the sum is off by the same step. Everywhere else only the order of the sum shows.

use burn::tensor::{Tensor, activation::relu, module::linear};
use burn_mx::MxKernels;
use burn_mx::module::MxTensorOps;
use serde::Deserialize;

use super::compare::AgreementRule;
use super::golden::{Case, Golden, GoldenError, Specs};
use super::ops::{Compared, OpCase, check_cases};
use super::report::CheckReport;
use super::tensors::{Op, OpInputs, same_rank};

#[derive(Debug, Deserialize)]
struct ReuseParams {}

/// Checks every case on `MxAutodiff<B>` and `MxBackend<B>`.
pub(crate) fn check<B: MxKernels>(
    file: &Golden,
    specs: &Specs,
    backend: &str,
) -> Result<CheckReport, GoldenError> {
    let report = CheckReport::new("reuse", backend);
    check_cases::<B, Reuse, ReuseParams>(file, specs, report, |_, case| Ok(Reuse::of(case)), rule)
}

fn rule(_: &Reuse, compared: Compared<'_>) -> AgreementRule {
    let of_weight = !matches!(compared.grad, None | Some("x"));
    match (compared.format(), compared.specs.float_format()) {
        (_, Some(format)) if of_weight => AgreementRule::MostOfLargest {
            distance: 1e-6,
            format,
            share: 0.02,
        },
        (Some(format), _) if !of_weight => AgreementRule::OneStep {
            format,
            share: 0.005,
        },
        _ => AgreementRule::OfLargest(1e-6),
    }
}

#[derive(Debug)]
enum Reuse {
    /// h_t = relu(x_t wᵀ + h_{t−1} uᵀ), h_0 = relu(x_0 wᵀ); out the last h. x [T, B, K], w [H, K], u [H, H].
    Recurrent,
    /// relu(x wᵀ) w. x [B, K], w [H, K].
    Tied,
}

impl Reuse {
    /// The op of a case, none if it is not built.
    fn of(case: &Case<OpCase<ReuseParams>>) -> Vec<Self> {
        match case.params.op.as_str() {
            "recurrent" => vec![Self::Recurrent],
            "tied" => vec![Self::Tied],
            _ => Vec::new(),
        }
    }
}

impl Op for Reuse {
    fn forward<B: MxTensorOps, const D: usize>(&self, inputs: &OpInputs<B>) -> Tensor<B, D> {
        let w = inputs.weight::<2>("w");
        same_rank(match self {
            Self::Recurrent => {
                let u = inputs.weight::<2>("u");
                let x = inputs.activation::<3>("x");
                let [steps, batch, features] = x.dims();
                let x = |t: usize| x.clone().narrow(0, t, 1).reshape([batch, features]);
                let first = relu(linear(x(0), w.clone(), None));
                (1..steps).fold(first, |h, t| {
                    relu(linear(x(t), w.clone(), None) + linear(h, u.clone(), None))
                })
            }
            Self::Tied => {
                let x = inputs.activation::<2>("x");
                linear(relu(linear(x, w.clone().transpose(), None)), w, None)
            }
        })
    }

    fn transposed(&self) -> &'static [&'static str] {
        match self {
            Self::Recurrent => &["w", "u"],
            Self::Tied => &[],
        }
    }
}
