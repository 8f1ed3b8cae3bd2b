"""A GPU of NumPy arrays: the kernels of waves compiled as plain C++, their threads run one after the other.

Where threads of a warp exchange values, every thread of a block is one of the process.
"""

import ctypes
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

GPP = shutil.which("g++")

SHIM = r"""
#include <algorithm>
#include <cmath>
#include <pthread.h>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>
using std::max;
using std::min;
#define __global__
#define __device__
#define __restrict__
#define __launch_bounds__(...)
struct Index { unsigned x, y, z; };
static thread_local Index threadIdx, blockIdx;
static Index blockDim, gridDim;
struct alignas(16) float4 { float x, y, z, w; };
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
template <typename T> static inline T __ldg(const T *at) { return *at; }
template <typename T> static inline T __ldcs(const T *at) { return *at; }
template <typename T> static inline void __stcs(T *at, T value) { *at = value; }
static pthread_barrier_t barriers[32];
static float exchanged[1024];
static float __shfl_xor_sync(unsigned, float value, int apart)
{
    pthread_barrier_t *barrier = &barriers[threadIdx.x / 32];
    exchanged[threadIdx.x] = value;
    pthread_barrier_wait(barrier);
    const float other = exchanged[threadIdx.x ^ apart];
    pthread_barrier_wait(barrier);
    return other;
}
#include SOURCE

template <typename... A, size_t... I>
static void call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>)
{
    kernel(*static_cast<std::remove_reference_t<A> *>(arguments[I])...);
}
template <typename... A> static void one(void (*kernel)(A...), void **arguments)
{
    call(kernel, arguments, std::index_sequence_for<A...>());
}
template <typename Call> static void all_blocks(const unsigned *grid, Call call)
{
    for (unsigned z = 0; z < grid[2]; ++z)
        for (unsigned y = 0; y < grid[1]; ++y)
            for (unsigned x = 0; x < grid[0]; ++x) {
                blockIdx = {x, y, z};
                call();
            }
}
template <typename... A>
static void launch(void (*kernel)(A...), const unsigned *grid, const unsigned *block, void **arguments, int together)
{
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    if (!together) {
        all_blocks(grid, [&] {
            for (unsigned y = 0; y < block[1]; ++y)
                for (unsigned x = 0; x < block[0]; ++x) {
                    threadIdx = {x, y, 0};
                    one(kernel, arguments);
                }
        });
        return;
    }
    for (unsigned warp = 0; warp < block[0] / 32; ++warp) pthread_barrier_init(&barriers[warp], nullptr, 32);
    std::vector<std::thread> threads;
    for (unsigned x = 0; x < block[0]; ++x)
        threads.emplace_back([=] {
            threadIdx = {x, 0, 0};
            all_blocks(grid, [&] { one(kernel, arguments); });
        });
    for (auto &thread : threads) thread.join();
}
"""


class Emulator:
    """Stands in for `penstock.wave.device.Device`."""

    arrays = np
    multiprocessors = 3

    def __init__(self):
        self.launches = []

    def kernel(self, source, name, defines):
        return name, getattr(library(source, tuple(sorted(defines.items()))), f"launch_{name}")

    def address(self, array):
        assert array.flags.c_contiguous
        return array.ctypes.data

    def stream(self):
        return None

    def host(self, array):
        return array

    def launch(self, kernel, grid, block, arguments, stream):
        name, call = kernel
        self.launches.append(name)
        three = ctypes.c_uint * 3
        call(three(*grid), three(*block), ctypes.c_void_p(arguments), int(name == "points"))


@cache
def library(source, defines):
    folder = Path(mkdtemp(prefix="penstock-wave-"))
    names = re.findall(r'extern "C" __global__ void(?: __launch_bounds__\(.*\))?\s+(\w+)\(', source.read_text())
    entries = "".join(
        f'extern "C" void launch_{name}(const unsigned *grid, const unsigned *block, void **arguments, int together)\n'
        f"{{ launch({name}, grid, block, arguments, together); }}\n"
        for name in names
    )
    (folder / "shim.cpp").write_text(SHIM + entries)
    # A kernel may have the name of a function of the C library, which must not be called in its place.
    options = ["-O1", "-std=c++17", "-ffp-contract=off", "-shared", "-Wl,-Bsymbolic", "-fPIC", "-pthread", "-w"]
    options += [f'-DSOURCE="{source}"', *(f"-D{name}={value}" for name, value in defines)]
    subprocess.run([GPP, *options, "shim.cpp", "-o", "shim.so"], cwd=folder, check=True)
    built = ctypes.CDLL(str(folder / "shim.so"))
    shutil.rmtree(folder)
    return built
