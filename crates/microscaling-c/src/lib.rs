#![doc = include_str!("../README.md")]

mod elements;
mod error;
mod p3109;
mod reference;
mod scales;
mod subject;
mod sums;
mod template;

pub use error::ReferenceError;
pub use reference::Reference;
pub use subject::Subject;
