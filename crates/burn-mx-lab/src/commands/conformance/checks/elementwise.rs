//! `elementwise`: rounding to bfloatN and fpN, through [`FloatFormat::round_slice`]. Bits are compared.

use microscaling::{FloatFormat, FormatError, Rounding};
use serde::Deserialize;

use super::compare::{AgreementRule, compare};
use super::golden::{Golden, GoldenError};
use super::report::{CheckReport, Outcome};
use super::slices::{NO_STREAM, named, refused};

#[derive(Debug, Deserialize)]
struct ElementwiseParams {
    bfloat: u32,
    fp: u32,
    round: String,
    subnorms: bool,
}

impl ElementwiseParams {
    /// The format; `None` is float32 itself.
    fn format(&self) -> Result<Option<FloatFormat>, FormatError> {
        let format = match (self.bfloat, self.fp) {
            (0, 0) => return Ok(None),
            (0, fp) => FloatFormat::fp(fp)?,
            (bfloat, _) => FloatFormat::bfloat(bfloat)?,
        };
        Ok(Some(format.with_subnormals(self.subnorms)))
    }
}

/// Checks every case.
pub(crate) fn check(file: &Golden) -> Result<CheckReport, GoldenError> {
    let mut report = CheckReport::new("elementwise", "slice");
    let input = file.floats("in/x")?;
    for case in file.cases::<ElementwiseParams>()? {
        let params = &case.params;
        let expected = file.floats(&format!("out/{}", case.id))?;
        let outcome = match (params.format(), named::<Rounding>("round", &params.round)) {
            (_, Err(kind)) => Outcome::Skipped(kind),
            (Err(error), _) => refused(error),
            (Ok(format), Ok(rounding)) => {
                let mut got = input.clone();
                if let Some(format) = format {
                    format.round_slice(&mut got.values, rounding.with(NO_STREAM));
                }
                compare("out", &got, expected, AgreementRule::Bits).into()
            }
        };
        report.add(format_args!("case {}: {params:?}", case.id), outcome);
    }
    Ok(report)
}
