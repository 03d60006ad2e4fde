//! A name that is given parameters, which only families have.

use super::NAMED;
use crate::format::{BlockFormat, ParseFormatError, ScaleMode};
use alloc::{format, string::ToString};

/// The error of a name with parameters, such as `mxfp4(block_size=16)`: its family with the parameters that make the name's format,
/// and the given ones.
pub(super) fn error(text: &str) -> Option<ParseFormatError> {
    let (head, given) = text.split_once('(')?;
    let named = |(name, alias, _): &(_, _, _)| *name == head || *alias == Some(head);
    let (name, _, format) = NAMED.into_iter().find(named)?;
    if !given.ends_with(')') {
        let value = text.to_string();
        return Some(ParseFormatError::Bracket { value });
    }
    let family = match format {
        BlockFormat::Mx(format) if format.scale_mode != ScaleMode::Floor => {
            format!(
                "mx(element={},scale_mode={},{given}",
                format.element, format.scale_mode
            )
        }
        BlockFormat::Mx(format) => format!("mx(element={},{given}", format.element),
        BlockFormat::Bfp(format) => format!("bfp(bit_width={},{given}", format.bit_width),
        BlockFormat::Microexponent(format) => {
            format!("microexponent(bit_width={},{given}", format.bit_width)
        }
        BlockFormat::Nvfp4(_) => format!("nvfp4({given}"),
        BlockFormat::FloatScale(format) => {
            format!(
                "block(element={},scale={},{given}",
                format.element, format.scale
            )
        }
    };
    Some(ParseFormatError::NameWithParameters {
        value: text.to_string(),
        name,
        family,
    })
}
