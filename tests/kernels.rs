//! A backend's kernels against `microscaling`'s slice functions and against Flex's kernels, bit for bit.
//! `MX_TEST_BACKEND` chooses the backend at compile time.
//!
//! On Vulkan that may be the processor itself, by Mesa's driver for it (`mesa-vulkan-drivers`).

#[path = "shared/backend.rs"]
mod backend;

mod kernels {
    // The results are compared with Flex's.
    #[cfg(not(test_backend = "flex"))]
    mod accumulated_convolutions;
    mod accumulators;
    mod adamw;
    mod dialects;
    mod float_scales;
    // The results are compared with Flex's.
    #[cfg(not(test_backend = "flex"))]
    mod functions;
    #[cfg(not(any(test_backend = "flex", test_backend = "ndarray", test_backend = "tch")))]
    mod gradients;
    mod host_round_trips;
    mod packing;
    #[cfg(not(any(test_backend = "flex", test_backend = "ndarray", test_backend = "tch")))]
    mod products;
    mod random_formats;
    mod slices;
    mod statistics;
    mod support;
}
