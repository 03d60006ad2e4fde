//! `mx_quantize`: values of MX blocks, through the slice API. Bits are compared.

use microscaling::{BlockFormat, Rounding, ScaleFormat, Subnormals};
use serde::Deserialize;

use super::golden::{Golden, GoldenError};
use super::report::CheckReport;
use super::slices::{Checked, check_cases, named};

#[derive(Debug, Deserialize)]
struct MxQuantizeParams {
    elem_format: String,
    round: String,
    block_size: usize,
    scale_bits: u32,
    flush_fp32_subnorms: bool,
    shared_exp_method: String,
}

impl MxQuantizeParams {
    /// The format and rounding of the case, or the kind of case that is unknown.
    fn format(&self) -> Result<(BlockFormat, Rounding), String> {
        let format = BlockFormat {
            scale: ScaleFormat::exponent(self.scale_bits).map_err(|error| error.to_string())?,
            subnormals: match self.flush_fp32_subnorms {
                true => Subnormals::FlushBlocks,
                false => Subnormals::Kept,
            },
            shared_exp_method: named("shared_exp_method", &self.shared_exp_method)?,
            ..BlockFormat::mx(named("elem_format", &self.elem_format)?, self.block_size)
        };
        Ok((format, named("round", &self.round)?))
    }
}

/// Checks every case.
pub(crate) fn check(file: &Golden) -> Result<CheckReport, GoldenError> {
    check_cases(
        file,
        "mx_quantize",
        Checked::Values,
        MxQuantizeParams::format,
    )
}
