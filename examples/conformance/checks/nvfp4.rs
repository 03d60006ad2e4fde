//! `nvfp4`: blocks with an E4M3 scale, with and without a scale of the tensor, through the slice API. Every case
//! is three checks: the values, the codes of the scales, and those of the elements. Bits are compared.

use microscaling::{Nvfp4Format, Rounding};
use serde::Deserialize;

use super::golden::{Golden, GoldenError};
use super::report::Report;
use super::slices::{check_packed, check_quantize};

#[derive(Debug, Deserialize)]
struct Params {
    input: String,
    per_tensor_scale: bool,
    axis: isize,
}

/// Checks every case.
pub(crate) fn check(file: &Golden) -> Result<Report, GoldenError> {
    let mut report = Report::new("nvfp4", "slice");
    for case in file.cases::<Params>()? {
        let (id, params) = (&case.id, &case.params);
        let input = file.floats(&format!("in/{}", params.input))?;
        let values = file.floats(&format!("out/{id}"))?;
        let scales = file.bytes(&format!("scale/{id}"))?;
        let elements = file.bytes(&format!("bits/{id}"))?;
        let axis = input
            .axis(params.axis)
            .ok_or_else(|| file.bad_case(id, "`axis` is out of range"))?;
        let format = Nvfp4Format {
            tensor_scale: params.per_tensor_scale,
        };
        let case = format!("case {id}: {params:?}");
        let rounding = Rounding::Even;
        report.add(&case, check_quantize(format, rounding, input, axis, values));
        for outcome in check_packed(format, rounding, input, axis, scales, elements) {
            report.add(&case, outcome);
        }
    }
    Ok(report)
}
