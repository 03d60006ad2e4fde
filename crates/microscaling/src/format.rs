//! Number formats: their parameters, their limits, their names.

mod block;
mod datasheet;
pub(crate) mod element;
mod error;
mod float;
pub(crate) mod text;

pub use block::BlockFormat;
pub use block::bfp::BfpFormat;
pub use block::float_scale::FloatScaleFormat;
pub use block::headroom::Headroom;
pub use block::microexponent::MicroexponentFormat;
pub use block::mx::MxFormat;
pub use block::nvfp4::Nvfp4Format;
pub use block::outer_scale::OuterScale;
pub use block::scale::{ScaleMode, SharedExpMethod};
pub use block::scale_format::ScaleFormat;
pub use block::sub_scales::SubScales;
pub use element::{ElementFormat, SpecialCodes};
pub use error::{FormatError, ParseFormatError};
pub use float::FloatFormat;
