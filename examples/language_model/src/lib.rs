//! A language model in MX, end to end: trained on text, evaluated, quantized, exported to other engines.

mod error;
pub mod evaluate;
pub mod export;
pub mod folder;
pub mod generate;
mod model;
pub mod quantize;
pub mod text;
pub mod train;

pub use error::Error;
pub use folder::Folder;
pub use model::{
    Attention, Body, Cache, Decoder, DecoderConfig, Expert, Experts, Layer, Projection,
    RotaryConfig, RotaryScaling, SparseMoe, Stored, SwiGlu, balance_loss,
};
