//! The errors. Every error names the operation, the allowed values and the value that it got.

use crate::accumulate::{Chip, OperandType, ScaleType};
use crate::product::{Axis, ProductPath, Side};
use crate::{BlockFormat, ElementFormat, Headroom, Rounding, ScaleMode, SubScales};
use alloc::{string::String, vec::Vec};
use thiserror::Error;

/// Makes what an error says what `Debug` says: a `main` that returns an error prints its `Debug`.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_is_display {
    ($($error:ty),+) => {$(
        impl ::core::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    )+};
}

debug_is_display!(
    NameError,
    FormatError,
    ParseFormatError,
    QuantizeError,
    PackError,
    PanelsError,
    AccumulateError
);

impl FormatError {
    /// [`FormatError::Field`] unless `got` is `min` to `max`.
    pub(crate) const fn check(
        format: &'static str,
        field: &'static str,
        got: usize,
        (min, max): (usize, usize),
    ) -> Result<(), Self> {
        if got >= min && got <= max {
            return Ok(());
        }
        Err(Self::Field {
            format,
            field,
            min,
            max,
            got,
        })
    }
}

/// A name without a value in its enum.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("unknown {kind} `{value}`: expected one of {}", .allowed.join(", "))]
#[non_exhaustive]
pub struct NameError {
    /// The kind of name that was expected, for example "element format".
    pub kind: &'static str,
    /// The given name.
    pub value: String,
    /// The names that are allowed.
    pub allowed: Vec<&'static str>,
}

impl NameError {
    /// The error for an enum of another crate, whose names are parsed like the names of this crate's enums.
    pub fn new(kind: &'static str, value: impl Into<String>, allowed: Vec<&'static str>) -> Self {
        Self {
            kind,
            value: value.into(),
            allowed,
        }
    }
}

/// Parameters that make up no number format.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The scale of an MX block cannot have this many bits.
    #[error("MX format: scale_bits is {got}, expected {min} to {max}")]
    ScaleBits {
        /// Least number of bits.
        min: u32,
        /// Greatest number of bits.
        max: u32,
        /// The given number.
        got: u32,
    },
    /// A free parameter of a block format is out of range.
    #[error("{format}: {field} is {got}, expected {min} to {max}")]
    Field {
        /// The family of formats, for example "bfp".
        format: &'static str,
        /// The parameter, for example "bit_width".
        field: &'static str,
        /// Least value.
        min: usize,
        /// Greatest value.
        max: usize,
        /// The given value.
        got: usize,
    },
    /// A parameter of an element format is out of range.
    #[error("element {format}: {field} is {got}, expected {min} to {max}")]
    Element {
        /// "float" or "fixed".
        format: &'static str,
        /// The parameter, for example "exponent_bits".
        field: &'static str,
        /// Least value.
        min: i32,
        /// Greatest value.
        max: i32,
        /// The given value.
        got: i32,
    },
    /// Elements of a table need a scale that is a float.
    #[error(
        "{format}: element is a table, expected a float or a fixed-point number beside a scale that is a power of two"
    )]
    TableElement {
        /// The format.
        format: &'static str,
    },
    /// A table cannot have this number.
    #[error("table: number {code} is out of place, expected {allowed}")]
    TableNumber {
        /// Its code, counted from 0.
        code: usize,
        /// The numbers that are allowed in its place.
        allowed: &'static str,
    },
    /// The tables of a format have codes of different lengths.
    #[error("table: alternatives have codes of {bits} and {got} bits, expected the same for all")]
    TableBits {
        /// Bits of the codes of the first table.
        bits: u32,
        /// Bits of the codes of another table.
        got: u32,
    },
    /// Blocks with a float for a scale cannot have these elements.
    #[error(
        "block format: element is {got}, expected one of at most 8 bits, its smallest number at least 2^-32, its largest 1 to 2^33, beside a scale that is a float"
    )]
    FloatScaleElement {
        /// The given element format.
        got: ElementFormat,
    },
    /// Blocks with a float for a scale cannot have this parameter beside the others.
    #[error("block format: {field} is true, expected {allowed}")]
    FloatScaleField {
        /// The parameter, for example "tensor_scale".
        field: &'static str,
        /// The allowed values.
        allowed: &'static str,
    },
    /// Square blocks cannot have this parameter.
    #[error("square blocks: {field} is {got}, expected {allowed}")]
    SquareBlocks {
        /// The parameter, for example "block_size".
        field: &'static str,
        /// The given value.
        got: &'static str,
        /// The allowed values.
        allowed: &'static str,
    },
    /// A parameter is none of a few values.
    #[error("{format}: {field} is {got}, expected one of {allowed:?}")]
    OneOf {
        /// The owner of the parameter, for example "random Hadamard transform".
        format: &'static str,
        /// The parameter, for example "block_size".
        field: &'static str,
        /// The values that are allowed.
        allowed: &'static [usize],
        /// The given value.
        got: usize,
    },
    /// A scale mode that is made for one element format.
    #[error("MX format: element is {got}, expected {expected} with scale mode {scale_mode}")]
    ScaleModeElement {
        /// The scale mode.
        scale_mode: ScaleMode,
        /// The element format that it is made for.
        expected: ElementFormat,
        /// The given element format.
        got: ElementFormat,
    },
    /// A field of an accumulator is out of range.
    #[error("accumulator of order {order}: {field} is {got}, expected {min} to {max}")]
    Accumulator {
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
    /// A field of an accumulator contradicts the others.
    #[error("accumulator of order {order}: {field} is {got}, expected {allowed}")]
    AccumulatorField {
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
    /// A headroom that is not a fraction of at least 1/2 and less than 2.
    #[error("headroom is {numerator}/{denominator}, expected at least 1/2 and less than 2")]
    Headroom {
        /// Part of the given fraction.
        numerator: u16,
        /// Part of the given fraction.
        denominator: u16,
    },
    /// An MX block cannot have a headroom below 1.
    #[error("MX format: headroom is {got}, expected at least 1")]
    MxHeadroom {
        /// The given headroom.
        got: Headroom,
    },
    /// Sub-scales that no block can have.
    #[error("block format: sub_scales is {got}, expected {allowed}")]
    SubScales {
        /// The given sub-scales.
        got: SubScales,
        /// The allowed values.
        allowed: &'static str,
    },
    /// A float format cannot have this many bits.
    #[error("{family}{got}: the number of bits is {got}, expected {min} to {max}")]
    FloatBits {
        /// "bfloat" or "fp".
        family: &'static str,
        /// Least number of bits.
        min: u32,
        /// Greatest number of bits.
        max: u32,
        /// The given number.
        got: u32,
    },
}

/// A text that is not a format.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseFormatError {
    /// Neither a name nor one with parameters.
    #[error(transparent)]
    Unknown(#[from] NameError),
    /// The parameters are not written as `(field=value,…)`.
    #[error("format `{value}`: expected `{format}` or `{format}(field=value,…)`")]
    Syntax {
        /// The family of formats, for example "bfp".
        format: &'static str,
        /// The given text.
        value: String,
    },
    /// A bracket is not closed.
    #[error("format `{value}`: a bracket `(` is open, expected `)` at the end")]
    Bracket {
        /// The given text.
        value: String,
    },
    /// A name with parameters, which only families have.
    #[error("format `{value}`: `{name}` is a name without parameters, expected `{family}`")]
    NameWithParameters {
        /// The given text.
        value: String,
        /// The name.
        name: &'static str,
        /// The family of the named format, with the given parameters.
        family: String,
    },
    /// The family has no such parameter, or it is given twice.
    #[error("{format}: unknown or repeated parameter `{field}`: expected one of {}", .allowed.join(", "))]
    UnknownField {
        /// The family of formats.
        format: &'static str,
        /// The given parameter.
        field: String,
        /// The parameters of the family.
        allowed: &'static [&'static str],
    },
    /// The value of a parameter cannot be read.
    #[error("{format}: {field} is `{value}`, expected {allowed}")]
    FieldValue {
        /// The family of formats.
        format: &'static str,
        /// The parameter.
        field: &'static str,
        /// The given value.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// A parameter is out of range.
    #[error(transparent)]
    Format(#[from] FormatError),
}

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
    /// There is no tensor scale where the format has one, or one where it has none.
    #[error("pack: the format has {} tensor scale, got {}", count(*.expected), count(!*.expected))]
    TensorScale {
        /// Whether the format has one.
        expected: bool,
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

/// Operands that cannot be quantized into panels, or make no product.
#[derive(Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum PanelsError {
    /// The format or the lengths are wrong.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    /// The quantization draws random numbers, which depend on the place of an element in its tensor.
    #[error("stochastic rounding needs a whole tensor, not parts of an operand")]
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

/// Operands that an accumulator does not take. The result is untouched then.
#[derive(Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum AccumulateError {
    /// The accumulator is not valid.
    #[error(transparent)]
    Format(#[from] FormatError),
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
