#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(feature = "std", test)), no_std)]

pub mod float_state;
pub mod instruction_set;
mod memory;
mod prefetch;
pub mod threads;
mod transpose;

pub use memory::keep_freed_memory;
pub use prefetch::prefetch;
pub use transpose::transpose;
