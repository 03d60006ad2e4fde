//! The backend that tests of any backend are compiled for, see `MX_TEST_BACKEND` in build.rs.

use burn_backend::BackendTypes;

#[cfg(test_backend = "flex")]
pub(crate) type TestBackend = burn::backend::Flex;
#[cfg(test_backend = "ndarray")]
pub(crate) type TestBackend = burn::backend::NdArray;
#[cfg(test_backend = "tch")]
pub(crate) type TestBackend = burn::backend::LibTorch;
#[cfg(test_backend = "cuda")]
pub(crate) type TestBackend = burn::backend::Cuda;
#[cfg(test_backend = "rocm")]
pub(crate) type TestBackend = burn::backend::Rocm;
#[cfg(test_backend = "vulkan")]
pub(crate) type TestBackend = burn::backend::Vulkan;
#[cfg(test_backend = "metal")]
pub(crate) type TestBackend = burn::backend::Metal;
#[cfg(test_backend = "webgpu")]
pub(crate) type TestBackend = burn::backend::WebGpu;
#[cfg(test_backend = "wgpu")]
pub(crate) type TestBackend = burn::backend::Wgpu;

/// Tests compare bits: processors sum in the order of all, unless the environment names a path.
#[cfg(any(test_backend = "flex", test_backend = "ndarray", test_backend = "tch"))]
#[ctor::ctor(unsafe)]
fn products_are_reproducible() {
    if std::env::var_os("MICROSCALING_PRODUCT").is_none() {
        burn_mx::process::reproducible_products(true);
    }
}

#[allow(dead_code, reason = "used by some")]
pub(crate) type TestDevice = <TestBackend as BackendTypes>::Device;

/// The same without burn-fusion around it; on CUDA and ROCm, whose types burn does not hand on, with it.
#[cfg(any(
    test_backend = "vulkan",
    test_backend = "metal",
    test_backend = "webgpu",
    test_backend = "wgpu"
))]
#[allow(dead_code, reason = "used by some")]
pub(crate) type Unfused =
    burn::backend::wgpu::CubeBackend<burn::backend::wgpu::WgpuRuntime, f32, i32, u32>;
#[cfg(not(any(
    test_backend = "vulkan",
    test_backend = "metal",
    test_backend = "webgpu",
    test_backend = "wgpu"
)))]
#[allow(dead_code, reason = "used by some")]
pub(crate) type Unfused = TestBackend;
