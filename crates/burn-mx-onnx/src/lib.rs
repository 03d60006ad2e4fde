#![doc = include_str!("../README.md")]

mod activations;
mod additions;
mod error;
mod files;
mod graph;
mod layers;
mod operators;
mod options;
mod proto;
mod quantizer;
mod rewrite;
mod safetensors_file;
mod weights;
mod wire;

pub use error::OnnxError;
pub use options::{Parts, QuantizeOptions};
pub use quantizer::{Report, quantize};
pub use weights::WeightTypes;
