//! The errors of accumulators: their fields, their texts and their operands.

use super::{Chip, OperandType, ScaleType};
use crate::{Axis, Side};
use alloc::{string::String, vec::Vec};
use microscaling::{BlockFormat, ElementFormat, NameError, PackError, ParseFormatError, Rounding};
use thiserror::Error;

/// Fields that contradict each other, or are out of range.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AccumulatorError {
    /// A field is out of range.
    #[error("accumulator of order {order}: {field} is {got}, expected {min} to {max}")]
    Range {
        /// The order, for example "joint", or "output".
        order: &'static str,
        /// The field, for example "fraction_bits".
        field: &'static str,
        /// Least value.
        min: i64,
        /// Greatest value.
        max: i64,
        /// The given value.
        got: i64,
    },
    /// A field contradicts the others.
    #[error("accumulator of order {order}: {field} is {got}, expected {allowed}")]
    Field {
        /// The order, for example "joint", or a chip.
        order: &'static str,
        /// The field, for example "group".
        field: &'static str,
        /// The given value.
        got: i64,
        /// The allowed values.
        allowed: &'static str,
    },
    /// A running sum is not rounded in this way.
    #[error("accumulator: the rounding of output is {got}, expected floor (rz) or even (rne)")]
    SumRounding {
        /// The given rounding.
        got: Rounding,
    },
    /// Integers have no place for scales but the promotion.
    #[error("accumulator of order integer: scale_at is product, expected promotion")]
    IntegerScale,
}

/// A text that describes an accumulator wrongly.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseAccumulatorError {
    /// Neither a name nor fields in brackets.
    #[error(transparent)]
    Text(#[from] ParseFormatError),
    /// The fields make up no accumulator.
    #[error(transparent)]
    Accumulator(#[from] AccumulatorError),
}

impl From<NameError> for ParseAccumulatorError {
    fn from(error: NameError) -> Self {
        Self::Text(error.into())
    }
}

/// Operands that an accumulator does not take. The result is untouched then.
#[derive(Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum AccumulateError {
    /// The accumulator is not valid.
    #[error(transparent)]
    Accumulator(#[from] AccumulatorError),
    /// The chip has no matrix unit for operands of these kinds.
    #[error("{chip} has no matrix unit for {lhs} times {rhs}: expected {}", .allowed.join("; "))]
    Chip {
        /// The chip.
        chip: Chip,
        /// The kind of the left operand.
        lhs: String,
        /// The kind of the right operand.
        rhs: String,
        /// The types that it has units for.
        allowed: Vec<&'static str>,
    },
    /// The matrix was not quantized.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The format's elements have other factors than the scales of blocks.
    #[error(
        "accumulator: the block format is {got}, expected floats or fixed point with one scale a block"
    )]
    BlockFormat {
        /// The given format.
        got: BlockFormat,
    },
    /// The packed tensor is not a matrix.
    #[error("accumulator: the packed tensor has shape {got:?}, expected two axes")]
    Axes {
        /// The shape that was given.
        got: Vec<usize>,
    },
    /// Integers are summed up, and the elements are floats.
    #[error("accumulator of order integer: the elements are {got}, expected fixed point, as int8")]
    Integer {
        /// The type of the elements.
        got: OperandType,
    },
    /// The elements are numbers of a table, which no unit multiplies.
    #[error("accumulator: the elements are {got}, expected a float or fixed point")]
    Table {
        /// The type of the elements.
        got: ElementFormat,
    },
    /// A group of elements with one scale lies in two blocks.
    #[error(
        "accumulator: {field} is {got}, expected a divisor of the block of {block} elements (0: of all)"
    )]
    Block {
        /// "group" or "promote_every".
        field: &'static str,
        /// The given value.
        got: usize,
        /// Elements of a block.
        block: usize,
    },
    /// The operands' summed axes have different lengths.
    #[error(
        "product: the left operand has {lhs} elements along the summed axis, the right one {rhs}"
    )]
    Summed {
        /// Elements of the left operand.
        lhs: usize,
        /// Elements of the right operand.
        rhs: usize,
    },
    /// The elements end before the matrix does.
    #[error(
        "{side} operand: free axis {free:?} and summed axis {summed:?} do not lie within {got} elements"
    )]
    Elements {
        /// Which operand.
        side: Side,
        /// The free axis.
        free: Axis,
        /// The summed axis.
        summed: Axis,
        /// Number of elements in memory.
        got: usize,
    },
    /// The scales are not as many as the operand has blocks.
    #[error("{side} operand: expected {expected} scales, got {got}")]
    Scales {
        /// Which operand.
        side: Side,
        /// As many as there are blocks.
        expected: usize,
        /// The given number.
        got: usize,
    },
    /// An element is not a number of its type.
    #[error(
        "{side} operand: element {free}, {summed} is {value:e}, expected a number of {expected}"
    )]
    Element {
        /// Which operand.
        side: Side,
        /// Its place along the free axis.
        free: usize,
        /// Its place along the summed axis.
        summed: usize,
        /// The element.
        value: f32,
        /// The type of the elements.
        expected: OperandType,
    },
    /// A scale is not a number of its type.
    #[error("{side} operand: a scale is {value:e}, expected a number of {expected}")]
    Scale {
        /// Which operand.
        side: Side,
        /// The scale.
        value: f32,
        /// The type of the scales.
        expected: ScaleType,
    },
    /// The result has another length.
    #[error("product: the result has {expected} elements, got {got}")]
    Result {
        /// Elements of the result.
        expected: usize,
        /// Elements that there is room for.
        got: usize,
    },
}

microscaling::debug_is_display!(AccumulateError, AccumulatorError, ParseAccumulatorError);
