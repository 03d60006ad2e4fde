//! Number formats: their parameters, their limits, their names.

mod bfp;
mod block;
mod element;
mod float;
mod float_scale;
mod headroom;
mod microexponent;
mod mx;
pub(crate) mod names;
mod nvfp4;
pub(crate) mod parameters;
mod scale;
mod sub_scales;
pub(crate) mod table;
mod text;

pub use bfp::BfpFormat;
pub use block::BlockFormat;
pub use element::{ElementFormat, SpecialCodes};
pub use float::FloatFormat;
pub use float_scale::{FloatScaleFormat, ScaleFormat};
pub use headroom::Headroom;
pub use microexponent::MicroexponentFormat;
pub use mx::MxFormat;
pub use nvfp4::Nvfp4Format;
pub use scale::{ScaleMode, SharedExpMethod};
pub use sub_scales::SubScales;
