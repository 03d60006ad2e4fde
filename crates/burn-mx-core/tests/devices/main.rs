//! Emulation on devices and beside them.
//!
//! ```text
//! cargo test -p burn-mx-core --features flex,router,vulkan --test devices
//! ```

#[cfg(target_os = "linux")]
mod kept_kernels;
#[path = "../layer/mod.rs"]
mod layer;
mod router;
