# Sourced by run and long: how the tests of devices are built and run.
export MX_TEST_BACKEND=vulkan
# The fewest kernels, compiled fast: no choice of the fastest one, and no optimization by the driver.
export CUBECL_AUTOTUNE_LEVEL=minimal GALLIVM_PERF=nopt
# Unoptimized kernels take more of the stack.
export RUST_MIN_STACK=33554432
graphics=(--release --locked --config .ci/graphics.toml --features vulkan,burn-mx/cuda,burn-mx/router,burn-mx-core/default)
# The kernels' own tests. With the features above, all of these commands have one tree of crates.
kernels=("${graphics[@]}" -p burn-mx-workspace -p burn-mx-kernels)
# All packages whose tests know of devices.
tests=("${kernels[@]}" -p burn-mx-core)
