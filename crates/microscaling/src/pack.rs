//! Packing: codes, bit streams, packed tensors and files of them.

mod bitstream;
mod blocks;
mod codes;
mod packed;
mod plan;
#[cfg(feature = "safetensors")]
pub mod safetensors;

pub use packed::Packed;
