//! `scale_modes`: MX blocks by each way to choose the shared scale. Every case is three checks: the
//! values, the E8M0 codes of the scales, and the codes of the elements as they are packed. Bits are compared.

use microscaling::{MxFormat, Rounding};
use serde::Deserialize;

use super::golden::{Golden, GoldenError};
use super::report::{Outcome, Report};
use super::slices::{check_packed, check_quantize, named};

#[derive(Debug, Deserialize)]
struct Params {
    input: String,
    elem_format: String,
    scale_mode: String,
    round: String,
    block_size: usize,
    axis: isize,
}

impl Params {
    /// The format and rounding of the case, or the kind of case that is unknown.
    fn format(&self) -> Result<(MxFormat, Rounding), String> {
        let format = MxFormat {
            scale_mode: named("scale_mode", &self.scale_mode)?,
            ..MxFormat::new(named("elem_format", &self.elem_format)?, self.block_size)
        };
        Ok((format, named("round", &self.round)?))
    }
}

/// Checks every case.
pub(crate) fn check(file: &Golden) -> Result<Report, GoldenError> {
    let mut report = Report::new("scale_modes", "slice");
    for case in file.cases::<Params>()? {
        let (id, params) = (&case.id, &case.params);
        let input = file.floats(&format!("in/{}", params.input))?;
        let values = file.floats(&format!("out/{id}"))?;
        let scales = file.bytes(&format!("scale/{id}"))?;
        let elements = file.bytes(&format!("bits/{id}"))?;
        let axis = input
            .axis(params.axis)
            .ok_or_else(|| file.bad_case(id, "`axis` is out of range"))?;
        let case = format!("case {id}: {params:?}");
        match params.format() {
            Ok((format, rounding)) => {
                let outcome = check_quantize(format, rounding, input, axis, values);
                report.add(&case, outcome);
                for outcome in check_packed(format, rounding, input, axis, scales, elements) {
                    report.add(&case, outcome);
                }
            }
            Err(kind) => report.add(&case, Outcome::Skipped(kind)),
        }
    }
    Ok(report)
}
