//! Parameters that make up no format of P3109, and texts that name none.

use crate::names::NameError;
use alloc::string::String;
use thiserror::Error;

/// Parameters that make up no format of P3109.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum P3109Error {
    /// A parameter is out of range.
    #[error("P3109: {field} is {got}, expected {min} to {max}")]
    Range {
        /// The parameter, such as "precision".
        field: &'static str,
        /// Least value.
        min: u32,
        /// Greatest value.
        max: u32,
        /// The given value.
        got: u32,
    },
    /// Two blocks have different numbers of elements.
    #[error("P3109: the blocks have {expected} and {got} elements, expected the same number")]
    Length {
        /// Elements of the first block.
        expected: usize,
        /// Elements of the second block.
        got: usize,
    },
    /// A random number has more bits than are drawn.
    #[error("P3109: random is {got}, expected less than 2^{random_bits}")]
    Random {
        /// The number of random bits.
        random_bits: u32,
        /// The given number.
        got: u32,
    },
}

/// A text that names no format of P3109, or no mode.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseP3109Error {
    /// The text is not of the form `binary8p4se`.
    #[error(
        "P3109: the format is `{value}`, expected `binary`, the bits (3 to 16), `p`, the precision, `s` (signed) or `u` (unsigned), \
         then `e` (extended: with infinities) or `f` (finite), as in `binary8p4se`"
    )]
    Name {
        /// The given text.
        value: String,
    },
    /// The parameters are out of range.
    #[error(transparent)]
    Format(#[from] P3109Error),
    /// A mode has another name.
    #[error(transparent)]
    Mode(#[from] NameError),
}

crate::error::debug_is_display!(P3109Error, ParseP3109Error);
