//! `scale_modes`: MX blocks by each way to choose the shared scale. Every case is three checks: the
//! values, the E8M0 codes of the scales, and the codes of the elements (not built yet). Bits are compared.

use microscaling::{MxFormat, Rounding};
use serde::Deserialize;

use super::compare::compare_codes;
use super::golden::{Array, Golden, GoldenError};
use super::report::{Outcome, Report};
use super::slices::{check_quantize, named};

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
        let axis = input
            .axis(params.axis)
            .ok_or_else(|| file.bad_case(id, "`axis` is out of range"))?;
        let case = format!("case {id}: {params:?}");
        match params.format() {
            Ok((format, rounding)) => {
                let outcome = check_quantize(format, rounding, input, axis, values);
                report.add(&case, outcome);
                report.add(&case, check_scales(format, input, axis, scales));
                report.add(&case, Outcome::Skipped("codes of elements".to_owned()));
            }
            Err(kind) => report.add(&case, Outcome::Skipped(kind)),
        }
    }
    Ok(report)
}

/// Compares the E8M0 codes of all blocks along the last axis: exponent + 127, or 255 for NaN.
fn check_scales(
    format: MxFormat,
    input: &Array<f32>,
    axis: usize,
    expected: &Array<u8>,
) -> Outcome {
    if axis + 1 != input.rank() || format.block_size == 0 {
        let kind = "codes of scales that are not one a block of the last axis";
        return Outcome::Skipped(kind.to_owned());
    }
    let code = |block: &[f32]| {
        let amax = block.iter().map(|x| x.abs().to_bits()).max().unwrap_or(0);
        format
            .scale_exponent(amax)
            .map_or(255, |exponent| (exponent + 127) as u8)
    };
    let length = input.shape[axis];
    let mut shape = input.shape.clone();
    shape[axis] = length.div_ceil(format.block_size);
    let values = input
        .values
        .chunks(length.max(1))
        .flat_map(|row| row.chunks(format.block_size))
        .map(code)
        .collect();
    compare_codes("scale", &Array { shape, values }, expected).into()
}
