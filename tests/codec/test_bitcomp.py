"""`bitcomp` keeps its bound for every value, says which bound holds, and never decodes damage."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from forebay.codec import Encoded, get
from forebay.codec.nvcomp import library as nvcomp
from forebay.codec.nvcomp.bitcomp import bound_of
from forebay.cuda.available import gpu_count
from forebay.errors import CodecError, EncodingError

needs_nvcomp = pytest.mark.skipif(not nvcomp.available(), reason="nvCOMP is not installed")
needs_gpu = pytest.mark.skipif(gpu_count() == 0 or not nvcomp.available(), reason="no GPU, or no nvCOMP")

FIELD = np.sin(np.linspace(0, 40, 24 * 25 * 26, dtype=np.float32)).reshape(24, 25, 26)
LARGEST = {np.float32: float(np.finfo(np.float32).max), np.float64: float(np.finfo(np.float64).max)}


def error(original, decoded):
    """Give the largest error, infinite where something not finite has changed."""
    finite = np.isfinite(original)
    if not np.array_equal(original[~finite], decoded[~finite], equal_nan=True):
        return math.inf
    wide = original[finite].astype(np.longdouble), decoded[finite].astype(np.longdouble)
    return np.abs(wide[0] - wide[1]).max(initial=0)


def test_names_are_canonical_and_find_the_codec_again():
    assert get("bitcomp:1e-8").name == get("bitcomp:abs=1e-8").name == "bitcomp:abs=1e-08,algo=sparse"
    for name in ("bitcomp:rel=0.0001,algo=default", "bitcomp:sigma=0.01,algo=sparse"):
        assert get(name).name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "1e-3,rel=1",
        "1e-3,abs=1",
        "abs=1,rel=1",
        "abs=0",
        "abs=-1",
        "abs=nan",
        "abs=inf",
        "abs=x",
        "1,algo=best",
        "to=1",
    ],
)
def test_nonsense_is_refused(name):
    with pytest.raises(CodecError):
        get(f"bitcomp:{name}")


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    def missing():
        raise CodecError(nvcomp.NO_NVCOMP)

    monkeypatch.setattr(nvcomp, "library", missing)
    monkeypatch.setattr(nvcomp, "_plans", nvcomp._Plans())
    with pytest.raises(CodecError, match=r"nvCOMP .*extra cuda12 or cuda13"):
        get("bitcomp:1e-3").encode(FIELD)


@needs_nvcomp
def test_the_room_is_what_the_library_asks_for():
    for nbytes in (*range(1, 40_000, 777), 8192, 8193, 2**20, 10**9, 2**33):
        assert nvcomp.library().bitcompMaxBuflen(nbytes) == nvcomp.most_bytes(nbytes)


@needs_nvcomp
@pytest.mark.parametrize("algo", ["sparse", "default"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
@settings(max_examples=150)
def test_every_value_of_every_array_is_within_the_bound(algo, dtype, data):
    width = 8 * np.dtype(dtype).itemsize
    values = data.draw(arrays(dtype, st.integers(0, 60), elements=st.floats(width=width)))
    bound = data.draw(st.floats(1e-37 if width == 32 else 1e-300, LARGEST[dtype]))
    codec = get(f"bitcomp:{bound!r},algo={algo}")
    encoded = codec.encode(values)
    assert encoded.nbytes <= codec.max_bytes(values.shape, values.dtype)
    assert bound_of(encoded) <= bound
    assert error(values, codec.decode(encoded)) <= bound_of(encoded)


@needs_nvcomp
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", [-37, -30, -10, -3, 0, 3, 10, 30, 38])
def test_magnitudes_from_tiny_to_huge_in_one_array_are_within_the_bound(dtype, exponent):
    words = np.uint32 if dtype == np.float32 else np.uint64
    bits = np.random.default_rng(exponent + 99).integers(0, np.iinfo(words).max, 20_000, dtype=words, endpoint=True)
    values = bits.view(dtype)
    values[:3] = LARGEST[dtype], -LARGEST[dtype], -0.0
    codec = get(f"bitcomp:1e{exponent}")
    encoded = codec.encode(values)
    assert error(values, codec.decode(encoded)) <= bound_of(encoded) <= 10.0**exponent


@needs_nvcomp
def test_the_bound_that_holds_is_a_power_of_two_and_more_than_half_of_the_one_asked_for():
    for bound in (1e-3, 2.0**-10, math.nextafter(2.0**-10, 0), 0.75):
        encoded = get(f"bitcomp:{bound!r}").encode(FIELD)
        assert bound / 2 < bound_of(encoded) <= bound
        assert math.frexp(bound_of(encoded))[0] == 0.5
    assert bound_of(get(f"bitcomp:{2.0**-10!r}").encode(FIELD)) == 2.0**-10


@needs_nvcomp
def test_relative_bounds_are_taken_over_the_finite_values():
    values = FIELD * 50 + np.float32(1000)
    values[0, 0, :3] = np.nan, np.inf, -np.inf
    finite = values[np.isfinite(values)].astype(np.float64)
    for name, scale in (("rel=1e-3", np.ptp(finite)), ("sigma=1e-3", finite.std())):
        codec = get(f"bitcomp:{name}")
        encoded = codec.encode(values)
        assert 0.5e-3 * scale < bound_of(encoded) <= 1e-3 * scale
        assert error(values, codec.decode(encoded)) <= bound_of(encoded)


@needs_nvcomp
@pytest.mark.parametrize("value", [0.0, 3.25, -1e30, math.nan, math.inf])
def test_arrays_of_one_value_come_back_exactly(value):
    values = np.full((5, 6, 7), value, np.float32)
    for name in ("bitcomp:rel=1e-3", "bitcomp:sigma=1e-3"):
        np.testing.assert_array_equal(get(name).decode(get(name).encode(values)), values)


@needs_nvcomp
def test_bounds_that_the_type_cannot_keep_are_refused():
    with pytest.raises(CodecError, match="lossless"):
        get("bitcomp:1e-40").encode(FIELD)
    with pytest.raises(CodecError, match="lossless"):
        get("bitcomp:rel=1e-4").encode(FIELD * np.float32(1e-36))
    with pytest.raises(CodecError, match="abs="):
        get("bitcomp:sigma=1e-4").encode(np.array([1e300, -1e300, 1e200]))
    with pytest.raises(CodecError, match="int32"):
        get("bitcomp:1").encode(np.arange(3, dtype=np.int32))


@needs_nvcomp
def test_smooth_fields_shrink():
    assert get("bitcomp:rel=1e-3").encode(FIELD).ratio > 3
    assert get("bitcomp:rel=1e-3").encode(np.zeros((64, 64, 64), np.float32)).ratio > 100


@needs_nvcomp
def test_zeros_have_the_shortest_of_all_encodings():
    """The GPU decoder keeps one in reserve, to put it into the room of a damaged encoding."""
    rng = np.random.default_rng(0)
    for algo in ("sparse", "default"):
        codec = get(f"bitcomp:1e-3,algo={algo}")
        for count in (1, 100, 5000, 70_000):
            shortest = codec.encode(np.zeros(count, np.float32)).nbytes
            for values in (np.ones(count), np.full(count, 1e-3), rng.standard_normal(count), np.arange(count)):
                assert codec.encode(values.astype(np.float32)).nbytes >= shortest


@needs_nvcomp
def test_an_encoding_written_down_is_read_again():
    codec = get("bitcomp:1e-3")
    encoded = codec.encode(FIELD)
    again = Encoded.from_bytes(encoded.to_bytes())
    np.testing.assert_array_equal(again.codec.decode(again), codec.decode(encoded))
    room = np.empty(codec.max_bytes(FIELD.shape, FIELD.dtype) + 1, np.uint8)[1:]
    np.testing.assert_array_equal(codec.decode(codec.encode(FIELD, out=room)), codec.decode(encoded))


@needs_nvcomp
@given(place=st.integers(0, 10**6), value=st.integers(1, 255))
def test_damage_is_refused(place, value):
    codec = get("bitcomp:1e-3")
    encoded = codec.encode(FIELD)
    payload = encoded.payload[: encoded.nbytes].copy()
    payload[place % payload.nbytes] ^= value
    with pytest.raises(EncodingError):
        codec.decode_host(payload, np.empty_like(FIELD))
    with pytest.raises(EncodingError):
        codec.decode_host(encoded.payload[: encoded.nbytes - 1 - place % encoded.nbytes], np.empty_like(FIELD))


@needs_nvcomp
def test_encodings_of_another_type_or_codec_are_refused():
    encoded = get("bitcomp:1e-3").encode(FIELD)
    with pytest.raises(EncodingError, match="another size or type"):
        get("bitcomp:1e-3").decode_host(encoded.payload[: encoded.nbytes], np.empty(FIELD.size // 2, np.float64))
    pytest.importorskip("blosc2")
    other = get("lossless").encode(FIELD)
    with pytest.raises(EncodingError, match="blosc2"):
        get("bitcomp:1e-3").decode_host(other.payload[: other.nbytes], np.empty_like(FIELD))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", ["1e-3", "rel=1e-3", "sigma=1e-2", "1e-3,algo=default"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_gpu_and_the_cpu_agree(name, dtype):
    cupy = pytest.importorskip("cupy")
    codec = get(f"bitcomp:{name}")
    values = FIELD.astype(dtype)
    values[0, 0, :4] = np.nan, np.inf, -np.inf, 1e37
    if name[0] in "rs":
        values[0, 0, 3] = 0.5
    for array in (values, np.zeros(values.shape, dtype), values[0, 1, 1:2].copy(), np.zeros(0, dtype)):
        encoded, here = codec.encode(cupy.asarray(array)), codec.encode(array)
        assert bound_of(encoded) == bound_of(here)
        out = cupy.full(array.shape, 7, array.dtype)
        decoded = codec.decode(encoded, out=out).get()
        assert error(array, decoded) <= bound_of(encoded)
        np.testing.assert_array_equal(decoded, codec.decode(here))
        on_host = Encoded.from_bytes(encoded.to_bytes())
        np.testing.assert_array_equal(codec.decode(on_host), decoded)


@pytest.mark.gpu
@needs_gpu
def test_damage_raises_the_flag_on_a_gpu_and_is_never_decoded():
    cupy = pytest.importorskip("cupy")
    from forebay.codec import device
    from forebay.cuda.arrays import view

    codec = get("bitcomp:1e-3")
    encoded = codec.encode(cupy.asarray(FIELD))
    sound = np.frombuffer(device.download(encoded.payload, encoded.nbytes).tobytes(), np.uint8)
    stream = device.callers_stream()
    out = cupy.empty(FIELD.shape, FIELD.dtype)
    rng = np.random.default_rng(0)
    for _ in range(50):
        damaged = sound.copy()
        places = rng.integers(0, damaged.nbytes, rng.integers(1, 200))
        damaged[places] ^= rng.integers(1, 256, places.size).astype(np.uint8)
        there = cupy.asarray(damaged)  # a view does not keep the memory alive
        codec.decode_device(view(there), view(out), stream)
        with pytest.raises(EncodingError):
            device.check_damage(stream)
        assert not out.any()  # the stream of zeros that was put in its place
    there = cupy.asarray(sound)
    codec.decode_device(view(there), view(out), stream)
    device.check_damage(stream)
    assert error(FIELD, out.get()) <= bound_of(encoded)
