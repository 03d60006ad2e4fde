//! `nvfp4`: blocks with an E4M3 scale, with and without a scale of the tensor, through the slice API. Every case has
//! three checks: the values, the codes of the scales, and the codes of the elements. Bits are compared.

use microscaling::{BlockFormat, Rounding};
use serde::Deserialize;

use super::golden::{Golden, GoldenError};
use super::report::CheckReport;
use super::slices::{Checked, check_cases};

#[derive(Debug, Deserialize)]
struct Nvfp4Params {
    per_tensor_scale: bool,
}

/// Checks every case.
pub(crate) fn check(file: &Golden) -> Result<CheckReport, GoldenError> {
    check_cases(
        file,
        "nvfp4",
        Checked::ValuesAndCodes,
        |params: &Nvfp4Params| {
            let format = BlockFormat::nvfp4(params.per_tensor_scale);
            Ok((format, Rounding::NearestEven))
        },
    )
}
