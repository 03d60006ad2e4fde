# Sourced by run and long: how the tests of devices are built and run.
export MX_TEST_BACKEND=vulkan
# The fewest kernels, compiled fast: no choice of the fastest one, and no optimization by the driver.
export CUBECL_AUTOTUNE_LEVEL=minimal GALLIVM_PERF=nopt
# Unoptimized kernels take more of the stack.
export RUST_MIN_STACK=33554432
graphics=(--release --locked --config .ci/graphics.toml --features vulkan,burn-mx/cuda,burn-mx/router,burn-mx-core/default)
# The packages whose tests know of devices. With the features above, their crates are those of a program built with `graphics`.
tests=("${graphics[@]}" -p burn-mx-workspace -p burn-mx-kernels)
