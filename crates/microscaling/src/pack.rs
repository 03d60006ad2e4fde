//! Packing: codes, bit streams, packed tensors and files of them.

mod bitstream;
mod blocks;
mod codes;
mod lanes;
mod number;
mod packed;
mod plan;
mod rows;
#[cfg(feature = "safetensors")]
pub mod safetensors;
mod view;

pub use number::DecodeNumber;
pub use packed::{Packed, PackedParts};
pub use view::PackedView;
