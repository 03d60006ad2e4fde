//! Packing: codes, bit streams, packed tensors and files of them.

mod bitstream;
mod blocks;
mod codes;
mod contiguous;
mod dialect;
mod difference;
mod eights;
mod encode;
mod lanes;
mod number;
mod packed;
pub(crate) mod places;
mod plan;
mod rows;
#[cfg(feature = "safetensors")]
pub mod safetensors;
mod scale_codes;
mod source;
mod view;
mod weight_layout;

pub use dialect::{Dialect, DialectError, DialectTensor};
pub use difference::PackedDifference;
pub use number::{DecodeNumber, EncodeNumber};
pub use packed::{Packed, PackedParts};
pub(crate) use scale_codes::ScaleCodes;
pub use view::PackedView;
pub use weight_layout::{StoredTensor, StoredType, StoredView, WeightLayout, WeightLayoutError};
