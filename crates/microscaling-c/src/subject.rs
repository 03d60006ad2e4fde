//! The formats that have C.

use microscaling::p3109::{P3109Format, ParseP3109Error};
use microscaling::{BlockFormat, ElementFormat, ParseFormatError};
use std::fmt;
use std::str::FromStr;

/// A format to write down: of blocks, of elements alone, or of P3109.
///
/// As text it is the text of the format: `mxfp8_e4m3`, `fp8_e4m3`, `binary8p4se`. A text that names several of these is a block
/// format.
///
/// ```
/// use microscaling_c::Subject;
///
/// let nvfp4: Subject = "nvfp4".parse()?;
/// assert_eq!(nvfp4, Subject::Block("nvfp4".parse()?));
/// assert_eq!("fp8_e4m3".parse(), Ok(Subject::Element("fp8_e4m3".parse()?)));
/// # Ok::<(), microscaling::ParseFormatError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Blocks of elements that share a scale.
    Block(BlockFormat),
    /// Elements without a scale.
    Element(ElementFormat),
    /// A format of IEEE P3109.
    P3109(P3109Format),
}

impl FromStr for Subject {
    type Err = ParseFormatError;

    /// The format that the text says.
    ///
    /// # Errors
    /// The error of a [`BlockFormat`], if the text names no format at all; of an [`ElementFormat`] or a [`P3109Format`], if the text
    /// has its form.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("binary") || text.starts_with("Binary") {
            let format = text.parse::<P3109Format>();
            return format
                .map(Self::P3109)
                .map_err(|error| refused(text, &error));
        }
        let block = text.parse::<BlockFormat>();
        match (block, text.parse::<ElementFormat>()) {
            (Ok(block), _) => Ok(Self::Block(block)),
            (_, Ok(element)) => Ok(Self::Element(element)),
            (_, Err(error))
                if ["float(", "fixed(", "table("]
                    .iter()
                    .any(|family| text.starts_with(family)) =>
            {
                Err(error)
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// The error of P3109 as an error of a format.
fn refused(text: &str, error: &ParseP3109Error) -> ParseFormatError {
    ParseFormatError::FieldValue {
        format: "P3109",
        field: "name",
        value: text.to_owned(),
        allowed: error.to_string(),
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(format) => format.fmt(f),
            Self::Element(format) => format.fmt(f),
            Self::P3109(format) => format.fmt(f),
        }
    }
}
