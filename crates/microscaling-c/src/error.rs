//! Parts of a description that have no C.

use microscaling_product::AccumulateError;
use thiserror::Error;

/// A description that this crate cannot write down as C or SystemVerilog.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// The format has a part that no generated function computes.
    #[error("{format}: {part} is {got}, expected {allowed}")]
    Part {
        /// The format.
        format: String,
        /// The field of the format.
        part: &'static str,
        /// Its value.
        got: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// The format itself is not valid.
    #[error(transparent)]
    Format(#[from] microscaling::FormatError),
    /// The accumulator cannot take such operands.
    #[error("accumulator {accumulator}: {source}")]
    Accumulator {
        /// The accumulator.
        accumulator: String,
        /// The reason.
        source: Box<AccumulateError>,
    },
    /// C does not allow names with this prefix.
    #[error("prefix is `{got}`, expected letters of ASCII, digits and `_`, with a letter in front")]
    Prefix {
        /// The given prefix.
        got: String,
    },
}
