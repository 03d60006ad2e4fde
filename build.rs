//! Which backend the tests are compiled for: `MX_TEST_BACKEND`, by default Flex.

/// The allowed names: the names of the features.
const BACKENDS: [&str; 9] = [
    "flex", "ndarray", "tch", "cuda", "rocm", "vulkan", "metal", "webgpu", "wgpu",
];

fn main() {
    println!("cargo::rerun-if-env-changed=MX_TEST_BACKEND");
    let names = BACKENDS.map(|name| format!("{name:?}")).join(", ");
    println!("cargo::rustc-check-cfg=cfg(test_backend, values({names}))");
    let backend = std::env::var("MX_TEST_BACKEND").unwrap_or_else(|_| "flex".to_owned());
    assert!(
        BACKENDS.contains(&backend.as_str()),
        "MX_TEST_BACKEND is {backend:?}, expected one of {names}"
    );
    let feature = format!("CARGO_FEATURE_{}", backend.to_uppercase());
    println!("cargo::rerun-if-env-changed={feature}");
    assert!(
        backend == "flex" || std::env::var_os(feature).is_some(),
        "MX_TEST_BACKEND is {backend:?}, which takes `--features {backend}`"
    );
    println!("cargo::rustc-cfg=test_backend={backend:?}");
}
