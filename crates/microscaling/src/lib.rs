#![doc = include_str!("../README.md")]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod bits;
mod block;
mod dispatch;
mod element;
mod error;
mod float;
mod kernels;
mod map;
mod names;
mod parallel;
mod quantize;
mod random;
mod round;
mod scale;

pub use block::MxFormat;
pub use element::ElementFormat;
pub use error::{FormatError, NameError, QuantizeError};
pub use float::FloatFormat;
pub use map::{map_in_place, zip_in_place};
pub use random::RandomStream;
pub use round::Rounding;
pub use scale::{ScaleMode, SharedExpMethod};
