//! `microexponents`: values of microexponent and BFP blocks, through the slice API. Bits are compared where the
//! golden file says that the reference's value is one of the format.

use microscaling::{BlockFormat, Rounding};
use serde::Deserialize;

use super::compare::{AgreementRule, compare};
use super::golden::{Golden, GoldenError};
use super::report::{CheckReport, Outcome};
use super::slices::{NO_STREAM, named, refused};

#[derive(Debug, Deserialize)]
struct MicroexponentParams {
    input: String,
    format: String,
    bit_width: u32,
    block_size: usize,
    sub_block_size: Option<usize>,
    sub_block_shift_bits: Option<u32>,
    round: String,
    axis: isize,
}

impl MicroexponentParams {
    /// The format and rounding of the case, or the kind of case that is unknown.
    fn format(&self) -> Result<(BlockFormat, Rounding), String> {
        let (bit_width, block_size) = (self.bit_width, self.block_size);
        let format = match (self.sub_block_size, self.sub_block_shift_bits) {
            (Some(sub_block_size), Some(shift_bits)) => {
                BlockFormat::microexponent(bit_width, block_size, sub_block_size, shift_bits)
            }
            (None, None) => BlockFormat::bfp(bit_width, block_size),
            _ => return Err(format!("format `{}`", self.format)),
        };
        let format = format.map_err(|error| error.to_string())?;
        Ok((format, named("round", &self.round)?))
    }
}

/// Checks every case.
pub(crate) fn check(file: &Golden) -> Result<CheckReport, GoldenError> {
    let mut report = CheckReport::new("microexponents", "slice");
    for case in file.cases::<MicroexponentParams>()? {
        let (id, params) = (&case.id, &case.params);
        let input = file.floats(&format!("in/{}", params.input))?;
        let mut expected = file.floats(&format!("out/{id}"))?.clone();
        let valid = file.bytes(&format!("valid/{id}"))?;
        let axis = input
            .axis(params.axis)
            .ok_or_else(|| file.bad_case(id, "`axis` is out of range"))?;
        let outcome = match params.format() {
            Ok((format, rounding)) => {
                let mut got = input.clone();
                match format.quantize(&mut got.values, &got.shape, axis, rounding.with(NO_STREAM)) {
                    Ok(()) => {
                        // The reference may run over into a value that the format has not.
                        for (i, valid) in valid.values.iter().enumerate() {
                            if *valid == 0 {
                                (got.values[i], expected.values[i]) = (0.0, 0.0);
                            }
                        }
                        compare("out", &got, &expected, AgreementRule::Bits).into()
                    }
                    Err(error) => refused(error),
                }
            }
            Err(kind) => Outcome::Skipped(kind),
        };
        report.add(format_args!("case {id}: {params:?}"), outcome);
    }
    Ok(report)
}
