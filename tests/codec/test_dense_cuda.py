"""`dense` on the GPU: the same values and canonical bytes as on the CPU, and no harm from damaged bytes.

Without a GPU, the kernels are compiled as plain C++ and run thread by thread.
"""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codec.bounds import assert_alike, check_compiles, check_damage_on_gpu, check_gpu_agrees, values
from tests.codec.fibers import built, on_cpu, whole

from forebay.codec import Encoded, get
from forebay.codec.bounded.codec import defines
from forebay.codec.bounded.format import HEADER
from forebay.codec.dense import Dense
from forebay.codec.dense.format import MAGIC, tiling_of
from forebay.errors import EncodingError

ENTRY = r"""
static const u8 *given; static u8 *made; static u64 given_bytes; static real *array; static u32 flag_, numbers[6];
static i64 extents[3]; static const signed char *weights;
static void decoding()
{
    decode(given, given_bytes, array, numbers[0], numbers[1], extents[0], extents[1], extents[2], numbers[2],
        numbers[3], numbers[4], numbers[5], &flag_);
}
static void encoding()
{
    encode(array, made, extents[0], extents[1], extents[2], numbers[2], numbers[3], numbers[4], numbers[5], weights);
}
extern "C" u32 launch(u32 blocks, u32 seed, u8 *payload, u64 nbytes, real *out, const u32 *six, const i64 *three,
                      const signed char *exponents, bool encodes)
{
    given = made = payload, given_bytes = nbytes, array = out, flag_ = 0, weights = exponents;
    memcpy(numbers, six, sizeof(numbers)), memcpy(extents, three, sizeof(extents));
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
    """Run a kernel; give the flag."""
    how = replace(tiling_of(array.shape, array.dtype), weighted=weighted)
    _, t1, t0 = how.counts
    numbers = np.array([MAGIC, how.kind, t1, t0, how.tiles, how.shift], np.uint32)
    extents = np.array(how.extents, np.int64)
    library = built(whole(Dense.source), ENTRY, tuple(defines(array.dtype, how.rank).items()))
    return library.launch(
        how.tiles,
        seed,
        ctypes.c_void_p(payload.ctypes.data),
        ctypes.c_uint64(payload.nbytes),
        ctypes.c_void_p(array.ctypes.data),
        ctypes.c_void_p(numbers.ctypes.data),
        ctypes.c_void_p(extents.ctypes.data),
        ctypes.c_void_p(exponents.ctypes.data if exponents is not None else None),
        ctypes.c_bool(encodes),
    )


def decoded_by_kernel(payload, shape, dtype, weighted=False, seed=0):
    room = np.full(int(np.prod(shape)) + 64, 7, dtype)
    out = room[32:-32].reshape(shape)
    flag = emulated(payload.copy(), out, weighted, seed)
    assert (room[:32] == 7).all() and (room[-32:] == 7).all()
    return out, bool(flag)


def encoded_by_kernel(codec, array, here, seed=0):
    """Encode by the kernel, which is given the header that the CPU wrote."""
    how = codec._tiling(array.shape, array.dtype)
    room = np.full(codec.max_bytes(array.shape, array.dtype) + 64, 0xAB, np.uint8)
    room[: HEADER.size] = here.payload[: HEADER.size]
    room[:8] = np.array([how.start], np.uint64).view(np.uint8)
    room[HEADER.size + 4 * how.tiles : how.start] = 0
    exponents = codec.weight.exponents(array.shape, 1, how) if codec.weight else None
    emulated(room[:-64], array, codec.weight is not None, seed, exponents, encodes=True)
    assert (room[-64:] == 0xAB).all()
    return Encoded(codec, array.shape, array.dtype, room, lambda: int(room[:8].view(np.uint64)[0]))


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
