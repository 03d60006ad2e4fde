//! Why a tool has no bytes for a weight.

use super::Dialect;
use crate::format::BlockFormat;
use crate::pack::PackError;
use alloc::boxed::Box;
use thiserror::Error;

/// Why a tool has no bytes for a weight.
#[derive(Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum DialectError {
    /// The dialect does not have the format.
    #[error("dialect {dialect}: format is {format}, expected one of {}", .dialect.formats().join(", "))]
    Format {
        /// The dialect.
        dialect: Dialect,
        /// The given format.
        format: Box<BlockFormat>,
    },
    /// The last axis ends within a block.
    #[error(
        "dialect: the last axis has {length} elements, expected a multiple of the block length {block}"
    )]
    Ragged {
        /// Length of the axis.
        length: usize,
        /// Elements in a block.
        block: usize,
    },
    /// A weight is NaN or Inf, or becomes Inf in the type that the tool reads.
    #[error("dialect: the element at position {position} is NaN or Inf, expected numbers")]
    NotFinite {
        /// Position of the first one in the data.
        position: usize,
    },
    /// The tool makes NaN of a tensor of zeros, and of one whose largest magnitude is so small that its scale becomes zero.
    #[error(
        "dialect {dialect}: the tensor scale, the largest magnitude over 2688, is zero, expected a positive number: the tool \
         makes NaN or zeros of such tensors"
    )]
    Zeros {
        /// The dialect.
        dialect: Dialect,
    },
    /// The tool takes the scale from the largest magnitude, and the tensor lacks elements.
    #[error(
        "dialect {dialect}: the tensor has no elements, expected some: the tool takes its scale from the largest"
    )]
    Empty {
        /// The dialect.
        dialect: Dialect,
    },
    /// The whole tensor, which the data are a part of, has a NaN or Inf.
    #[error("dialect: the largest magnitude of the whole tensor is NaN or Inf, expected a number")]
    Largest,
    /// The data do not fit the shape.
    #[error(transparent)]
    Pack(#[from] PackError),
}

crate::error::debug_is_display!(DialectError);
