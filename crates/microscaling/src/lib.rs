#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(feature = "std", test)), no_std)]

extern crate alloc;

mod bfp;
mod bits;
mod bitstream;
mod block;
mod block_format;
mod codec;
mod dispatch;
mod draws;
mod element;
mod error;
mod float;
mod groups;
mod hadamard;
mod kernels;
mod map;
mod microexponent;
mod names;
mod nvfp4;
mod pack;
mod pack_kernels;
mod parallel;
mod parameters;
mod quantize;
mod random;
mod round;
#[cfg(feature = "safetensors")]
pub mod safetensors;
mod scale;
mod slot;

pub use bfp::BfpFormat;
pub use block::MxFormat;
pub use block_format::BlockFormat;
pub use element::ElementFormat;
pub use error::{FormatError, NameError, PackError, ParseFormatError, QuantizeError};
pub use float::FloatFormat;
pub use hadamard::RandomHadamard;
pub use map::{map_in_place, row_pairs_in_place, rows_in_place, zip_in_place};
pub use microexponent::MicroexponentFormat;
pub use nvfp4::Nvfp4Format;
pub use pack::Packed;
pub use random::RandomStream;
pub use round::Rounding;
pub use scale::{ScaleMode, SharedExpMethod};
pub use slot::SlotFormat;
