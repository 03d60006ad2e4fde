//! Microscaling (MX) number formats for the [Burn](https://burn.dev) deep-learning framework.

mod backend;
mod device;
mod forward;
mod kernels;
mod ops;
mod phase;
mod registry;
mod semantics;
mod specs;
mod tensor;

#[cfg(feature = "clap")]
mod args;
#[cfg(feature = "autodiff")]
mod autodiff;
#[cfg(feature = "module")]
pub mod module;
#[cfg(feature = "autodiff")]
mod steps;

#[cfg(feature = "clap")]
pub use args::MxArgs;
#[cfg(feature = "autodiff")]
pub use autodiff::MxAutodiff;
pub use backend::MxBackend;
pub use device::MxDevice;
pub use kernels::MxKernels;
pub use microscaling;
pub use specs::{MxSpecs, ResolvedSpecs, Slot, SpecsError};
pub use tensor::MxTensor;
