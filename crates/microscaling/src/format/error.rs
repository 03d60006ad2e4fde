//! The errors of formats: parameters that make up none, and texts that are none.

use crate::format::{ElementFormat, FieldValue, Headroom, OuterScale, ScaleMode, SubScales};
use crate::names::NameError;
use crate::p3109::{P3109Format, ParseP3109Error};
use alloc::format;
use alloc::string::String;
use thiserror::Error;

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
    #[error("{format}: {field} is {got}, expected {}", range(*.min, *.max))]
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
        "{format}: element is {got}, expected a float or a fixed-point number beside a scale that is a power of two"
    )]
    TableElement {
        /// The format.
        format: &'static str,
        /// The given element format.
        got: ElementFormat,
    },
    /// A table cannot have this number.
    #[error("table: number {code} is {:?}, expected {allowed}", f32::from_bits(*.got))]
    TableNumber {
        /// Its code, counted from 0.
        code: usize,
        /// The number, as a float32 pattern.
        got: u32,
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
    /// A field that has no effect beside the others.
    #[error("block format: {field} is {got}, expected {allowed} beside {kind}")]
    WithoutEffect {
        /// The field, for example "tensor_scale".
        field: &'static str,
        /// The given value.
        got: FieldValue,
        /// The allowed values.
        allowed: &'static str,
        /// The formats that lack the field.
        kind: &'static str,
    },
    /// Sub-scales that no block can have.
    #[error("block format: sub_scales is {got}, expected {allowed}")]
    SubScales {
        /// The given sub-scales.
        got: SubScales,
        /// The allowed values.
        allowed: &'static str,
    },
    /// An outer scale that blocks cannot have.
    #[error("block format: {got}, expected {allowed}")]
    OuterScale {
        /// The given outer scale.
        got: OuterScale,
        /// The allowed values.
        allowed: &'static str,
    },
    /// A format of P3109 that blocks cannot have.
    #[error("{role} format {got} of P3109: expected {allowed}")]
    P3109 {
        /// "element" or "scale".
        role: &'static str,
        /// The given format.
        got: P3109Format,
        /// The formats that are allowed.
        allowed: &'static str,
    },
    /// A switch of the elements' conversion that the format cannot have.
    #[error("block format: {field} is {got}, expected {allowed}")]
    Conversion {
        /// The switch, for example "overflow".
        field: &'static str,
        /// The given value.
        got: &'static str,
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
    /// The family has no such parameter.
    #[error("{format}: unknown parameter `{field}`: expected one of {}", .allowed.join(", "))]
    UnknownField {
        /// The family of formats.
        format: &'static str,
        /// The given parameter.
        field: String,
        /// The parameters of the family.
        allowed: &'static [&'static str],
    },
    /// The value of a parameter is missing (an empty text), cannot be read, is the second one, or has no effect beside the others.
    #[error("{format}: {field} is {}, expected {allowed}", given(value))]
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
    /// A name that begins as P3109's names do, and is none.
    #[error(transparent)]
    P3109(#[from] ParseP3109Error),
}

/// The values from a least to a greatest one.
fn range(min: usize, max: usize) -> String {
    match max {
        usize::MAX => format!("at least {min}"),
        max => format!("{min} to {max}"),
    }
}

/// A parameter's value in an error.
fn given(value: &str) -> String {
    match value {
        "" => "missing".into(),
        value => format!("`{value}`"),
    }
}

crate::error::debug_is_display!(FormatError, ParseFormatError);
