//! The parameters that are scales.

use super::parameters::Parameters;
use super::{at_least, one_of};
use crate::format::{OuterScale, ParseFormatError, ScaleFormat};
use alloc::string::{String, ToString};

/// The parameter `scale`, which may have other names too; these are left alone.
pub(super) fn take_scale(
    parameters: &mut Parameters<'_>,
    format: &'static str,
    others: &[&'static str],
    default: ScaleFormat,
) -> Result<ScaleFormat, ParseFormatError> {
    Ok(take_some_scale(parameters, format, "scale", others)?.unwrap_or(default))
}

/// A parameter that is a scale's format; `None` if it is not given.
fn take_some_scale(
    parameters: &mut Parameters<'_>,
    format: &'static str,
    field: &'static str,
    others: &[&'static str],
) -> Result<Option<ScaleFormat>, ParseFormatError> {
    let scales = || one_of(others.iter().copied().chain(ScaleFormat::expected()));
    let text = parameters.take_some::<String>(field, scales)?;
    let format = text.map(|text| {
        text.parse().map_err(|error| match error {
            ParseFormatError::Unknown(error) => ParseFormatError::FieldValue {
                format,
                field,
                value: error.value,
                allowed: scales(),
            },
            error => error,
        })
    });
    format.transpose()
}

/// The parameters `outer_size` and `outer_scale`.
pub(super) fn take_outer_scale(
    parameters: &mut Parameters<'_>,
    format: &'static str,
) -> Result<Option<OuterScale>, ParseFormatError> {
    let size = parameters.take_some("outer_size", || at_least(0))?;
    let scale = take_some_scale(parameters, format, "outer_scale", &[])?;
    match (size, scale) {
        (Some(size), scale) => Ok(Some(OuterScale {
            size,
            scale: scale.unwrap_or(ScaleFormat::FLOAT32),
        })),
        (None, Some(scale)) => Err(ParseFormatError::FieldValue {
            format,
            field: "outer_scale",
            value: scale.to_string(),
            allowed: "nothing without outer_size".to_string(),
        }),
        (None, None) => Ok(None),
    }
}
