"""A GPU of NumPy arrays: the kernels of waves compiled as plain C++, their threads run one after the other.

Where threads of a warp exchange values, those of a block take turns, each on a stack of its own: threads of the process
took twenty times as long to begin and to wait for each other.
"""

import ctypes
import re
import shutil
import subprocess
from functools import cache
from hashlib import blake2b
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from tests.codec.multiplied import multiply

GPP = shutil.which("g++")
BUILT = []
"""The folder of what was built, which all processes of a run share."""

SHIM = r"""
#include <csetjmp>
#include <ucontext.h>
#include <utility>
// <algorithm> and <cmath> would take half of the time to compile.
extern "C" float fmaf(float, float, float);
extern "C" double exp(double), hypot(double, double);
template <typename T> static constexpr T max(T a, T b) { return a < b ? b : a; }
template <typename T> static constexpr T min(T a, T b) { return b < a ? b : a; }
#define __global__
#define __device__
#define __restrict__
#define __launch_bounds__(...)
#define __shared__ static
struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, blockDim, gridDim;
static unsigned own;  // the number of the thread in its block
struct alignas(16) float4 { float x, y, z, w; };
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
template <typename T> static inline T __ldg(const T *at) { return *at; }
template <typename T> static inline T __ldcs(const T *at) { return *at; }
template <typename T> static inline void __stcs(T *at, T value) { *at = value; }

// A thread begins in a context of its own; later turns jump, which unlike contexts asks nothing of the system.
static struct Thread {
    ucontext_t begin;
    jmp_buf at;
    bool begun, ended;
    char stack[1 << 16];
} threads[1024];
static jmp_buf launcher;
static void wait_for_others()
{
    if (!_setjmp(threads[own].at)) _longjmp(launcher, 1);
}
static void __syncthreads() { wait_for_others(); }
template <typename Call> static void take_turns(unsigned count, Call call)
{
    static Call *job;
    static unsigned left, x;  // a jump may lose what is not static
    job = &call;
    for (x = 0; x < count; ++x) threads[x].begun = threads[x].ended = false;
    for (left = count; left;)
        for (x = 0; x < count; ++x) {
            Thread &thread = threads[x];
            if (thread.ended) continue;
            own = x;
            threadIdx = {x % blockDim.x, x / blockDim.x, 0};
            if (_setjmp(launcher)) {
                left -= threads[x].ended;
            } else if (thread.begun) {
                _longjmp(thread.at, 1);
            } else {
                thread.begun = true;
                getcontext(&thread.begin);
                thread.begin.uc_stack.ss_sp = thread.stack;
                thread.begin.uc_stack.ss_size = sizeof thread.stack;
                makecontext(&thread.begin, [] {
                    (*job)();
                    threads[own].ended = true;
                    _longjmp(launcher, 1);
                }, 0);
                setcontext(&thread.begin);
            }
        }
}
static float exchanged[1024];
static float of_lane(float value, int other, bool there)
{
    exchanged[own] = value;
    wait_for_others();
    const float found = there ? exchanged[other] : value;
    wait_for_others();
    return found;
}
static float __shfl_xor_sync(unsigned, float value, int apart) { return of_lane(value, own ^ apart, true); }
static float __shfl_up_sync(unsigned, float value, int apart, int width)
{
    return of_lane(value, own - apart, own % width >= apart);
}
static float __shfl_down_sync(unsigned, float value, int apart, int width)
{
    return of_lane(value, own + apart, own % width + apart < width);
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
    all_blocks(grid, [&] {
        if (together) return take_turns(block[0] * block[1], [&] { one(kernel, arguments); });
        for (unsigned y = 0; y < block[1]; ++y)
            for (unsigned x = 0; x < block[0]; ++x) {
                threadIdx = {x, y, 0};
                one(kernel, arguments);
            }
    });
}
"""


class Emulator:
    """Stands in for `forebay.wave.kernels.device.Device`."""

    arrays = np
    multiprocessors, shared = 3, 232448

    def __init__(self):
        self.launches = []

    def kernel(self, source, name, defines, shared=0):
        together = name == "points" or source.name in ("volume.cu", "sweep.cu")
        # All kernels of a source are one library here, which takes longest to compile.
        defines = {key: value for key, value in defines.items() if key not in ("ONE_KERNEL", name.upper())}
        return name, together, getattr(library(source, tuple(sorted(defines.items()))), f"launch_{name}")

    def compile(self, source, kernels):
        for name, defines in kernels.items():
            self.kernel(source, name, defines)

    def address(self, array):
        assert array.flags.c_contiguous
        return array.ctypes.data

    def stream(self):
        return None

    def host(self, array):
        return array

    def multiply(self, encoded, meeting):
        """Run the kernel of a codec."""
        self.launches.append("multiply")
        assert multiply(encoded, meeting) == 0

    def launch(self, kernel, grid, block, arguments, stream, shared=0):
        name, together, call = kernel
        self.launches.append(name)
        three = ctypes.c_uint * 3
        call(three(*grid), three(*block), ctypes.c_void_p(arguments), int(together))


@cache
def library(source, defines):
    """Build a source once for all processes of a run of the tests."""
    text = source.read_text()
    names = re.findall(r'extern "C" __global__ void(?: __launch_bounds__\(.*\))?\s+(\w+)\(', text)
    entries = "".join(
        f'extern "C" void launch_{name}(const unsigned *grid, const unsigned *block, void **arguments, int together)\n'
        f"{{ launch({name}, grid, block, arguments, together); }}\n"
        for name in names
    )
    # A kernel may have the name of a function of the C library, which must not be called in its place.
    options = ["-O1", "-std=c++17", "-ffp-contract=off", "-shared", "-Wl,-Bsymbolic", "-fPIC", "-w"]
    options += ["-march=native", "-U_FORTIFY_SOURCE"]  # fmaf is one instruction, and jumps lead to other stacks
    options += ["-fno-gnu-unique"]  # or libraries of other macros have the shared memory of the first that is loaded
    macros = [f"-D{name}={value}" for name, value in defines]
    built = BUILT[-1] / (blake2b(repr((text, entries, macros)).encode(), digest_size=16).hexdigest() + ".so")
    if not built.exists():
        folder = Path(mkdtemp(dir=built.parent))
        (folder / "shim.cpp").write_text(SHIM + entries)
        options += [f'-DSOURCE="{source}"', *macros]
        subprocess.run([GPP, *options, "shim.cpp", "-o", "shim.so"], cwd=folder, check=True)
        (folder / "shim.so").replace(built)
        shutil.rmtree(folder)
    return ctypes.CDLL(str(built))
