#![doc = include_str!("../README.md")]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod bfp;
mod bits;
mod block;
mod dispatch;
mod element;
mod error;
mod float;
mod groups;
mod kernels;
mod map;
mod microexponent;
mod names;
mod nvfp4;
mod parallel;
mod quantize;
mod random;
mod round;
mod scale;

pub use bfp::BfpFormat;
pub use block::MxFormat;
pub use element::ElementFormat;
pub use error::{FormatError, NameError, QuantizeError};
pub use float::FloatFormat;
pub use map::{map_in_place, row_pairs_in_place, rows_in_place, zip_in_place};
pub use microexponent::MicroexponentFormat;
pub use nvfp4::Nvfp4Format;
pub use random::RandomStream;
pub use round::Rounding;
pub use scale::{ScaleMode, SharedExpMethod};
