#![doc = include_str!("../README.md")]

mod activations;
mod additions;
mod changes;
mod codes;
mod error;
mod files;
mod graph;
mod initializers;
mod layers;
mod operators;
mod options;
mod proto;
mod quantizer;
mod rewrite;
mod rounding;
mod safetensors_file;
mod weights;
mod wire;

pub use error::OnnxError;
pub use initializers::{Initializer, initializers};
pub use options::{Parts, QuantizeOptions};
pub use quantizer::{Report, quantize};
pub use weights::WeightTypes;
