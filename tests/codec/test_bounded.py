"""`bounded` on the CPU: the bound holds for every value of every input, and the encoding is what the format says."""

import subprocess
import sys
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.codec.bounds import check_damage_on_cpu, roundtrip, wave

from forebay.codec import Encoded, get
from forebay.codec.bounded import Bounded, host
from forebay.codec.bounded.format import HEADER, Tiling, quanta, tiling_of
from forebay.codec.compiled import read_only
from forebay.errors import CodecError, EncodingError

SHAPES = [(), (0,), (0, 4), (1,), (5,), (2048,), (5000,), (3, 3), (70, 45), (40, 50, 3), (9, 17, 33), (16, 32, 48)]
SHAPES += [(2, 3, 9, 17, 33), (1, 40, 1, 50)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["bounded:1e-3", "bounded:1e-6", "bounded:abs=0.01", "bounded:abs=1e-13"])
def test_every_shape_comes_back_within_the_bound(shape, dtype, name):
    roundtrip(wave(shape, dtype), get(name))


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_any_values_come_back_within_the_bound(data):
    width = data.draw(st.sampled_from([32, 64]))
    shapes = st.sampled_from([(50,), (40, 20), (9, 16, 17)])
    elements = st.one_of(st.floats(width=width), st.sampled_from([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan]))
    array = data.draw(hnp.arrays(f"float{width}", shapes, elements=elements))
    bound = data.draw(st.floats(1e-12, 1.0))
    roundtrip(array, data.draw(st.sampled_from([Bounded(bound), Bounded(abs=bound)])))


@given(st.integers(0, 2**32), st.integers(-30, 30), st.sampled_from([1e-2, 1e-3, 1e-5, 1e-7]))
@settings(max_examples=40)
def test_waves_of_any_magnitude_shrink_and_stay_within_the_bound(seed, exponent, bound):
    rng = np.random.default_rng(seed)
    array = (wave((16, 32, 33)) + rng.normal(0, 1e-3, (16, 32, 33)).astype("float32")) * np.float32(2.0**exponent)
    encoded, _ = roundtrip(array, get(f"bounded:{bound}"))
    assert encoded.ratio > {1e-2: 6, 1e-3: 5, 1e-5: 1.8, 1e-7: 0.99}[bound]


def test_a_few_values_that_do_not_fit_cost_their_rows_only():
    array = wave((32, 64, 64))
    plain = get("bounded:abs=0.01").encode(array)
    array[::9, ::13, 5] = [[np.nan], [1e30], [np.inf], [-3e38]]
    encoded, _ = roundtrip(array, get("bounded:abs=0.01"))
    assert encoded.nbytes < plain.nbytes + 4 * 5 * 2 * 128


def test_payloads_of_nan_survive():
    array = wave((9, 17, 33))
    array.reshape(-1).view("u4")[::50] = 0x7FC01234
    roundtrip(array, get("bounded:1e-3"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", [0.0, -0.0, -7.25, 1e-40, 3e38, np.nan, np.inf])
def test_an_array_of_one_value_comes_back_exactly(value, dtype):
    array = np.full((24, 32, 40), value, dtype)
    encoded, decoded = roundtrip(array, get("bounded:1e-3"))
    assert np.array_equal(decoded, array, equal_nan=True)
    if np.isfinite(value) and (value == 0 or abs(value) > 1e-30):
        assert encoded.ratio > 50


def test_a_range_beyond_the_largest_number_is_no_overflow():
    for dtype in ("float32", "float64"):
        array = wave((16, 16, 16), dtype) * 0 + np.linspace(-1, 1, 16).astype(dtype) * np.finfo(dtype).max
        roundtrip(array, get("bounded:1e-3"))


def test_zeros_take_four_bytes_a_tile():
    encoded, decoded = roundtrip(np.zeros((64, 64, 64), "float32"), get("bounded:abs=1e-3"))
    assert encoded.nbytes == 64 + 4 * 128 and not decoded.any()


@pytest.mark.parametrize("shape", [(5000,), (67, 45), (31, 33, 35)])
def test_what_does_not_shrink_takes_hardly_more_than_the_array(shape):
    array = np.random.default_rng(1).integers(0, 2**32, shape, dtype="u4").view("f4")
    encoded, _ = roundtrip(array, get("bounded:abs=1e-30"))
    assert encoded.nbytes <= array.nbytes + 64 + 4 * tiling_of(shape, array.dtype).tiles


def test_the_same_bytes_come_from_any_number_of_threads():
    array = wave((64, 80, 96))
    array[20:30, 10:30] = 0
    payloads = {get(f"bounded:1e-4,threads={threads}").encode(array).to_bytes() for threads in (1, 2, 3, 7)}
    assert len(payloads) == 1


DIGESTS = {
    ((5001,), "float32", "bounded:1e-3"): "50417aa906292dd2",
    ((5001,), "float32", "bounded:abs=0.5"): "c7c611b14912c185",
    ((5001,), "float64", "bounded:1e-3"): "e15e822e8cdfeca9",
    ((5001,), "float64", "bounded:abs=0.5"): "66068cf786bee809",
    ((67, 45), "float32", "bounded:1e-3"): "5248c20560f61cfd",
    ((67, 45), "float32", "bounded:abs=0.5"): "8dbf2b7dbf2dafb2",
    ((67, 45), "float64", "bounded:1e-3"): "0330a59e3707e75a",
    ((67, 45), "float64", "bounded:abs=0.5"): "bae82894398fd47e",
    ((21, 37, 53), "float32", "bounded:1e-3"): "d259b2f02d6237cb",
    ((21, 37, 53), "float32", "bounded:abs=0.5"): "6ef83b1c2c668f93",
    ((21, 37, 53), "float64", "bounded:1e-3"): "84be8990ab423bac",
    ((21, 37, 53), "float64", "bounded:abs=0.5"): "a252ad6019d96060",
}


@pytest.mark.parametrize(("shape", "dtype", "name"), DIGESTS)
def test_the_format_does_not_change(shape, dtype, name):
    total = sum((k + 1) * axis * (shape[k] - axis) for k, axis in enumerate(np.indices(shape)))
    array = (total % 4099 / 64 - 9).astype(dtype)
    array[: shape[0] // 3] /= 256
    array.reshape(-1)[::1009] = np.nan
    encoded = get(name).encode(array)
    payload = encoded.payload[: encoded.nbytes].tobytes()
    assert blake2b(payload, digest_size=8).hexdigest() == DIGESTS[shape, dtype, name]


@settings(max_examples=60)
@given(st.data())
def test_tiles_that_are_left_out_early_would_have_been_empty(data):
    """Values lie at the edge of what becomes 0, one unit in the last place up or down, or far from it."""
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    shape = data.draw(st.sampled_from([(5000,), (70, 45), (17, 33, 50)]))
    bound = data.draw(st.floats(1e-30, 1e30))
    codec = Bounded(abs=bound, threads=1)
    step = np.dtype(dtype).type(quanta(np.dtype(dtype), bound, None)[1])
    near = [step / 2, np.nextafter(step / 2, step), np.nextafter(step / 2, step * 0), step / 3, step * 0, -step / 2]
    array = np.zeros(shape, dtype)
    tiles = data.draw(st.lists(st.tuples(st.integers(0, array.size - 1), st.sampled_from(near)), max_size=12))
    for at, value in tiles:
        array.reshape(-1)[at] = value
    encoded = codec.encode(array).to_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "extremes_of", lambda flat, tiling, places, threads: places.fill(host.UNKNOWN))
        assert codec.encode(array).to_bytes() == encoded


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(3,), (16,), (5001,), (33, 16), (67, 45), (8, 16, 16), (9, 17, 33), (40, 50, 60)])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_range_is_that_of_the_finite_values(shape, dtype, threads):
    rng = np.random.default_rng(7)
    tiling = tiling_of(shape, np.dtype(dtype))
    for low, high in ((-3, 5), (2, 9), (-8, -1), (0, 4), (-4, 0), (0, 0), (-1e-40, 1e-40)):
        array = rng.uniform(low, high, shape).astype(dtype)
        for special in (None, np.nan, np.inf, -np.inf):
            if special is not None:
                array.reshape(-1)[array.size // 2] = special
            places, finite = np.zeros(tiling.tiles, np.uint32), array[np.isfinite(array)]
            expected = float(finite.min()), float(finite.max())
            assert host.extremes_of(read_only(array.reshape(-1)), tiling, places, threads) == expected
            if special is not None:
                assert places.max() >= (0x7F800000 if dtype == "float32" else 0x7FF00000)


def test_encodings_say_the_bound_they_hold():
    array = wave((16, 16, 32))
    payload = get("bounded:1e-3").encode(array).payload.tobytes()
    bound = HEADER.unpack_from(payload)[6]
    assert 0.999e-3 * np.ptp(array) < bound <= 1e-3 * np.ptp(array.astype(float))


def test_tiles_in_any_order_decode_alike_and_have_one_canonical_form():
    array = wave((16, 32, 64))
    codec = get("bounded:1e-3")
    encoded = codec.encode(array)
    plain = encoded.payload[: encoded.nbytes]
    shuffled = shuffle_tiles(plain, tiling_of(array.shape, array.dtype))
    assert not np.array_equal(shuffled, plain)
    assert np.array_equal(codec.canonical(shuffled, array.shape, array.dtype), plain)
    other = Encoded(codec, array.shape, array.dtype, shuffled, lambda: shuffled.nbytes)
    assert np.array_equal(codec.decode(other), codec.decode(encoded))
    assert other.to_bytes() == encoded.to_bytes()


def shuffle_tiles(payload, how):
    """Reverse the order in which the tiles lie, as a GPU might have written them."""
    words = payload.view("u4").copy()
    places = words[16 : 16 + how.tiles]
    order = [tile for tile in range(how.tiles) if places[tile]]
    ends = [*(int(places[tile] & 0x7FFFFFFF) for tile in order[1:]), words.size]
    pieces = {tile: words[int(places[tile] & 0x7FFFFFFF) : end].copy() for tile, end in zip(order, ends, strict=True)}
    at = how.start // 4
    for tile in reversed(order):
        places[tile] = at | int(places[tile]) & 0x80000000
        words[at : at + pieces[tile].size] = pieces[tile]
        at += pieces[tile].size
    return words.view("u1")


def test_encodings_written_down_are_read_again():
    array = wave((20, 30, 40), "float64")
    encoded = get("bounded:1e-3").encode(array)
    again = Encoded.from_bytes(encoded.to_bytes())
    assert again.codec.name == "bounded:0.001"
    assert np.array_equal(again.codec.decode(again), encoded.codec.decode(encoded))


def test_room_that_is_not_aligned_will_do():
    array = wave((16, 16, 40))
    codec = get("bounded:1e-3")
    room = np.empty(codec.max_bytes(array.shape, array.dtype) + 1, np.uint8)[1:]
    assert codec.encode(array, room).to_bytes() == codec.encode(array).to_bytes()


@pytest.mark.parametrize("shape", [(5000,), (70, 45), (24, 32, 40)])
def test_damage_is_refused_or_decodes_to_something_without_harm(shape):
    check_damage_on_cpu(get("bounded:1e-4"), shape)


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [(8, 0, "no encoding of this codec"), (12, 8, "another array"), (16, 9, "another array"), (0, 1, "bytes")],
)
def test_a_header_that_does_not_fit_is_refused(offset, value, message):
    array = wave((24, 32, 40))
    encoded = get("bounded:1e-4").encode(array)
    encoded.payload[offset] = value
    if offset == 0:
        encoded.payload[1:8] = 0
    with pytest.raises(EncodingError, match=message):
        encoded.codec.decode(encoded)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("offset", "what"), [(40, "bound"), (48, "step")])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, -1.0])
def test_a_bound_or_a_step_that_cannot_be_is_refused(dtype, offset, what, number):
    encoded = get("bounded:1e-4").encode(wave((24, 32, 40), dtype))
    encoded.payload[offset : offset + 8] = np.array([number]).view("u1")
    with pytest.raises(EncodingError, match=f"damaged.*{what} of {number}"):
        encoded.codec.decode(encoded)


def test_a_step_beyond_the_numbers_of_the_array_is_refused():
    for dtype, refused in (("float32", True), ("float64", False)):
        encoded = get("bounded:1e-4").encode(wave((24, 32, 40), dtype))
        encoded.payload[48:56] = np.array([1e39]).view("u1")
        if refused:
            with pytest.raises(EncodingError, match=r"step of 1e\+39"):
                encoded.codec.decode(encoded)
        else:
            encoded.codec.decode(encoded)


def test_bounds_that_round_to_nothing_keep_everything_as_it_is():
    array = wave((9, 17, 33))
    encoded, decoded = roundtrip(array, get("bounded:abs=1e-60"))
    assert HEADER.unpack_from(encoded.payload.tobytes())[6:8] == (0.0, 0.0)
    assert np.array_equal(decoded, array)


def test_names_find_the_same_codec_again():
    for name in ("bounded:0.001", "bounded:1e-30", "bounded:abs=0.25", "bounded:0.1234567890123"):
        assert get(name).name == name and get(get(name).name).name == name
    assert get("bounded:1e-4,threads=2").name == get("bounded:1e-4").name
    assert get("bounded:1e-4").lossy and not get("bounded:1e-4").fixed


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bounded", "takes one bound"),
        ("bounded:1,abs=1", "takes one bound"),
        ("bounded:threads=2", "takes one bound"),
        ("bounded:rel=1e-4", "takes one bound, not rel=1e-4: bounded:1e-4 of the range"),
        ("bounded:1e-4,level=3", "not level=3"),
        *((f"bounded:{text}", f"'{text}' is no bound") for text in ("0", "-1", "nan", "inf", "x")),
        ("bounded:abs=", "'' is no bound"),
        *((f"bounded:1e-4,threads={text}", f"threads={text}: give a number") for text in ("0", "-1", "x", "1.5")),
    ],
)
def test_what_is_no_bound_or_no_number_of_threads_is_refused(name, message):
    with pytest.raises(CodecError, match=message):
        get(name)


def test_no_threads_are_refused_as_a_number_too():
    with pytest.raises(CodecError, match="threads=0"):
        Bounded(1e-4, threads=0)


def test_integers_are_refused():
    with pytest.raises(CodecError, match="int32"):
        get("bounded:1e-3").encode(np.zeros(5, "int32"))


@pytest.mark.parametrize(
    ("shape", "rank", "extents"),
    [
        ((100, 200, 300), 3, (100, 200, 300)),
        ((2, 5, 100, 200, 300), 3, (1000, 200, 300)),
        ((3, 200, 300), 2, (1, 600, 300)),
        ((200, 300), 2, (1, 200, 300)),
        ((20, 300), 1, (1, 1, 6000)),
        ((200, 300, 3), 2, (1, 200, 900)),
        ((7,), 1, (1, 1, 7)),
        ((1, 1), 1, (1, 1, 1)),
        ((3, 0), 1, (1, 1, 0)),
        ((64, 2**27), 1, (1, 1, 2**33)),
    ],
)
def test_shapes_are_folded(shape, rank, extents):
    how = tiling_of(shape, np.dtype("float32"))
    assert (how.rank, how.extents) == (rank, extents)


def test_places_reach_over_the_largest_arrays():
    for gigabytes in (1, 7, 9, 40, 130):
        how = tiling_of((gigabytes * 250_000_000,), np.dtype("float32"))
        assert how.max_bytes <= 2**31 << how.shift
        assert how.max_bytes < 1.02 * gigabytes * 1e9


def test_a_coarser_unit_of_places_changes_no_value(monkeypatch):
    from forebay.codec.bounded import codec as bounded

    array = wave((24, 33, 40))
    expected = get("bounded:1e-4").decode(get("bounded:1e-4").encode(array))
    plain = tiling_of(array.shape, array.dtype)
    coarse = Tiling(plain.rank, plain.extents, plain.counts, plain.itemsize, 5)
    monkeypatch.setattr(bounded, "tiling_of", lambda shape, dtype: coarse)
    codec = Bounded(1e-4, threads=2)
    encoded = codec.encode(array)
    assert np.array_equal(codec.decode(encoded), expected)
    payload = encoded.payload[: encoded.nbytes]
    assert np.array_equal(codec.canonical(payload, array.shape, array.dtype), payload)


FORKED = """
import os, sys, numpy as np
from forebay.codec import get
field = np.sin(np.arange(400_000, dtype=np.float32) / 50)
codec = get("bounded:1e-3,threads=2")
encoded = codec.encode(field)
child = os.fork()
if child == 0:
    os._exit(0 if codec.encode(field).to_bytes() == encoded.to_bytes() else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
def test_a_forked_process_has_threads_of_its_own():
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], check=True, timeout=120)
