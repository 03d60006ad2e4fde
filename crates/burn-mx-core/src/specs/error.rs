//! The errors of specs.

use microscaling::{BlockFormat, Dialect, FormatError, ParseFormatError};

use super::{MxSpecs, presets};
use crate::specs::ProductKind;

/// Why specs cannot be read or used. A message about a field has its name, its value and the allowed values.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecsError {
    /// A number outside its range.
    #[error("`{field}` is {value}; allowed: {allowed}")]
    OutOfRange {
        /// The field of [`MxSpecs`].
        field: &'static str,
        /// Its value.
        value: usize,
        /// The values that it may have.
        allowed: String,
    },
    /// Two elementwise formats at once.
    #[error("`bfloat` is {bfloat} and `fp` is {fp}; allowed: one of them, the other 0")]
    BfloatAndFp {
        /// The value of [`MxSpecs::bfloat`].
        bfloat: u32,
        /// The value of [`MxSpecs::fp`].
        fp: u32,
    },
    /// The parameters of a slot's format are out of range.
    #[error("`{field}` is {format}; {error}")]
    Format {
        /// The field of [`MxSpecs`].
        field: &'static str,
        /// Its value.
        format: String,
        /// The parameter, its value and the allowed values.
        error: Box<FormatError>,
    },
    /// A slot's format is none.
    #[error("`{field}` is `{name}`; {error}")]
    UnknownFormat {
        /// The field of [`MxSpecs`].
        field: &'static str,
        /// Its value.
        name: &'static str,
        /// The defect and the allowed values.
        error: ParseFormatError,
    },
    /// A field that shapes MX blocks, where no slot names an element to make them of.
    #[error(
        "`{field}` is {value}, but applies only to slots that name an element, and `{slot}` is {format}; \
         allowed: {allowed}"
    )]
    WithoutEffect {
        /// The field of [`MxSpecs`].
        field: &'static str,
        /// Its value.
        value: String,
        /// The first slot that is set.
        slot: &'static str,
        /// Its format.
        format: String,
        /// The values that the field may have.
        allowed: String,
    },
    /// A field that makes no sense beside the others.
    #[error("`{field}` is {value}, but {reason}; allowed: {allowed}")]
    Contradiction {
        /// The field of [`MxSpecs`].
        field: &'static str,
        /// Its value.
        value: String,
        /// The condition that is missing.
        reason: &'static str,
        /// The values that the field may have.
        allowed: &'static str,
    },
    /// A dialect of a tool that does not have the slot's format.
    #[error(
        "`{field}` is {dialect}, and the format of its slot is {format}; allowed with this dialect: {allowed}"
    )]
    Dialect {
        /// The field of [`MxSpecs`].
        field: &'static str,
        /// Its value.
        dialect: Dialect,
        /// The slot's format.
        format: Box<BlockFormat>,
        /// The formats that the tool has.
        allowed: String,
    },
    /// An accumulator that cannot sum up the products of these operands.
    #[error(
        "`{field}` is {accumulator}, which does not take the operands of {product} products: {error}"
    )]
    Accumulator {
        /// The field of [`MxSpecs`].
        field: &'static str,
        /// Its value.
        accumulator: String,
        /// The products: forward, input gradient or weight gradient.
        product: ProductKind,
        /// The accumulator's error, which names the operands and the allowed ones.
        error: String,
    },
    /// No preset has this name.
    #[error("preset `{name}` is unknown{}; allowed: {}, fp32, bfloat16", presets::hint(name), MxSpecs::PRESETS.join(", "))]
    UnknownPreset {
        /// The name asked for.
        name: String,
    },
    /// A JSON field that does not exist, or that cannot have this value.
    #[error("field `{field}` with value {value} does not load: {reason}")]
    JsonField {
        /// The key.
        field: String,
        /// The value, as JSON.
        value: String,
        /// The defect and the allowed values.
        reason: String,
    },
    /// Not a JSON object, or a field twice.
    #[error("specs are not a JSON object of `MxSpecs` fields: {reason}")]
    Json {
        /// The parser's message with line and column.
        reason: String,
    },
}

microscaling::debug_is_display!(SpecsError);
