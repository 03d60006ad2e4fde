//! Operands that make no panels or no product.

use super::{Axis, ProductPath};
use alloc::string::String;
use microscaling::QuantizeError;
use thiserror::Error;

/// Operands that cannot be quantized into panels, or make no product.
#[derive(Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum PanelsError {
    /// The format or the lengths are wrong.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    /// The elementwise rounding of an operand or a result draws random numbers.
    #[error("elementwise rounding is `stochastic`; allowed: `nearest`, `even`, `floor`")]
    Stochastic,
    /// Neither axis has stride 1, or `group` does not divide the summed axis, or `data` ends before a matrix does.
    #[error(
        "matrices with free axis {free:?}, summed axis {summed:?} in groups of {group} do not lie in rows or columns within {length} elements"
    )]
    Layout {
        /// The free axis.
        free: Axis,
        /// The summed axis.
        summed: Axis,
        /// The length of a group.
        group: usize,
        /// Number of elements in memory.
        length: usize,
    },
    /// Square blocks lie along the whole summed axis, and it is several axes taken as one.
    #[error(
        "square blocks do not fit groups of {group} of the {summed} elements along the summed axis"
    )]
    SquareGroups {
        /// The length of a group.
        group: usize,
        /// The length of the summed axis.
        summed: usize,
    },
    /// Two operands that make no product, or a result of another length.
    #[error("product of {lhs} and {rhs}: the pairs' results have {expected} elements, got {got}")]
    Product {
        /// The left operand.
        lhs: String,
        /// The right operand.
        rhs: String,
        /// Elements of the results.
        expected: usize,
        /// Elements that there is room for.
        got: usize,
    },
    /// A bias of another length than the result's rows.
    #[error("bias of {got} elements, expected {expected}: one for each column of the product")]
    Bias {
        /// Columns of the result.
        expected: usize,
        /// Elements of the bias.
        got: usize,
    },
    /// This processor does not have the path.
    #[error("product path `{path}` is not available on this processor")]
    Path {
        /// The path.
        path: ProductPath,
    },
    /// A quantized element has more than 8 significant bits, or is a subnormal that bfloat16 does not have: bfloat16 would
    /// be another number.
    #[error("an element is not a bfloat16 number")]
    Inexact,
    /// The tensor scale cannot be stored apart from the elements. In a tensor of zeros, of numbers close to zero, or with a NaN
    /// or Inf, dividing the elements by the scale would change them.
    #[error("the tensor scale is {tensor_scale:e}, expected a finite number of at least 2^-80")]
    TensorScale {
        /// The tensor scale that the elements have.
        tensor_scale: f32,
    },
}

microscaling::debug_is_display!(PanelsError);
