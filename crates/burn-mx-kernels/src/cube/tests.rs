//! Tests of the kernels as source, and on this machine's device.

#[cfg(feature = "wgpu")]
mod on_a_device;
#[cfg(feature = "cuda")]
mod on_a_processor;
#[cfg(feature = "cuda")]
mod sources;
