// Stands for CUDA's header where C++ compiles a kernel for a processor. The units of a cube take turns: each runs until it waits for the
// others. So all units have to wait equally often, as CUDA asks of `__syncthreads` too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <math.h>
#include <memory>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__
#define __shared__
#define __launch_bounds__(units)
#define __align__(bytes) __attribute__((aligned(bytes)))

using std::max;
using std::min;

struct Place {
    unsigned x, y, z;
};
inline Place threadIdx, blockIdx, blockDim, gridDim;
constexpr unsigned warpSize = 32;

extern "C" {
inline unsigned char dynamic_shared_mem[1 << 16] __align__(16);
}

inline int __clz(int word) {
    return word == 0 ? 32 : __builtin_clz(word);
}

inline unsigned __umulhi(unsigned a, unsigned b) {
    return uint64_t(a) * b >> 32;
}

// A unit of the cube that runs.
struct Unit {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    Place place;
    unsigned number;
    // What the unit hands over, at even and odd times.
    unsigned handed[2];
    unsigned times;
    bool is_done;
};
inline std::vector<Unit> units;
inline Unit *running;
inline ucontext_t scheduler;

__attribute__((noinline)) inline void __syncthreads() {
    swapcontext(&running->context, &scheduler);
}

inline unsigned __shfl_xor_sync(unsigned, unsigned word, unsigned mask) {
    unsigned time = running->times++ % 2;
    running->handed[time] = word;
    __syncthreads();
    return units[running->number ^ mask].handed[time];
}

template <class... Arguments, size_t... I>
void call(void (*kernel)(Arguments...), void **arguments, std::index_sequence<I...>) {
    kernel(reinterpret_cast<Arguments>(arguments[I])...);
}

template <class... Arguments>
void run_unit(void (*kernel)(Arguments...), void **arguments) {
    call(kernel, arguments, std::index_sequence_for<Arguments...>());
    running->is_done = true;
    __syncthreads();
}

inline std::vector<uint32_t> words(FILE *file) {
    uint32_t count = 0;
    if (fread(&count, 4, 1, file) != 1) exit(2);
    std::vector<uint32_t> read(count);
    if (fread(read.data(), 4, count, file) != count) exit(2);
    return read;
}

// From the standard input: the cube and the number of cubes, the scalars, and the buffers, each after its length in words. To the standard output:
// all buffers.
template <class... Arguments>
int run(void (*kernel)(Arguments...)) {
    auto shape = words(stdin), scalars = words(stdin);
    std::vector<std::vector<uint32_t>> buffers;
    while (buffers.size() + 1 < sizeof...(Arguments)) buffers.push_back(words(stdin));
    std::vector<void *> arguments;
    for (auto &buffer : buffers) arguments.push_back(buffer.data());
    scalars.resize(scalars.size() + 128);
    arguments.push_back(scalars.data());

    blockDim = {shape[0], shape[1], 1};
    gridDim = {shape[2], 1, 1};
    units = std::vector<Unit>(shape[0] * shape[1]);
    for (unsigned cube = 0; cube < gridDim.x; cube++) {
        blockIdx = {cube, 0, 0};
        for (unsigned i = 0; i < units.size(); i++) {
            constexpr size_t STACK = 1 << 17;
            Unit &unit = units[i];
            if (!unit.stack) unit.stack.reset(new char[STACK]);
            unit.place = {i % blockDim.x, i / blockDim.x, 0};
            unit.number = i;
            unit.is_done = false;
            getcontext(&unit.context);
            unit.context.uc_stack.ss_sp = unit.stack.get();
            unit.context.uc_stack.ss_size = STACK;
            static auto task = [&] { run_unit(kernel, arguments.data()); };
            makecontext(&unit.context, +[] { task(); }, 0);
        }
        while (!units[0].is_done) {
            for (auto &unit : units) {
                running = &unit;
                threadIdx = unit.place;
                swapcontext(&scheduler, &unit.context);
            }
            for (auto &unit : units) {
                if (unit.is_done != units[0].is_done) return 3;
            }
        }
    }
    for (auto &buffer : buffers) fwrite(buffer.data(), 4, buffer.size(), stdout);
    return 0;
}
