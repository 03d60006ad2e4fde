//! `mx_quantize`: values of MX blocks, through [`MxFormat::quantize`]. Bits are compared.

use microscaling::{MxFormat, Rounding};
use serde::Deserialize;

use super::golden::{Golden, GoldenError};
use super::report::{Outcome, Report};
use super::slices::{check_quantize, named};

#[derive(Debug, Deserialize)]
struct Params {
    input: String,
    elem_format: String,
    round: String,
    block_size: usize,
    axis: isize,
    scale_bits: u32,
    flush_fp32_subnorms: bool,
    shared_exp_method: String,
}

impl Params {
    /// The format and rounding of the case, or the kind of case that is unknown.
    fn format(&self) -> Result<(MxFormat, Rounding), String> {
        let format = MxFormat {
            scale_bits: self.scale_bits,
            flush_fp32_subnorms: self.flush_fp32_subnorms,
            shared_exp_method: named("shared_exp_method", &self.shared_exp_method)?,
            ..MxFormat::new(named("elem_format", &self.elem_format)?, self.block_size)
        };
        Ok((format, named("round", &self.round)?))
    }
}

/// Checks every case.
pub(crate) fn check(file: &Golden) -> Result<Report, GoldenError> {
    let mut report = Report::new("mx_quantize", "slice");
    for case in file.cases::<Params>()? {
        let params = &case.params;
        let input = file.floats(&format!("in/{}", params.input))?;
        let expected = file.floats(&format!("out/{}", case.id))?;
        let axis = input
            .axis(params.axis)
            .ok_or_else(|| file.bad_case(&case.id, "`axis` is out of range"))?;
        let outcome = match params.format() {
            Ok((format, rounding)) => check_quantize(format, rounding, input, axis, expected),
            Err(kind) => Outcome::Skipped(kind),
        };
        report.add(format_args!("case {}: {params:?}", case.id), outcome);
    }
    Ok(report)
}
