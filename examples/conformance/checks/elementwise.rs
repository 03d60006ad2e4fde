//! `elementwise`: rounding to bfloatN and fpN, through [`FloatFormat::round_slice`]. Bits are compared.

use microscaling::{FloatFormat, FormatError, Rounding};
use serde::Deserialize;

use super::compare::{Rule, compare};
use super::golden::{Golden, GoldenError};
use super::report::{Outcome, Report};
use super::slices::{NO_STREAM, named, refused};

#[derive(Debug, Deserialize)]
struct Params {
    bfloat: u32,
    fp: u32,
    round: String,
    subnorms: bool,
}

impl Params {
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
pub(crate) fn check(file: &Golden) -> Result<Report, GoldenError> {
    let mut report = Report::new("elementwise", "slice");
    let input = file.floats("in/x")?;
    for case in file.cases::<Params>()? {
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
                compare("out", &got, expected, Rule::Bits).into()
            }
        };
        report.add(format_args!("case {}: {params:?}", case.id), outcome);
    }
    Ok(report)
}
