//! `scale_modes`: MX blocks by each way to choose the shared scale. Every case is three checks: the
//! values, the E8M0 codes of the scales, and the codes of the elements as they are packed. Bits are compared.

use microscaling::{BlockFormat, Rounding};
use serde::Deserialize;

use super::golden::{Golden, GoldenError};
use super::report::CheckReport;
use super::slices::{Checked, check_cases, named};

#[derive(Debug, Deserialize)]
struct ScaleModeParams {
    elem_format: String,
    scale_mode: String,
    round: String,
    block_size: usize,
}

impl ScaleModeParams {
    /// The format and rounding of the case, or the kind of case that is unknown.
    fn format(&self) -> Result<(BlockFormat, Rounding), String> {
        let format = BlockFormat {
            scale_mode: named("scale_mode", &self.scale_mode)?,
            ..BlockFormat::mx(named("elem_format", &self.elem_format)?, self.block_size)
        };
        Ok((format, named("round", &self.round)?))
    }
}

/// Checks every case.
pub(crate) fn check(file: &Golden) -> Result<CheckReport, GoldenError> {
    check_cases(
        file,
        "scale_modes",
        Checked::ValuesAndCodes,
        ScaleModeParams::format,
    )
}
