#![doc = include_str!("../README.md")]

mod activations;
mod additions;
mod changes;
mod config;
mod error;
mod files;
mod graph;
mod options;
mod proto;
mod quantizer;
mod weights;

pub use config::Configuration;
pub use error::OnnxError;
pub use graph::initializers::{Initializer, initializers};
pub use options::{Parts, QuantizeOptions};
pub use quantizer::{LeftLayer, Report, quantize, quantize_with_progress};
pub use weights::WeightTypes;
