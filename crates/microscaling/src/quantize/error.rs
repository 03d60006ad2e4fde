//! Why a tensor was not quantized.

use crate::format::FormatError;
use alloc::vec::Vec;
use thiserror::Error;

/// Why a tensor was not quantized. After an error the tensor is unchanged.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QuantizeError {
    /// The format is not valid.
    #[error("quantize: {0}")]
    Format(#[from] FormatError),
    /// The axis does not exist; a tensor of rank 0 has none.
    #[error("quantize: axis {axis} is out of range for a tensor of rank {rank}")]
    AxisOutOfRange {
        /// The given axis.
        axis: usize,
        /// The number of axes.
        rank: usize,
    },
    /// Square blocks lie along two axes, and the tensor has one.
    #[error("quantize: square blocks lie along two axes, the tensor of shape {shape:?} has one")]
    OneAxis {
        /// The given shape.
        shape: Vec<usize>,
    },
    /// The data do not have as many elements as the shape says.
    #[error("quantize: shape {shape:?} has {expected} elements, the data have {got}")]
    LengthMismatch {
        /// The given shape.
        shape: Vec<usize>,
        /// Number of elements of that shape.
        expected: usize,
        /// Length of the data.
        got: usize,
    },
    /// The number of elements of the shape does not fit a `usize`.
    #[error("quantize: the number of elements of shape {shape:?} overflows")]
    ShapeOverflow {
        /// The given shape.
        shape: Vec<usize>,
    },
}

crate::error::debug_is_display!(QuantizeError);
