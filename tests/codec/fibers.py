"""Running CUDA kernels without a GPU: compiled as plain C++, each thread a fiber that waits where the kernel does."""

import ctypes
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

GPP = shutil.which("g++")
on_cpu = pytest.mark.skipif(GPP is None, reason="g++ is not installed")

# Every thread of a block is a fiber, and runs until it has to wait for others: for those of its warp one turn, for
# those of its block until all have come. Each turn is taken in another order, and warps fall behind at random, so that
# what is read without waiting for it is not there yet, or not any more.
FIBERS = r"""
#include <cstring>
#include <ucontext.h>
// <algorithm>, <cmath>, <random> and <vector> would take most of the time to compile.
extern "C" double fabs(double), fmin(double, double), fmax(double, double), ldexp(double, int);
extern "C" float fabsf(float), fmaxf(float, float), fminf(float, float);
template <typename T> static constexpr T max(T a, T b) { return a < b ? b : a; }
template <typename T> static constexpr T min(T a, T b) { return b < a ? b : a; }
#define __global__
#define __device__
#define __shared__ static
#define __noinline__
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(threads, ...)
struct Index { unsigned x; };
static Index threadIdx, blockIdx, gridDim;
static int current, arrived, generation, verdicts[2];
static struct Fiber { ucontext_t context; char stack[1 << 16]; int turns; bool ended; } fibers[1024];
static ucontext_t scheduler;
static unsigned long long posted[1024][2];

static void wait_a_turn() { swapcontext(&fibers[current].context, &scheduler); }
static void __syncwarp() { ++fibers[current].turns; wait_a_turn(); }
static void __syncthreads()
{
    const int here = generation;
    ++arrived;
    while (generation == here) wait_a_turn();
}
static int __syncthreads_and(int one)
{
    int &verdict = verdicts[generation & 1];
    verdict &= one != 0;
    __syncthreads();
    return verdict;
}
template <typename Reduce> static unsigned reduced(unsigned long long mine, unsigned start, Reduce reduce)
{
    const int turn = fibers[current].turns & 1, first = current & ~31;
    posted[current][turn] = mine;
    __syncwarp();
    for (int lane = 0; lane < 32; ++lane) start = reduce(start, (unsigned)posted[first + lane][turn], lane);
    return start;
}
using u = unsigned;
static u __ballot_sync(u, bool p) { return reduced(p, 0, [](u a, u b, int lane) { return a | b << lane; }); }
static bool __any_sync(u m, bool p) { return __ballot_sync(m, p) != 0; }
static bool __all_sync(u m, bool p) { return __ballot_sync(m, p) == 0xffffffffu; }
static u __reduce_or_sync(u, u x) { return reduced(x, 0, [](u a, u b, int) { return a | b; }); }
static u __reduce_max_sync(u, u x) { return reduced(x, 0, [](u a, u b, int) { return a > b ? a : b; }); }
static u __reduce_add_sync(u, u x) { return reduced(x, 0, [](u a, u b, int) { return a + b; }); }
template <typename T> static T shuffled(T mine, int from)
{
    const int turn = fibers[current].turns & 1;
    posted[current][turn] = 0;
    memcpy(&posted[current][turn], &mine, sizeof(mine));
    __syncwarp();
    memcpy(&mine, &posted[from >= 0 && from < 32 ? (current & ~31) + from : current][turn], sizeof(mine));
    return mine;
}
template <typename T> static T __shfl_sync(u, T x, int from) { return shuffled(x, from); }
template <typename T> static T __shfl_up_sync(u, T x, int by) { return shuffled(x, (current & 31) - by); }
template <typename T> static T __shfl_down_sync(u, T x, int by) { return shuffled(x, (current & 31) + by); }
template <typename T> static T __shfl_xor_sync(u, T x, int by) { return shuffled(x, (current & 31) ^ by); }
template <typename T> static T atomicAdd(T *where, T by) { const T was = *where; *where += by; return was; }
template <typename T> static T atomicOr(T *where, T by) { const T was = *where; *where |= by; return was; }
template <typename T> static T atomicMax(T *where, T by) { const T was = *where; *where = max(was, by); return was; }
static int __clz(u x) { return x ? __builtin_clz(x) : 32; }
static int __ffs(u x) { return __builtin_ffs(x); }
template <typename T> static T __ldcs(const T *at) { return *at; }
static u __funnelshift_r(u low, u high, u by) { return (((unsigned long long)high << 32) | low) >> (by & 31); }
static u __funnelshift_rc(u low, u high, u by) { return (((unsigned long long)high << 32) | low) >> min(by, 32u); }
static int __popc(u x) { return __builtin_popcount(x); }
template <typename To, typename From> static To bits_of(From x) { To y; memcpy(&y, &x, sizeof(y)); return y; }
static int __float_as_int(float x) { return bits_of<int>(x); }
static float __int_as_float(int x) { return bits_of<float>(x); }
static int __double2loint(double x) { return (int)bits_of<long long>(x); }
static int __double2hiint(double x) { return (int)(bits_of<long long>(x) >> 32); }
static double __hiloint2double(int high, int low) { return bits_of<double>((long long)high << 32 | (u)low); }
static float __fadd_rn(float x, float y) { return x + y; }
static float __fsub_rn(float x, float y) { return x - y; }
static float __fmul_rn(float x, float y) { return x * y; }
static float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static double __fma_rn(double x, double y, double z) { return __builtin_fma(x, y, z); }
static double __dadd_rn(double x, double y) { return x + y; }
static double __dsub_rn(double x, double y) { return x - y; }
static double __dmul_rn(double x, double y) { return x * y; }
static float __double2float_rz(double x)
{
    const float y = (float)x;
    return fabs(y) > fabs(x) ? __int_as_float(__float_as_int(y) - 1) : y;
}
static int highest_bit(u x) { return x ? 31 - __builtin_clz(x) : -1; }
static int extended(u x, int width)
{
    return width == 0 ? 0 : width >= 32 ? (int)x : (int)(x << (32 - width)) >> (32 - width);
}

static void (*body_of_threads)();
static void thread_of() { body_of_threads(); fibers[current].ended = true; wait_a_turn(); }
static void run_blocks(u blocks, u threads, u seed, void (*body)())
{
    const auto random = [&] { return seed = seed * 747796405u + 2891336453u, seed >> 16 ^ seed; };
    body_of_threads = body;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
        arrived = 0, verdicts[0] = verdicts[1] = 1;
        for (u t = 0; t < threads; ++t) {
            Fiber &fiber = fibers[t];
            fiber.turns = 0, fiber.ended = false;
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack, fiber.context.uc_stack.ss_size = sizeof fiber.stack;
            fiber.context.uc_link = nullptr;
            makecontext(&fiber.context, thread_of, 0);
        }
        for (u ended = 0; ended < threads;) {
            const u first = random(), odd = random() | 1, behind = random();
            for (u k = 0; k < threads; ++k) {
                const u t = (k * odd + first) % threads;
                if (fibers[t].ended || (behind >> t / 32 & 1)) continue;
                current = t, threadIdx.x = t;
                swapcontext(&scheduler, &fibers[t].context);
                ended += fibers[t].ended;
            }
            if (arrived && arrived + ended == threads) arrived = 0, verdicts[++generation & 1] = 1;
        }
    }
}
"""


@cache
def built(source, entry, macros):
    """Compile kernels, and what calls them by `run_blocks`; give the library."""
    folder = Path(mkdtemp(prefix="forebay-kernels-"))
    (folder / "kernels.cpp").write_text(FIBERS + source + entry)
    options = ["-O1", "-std=c++17", "-ffp-contract=off", "-fno-strict-aliasing", "-shared", "-fPIC", "-w"]
    options += ["-fno-gnu-unique"]  # or the kernels of both types would have one and the same shared memory
    options += [f"-D{name}={value}" for name, value in macros]
    subprocess.run([GPP, *options, "kernels.cpp", "-o", "kernels.so"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "kernels.so"))
    shutil.rmtree(folder)
    return library


def whole(path):
    """Give a source with what it includes in its place."""
    lines = []
    for line in path.read_text().splitlines():
        name = line.removeprefix('#include "').rstrip('"')
        lines.append(whole(path.parent / name) if name != line else line.replace("#pragma once", ""))
    return "\n".join(lines) + "\n"
