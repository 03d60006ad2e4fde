//! Why a tensor was not packed.

use crate::quantize::QuantizeError;
use alloc::{string::String, vec::Vec};
use thiserror::Error;

/// Why a tensor was not packed, or why bytes are not a packed tensor.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PackError {
    /// The format, the shape or the axis are not valid, or the data do not fit the shape.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    /// The number of bytes does not fit a `usize`.
    #[error("pack: the number of bytes of shape {shape:?} overflows")]
    SizeOverflow {
        /// The given shape.
        shape: Vec<usize>,
    },
    /// The format has no code for a NaN or an Inf among the elements.
    #[error(
        "pack: the {format} block format has no code for NaN or Inf, found at position {position}"
    )]
    NotFinite {
        /// The family of formats.
        format: &'static str,
        /// Position of the first one in the data.
        position: usize,
    },
    /// MS-EDEN, whose scales follow from more than their blocks.
    #[error(
        "pack: a format with eden=true can't be packed with rounding stochastic, expected nearest, even or floor"
    )]
    Eden,
    /// The scales are not as many bytes as the blocks of the tensor need.
    #[error("pack: the scales of shape {shape:?} are {expected} bytes, got {got}")]
    ScalesLength {
        /// The given shape.
        shape: Vec<usize>,
        /// Number of bytes of that shape.
        expected: usize,
        /// The given number.
        got: usize,
    },
    /// The element codes are not as many bytes as the tensor needs.
    #[error("pack: the elements of shape {shape:?} are {expected} bytes, got {got}")]
    ElementsLength {
        /// The given shape.
        shape: Vec<usize>,
        /// Number of bytes of that shape.
        expected: usize,
        /// The given number.
        got: usize,
    },
    /// A bit is set that no code has.
    #[error(
        "pack: byte {position} of the {part} is {got:#04x}, but only its low {used} bits are in use and the others \
         must be zero"
    )]
    Padding {
        /// "scales" or "elements".
        part: &'static str,
        /// Position of the byte.
        position: usize,
        /// How many of its low bits are in use, 1 to 7.
        used: u32,
        /// The byte.
        got: u8,
    },
    /// The format has a tensor scale and none was given, or a scale was given and the format has none.
    #[error("pack: the format has {} tensor scale, got {}", count(*.expected), count(!*.expected))]
    TensorScale {
        /// Whether the format has one.
        expected: bool,
    },
    /// A part of a tensor has a larger element than the largest magnitude of the whole tensor.
    #[error(
        "pack: the largest magnitude of the whole tensor is {largest}, and its part has {found}; allowed: {found} or more"
    )]
    Largest {
        /// The given magnitude.
        largest: String,
        /// The largest magnitude of the part.
        found: String,
    },
    /// Rows that the tensor does not have.
    #[error("pack: rows {start} to {end} are not among the {rows} rows of the tensor")]
    Rows {
        /// The first row.
        start: usize,
        /// The row after the last one.
        end: usize,
        /// How many the tensor has.
        rows: usize,
    },
    /// The output has room for fewer or more rows.
    #[error("pack: {rows} rows are {expected} elements, there is room for {got}")]
    RowsLength {
        /// How many rows were asked for.
        rows: usize,
        /// Their elements.
        expected: usize,
        /// Elements that there is room for.
        got: usize,
    },
}

fn count(one: bool) -> &'static str {
    if one { "one" } else { "no" }
}

crate::error::debug_is_display!(PackError);
