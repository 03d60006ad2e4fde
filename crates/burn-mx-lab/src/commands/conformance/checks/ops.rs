//! Common code of `layers` and `vector`: cases that name an op and specs and have an output and gradients.

use burn_mx::{MxKernels, ResolvedSpecs};
use microscaling::FloatFormat;
use serde::{Deserialize, de::DeserializeOwned};

use super::compare::{AgreementRule, Mismatch};
use super::golden::{Case, Golden, GoldenError, Specs};
use super::report::{CheckReport, Outcome};
use super::tensors::{Example, Op};

/// The parameters of a case.
#[derive(Debug, Deserialize)]
pub(crate) struct OpCase<P> {
    pub(crate) op: String,
    pub(crate) spec: String,
    /// Parameters that only some ops have.
    #[serde(flatten)]
    pub(crate) more: P,
}

/// Checks every case on `MxAutodiff<B>` and `MxBackend<B>`.
///
/// `ops` makes the ops that a case is checked with, none if it is not built; several are several ways to write it.
/// `rule` says how closely a result of an op has to agree.
pub(crate) fn check_cases<B: MxKernels, O: Op, P: DeserializeOwned>(
    file: &Golden,
    specs: &Specs,
    mut report: CheckReport,
    ops: impl Fn(&Golden, &Case<OpCase<P>>) -> Result<Vec<O>, GoldenError>,
    rule: impl Fn(&O, Compared<'_>) -> AgreementRule,
) -> Result<CheckReport, GoldenError> {
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
        let ops = ops(file, &case)?;
        if ops.is_empty() {
            report.add(id, Outcome::Skipped(format!("op `{}`", params.op)));
        }
        for op in ops {
            let name = op.name(&params.op);
            let outcome: Outcome = match specs {
                Err(error) => vec![Mismatch::new("specs", error.to_string())].into(),
                Ok(specs) => {
                    let rule = |grad: Option<&str>| {
                        rule(
                            &op,
                            Compared {
                                example: &example,
                                specs,
                                grad,
                            },
                        )
                    };
                    for grad in [None].into_iter().chain(example.grads.keys().map(Some)) {
                        let grad = grad.copied();
                        let what = match grad {
                            Some(input) => format!("{name} ∂{input}"),
                            None => name.clone(),
                        };
                        report.note(what, rule(grad).kind());
                    }
                    example.check::<B>(&op, specs, rule).into()
                }
            };
            report.add(
                format_args!("case {id}: {name}, spec {}", params.spec),
                outcome,
            );
        }
    }
    Ok(report)
}

/// A result that is to be compared.
#[derive(Clone, Copy)]
pub(crate) struct Compared<'a> {
    pub(crate) example: &'a Example<'a>,
    pub(crate) specs: &'a ResolvedSpecs,
    /// The input whose gradient it is; `None` is the output.
    pub(crate) grad: Option<&'a str>,
}

impl Compared<'_> {
    /// The format that the result is rounded to.
    pub(crate) fn format(&self) -> Option<FloatFormat> {
        let rounded = self.grad.is_none() || self.specs.quantize_backprop();
        self.specs.float_format().filter(|_| rounded)
    }
}
