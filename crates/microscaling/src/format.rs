//! Number formats: their parameters, their limits, their names.

mod block;
mod datasheet;
pub(crate) mod element;
mod error;
mod field_value;
mod float;
pub(crate) mod text;

pub use block::BlockFormat;
pub use block::conversion::{ElementConversion, ElementOverflow, ElementRounding};
pub use block::headroom::Headroom;
pub use block::outer_scale::OuterScale;
pub use block::scale::{ScaleMode, SharedExpMethod};
pub use block::scale_format::ScaleFormat;
pub use block::special::{NonFinite, Subnormals};
pub use block::sub_scales::{Shifts, SubScales};
pub use element::{ElementFormat, SpecialCodes};
pub use error::{FormatError, ParseFormatError};
pub use field_value::FieldValue;
pub use float::FloatFormat;
