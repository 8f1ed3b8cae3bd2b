"""`bounded` on the GPU: the same sizes, values and canonical bytes as on the CPU, and no harm from damaged bytes.

Without a GPU, the decoders are compiled as plain C++ and run thread by thread.
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
from tests.codec.fibers import on_cpu
from tests.codec.multiplied import emulated, multiply, summed

from forebay.codec import Encoded, get
from forebay.codec.bounded import Bounded
from forebay.codec.bounded.codec import NUMBERS, SOURCE, WARPS, decoder, defines
from forebay.codec.bounded.format import MAGIC, tiling_of
from forebay.codec.bounded.multiplying import pitches
from forebay.codec.codec import Correlation
from forebay.cuda.arrays import View
from forebay.errors import CodecError, EncodingError

NAMES = ["bounded:1e-3", "bounded:1e-6", "bounded:abs=0.01", "bounded:abs=1e-13"]
SHAPES = [
    (),
    (0, 3),
    (1,),
    (77,),
    (6144,),
    (5001,),
    (67, 45),
    (128, 96),
    (24, 32, 48),
    (21, 37, 53),
    (9, 33, 68),
    (12, 20, 150),
    (2, 3, 19, 17, 33),
]


ENTRY = r"""
static const u8 *given; static u64 given_bytes; static real *array; static u32 flag_, numbers[6], kernel;
static i64 extents[3];
static void body()
{
    auto *run = kernel == 0 ? decode :
#if RANK == 3
        kernel == 1 ? decode_straight : decode_shifted;
#else
        decode;
#endif
    run(given, given_bytes, array, numbers[0], numbers[1], extents[0], extents[1], extents[2], numbers[2], numbers[3],
        numbers[4], numbers[5], &flag_);
}
extern "C" u32 launch(u32 which, u32 blocks, u32 threads, u32 seed, const u8 *payload, u64 nbytes, real *out,
                      const u32 *four, const i64 *three)
{
    kernel = which, given = payload, given_bytes = nbytes, array = out, flag_ = 0;
    memcpy(numbers, four, sizeof(numbers)), memcpy(extents, three, sizeof(extents));
    run_blocks(blocks, threads, seed, body);
    return flag_;
}
"""
KERNELS = ("decode", "decode_straight", "decode_shifted")
ENCODER = r"""
static const real *array; static u8 *room; static double *parts, asked; static u32 numbers[6], step_, count;
static i64 five[5]; static u64 begins; static const signed char *weights;
static void body()
{
    const i64 n2 = five[0], n1 = five[1], n0 = five[2];
    if (step_ == 0)
        range_of_window(array, n2, n1, n0, five[3], five[4], parts);
    else if (step_ == 1)
        begin((Header *)room, parts, count, asked, 0, 0, numbers[0], numbers[1], n2, n1, n0, numbers[4], begins);
    else
        encode(array, room, n2, n1, n0, numbers[2], numbers[3], numbers[4], numbers[5], weights, five[3], five[4]);
}
extern "C" void launch(u32 blocks, u32 threads, u32 seed, const real *values, u8 *out, double *where, u32 ranges,
                       double bound, const u32 *six, const i64 *window, u64 start, const signed char *exponents)
{
    array = values, room = out, parts = where, count = ranges, asked = bound, begins = start, weights = exponents;
    memcpy(numbers, six, sizeof(numbers)), memcpy(five, window, sizeof(five));
    for (step_ = ranges ? 0 : 1; step_ < 3; ++step_) {
        gridDim.x = step_ == 0 ? ranges : step_ == 1 ? 1 : blocks;
        run_blocks(gridDim.x, step_ == 0 ? 256 : step_ == 1 ? 32 : threads, seed, body);
    }
}
"""


def decoded_by(name, payload, shape, dtype, shift=0, seed=0, weighted=False):
    """Decode by a kernel, to a place some values after a multiple of 64 bytes; give that, and the flag."""
    how = replace(tiling_of(shape, np.dtype(dtype)), weighted=weighted)
    size = int(np.prod(shape))
    room = np.full(size + 64, 7, dtype)
    begin = -room.ctypes.data % 64 // room.itemsize + shift
    out = room[begin : begin + size]
    where = out.ctypes.data
    chosen, blocks, threads = decoder(where if name is None else {KERNELS[0]: 0, KERNELS[1]: 16}.get(name, 4), how)
    if name == KERNELS[0]:
        chosen, blocks = name, -(-how.tiles // WARPS[how.rank])
    assert name in (None, chosen)
    _, t1, t0 = how.counts
    numbers = np.array([MAGIC, how.kind, t1, t0, how.tiles, how.shift], np.uint32)
    extents = np.array(how.extents, np.int64)
    flag = emulated(SOURCE, np.dtype(dtype).name, how.rank, ENTRY)(
        KERNELS.index(chosen),
        blocks,
        threads,
        seed,
        ctypes.c_void_p(payload.ctypes.data),
        ctypes.c_uint64(payload.nbytes),
        ctypes.c_void_p(where),
        ctypes.c_void_p(numbers.ctypes.data),
        ctypes.c_void_p(extents.ctypes.data),
    )
    assert (room[:begin] == 7).all() and (room[begin + size :] == 7).all()
    return out.reshape(shape), bool(flag)


@on_cpu
@pytest.mark.parametrize("kind", ["wave", "special", "noise", "sparse"])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("shape", "shifts"),
    [
        *((shape, range(1)) for shape in [(5001,), (67, 45)]),
        *(pytest.param(shape, range(1, 8), marks=pytest.mark.slow) for shape in [(5001,), (67, 45)]),
        *((shape, range(8)) for shape in [(8, 16, 64), (16, 16, 128), (21, 37, 53), (9, 33, 150)]),
    ],
)
def test_decoders_agree_with_the_cpu(shape, shifts, dtype, kind):
    codec = get("bounded:1e-3")
    encoded = codec.encode(values(kind, shape, dtype))
    payload, expected = encoded.payload[: encoded.nbytes], codec.decode(encoded)
    for shift in shifts:  # only volumes have decoders of their own for lines that begin anywhere
        out, flag = decoded_by(None, payload, shape, dtype, shift, seed=shift)
        assert not flag
        assert_alike(out, expected)
    out, flag = decoded_by("decode", payload, shape, dtype, 1)
    assert not flag
    assert_alike(out, expected)


def encoded_by_kernels(codec, window, ranges=3, seed=0):
    """Encode a window of a larger array where it lies; give the encoding."""
    shape, dtype = window.shape, window.dtype
    how = codec._tiling(shape, dtype)
    view = View(window.ctypes.data, shape, dtype, window.nbytes, contiguous=False, strides=window.strides)
    assert view.is_window and codec.reads_windows(shape, dtype)
    most = codec.max_bytes(shape, dtype)
    room, parts = np.full(most + 64, 0xAB, np.uint8), np.full(2 * ranges, np.nan)
    numbers = np.array([MAGIC, how.kind, *how.counts[1:], how.tiles, how.shift], np.uint32)
    five = np.array([*how.extents, *pitches(view, how)], np.int64)
    exponents = codec.weight.exponents(shape, 1, how) if codec.weight else None
    emulated(SOURCE, dtype.name, how.rank, ENCODER)(
        *(-(-how.tiles // WARPS[how.rank]), 32 * WARPS[how.rank], seed),
        *map(ctypes.c_void_p, (view.pointer, room.ctypes.data, parts.ctypes.data)),
        ranges if codec.relative else 0,
        ctypes.c_double(codec.bound),
        *map(ctypes.c_void_p, (numbers.ctypes.data, five.ctypes.data)),
        ctypes.c_uint64(how.start),
        ctypes.c_void_p(exponents.ctypes.data if exponents is not None else None),
    )
    assert (room[most:] == 0xAB).all()
    return Encoded(codec, shape, dtype, room[:most], lambda: int(room[:8].view(np.uint64)[0]))


def window_of(kind, shape, dtype, before, after):
    """Return values in a larger array whose others are far away, or no numbers."""
    around = np.full([sum(extents) for extents in zip(before, shape, after, strict=True)], 1e6, dtype)
    around[::2] = np.nan
    window = around[tuple(slice(first, first + extent) for first, extent in zip(before, shape, strict=True))]
    window[...] = values(kind, shape, dtype)
    return window


@on_cpu
@pytest.mark.parametrize("kind", ["wave", "special", "noise", "sparse"])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("shape", "before", "after"),
    [
        ((67, 45), (3, 1), (2, 4)),
        ((128, 96), (4, 8), (4, 8)),
        ((21, 37, 53), (2, 3, 1), (1, 2, 6)),
        ((16, 32, 48), (4, 4, 8), (4, 4, 8)),
    ],
)
def test_windows_are_encoded_where_they_lie(shape, before, after, dtype, kind):
    window = window_of(kind, shape, dtype, before, after)
    weight = np.geomspace(1e-9, 4, window.size).reshape(shape) if kind == "special" else None
    for number, codec in enumerate((Bounded(1e-3, weight=weight), Bounded(abs=1e-2, weight=weight))):
        here = codec.encode(np.ascontiguousarray(window))
        assert encoded_by_kernels(codec, window, 3 - number, number).to_bytes() == here.to_bytes()


def test_windows_are_arrays_cut_into_tiles_as_they_are():
    codec = get("bounded:1e-3")
    reads = [shape for shape in SHAPES if codec.reads_windows(shape, np.dtype("float32"))]
    assert reads == [(67, 45), (128, 96), (24, 32, 48), (21, 37, 53), (9, 33, 68), (12, 20, 150)]
    assert not codec.reads_windows((21, 37, 53), np.dtype("float16"))
    assert not codec.reads_windows((2, 37, 53), np.dtype("float32"))
    assert not get("zfp:8").reads_windows((21, 37, 53), np.dtype("float32"))


@on_cpu
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_decoders_agree_with_the_cpu_where_bounds_are_weighted(dtype):
    shape = (21, 37, 53)
    array = values("special", shape, dtype)
    codec = Bounded(1e-3, weight=np.geomspace(1e-9, 4, array.size).reshape(shape))
    encoded = codec.encode(array)
    out, flag = decoded_by(None, encoded.payload[: encoded.nbytes], shape, dtype, 1, weighted=True)
    assert not flag
    assert_alike(out, codec.decode(encoded))


@pytest.mark.slow
@on_cpu
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_decoders_agree_with_the_cpu_in_any_volume(data):
    shape = data.draw(st.tuples(st.integers(4, 17), st.integers(8, 35), st.integers(16, 150)))
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    kind = data.draw(st.sampled_from(["wave", "wave", "sparse", "special"]))
    codec = get(data.draw(st.sampled_from(["bounded:1e-2", "bounded:1e-4"])))
    encoded = codec.encode(values(kind, shape, dtype))
    payload = encoded.payload[: encoded.nbytes]
    out, flag = decoded_by(None, payload, shape, dtype, data.draw(st.integers(0, 7)), data.draw(st.integers(0, 999)))
    assert not flag
    assert_alike(out, codec.decode(encoded))


@pytest.mark.slow
@on_cpu
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_decoders_notice_what_the_cpu_notices(data):
    shape = data.draw(st.sampled_from([(12, 20, 68), (12, 20, 67), (9, 17, 132)]))
    codec = get("bounded:1e-4")
    whole = codec.encode(values(data.draw(st.sampled_from(["wave", "special"])), shape, "float32"))
    payload = whole.payload[: whole.nbytes].copy()
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    at = rng.integers(0, data.draw(st.sampled_from([64, 100, payload.size])), rng.integers(1, 9))
    payload[at] = rng.integers(0, 256, at.size)
    damaged = Encoded(codec, shape, np.dtype("float32"), payload, lambda: payload.nbytes)
    _, flag = decoded_by(None, payload, shape, "float32")
    try:
        codec.decode(damaged)
    except EncodingError:
        assert flag
    else:
        assert not flag


@on_cpu
@pytest.mark.parametrize("offset", [40, 48], ids=["bound", "step"])
@pytest.mark.parametrize("number", [np.nan, np.inf, -1.0, 1e300])
def test_decoders_notice_a_bound_or_a_step_that_cannot_be(offset, number):
    codec = get("bounded:1e-4")
    encoded = codec.encode(values("wave", (12, 20, 67), "float32"))
    payload = encoded.payload[: encoded.nbytes].copy()
    payload[offset : offset + 8] = np.array([number]).view("u1")
    out, flag = decoded_by(None, payload, (12, 20, 67), "float32")
    assert flag and not out.any()


def saying_another_size(shape, by):
    """Give an encoding of zeros, whose tiles tell nothing, with a few bytes after it; its header says another size."""
    codec = get("bounded:1e-3")
    encoded = codec.encode(np.zeros(shape, np.float32))
    payload = np.append(encoded.payload[: encoded.nbytes], np.zeros(8, np.uint8))
    payload[:8] = np.array([encoded.nbytes + by], np.uint64).view("u1")
    with pytest.raises(EncodingError):
        codec.decode_host(payload, np.empty(shape, np.float32))
    return payload


@on_cpu
@pytest.mark.parametrize("by", [-64, -4, 2, 12])
@pytest.mark.parametrize("shape", [(77,), (67, 45), (8, 16, 32), (12, 20, 67)])
def test_decoders_notice_a_size_that_cannot_be(shape, by):
    out, flag = decoded_by(None, saying_another_size(shape, by), shape, "float32")
    assert flag and not out.any()


def test_volumes_whose_lines_begin_anywhere_have_decoders_of_their_own():
    def name(pointer, shape, dtype="float32"):
        return decoder(pointer, tiling_of(shape, np.dtype(dtype)))[0]

    assert name(512, (512, 512, 512)) == name(512, (31, 67, 40)) == "decode"
    assert name(512, (310, 676, 676)) == name(528, (512, 512, 512)) == "decode_straight"
    assert name(512, (501, 503, 505)) == name(516, (512, 512, 512)) == "decode_shifted"
    assert name(512, (310, 676, 676), "float64") == "decode"
    assert name(512, (501, 503, 506), "float64") == "decode_straight"
    assert name(516, (5001,)) == name(516, (67, 45)) == "decode"
    assert decoder(512, tiling_of((310, 676, 676), np.dtype("float32")))[1:] == (39 * 43 * 11, 128)


@pytest.mark.parametrize(
    ("arch", "dtype", "rank"),
    [
        ("sm_90", "float64", 3),
        *(pytest.param("sm_90", "float64", rank, marks=pytest.mark.slow) for rank in (1, 2)),
        *(pytest.param("sm_90", "float32", rank, marks=pytest.mark.slow) for rank in (1, 2, 3)),
        pytest.param("sm_80", "float64", 3, marks=pytest.mark.slow),
    ],
)
def test_all_kernels_compile_without_a_gpu(arch, dtype, rank):
    check_compiles(SOURCE, arch, defines(np.dtype(dtype), rank))


def test_encodings_that_a_gpu_made_decode_on_the_cpu():
    check_fixtures("bounded_*")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["wave", "special", "noise", "sparse"])
def test_cpu_and_gpu_agree(cupy, stream, shape, dtype, kind):
    check_gpu_agrees([get(name) for name in NAMES], values(kind, shape, dtype), cupy, stream)


@pytest.mark.parametrize(("mantissa", "double"), [(10, 0), (7, 0), (0, 1)])
def test_conversions_compile_without_a_gpu(mantissa, double):
    check_compiles(NUMBERS, "sm_90", {"MANTISSA": mantissa, "DOUBLE": double})


@pytest.mark.gpu
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(5001,), (67, 45), (21, 37, 53)])
def test_cpu_and_gpu_agree_on_other_types_and_weights(cupy, stream, shape, dtype, weighted):
    array = values("special", shape, "float16" if dtype == "float16" else "float32").astype(dtype)
    weight = np.geomspace(1e-9, 4, array.size).reshape(shape) if weighted else None
    codecs = Bounded(1e-3, weight=weight), Bounded(abs=1e-2, weight=weight)
    check_gpu_agrees(codecs, array, cupy, stream)


VOLUMES = [(8, 16, 64), (21, 37, 52), (9, 33, 68), (12, 20, 148)]


def met(shape):
    """Return what an encoding meets: another array, in a larger one, and two sums."""
    rng = np.random.default_rng(3)
    around = rng.standard_normal((shape[0] + 2, shape[1] + 3, shape[2] + 8)).astype(np.float32)
    return around, (slice(1, -1), slice(2, -1), slice(4, -4)), rng.standard_normal((2, *shape)).astype(np.float32)


def slots_of(codec, shape):
    """Let every third tile be kept."""
    slots = np.full(codec._tiling(shape, np.dtype("float32")).tiles, -1, np.int32)
    slots[::3] = np.arange(slots[::3].size)
    return slots


def check_kept(codec, decoded, slots, kept):
    """Hold the values of tiles that were kept to those of the array, wherever those exist."""
    _, t1, t0 = codec._tiling(decoded.shape, decoded.dtype).counts
    for tile in np.flatnonzero(slots >= 0):
        z, y, x = 8 * (tile // (t1 * t0)), 16 * (tile // t0 % t1), 16 * (tile % t0)
        part = decoded[z : z + 8, y : y + 16, x : x + 16]
        there = kept[slots[tile]].reshape(8, 8, 2, 16).transpose(0, 2, 1, 3).reshape(8, 16, 16)
        assert_alike(np.ascontiguousarray(there[tuple(map(slice, part.shape))]), np.ascontiguousarray(part))


@pytest.mark.slow
@on_cpu
@pytest.mark.parametrize("kind", ["wave", "special", "noise", "sparse"])
@pytest.mark.parametrize("shape", VOLUMES)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_encodings_are_multiplied_without_being_decoded_to_memory(shape, kind):
    codec = get("bounded:1e-3")
    encoded = codec.encode(values(kind, shape, "float32"))
    around, window, sums = met(shape)
    other, slots = around[window], slots_of(codec, shape)
    room = np.zeros(2 * sums.nbytes + 64, np.uint8)  # which vectors ask for
    own = room[-room.ctypes.data % 16 :][: sums.nbytes].view(np.float32).reshape(sums.shape)
    own[...] = sums
    base = np.zeros(around.nbytes + 16, np.uint8)
    there = base[-base.ctypes.data % 16 :][: around.nbytes].view(np.float32).reshape(around.shape)
    there[...] = around
    y = View(there[window].ctypes.data, shape, other.dtype, other.nbytes, False, there[window].strides)
    kept = np.full((slots.max() + 1, 64, 32), np.nan, np.float32)
    both = [View.at(one.ctypes.data, shape, "float32") for one in own]
    assert codec.multiplies(shape, np.dtype("float32"))
    assert multiply(encoded, Correlation(y, *both, 0.3, slots.ctypes.data, kept.ctypes.data), seed=5) == 0
    decoded = codec.decode(encoded)
    for one, expected in zip(own, summed(decoded, other, *sums, 0.3), strict=True):
        np.testing.assert_array_equal(one, expected)
    check_kept(codec, decoded, slots, kept)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["bounded:1e-4", "bounded:abs=1e-2", "dense:1e-4"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(67, 45), (21, 37, 53), (40, 64, 96)])
@pytest.mark.parametrize("kind", ["wave", "special", "noise", "sparse"])
def test_windows_are_encoded_on_a_gpu_where_they_lie(cupy, stream, shape, dtype, kind, name):
    codec, edges = get(name), range(3, 3 + len(shape))
    window = window_of(kind, shape, dtype, edges, edges)
    there = cupy.empty(window.base.shape, dtype)
    there.set(window.base)
    cupy.cuda.get_current_stream().synchronize()
    place = tuple(slice(first, first + extent) for first, extent in zip(edges, shape, strict=True))
    assert codec.encode(there[place], stream=stream).to_bytes() == codec.encode(window.copy()).to_bytes()
    with pytest.raises(CodecError, match="gaps"):
        codec.encode(there[..., ::2], stream=stream)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["wave", "special", "noise", "sparse"])
@pytest.mark.parametrize("shape", VOLUMES)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_encodings_are_multiplied_on_a_gpu(cupy, stream, shape, kind):
    from forebay.codec.device import check_damage
    from forebay.cuda.arrays import view

    codec = get("bounded:1e-3")
    here = codec.encode(values(kind, shape, "float32"))
    around, window, sums = met(shape)
    slots = slots_of(codec, shape)
    kept = cupy.zeros((int(slots.max()) + 1, 64, 32), "float32")
    there = [cupy.asarray(one) for one in (around, sums[0], sums[1], slots, here.payload[: here.nbytes])]
    cupy.cuda.get_current_stream().synchronize()
    places = [view(one) for one in (there[0][window], *there[1:3])]
    codec.multiply_device(view(there[4]), Correlation(*places, 0.3, there[3].data.ptr, kept.data.ptr), stream)
    check_damage(stream)
    decoded = codec.decode(here)
    for one, expected in zip(there[1:3], summed(decoded, around[window], *sums, 0.3), strict=True):
        np.testing.assert_array_equal(one.get(), expected)
    check_kept(codec, decoded, slots, kept.get())
    odd = view(there[0][(*window[:2], slice(3, -5))])
    with pytest.raises(CodecError, match="16 bytes"):
        codec.multiply_device(view(there[4]), Correlation(odd, *places[1:], 0.3, 0, 0), stream)


@pytest.mark.gpu
def test_the_gpu_decodes_what_the_cpu_encoded(cupy, stream):
    from forebay.cuda.arrays import View

    array = values("special", (40, 50, 60), "float32")
    codec = get("bounded:1e-4")
    here = codec.encode(array)
    payload = cupy.asarray(here.payload[: here.nbytes])
    cupy.cuda.get_current_stream().synchronize()
    view = View.at(payload.data.ptr, (here.nbytes,), np.uint8)
    there = Encoded(codec, array.shape, array.dtype, view, lambda: here.nbytes, payload)
    decoded = codec.decode(there, stream=stream)
    stream.sync()
    assert_alike(decoded.get(), codec.decode(here))


@pytest.mark.gpu
def test_encoding_again_gives_the_same(cupy, stream):
    array = cupy.asarray(values("special", (100, 90, 80), "float32"))
    cupy.cuda.get_current_stream().synchronize()
    codec = get("bounded:1e-4")
    assert len({codec.encode(array, stream=stream).to_bytes() for _ in range(5)}) == 1


@pytest.mark.gpu
def test_nothing_is_written_beside_the_room_or_the_array(cupy, stream):
    from forebay.cuda.arrays import View, view

    codec = get("bounded:1e-30")
    for shape in [(1,), (33,), (21, 37, 53), (67, 45)]:
        array = cupy.asarray(values("noise", shape, "float32"))
        most = codec.max_bytes(shape, np.dtype("float32"))
        room, out = cupy.full(most + 512, 0xAB, "uint8"), cupy.full(array.size + 128, 5, "float32")
        cupy.cuda.get_current_stream().synchronize()
        codec.encode_device(view(array), View.at(room.data.ptr, (most,), np.uint8), stream)
        whole = View.at(room.data.ptr, (most,), np.uint8)
        codec.decode_device(whole, View.at(out.data.ptr + 256, shape, "float32"), stream)
        stream.sync()
        assert (room[most:] == 0xAB).all()
        assert (out[:64] == 5).all() and (out[64 + array.size :] == 5).all()


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(5001,), (67, 45), (33, 37, 53)])
def test_damaged_bytes_raise_the_flag_and_do_no_harm(cupy, stream, shape):
    check_damage_on_gpu(get("bounded:1e-4"), shape, cupy, stream)


@pytest.mark.gpu
def test_a_damaged_tile_is_left_zero(cupy, stream):
    from forebay.codec.device import check_damage
    from forebay.cuda.arrays import View

    array = values("wave", (24, 32, 48), "float32")
    codec = get("bounded:1e-3")
    whole = codec.encode(array)
    payload = whole.payload[: whole.nbytes].copy()
    payload[64:68] = 0xFF  # the place of the first tile: far outside
    on_device, out = cupy.asarray(payload), cupy.full(array.shape, np.nan, "float32")
    cupy.cuda.get_current_stream().synchronize()
    there = Encoded(
        codec, array.shape, array.dtype, View.at(on_device.data.ptr, (payload.nbytes,), "u1"), lambda: payload.nbytes
    )
    codec.decode(there, out, stream=stream)
    with pytest.raises(EncodingError, match="damaged"):
        check_damage(stream)
    decoded = out.get()
    assert not decoded[:8, :16, :16].any()
    decoded[:8, :16, :16] = codec.decode(whole)[:8, :16, :16]
    assert_alike(decoded, codec.decode(whole))


@pytest.mark.gpu
@pytest.mark.parametrize("by", [-64, -4, 2, 12])
@pytest.mark.parametrize("shape", [(77,), (67, 45), (8, 16, 32), (12, 20, 67)])
def test_a_size_that_cannot_be_raises_the_flag(cupy, stream, shape, by):
    from forebay.codec.device import check_damage
    from forebay.cuda.arrays import view

    on_device, out = cupy.asarray(saying_another_size(shape, by)), cupy.full(shape, 7, "float32")
    cupy.cuda.get_current_stream().synchronize()
    get("bounded:1e-3").decode_device(view(on_device), view(out), stream)
    with pytest.raises(EncodingError, match="damaged"):
        check_damage(stream)
    assert not out.any()


@pytest.mark.gpu
def test_a_room_that_is_not_aligned_is_refused(cupy, stream):
    room = cupy.empty(100_000, "uint8")[1:]
    with pytest.raises(CodecError, match="multiple of 8"):
        get("bounded:1e-3").encode(cupy.ones((10, 10, 40), "float32"), room, stream)
