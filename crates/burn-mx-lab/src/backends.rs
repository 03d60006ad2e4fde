//! The backends that a program is compiled with, by name.

use clap::ValueEnum;
use serde::Serialize;

/// A backend to decorate. Others than Flex are features of the same names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub enum BackendName {
    /// Burn's pure Rust CPU backend
    Flex,
    /// Burn's backend on the ndarray crate
    #[cfg(feature = "ndarray")]
    NdArray,
    /// PyTorch's library
    #[cfg(feature = "tch")]
    Tch,
    /// NVIDIA GPUs
    #[cfg(feature = "cuda")]
    Cuda,
    /// AMD GPUs
    #[cfg(feature = "rocm")]
    Rocm,
    /// Vulkan, by SPIR-V
    #[cfg(feature = "vulkan")]
    Vulkan,
    /// Metal, by MSL
    #[cfg(feature = "metal")]
    Metal,
    /// WebGPU, by WGSL
    #[cfg(feature = "webgpu")]
    WebGpu,
    /// The device that wgpu finds, by WGSL
    #[cfg(feature = "wgpu")]
    Wgpu,
}

impl BackendName {
    /// The name, as on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Keeps compiled kernels on disk, if the backend compiles any.
    #[doc(hidden)]
    pub fn keep_compiled_kernels(self) {
        if !["flex", "ndarray", "tch"].contains(&&*self.name()) {
            burn_mx::process::keep_compiled_kernels();
        }
    }
}

/// Runs `$body` with `$B` as the type of the backend with this name. `$body` is compiled for each backend. Kernels of
/// graphics processors are kept on disk.
///
/// The calling crate depends on `burn`, and has a feature of the name of each backend but Flex, which turns on this crate's feature.
#[macro_export]
macro_rules! with_backend {
    ($name:expr, $B:ident => $body:expr) => {{
        use $crate::backends::BackendName;
        let name: BackendName = $name;
        name.keep_compiled_kernels();
        match name {
            BackendName::Flex => {
                type $B = ::burn::backend::Flex;
                $body
            }
            #[cfg(feature = "ndarray")]
            BackendName::NdArray => {
                type $B = ::burn::backend::NdArray;
                $body
            }
            #[cfg(feature = "tch")]
            BackendName::Tch => {
                type $B = ::burn::backend::LibTorch;
                $body
            }
            #[cfg(feature = "cuda")]
            BackendName::Cuda => {
                type $B = ::burn::backend::Cuda;
                $body
            }
            #[cfg(feature = "rocm")]
            BackendName::Rocm => {
                type $B = ::burn::backend::Rocm;
                $body
            }
            #[cfg(feature = "vulkan")]
            BackendName::Vulkan => {
                type $B = ::burn::backend::Vulkan;
                $body
            }
            #[cfg(feature = "metal")]
            BackendName::Metal => {
                type $B = ::burn::backend::Metal;
                $body
            }
            #[cfg(feature = "webgpu")]
            BackendName::WebGpu => {
                type $B = ::burn::backend::WebGpu;
                $body
            }
            #[cfg(feature = "wgpu")]
            BackendName::Wgpu => {
                type $B = ::burn::backend::Wgpu;
                $body
            }
        }
    }};
}
