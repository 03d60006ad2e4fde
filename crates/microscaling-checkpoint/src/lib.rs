#![doc = include_str!("../README.md")]

mod config;
mod layers;
mod models;
mod parts;
mod scheme;

pub use config::{ConfigError, INDEX_END, ModelConfig};
pub use layers::{QuantizedLayer, QuantizedLayers, UnreadWeight, WeightKind, turned};
pub use models::summed_axis;
pub use parts::{INPUT_SCALES, called, companion_of, is_companion, is_low_bit, quantized};
pub use scheme::{LayerGroup, RefusedField, Schemes};
