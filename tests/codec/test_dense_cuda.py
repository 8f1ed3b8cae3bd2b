"""`dense` on the GPU: the same values and canonical bytes as on the CPU, and no harm from damaged bytes.

Without a GPU, the kernels are compiled as plain C++ and run thread by thread.
"""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codec.bounds import (
    assert_alike,
    check_compiles,
    check_damage_on_gpu,
    check_fixtures,
    check_gpu_agrees,
    values,
)
from tests.codec.fibers import built, on_cpu, whole

from forebay.codec import Encoded, get
from forebay.codec.bounded.codec import defines
from forebay.codec.bounded.format import HEADER
from forebay.codec.dense import Dense
from forebay.codec.dense.format import MAGIC, tiling_of
from forebay.errors import EncodingError

ENTRY = r"""
static const real *array, *above; static real *known; static u8 *payload; static u64 nbytes, start;
static i64 strides[3], extents[3], grid[3]; static u32 flag_, numbers[7]; static double fine;
static const signed char *weights;
static void decoding()
{
    if (above)
        decode(payload, nbytes, above, known, numbers[0], numbers[1], extents[0], extents[1], extents[2], grid[0],
            grid[1], grid[2], numbers[2], numbers[3], numbers[4], numbers[5], start, numbers[6], fine, &flag_);
    else
        decode_top(payload, nbytes, known, numbers[0], numbers[1], extents[0], extents[1], extents[2], grid[0],
            grid[1], grid[2], numbers[2], numbers[3], numbers[5], start, numbers[6], fine, &flag_);
}
static void encoding()
{
    if (!above)
        encode_top(array, strides[0], strides[1], strides[2], known, payload, grid[0], grid[1], grid[2], numbers[2],
            numbers[3], numbers[6], fine, weights);
    else
        (known ? encode_above : encode)(array, strides[0], strides[1], strides[2], above, known, payload, grid[0],
            grid[1], grid[2], numbers[2], numbers[3], numbers[4], numbers[6], fine, weights);
}
extern "C" u32 launch(u32 blocks, u32 seed, const real *given, const i64 *nine, const real *upper, real *lower,
                      u8 *bytes, u64 count, const u32 *seven, u64 first, double finer, const signed char *exponents,
                      bool encodes)
{
    array = given, above = upper, known = lower, payload = bytes, nbytes = count, start = first, fine = finer;
    weights = exponents, flag_ = 0;
    memcpy(strides, nine, 24), memcpy(extents, nine + 3, 24), memcpy(grid, nine + 6, 24);
    memcpy(numbers, seven, sizeof(numbers));
    run_blocks(blocks, THREADS, seed, encodes ? encoding : decoding);
    return flag_;
}
"""
SHAPES = [
    (),
    (0, 3),
    (1,),
    (77,),
    (12288,),
    (9001,),
    (67, 45),
    (128, 192),
    (16, 32, 48),
    (21, 37, 53),
    (2, 3, 19, 17, 33),
]


def emulated(payload, array, weighted, seed=0, exponents=None, encodes=False):
    """Run the kernels of all grids; give the flag."""
    how = replace(tiling_of(array.shape, array.dtype), weighted=weighted)
    library = built(whole(Dense.source), ENTRY, tuple(defines(array.dtype, how.rank).items()))
    above, flag = None, 0
    for level in how.levels:
        last = level.stride == 1
        known = None if last and encodes else array if last else np.full(level.extents, np.nan, array.dtype)
        pitches = np.array([how.extents[1] * how.extents[2], how.extents[2], 1]) * level.stride
        nine = np.concatenate((pitches, how.extents, level.extents)).astype(np.int64)
        about = [MAGIC, how.kind, *level.counts[1:], level.first, how.tiles, how.shift]
        seven = np.array(about, np.uint32)
        pointers = [
            ctypes.c_void_p(one.ctypes.data if one is not None else None) for one in (array, nine, above, known)
        ]
        flag |= library.launch(
            level.tiles,
            seed,
            *pointers,
            ctypes.c_void_p(payload.ctypes.data),
            ctypes.c_uint64(payload.nbytes),
            ctypes.c_void_p(seven.ctypes.data),
            ctypes.c_uint64(how.start),
            ctypes.c_double(level.fine),
            ctypes.c_void_p(exponents.ctypes.data if exponents is not None else None),
            ctypes.c_bool(encodes),
        )
        above = known
    return flag


def decoded_by_kernel(payload, shape, dtype, weighted=False, seed=0):
    room = np.full(int(np.prod(shape)) + 64, 7, dtype)
    out = room[32:-32].reshape(shape)
    flag = emulated(payload.copy(), out, weighted, seed)
    assert (room[:32] == 7).all() and (room[-32:] == 7).all()
    return out, bool(flag)


def encoded_by_kernel(codec, array, here, seed=0):
    """Encode by the kernels, which are given the header that the CPU wrote."""
    how = codec._tiling(array.shape, array.dtype)
    room = np.full(codec.max_bytes(array.shape, array.dtype) + 64, 0xAB, np.uint8)
    room[: how.start] = here.payload[: how.start]
    room[HEADER.size : HEADER.size + 4 * how.tiles] = 0xAB
    room[:8] = np.array([how.start], np.uint64).view(np.uint8)
    exponents = codec.weight.exponents(array.shape, 1, how) if codec.weight else None
    emulated(room[:-64], array, codec.weight is not None, seed, exponents, encodes=True)
    assert (room[-64:] == 0xAB).all()
    return Encoded(codec, array.shape, array.dtype, room, lambda: int(room[:8].view(np.uint64)[0]))


@pytest.mark.slow
@on_cpu
@pytest.mark.parametrize(
    ("kind", "bound", "weighted"), [("wave", 1e-3, False), ("special", 1e-2, False), ("special", 1e-6, True)]
)
def test_kernels_agree_with_the_cpu(kind, bound, weighted):
    shape = (16, 17, 33)
    array = values(kind, shape, "float32")
    codec = Dense(bound, weight=np.geomspace(1e-9, 4, array.size).reshape(shape) if weighted else None)
    here = codec.encode(array)
    there = encoded_by_kernel(codec, array, here, seed=7)
    assert there.to_bytes() == here.to_bytes()
    out, flag = decoded_by_kernel(there.payload[: there.nbytes], shape, "float32", weighted, seed=9)
    assert not flag
    assert_alike(out, codec.decode(here))


@on_cpu
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(9001,), (67, 70), (16, 32, 32), (21, 37, 53)])
@pytest.mark.parametrize("kind", ["wave", "special", "sparse", "noise"])
def test_kernels_agree_with_the_cpu_in_every_type(shape, dtype, kind):
    array = values(kind, shape, dtype)
    for name in ("dense:1e-3", "dense:abs=1e-9"):
        codec = get(name)
        here = codec.encode(array)
        there = encoded_by_kernel(codec, array, here)
        assert there.to_bytes() == here.to_bytes()
        assert_alike(decoded_by_kernel(there.payload[: there.nbytes], shape, dtype)[0], codec.decode(here))


@on_cpu
@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["wave", "special"]), st.sampled_from([64, 100, 400, None]))
def test_the_decoder_notices_what_the_cpu_notices(seed, kind, among):
    shape = (12, 20, 68)
    codec = get("dense:1e-4")
    encoded = codec.encode(values(kind, shape, "float32"))
    payload = encoded.payload[: encoded.nbytes].copy()
    rng = np.random.default_rng(seed)
    at = rng.integers(0, among or payload.size, rng.integers(1, 9))
    payload[at] = rng.integers(0, 256, at.size)
    out, flag = decoded_by_kernel(payload, shape, "float32")
    expected = np.empty(shape, "float32")
    try:
        codec.decode_host(payload, expected)
    except EncodingError:
        assert flag
    else:
        assert not flag
        assert_alike(out, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "dtype", "rank"),
    [
        ("sm_90", "float32", 3),
        *(
            pytest.param("sm_90", dtype, rank, marks=pytest.mark.slow)
            for dtype in ("float32", "float64")
            for rank in (1, 2)
        ),
        pytest.param("sm_90", "float64", 3, marks=pytest.mark.slow),
        pytest.param("sm_80", "float64", 3, marks=pytest.mark.slow),
    ],
)
def test_all_kernels_compile_without_a_gpu(arch, dtype, rank):
    check_compiles(Dense.source, arch, defines(np.dtype(dtype), rank))


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_encodings_that_a_gpu_made_decode_on_the_cpu(dtype):
    check_fixtures(f"dense_*_{dtype}")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["wave", "special", "noise", "sparse"])
def test_cpu_and_gpu_agree(cupy, stream, shape, dtype, kind):
    array = np.asarray(values(kind, shape, dtype if dtype != "complex64" else "float32")).astype(dtype)
    weight = np.geomspace(1e-9, 4, array.size).reshape(shape) if array.size else None
    codecs = get("dense:1e-3"), get("dense:1e-6"), get("dense:abs=1e-13"), Dense(1e-3, weight=weight)
    check_gpu_agrees(codecs, array, cupy, stream)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(9001,), (67, 45), (33, 37, 53)])
def test_damaged_bytes_raise_the_flag_and_do_no_harm(cupy, stream, shape):
    check_damage_on_gpu(get("dense:1e-4"), shape, cupy, stream)
