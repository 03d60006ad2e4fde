//! Packing: codes, bit streams, packed tensors and files of them.

pub(crate) mod checkpoint;
pub(crate) mod codes;
mod decode;
mod difference;
mod elements_and_scales;
mod encode;
mod error;
pub(crate) mod number;
mod packed;
pub(crate) mod plan;
mod view;

pub use checkpoint::dialect::{Dialect, DialectError, DialectRule, DialectTensor};
pub use checkpoint::fused::{FusedGroup, FusedLayers, FusedLayersError, FusedNames};
pub use checkpoint::weight_layout::{
    StoredTensor, StoredType, StoredView, WeightLayout, WeightLayoutError,
};
pub(crate) use codes::scale_codes::ScaleCodes;
pub use difference::PackedDifference;
pub use error::PackError;
pub use number::{DecodeNumber, EncodeNumber};
pub use packed::{Packed, PackedParts};
pub use view::PackedView;
