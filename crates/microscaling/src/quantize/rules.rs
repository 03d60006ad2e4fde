//! The scalar rules of the block formats. What stands here is the specification; the loops over memory inline it,
//! and any other implementation (GPU, intrinsics) must match it bit for bit.

mod bfp;
mod float;
mod grid;
mod microexponent;
mod mx;
mod nvfp4;
mod rms;
mod scale;

pub(crate) use bfp::BfpRule;
pub(crate) use grid::Grid;
pub(crate) use microexponent::MicroexponentRule;
pub(crate) use mx::MxRule;
#[cfg(feature = "std")]
pub(crate) use nvfp4::ELEMENT_MAX as NVFP4_ELEMENT_MAX;
pub(crate) use nvfp4::{Nvfp4Rule, ScalePair, is_large};
