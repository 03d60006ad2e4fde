//! Packed weights as other tools write them, and files of packed tensors.

pub(super) mod dialect;
pub(super) mod fused;
#[cfg(feature = "safetensors")]
pub mod quark;
#[cfg(feature = "safetensors")]
pub mod safetensors;
pub(super) mod weight_layout;
