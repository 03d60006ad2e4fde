//! The format of one point of attention.

use std::fmt::{self, Display};
use std::str::FromStr;

use microscaling::{BlockFormat, ElementFormat, FloatFormat};
use thiserror::Error;

/// The format of one point of attention.
///
/// The text form (`FromStr`, `Display`) is one of these:
/// * the text of a [`BlockFormat`], such as `nvfp4` or `block(element=int8,scale=float32,block_size=0)`;
/// * the text of an [`ElementFormat`], such as `fp8_e4m3`, which here has no scale;
/// * `bfloat10` to `bfloat32`, `fp10` to `fp29`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PointFormat {
    /// Blocks.
    Block(BlockFormat),
    /// Elements without a scale. Numbers beyond the largest element become the largest element.
    Element(ElementFormat),
    /// Each number rounded on its own.
    Float(FloatFormat),
}

/// The error for a text that is not a [`PointFormat`].
#[derive(Clone, PartialEq, Eq, Error)]
#[error(
    "`{text}` is not the format of a point; allowed: a block format ({}), an element without a scale ({}), bfloat10 to bfloat32, or \
     fp10 to fp29. As a block format: {reason}",
    BlockFormat::NAMES.join(", "),
    ElementFormat::NAMES.join(", ")
)]
pub struct ParsePointFormatError {
    text: String,
    reason: String,
}

microscaling::debug_is_display!(ParsePointFormatError);

/// `bfloat16` and `fp16`, where the name of an element is shorter.
fn float(text: &str) -> Option<FloatFormat> {
    let family = |name| text.strip_prefix(name)?.parse::<u32>().ok();
    match (family("bfloat"), family("fp")) {
        (Some(bits), _) => FloatFormat::bfloat(bits).ok(),
        (_, Some(bits @ 10..)) => FloatFormat::fp(bits).ok(),
        _ => None,
    }
}

impl From<FloatFormat> for PointFormat {
    fn from(format: FloatFormat) -> Self {
        Self::Float(format)
    }
}

impl FromStr for PointFormat {
    type Err = ParsePointFormatError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(format) = float(text) {
            return Ok(Self::Float(format));
        }
        let error = |reason: String| ParsePointFormatError {
            text: text.to_owned(),
            reason,
        };
        match text.parse() {
            Ok(format) => Ok(Self::Block(format)),
            Err(reason) => match text.parse::<ElementFormat>() {
                Ok(element) if element.is_table() => {
                    Err(error("a table of numbers has a scale".into()))
                }
                Ok(element) => Ok(Self::Element(element)),
                Err(_) => Err(error(reason.to_string())),
            },
        }
    }
}

impl Display for PointFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(format) => format.fmt(f),
            Self::Element(format) => format.fmt(f),
            Self::Float(format) => format.fmt(f),
        }
    }
}
