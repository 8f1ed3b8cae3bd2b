"""`bounded` on arrays of 16 bits and of complex numbers, and with a bound of its own for each point."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.codec import Encoded, get
from forebay.codec.bounded import Bounded
from forebay.codec.bounded.numbers import BFLOAT16
from forebay.errors import CodecError

BOUNDS = ["bounded:0.3", "bounded:1e-2", "bounded:1e-3", "bounded:1e-5", "bounded:abs=0.01"]


def widened(bits, dtype):
    """Give the numbers of 16 bits in double precision."""
    if dtype == "float16":
        return bits.view("float16").astype(np.float64)
    with np.errstate(invalid="ignore"):  # signalling NaN
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("peak", [0, 1])
def test_every_number_of_16_bits_stays_within_the_bound(dtype, name, peak):
    """All that are finite, up to a peak or whatever they are, and all that are not."""
    bits = np.random.default_rng(3).permutation(np.arange(2**16)).astype(np.uint16)
    exact = widened(bits, dtype)
    if peak:
        bits[np.isfinite(exact) & (np.abs(exact) > peak)] = 0
        exact = widened(bits, dtype)
    array = bits.view("float16" if dtype == "float16" else BFLOAT16)
    codec = get(name)
    decoded = codec.decode(codec.encode(array))
    assert decoded.dtype == array.dtype
    finite = np.isfinite(exact)
    assert np.array_equal(decoded.view("u2")[~finite], bits[~finite])
    span = np.ptp(exact[finite]) if codec.relative else 1
    assert np.abs(widened(decoded.view("u2")[finite], dtype) - exact[finite]).max() <= codec.bound * span


def test_arrays_of_16_bits_shrink():
    x = np.linspace(-4, 4, 64)
    field = (np.exp(-(x[:, None, None] ** 2) - x[:, None] ** 2) * np.sin(6 * x)).astype("float16")
    assert get("bounded:1e-2").encode(field).ratio > 6 and get("bounded:1e-3").encode(field).ratio > 4


def test_the_type_of_ml_dtypes_is_the_same():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    array = np.sin(np.arange(5000, dtype=np.float32) / 30).astype(bfloat16)
    codec = get("bounded:1e-2")
    encoded = codec.encode(array)
    assert codec.decode(encoded).dtype == array.dtype
    again = Encoded.from_bytes(encoded.to_bytes())
    assert again.dtype == BFLOAT16
    assert np.array_equal(codec.decode(again).view("u2"), codec.decode(encoded).view("u2"))
    assert codec.encode(array.view(BFLOAT16)).to_bytes() == encoded.to_bytes()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("shape", [(0, 3), (1,), (5000,), (70, 45), (9, 17, 33)])
def test_both_parts_of_complex_numbers_stay_within_the_bound(shape, dtype):
    axes = np.indices(shape, dtype=np.float64)
    phase = sum(np.sin((0.1 + 0.03 * k) * axis) for k, axis in enumerate(axes))
    array = (np.exp(1j * phase) * (1 + phase)).astype(dtype)
    array.reshape(-1)[::50] = complex(np.inf, np.nan)
    codec = get("bounded:1e-3")
    decoded = codec.decode(codec.encode(array))
    assert decoded.dtype == array.dtype
    parts, near = (np.stack((one.real, one.imag)).astype(np.longdouble) for one in (array, decoded))
    finite = np.isfinite(parts)
    if finite.any():
        assert np.abs(parts[finite] - near[finite]).max() <= 1e-3 * np.ptp(parts[finite])
    assert np.array_equal(near[~finite], parts[~finite], equal_nan=True)


def test_complex_numbers_shrink_as_their_parts_do():
    x = np.arange(200) / 9
    real, imaginary = np.sin(x)[:, None] * np.cos(x), np.cos(x)[:, None] * np.sin(x)
    whole = get("bounded:1e-3").encode((real + 1j * imaginary).astype("complex64"))
    parts = [get("bounded:1e-3").encode(part.astype("float32")) for part in (real, imaginary)]
    assert whole.nbytes < 1.05 * sum(part.nbytes for part in parts)


@settings(max_examples=60)
@given(st.data())
def test_each_point_stays_within_its_own_bound(data):
    shape = data.draw(st.sampled_from([(5000,), (70, 45), (17, 33, 50)]))
    dtype = data.draw(st.sampled_from(["float32", "float64", "float16", "complex64"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    array = np.cumsum(rng.normal(size=shape), -1).astype(dtype)
    array.reshape(-1)[:: data.draw(st.integers(40, 4000))] = data.draw(st.sampled_from([np.nan, np.inf, 1e4, 0.0]))
    weight = np.geomspace(*data.draw(st.tuples(st.floats(1e-40, 1e5), st.floats(1e-40, 1e5))), array.size)
    weight = weight.reshape(shape).astype(data.draw(st.sampled_from(["float64", "float32"])))
    weight[weight < data.draw(st.sampled_from([0, 1e-6]))] = 0
    bound = data.draw(st.floats(1e-9, 0.5))
    codec = Bounded(bound, weight=weight) if data.draw(st.booleans()) else Bounded(abs=bound, weight=weight)
    decoded = codec.decode(codec.encode(array))
    exact, near = (np.stack((one.real, one.imag)).astype(np.longdouble) for one in (array, decoded))
    finite = np.isfinite(exact)
    span = np.ptp(exact[finite]) if codec.relative else 1
    if dtype != "complex64":
        span = np.ptp(exact[0][finite[0]]) if codec.relative else 1
    allowed = np.broadcast_to(bound * span * weight.astype(np.longdouble), exact.shape)
    assert (np.abs(exact[finite] - near[finite]) <= allowed[finite]).all()
    assert np.array_equal(near[~finite], exact[~finite], equal_nan=True)


def test_small_weights_cost_only_where_they_are(tmp_path):
    x = np.arange(64, dtype=np.float32)
    field = np.sin(x / 5)[:, None, None] * np.cos(x / 7)[:, None] * np.sin(x / 6)
    weight = np.ones((64, 1, 1), np.float32)
    plain = get("bounded:1e-3").encode(field)
    np.save(tmp_path / "weight.npy", weight)
    even = get(f"bounded:1e-3,weight={tmp_path / 'weight.npy'}").encode(field)
    assert plain.nbytes < even.nbytes <= plain.nbytes + 4 * 128
    weight[48:] = 1e-2
    codec = Bounded(1e-3, weight=weight)
    encoded = codec.encode(field)
    assert even.nbytes < encoded.nbytes < 1.8 * even.nbytes
    assert np.abs(codec.decode(encoded) - field)[48:].max() <= 1e-5 * np.ptp(field)


def test_weights_serve_values_as_large_as_numbers_get():
    array, weight = np.array([-1.7e308, 3.0, 1.7e308]), np.array([1e-3, 1.0, 4.0])
    codec = Bounded(1e-3, weight=weight)
    decoded = codec.decode(codec.encode(array))
    assert np.all(np.abs(decoded - array) <= 1e-3 * weight * np.finfo(np.float64).max)


def test_decoding_needs_no_weights():
    field = np.sin(np.arange(20_000, dtype=np.float32) / 50)
    codec = Bounded(1e-3, weight=np.linspace(0.1, 1, 20_000))
    again = Encoded.from_bytes(codec.encode(field).to_bytes())
    assert again.codec.name == codec.name
    assert np.array_equal(again.codec.decode(again), codec.decode(codec.encode(field)))
    with pytest.raises(CodecError, match="no array can be read"):
        again.codec.encode(field)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones((3, 5)), "does not fit an array of"),
        (np.array([1.0, -1.0, 1.0, 1.0]), "from zero on"),
        (np.full(4, np.nan), "from zero on"),
        (np.ones(4, complex), "from zero on"),
        ("a,b.npy", "without commas"),
    ],
)
def test_what_is_no_weight_is_refused(weight, message):
    with pytest.raises(CodecError, match=message):
        Bounded(1e-3, weight=weight).encode(np.ones((6, 4), np.float32))
