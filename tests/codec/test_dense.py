"""`dense` on the CPU: the bound holds for every value of every input, in fewer bytes than `bounded` takes."""

from dataclasses import replace
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.codec.bounds import check_damage_on_cpu, roundtrip, wave
from tests.example_counts import ALL, fewer

from forebay.codec import Encoded, get
from forebay.codec.auto import choices
from forebay.codec.bounded.format import HEADER
from forebay.codec.compiled import read_only
from forebay.codec.dense import Dense, host
from forebay.codec.dense.desk import spot_of
from forebay.codec.dense.format import PAIRS, TILES, geometry, rows_of_warps, tiling_of
from forebay.codec.dense.tiles import point_of
from forebay.codec.dense.top import gather_bricks, scatter_bricks
from forebay.errors import CodecError, EncodingError

SHAPES = [(), (0,), (0, 4), (1,), (5,), (4096,), (9000,), (3, 3), (70, 45), (64, 130), (9, 17, 33), (16, 32, 48)]
SHAPES += [(2, 3, 9, 17, 33), (1, 40, 1, 50)]


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["dense:1e-3", "dense:1e-7", "dense:abs=1e-13"])
def test_every_shape_comes_back_within_the_bound(shape, dtype, name):
    roundtrip(wave(shape, dtype), get(name))


@fewer(40, of=150)
@given(st.data())
def test_any_values_come_back_within_the_bound(data):
    width = data.draw(st.sampled_from([32, 64] if ALL else [32]))
    shapes = st.sampled_from([(50,), (40, 20), (9, 16, 17)])
    elements = st.one_of(st.floats(width=width), st.sampled_from([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan]))
    array = data.draw(hnp.arrays(f"float{width}", shapes, elements=elements))
    bound = data.draw(st.floats(1e-12, 1.0))
    roundtrip(array, data.draw(st.sampled_from([Dense(bound), Dense(abs=bound)])))


@fewer(15, of=40)
@given(st.integers(0, 2**32), st.integers(-30, 30), st.sampled_from([1e-2, 1e-3, 1e-5, 1e-7]))
def test_waves_of_any_magnitude_with_spikes_stay_within_the_bound(seed, exponent, bound):
    rng = np.random.default_rng(seed)
    array = (wave((17, 32, 33)) + rng.normal(0, 1e-3, (17, 32, 33)).astype("float32")) * np.float32(2.0**exponent)
    spikes = rng.integers(0, array.size, rng.integers(0, 40))
    array.reshape(-1)[spikes] *= np.float32(10.0) ** rng.integers(-3, 8)
    roundtrip(array, Dense(bound))


@fewer(15, of=40)
@given(st.data())
def test_other_types_and_weights_keep_their_bounds(data):
    shape = data.draw(st.sampled_from([(9000,), (70, 45), (17, 33, 50)]))
    dtype = data.draw(st.sampled_from(["float32", "float16", "complex64", *(["float64"] if ALL else [])]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    array = np.cumsum(rng.normal(size=shape), -1).astype(dtype)
    array.reshape(-1)[:: data.draw(st.integers(40, 4000))] = data.draw(st.sampled_from([np.nan, np.inf, 1e4, 0.0]))
    weight = np.geomspace(*data.draw(st.tuples(st.floats(1e-40, 1e5), st.floats(1e-40, 1e5))), array.size)
    weight = weight.reshape(shape) if data.draw(st.booleans()) else np.ones(shape)
    bound = data.draw(st.floats(1e-9, 0.5))
    codec = data.draw(st.sampled_from([Dense(bound, weight=weight), Dense(abs=bound, weight=weight)]))
    decoded = codec.decode(codec.encode(array))
    parts = (lambda one: np.stack((one.real, one.imag))) if array.dtype.kind == "c" else (lambda one: one[None])
    exact, near = (parts(one).astype(np.longdouble) for one in (array, decoded))
    finite = np.isfinite(exact)
    allowed = np.broadcast_to(bound * (np.ptp(exact[finite]) if codec.relative else 1) * weight, exact.shape)
    assert (np.abs(exact[finite] - near[finite]) <= allowed[finite]).all()
    assert np.array_equal(near[~finite], exact[~finite], equal_nan=True)


@pytest.mark.slow
def test_a_weight_on_the_largest_of_numbers_is_no_overflow():
    array = wave((17, 33, 50), "float64") * 1e307
    Dense(1e-5, weight=np.geomspace(1e-9, 4, array.size).reshape(array.shape)).encode(array)


@pytest.mark.parametrize(("bound", "times"), [(1e-2, 2.4), (1e-3, 1.5), (1e-4, 1.25), (1e-5, 1.15)])
def test_waves_take_far_fewer_bytes_than_bounded_does(bound, times):
    z, y, x = np.meshgrid(*[np.arange(64, dtype=np.float32)] * 3, indexing="ij", sparse=True)
    radius = np.sqrt((z - 9) ** 2 + (y - 30) ** 2 + (x - 21) ** 2)
    field = np.sin(0.6 * radius) * np.exp(-(((radius - 40) / 15) ** 2)) + 0.1 * np.sin(0.5 * x + 0.4 * z)
    small, _ = roundtrip(field, Dense(bound))
    assert small.ratio > times * get(f"bounded:{bound}").encode(field).ratio


@pytest.mark.parametrize("shape", [(9000,), (67, 70), (31, 33, 35)])
def test_what_does_not_shrink_takes_hardly_more_than_the_array(shape):
    array = np.random.default_rng(1).integers(0, 2**32, shape, dtype="u4").view("f4")
    encoded, _ = roundtrip(array, Dense(abs=1e-30))
    assert encoded.nbytes <= array.nbytes + 64 + 4 * tiling_of(shape, array.dtype).tiles


def test_zeros_take_four_bytes_a_tile():
    encoded, decoded = roundtrip(np.zeros((64, 64, 64), "float32"), Dense(abs=1e-3))
    assert encoded.nbytes == 64 + 4 * (64 + 8 + 1) and not decoded.any()


def test_the_same_bytes_come_from_any_number_of_threads():
    array = wave((96, 80, 112))
    array[20:50, 10:50] = 0
    assert len({get(f"dense:1e-4,threads={threads}").encode(array).to_bytes() for threads in (1, 2, 3)}) == 1


DIGESTS = {(9001,): "8f02002ec2645270", (67, 70): "7ec561dbc06a66f7", (21, 37, 53): "7ae70be9482ef87e"}


@pytest.mark.parametrize("shape", DIGESTS)
def test_the_format_does_not_change(shape):
    total = sum((k + 1) * axis * (shape[k] - axis) for k, axis in enumerate(np.indices(shape)))
    array = (total % 4099 / 64 - 9).astype("float32")
    array.reshape(-1)[::1009] = np.nan
    digests = [blake2b(get(f"dense:{bound}").encode(array).to_bytes(), digest_size=4) for bound in ("1e-3", "abs=0.5")]
    assert "".join(digest.hexdigest() for digest in digests) == DIGESTS[shape]


@pytest.mark.parametrize("rank", [2, 3])
def test_the_weights_of_neighbours_and_the_shares_of_axes_sum_to_one(rank):
    made = geometry(rank, np.dtype("float64"))
    assert np.allclose(made.down.sum(1), 1) and np.allclose(made.across.reshape(3, 4, 32).sum(1), 1)
    shares, at = made.shares.reshape(4, 9, 32), 0
    for _, *axes in PAIRS:
        assert np.allclose(shares[:, at : at + len(axes)].sum(1), 1)
        at += len(axes)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_symbol_is_of_a_point_of_its_own(rank):
    cells, begins = 4096 >> rank, rows_of_warps(rank)
    assert sorted(spot_of(k, begins) for k in range(4096 - cells)) == list(range(cells, 4096))
    assert len({point_of(k, rank) for k in range(4096)}) == 4096
    place, extents = (0, 0, 0, *TILES[rank]), TILES[rank]
    grid, bricks, again = (np.zeros(4096, np.float32) for _ in range(3))
    grid[:] = np.arange(4096)
    gather_bricks(read_only(grid), extents, place, rank, bricks)
    scatter_bricks(bricks, extents, place, rank, again)
    assert np.array_equal(grid, again) and np.array_equal(np.sort(bricks), grid)


@pytest.mark.parametrize("shape", [(9000,), (70, 45), (24, 32, 40)])
def test_damage_is_refused_or_decodes_to_something_without_harm(shape):
    check_damage_on_cpu(get("dense:1e-4"), shape)


def test_an_encoding_of_bounded_is_none_of_dense():
    array = wave((24, 32, 40))
    payload = get("bounded:1e-3").encode(array).payload
    with pytest.raises(EncodingError, match="no encoding of this codec"):
        get("dense:1e-3").decode_host(payload, np.empty_like(array))


def test_encodings_written_down_are_read_again():
    array = wave((20, 30, 40))
    encoded = get("dense:1e-3").encode(array)
    again = Encoded.from_bytes(encoded.to_bytes())
    assert again.codec.name == "dense:0.001"
    assert np.array_equal(again.codec.decode(again), encoded.codec.decode(encoded))


def test_what_lies_between_places_and_tiles_is_written_down_as_zero():
    array = wave((9001,))
    tiling = replace(tiling_of(array.shape, array.dtype), shift=5)
    payload = np.empty(tiling.max_bytes, np.uint8)
    payload = payload[: host.encode(array, payload, tiling, host.Asked(1e-3, relative=True), 1)]
    written, gap = host.canonical(payload, tiling), slice(HEADER.size + 4 * tiling.tiles, tiling.start)
    assert gap.stop > gap.start and not written[gap].any()
    payload[gap] = 0xAB  # a GPU leaves there what was there
    assert np.array_equal(host.canonical(payload, tiling), written)


def test_errors_say_which_codec_is_meant_and_auto_offers_it():
    with pytest.raises(CodecError, match="dense takes one bound"):
        get("dense")
    with pytest.raises(CodecError, match="as in dense:1e-4"):
        get("dense:x")
    assert "dense:0.001" in [codec.name for codec in choices("auto:1e-3")[0]]
