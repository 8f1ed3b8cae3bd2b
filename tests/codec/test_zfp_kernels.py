"""The kernels of zfp, compiled as plain C++: what they write zfpy reads, and the other way round, bit for bit."""

import ctypes
import math
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.example_counts import fewer

from forebay.codec.zfp import SOURCE, THREADS

zfpy = pytest.importorskip("zfpy")
GPP = shutil.which("g++")
on_cpu = pytest.mark.skipif(GPP is None, reason="g++ is not installed")

WORDS = (1, 2, 7, 16, 40, 64)

# Every thread of a thread block is a thread of the process; thread blocks come one after the other.
SHIM = r"""
#include <cstring>
#include <pthread.h>
// <algorithm>, <thread> and <vector> would take most of the time to compile.
template <typename T> static T max(T a, T b) { return a < b ? b : a; }
template <typename T> static T min(T a, T b) { return b < a ? b : a; }
#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(count)
struct Index { unsigned x; };
static thread_local Index threadIdx, blockIdx;
struct alignas(16) float4 { float x, y, z, w; };
static pthread_barrier_t barrier;
static void __syncthreads() { pthread_barrier_wait(&barrier); }
static unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
static int __clzll(unsigned long long x) { return x ? __builtin_clzll(x) : 64; }
static unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by)
{
    return (unsigned)((((unsigned long long)high << 32) | low) >> (by & 31));
}
static void atomicOr(unsigned *word, unsigned bits) { __atomic_fetch_or(word, bits, __ATOMIC_SEQ_CST); }
#include SOURCE

template <typename Kernel> struct Part {
    Kernel kernel;
    unsigned grid, number;
};
template <typename Kernel> static void *run(void *what)
{
    const Part<Kernel> part = *static_cast<Part<Kernel> *>(what);
    threadIdx.x = part.number;
    for (blockIdx.x = 0; blockIdx.x < part.grid; ++blockIdx.x) {
        part.kernel();
        __syncthreads();
    }
    return nullptr;
}
template <typename Kernel> static void launch(unsigned grid, Kernel kernel)
{
    pthread_barrier_init(&barrier, nullptr, THREADS);
    pthread_t threads[THREADS];
    char parts[THREADS][sizeof(Part<Kernel>)] __attribute__((aligned(16)));
    for (unsigned t = 0; t < THREADS; ++t) {
        const Part<Kernel> part = {kernel, grid, t};
        memcpy(parts[t], &part, sizeof(part));
        pthread_create(&threads[t], nullptr, run<Kernel>, parts[t]);
    }
    for (pthread_t one : threads) pthread_join(one, nullptr);
    pthread_barrier_destroy(&barrier);
}
extern "C" void encode(unsigned grid, const float *field, u32 *stream, u32 *flag, u32 nx, u32 ny, u32 nz, u32 blocks,
                       int rows)
{
    launch(grid, [=] { zfp_encode(field, stream, flag, nx, ny, nz, blocks, rows); });
}
extern "C" void decode(unsigned grid, const u32 *stream, float *field, u32 nx, u32 ny, u32 nz, u32 blocks, int rows)
{
    launch(grid, [=] { zfp_decode(stream, field, nx, ny, nz, blocks, rows); });
}
"""


@cache
def library(words):
    folder = Path(mkdtemp(prefix="forebay-zfp-"))
    (folder / "shim.cpp").write_text(SHIM)
    options = ["-O1", "-std=c++17", "-ffp-contract=off", "-fno-strict-aliasing", "-shared", "-fPIC", "-pthread", "-w"]
    options += [f'-DSOURCE="{SOURCE}"', f"-DWORDS={words}"]
    subprocess.run([GPP, *options, "shim.cpp", "-o", "shim.so"], cwd=folder, check=True)
    built = ctypes.CDLL(str(folder / "shim.so"))
    shutil.rmtree(folder)
    return built


def geometry(shape):
    blocks = math.prod(-(-extent // 4) for extent in shape)
    return -(-blocks // THREADS), blocks


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


def encode(field, words, rows=None):
    grid, blocks = geometry(field.shape)
    stream = np.full(-(-blocks * words // 2) * 2, 0xDEADBEEF, np.uint32)
    flag = np.zeros(1, np.uint32)
    rows = field.shape[2] % 4 == 0 and field.ctypes.data % 16 == 0 if rows is None else rows
    where = (pointer(field), pointer(stream), pointer(flag), *field.shape[::-1], blocks, int(rows))
    library(words).encode(grid, *where)
    return stream.tobytes(), int(flag[0])


def decode(stream, shape, words, rows=None):
    grid, blocks = geometry(shape)
    stream = np.frombuffer(stream, np.uint32)
    field = np.full(shape, np.nan, np.float32)
    rows = shape[2] % 4 == 0 and field.ctypes.data % 16 == 0 if rows is None else rows
    library(words).decode(grid, pointer(stream), pointer(field), *shape[::-1], blocks, int(rows))
    return field


def zfpy_encodes(field, words):
    return zfpy.compress_numpy(field, rate=words / 2, write_header=False)


def zfpy_decodes(stream, shape, words):
    return zfpy._decompress(stream, zfpy.type_float, shape, rate=words / 2)


def agree(field, words):
    expected = zfpy_encodes(field, words)
    assert encode(field, words) == (expected, 0)
    same_bits(decode(expected, field.shape, words), zfpy_decodes(expected, field.shape, words))


def same_bits(ours, theirs):
    assert np.array_equal(ours.view(np.uint32), theirs.view(np.uint32))


def wave(shape, seed=0):
    """Smooth in part, empty in part, rough in part."""
    random = np.random.default_rng(seed)
    z, y, x = np.meshgrid(*(np.arange(extent) for extent in shape), indexing="ij")
    radius = np.sqrt((z - 3) ** 2 + (y - 5) ** 2 + (x - 9) ** 2)
    field = np.sin(0.7 * radius) * np.exp(-0.05 * radius) * (radius < 30)
    return (field + 1e-4 * random.standard_normal(shape) * (radius < 20)).astype(np.float32)


@on_cpu
@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("shape", [(4, 4, 4), (8, 12, 40), (1, 1, 1), (5, 6, 7), (2, 3, 90), (9, 2, 64), (17, 1, 3)])
def test_streams_are_those_of_zfpy(shape, words):
    agree(wave(shape), words)


@on_cpu
@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize(
    "values",
    [
        np.zeros(64),
        np.full(64, -1.0),
        np.arange(64) % 2,
        np.r_[np.zeros(63), 1e-20],
        np.r_[3.4e38, np.zeros(63)],
        np.full(64, -3.4028235e38),
        np.tile([3.4028235e38, -3.4028235e38], 32),
        2.0 ** np.arange(-60, 4),
        np.full(64, 2.0**-97),
    ],
)
def test_extreme_blocks_are_those_of_zfpy(values, words):
    agree(np.asarray(values, np.float32).reshape(4, 4, 4), words)


@pytest.mark.slow
@on_cpu
@fewer(60, of=300)
@given(st.data())
def test_any_field_is_coded_as_zfpy_does(data):
    words = data.draw(st.sampled_from(WORDS))
    shape = data.draw(st.tuples(*[st.integers(1, 13)] * 3))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    spread = data.draw(st.sampled_from([0, 1, 8, 40]))
    field = random.standard_normal(shape) * 2.0 ** random.integers(-spread, spread + 1, shape)
    field *= random.random(shape) < data.draw(st.sampled_from([0.02, 0.5, 1]))
    agree(field.astype(np.float32), words)


@pytest.mark.slow
@on_cpu
@fewer(60, of=300)
@given(st.data())
def test_any_bytes_are_decoded_as_zfpy_does(data):
    words = data.draw(st.sampled_from(WORDS))
    shape = data.draw(st.tuples(*[st.integers(1, 9)] * 3))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    nbytes = -(-geometry(shape)[1] * words // 2) * 8
    dense = data.draw(st.sampled_from([0, 1, 2]))  # ones are more and more seldom
    parts = random.integers(0, 256, (dense + 1, nbytes), np.uint8)
    stream = np.bitwise_and.reduce(parts, axis=0).tobytes()
    same_bits(decode(stream, shape, words), zfpy_decodes(stream, shape, words))


@on_cpu
def test_rows_that_are_not_aligned_are_read_one_by_one():
    field = wave((7, 9, 36))
    assert encode(field, 16, rows=False) == encode(field, 16, rows=True) == (zfpy_encodes(field, 16), 0)
    stream = zfpy_encodes(field, 16)
    same_bits(decode(stream, field.shape, 16, rows=False), decode(stream, field.shape, 16, rows=True))


@on_cpu
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_block_that_is_not_finite_raises_the_flag_and_becomes_zeros(bad):
    field = wave((8, 8, 8))
    field[5, 2, 1] = bad
    stream, flag = encode(field, 16)
    field[4:, :4, :4] = 0
    assert flag
    assert stream == zfpy_encodes(field, 16)


@on_cpu
@pytest.mark.parametrize("power", [-98, -99, -105, -110, -126, -127, -140, -149])
def test_magnitudes_that_zfpy_destroys_keep_their_size(power):
    field = np.full((4, 4, 4), 2.0**power, np.float32)
    stream, flag = encode(field, 64)
    back = zfpy_decodes(stream, field.shape, 64)
    assert not flag
    same_bits(back, decode(stream, field.shape, 64))
    # zfp's decoder scales by 2^(e - 30), which below 2^-149 is nothing.
    assert np.array_equal(back, field) if power > -120 else np.abs(back).max() <= 2.0**-120


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "words"),
    [
        ("sm_90", 64),
        *(pytest.param("sm_90", words, marks=pytest.mark.slow) for words in WORDS if words != 64),
        *(pytest.param(arch, 64, marks=pytest.mark.slow) for arch in ("sm_80", "sm_100")),
    ],
)
def test_the_kernels_compile_without_a_gpu(arch, words):
    pytest.importorskip("cuda.core")
    from forebay.cuda.kernels import compile_only
    from forebay.errors import DeviceError

    try:
        assert compile_only(SOURCE, arch, fmad=False, defines={"WORDS": words}).startswith(b"\x7fELF")
    except DeviceError as error:
        pytest.skip(str(error))
