//! The errors.

use microscaling::p3109::ParseP3109Error;
use microscaling::{PackError, ParseFormatError};
use microscaling_product::{AccumulateError, ParseAccumulatorError};
use std::io;
use thiserror::Error;

/// The reasons why a set cannot be made, or a dump cannot be compared.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VectorsError {
    /// An option has a value that the set does not have.
    #[error("{option} is {got}; allowed: {allowed}")]
    Option {
        /// The option.
        option: &'static str,
        /// The given value.
        got: String,
        /// The allowed values.
        allowed: String,
    },
    /// The text of a format.
    #[error(transparent)]
    Format(#[from] ParseFormatError),
    /// The name of a format or of a mode of P3109.
    #[error(transparent)]
    P3109(#[from] ParseP3109Error),
    /// The text of an accumulator.
    #[error(transparent)]
    ParseAccumulator(#[from] ParseAccumulatorError),
    /// Operands that the accumulator does not take.
    #[error(transparent)]
    Accumulate(#[from] AccumulateError),
    /// A block format that cannot be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// A dump that does not have the fields of the set.
    #[error("{name}: {reason}")]
    Layout {
        /// The name of the dump.
        name: String,
        /// The reason.
        reason: String,
    },
    /// A line of a dump that is not understood.
    #[error("{name}, line {line}: {reason}")]
    Line {
        /// The name of the dump.
        name: String,
        /// The line, counted from 1; in `.npy`, the number of the case.
        line: u64,
        /// The reason.
        reason: String,
    },
    /// A dump with more or fewer cases than its inputs.
    #[error("{name} has {got} cases, expected {expected}")]
    Length {
        /// The name of the dump.
        name: String,
        /// Cases of the dump; with a `+` if there are more.
        got: String,
        /// Cases of the inputs.
        expected: u64,
    },
    /// Reading or writing failed.
    #[error("{name}: {source}")]
    Io {
        /// The name of the file.
        name: String,
        /// The system's error.
        source: io::Error,
    },
}

impl VectorsError {
    pub(crate) fn option(option: &'static str, got: impl ToString, allowed: impl ToString) -> Self {
        let (got, allowed) = (got.to_string(), allowed.to_string());
        Self::Option {
            option,
            got,
            allowed,
        }
    }
}
