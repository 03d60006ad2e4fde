//! What `layers` and `vector` share: cases that name an op and specs and have an output and gradients.

use burn_mx::MxKernels;
use microscaling::FloatFormat;
use serde::{Deserialize, de::DeserializeOwned};

use super::compare::{Mismatch, Rule};
use super::golden::{Case, Golden, GoldenError, Specs};
use super::report::{Outcome, Report};
use super::tensors::{Example, Op};

/// What the list says of a case.
#[derive(Debug, Deserialize)]
pub(crate) struct OpCase<P> {
    pub(crate) op: String,
    pub(crate) spec: String,
    /// What only some ops have.
    #[serde(flatten)]
    pub(crate) more: P,
}

/// Checks every case on `MxAutodiff<B>` and `MxBackend<B>`.
///
/// `op` makes the op of a case, `None` if it is not built. `rule` says how closely a result has to agree:
/// that of an op, for the gradient of an input or (`None`) the output, in the format that it is rounded to
/// or (`None`) unrounded.
pub(crate) fn check_cases<B: MxKernels, O: Op, P: DeserializeOwned>(
    file: &Golden,
    specs: &Specs,
    mut report: Report,
    op: impl Fn(&Golden, &Case<OpCase<P>>) -> Result<Option<O>, GoldenError>,
    rule: impl Fn(&O, Option<&str>, Option<FloatFormat>) -> Rule,
) -> Result<Report, GoldenError> {
    for case in file.cases::<OpCase<P>>()? {
        let (id, params) = (&case.id, &case.params);
        let specs = specs
            .get(&params.spec)
            .ok_or_else(|| file.bad_case(id, format!("specs.json has no `{}`", params.spec)))?;
        let example = Example {
            inputs: file.floats_under(&format!("{id}/in/")),
            grad_out: file.floats(&format!("{id}/grad_out"))?,
            out: file.floats(&format!("{id}/out"))?,
            grads: file.floats_under(&format!("{id}/grad/")),
        };
        let outcome = match (op(file, &case)?, specs) {
            (None, _) => Outcome::Skipped(format!("op `{}`", params.op)),
            (_, Err(error)) => vec![Mismatch::new("specs", error.to_string())].into(),
            (Some(op), Ok(specs)) => example
                .check::<B>(&op, specs, |grad| {
                    let rounded = grad.is_none() || specs.quantize_backprop();
                    rule(&op, grad, specs.float_format().filter(|_| rounded))
                })
                .into(),
        };
        report.add(
            format_args!("case {id}: {}, spec {}", params.op, params.spec),
            outcome,
        );
    }
    Ok(report)
}
