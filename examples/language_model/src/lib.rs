//! A language model in MX, end to end: trained on text, evaluated, quantized, exported to other engines.

mod config;
mod error;
pub mod evaluate;
pub mod export;
pub mod folder;
pub mod generate;
pub mod gguf;
mod model;
pub mod plot;
pub mod quantize;
pub mod text;
pub mod train;

pub use config::{DecoderConfig, RotaryConfig, RotaryScaling};
pub use error::Error;
pub use folder::Folder;
pub use model::{Attention, Body, Cache, Decoder, Layer, Stored, SwiGlu};
