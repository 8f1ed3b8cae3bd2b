"""Casting keeps its stated error for every input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from forebay.codec import get
from forebay.cuda.available import gpu_count
from forebay.errors import CodecError, EncodingError

UNIT = {"cast:float16": 2.0**-11, "cast:bfloat16": 2.0**-8}


def tiny(name, values):
    """Give the error that values near zero may have."""
    largest = np.abs(values[np.isfinite(values)]).astype(np.longdouble).max(initial=0.0)
    if name == "cast:float16":
        return 2.0**-38 * largest + 2.0**-150
    return np.longdouble(2.0**-133) if values.dtype == np.float32 else 2.0**-259 * largest + 2.0**-1074


@pytest.mark.parametrize("name", sorted(UNIT))
@given(
    values=st.one_of(
        arrays(np.float32, st.integers(0, 60), elements=st.floats(width=32)),
        arrays(np.float64, st.integers(0, 60), elements=st.floats(width=64)),
    )
)
@settings(max_examples=300, deadline=None)
def test_every_value_comes_back_within_the_stated_error(name, values):
    codec = get(name)
    encoded = codec.encode(values)
    decoded = codec.decode(encoded)
    assert encoded.nbytes == codec.max_bytes(values.shape, values.dtype)
    special = ~np.isfinite(values)
    np.testing.assert_array_equal(decoded[special], values[special])
    assert np.isfinite(decoded[~special]).all()
    with np.errstate(over="ignore"):
        error = np.abs(decoded[~special].astype(np.longdouble) - values[~special].astype(np.longdouble))
    allowed = UNIT[name] * np.abs(values[~special].astype(np.longdouble)) + tiny(name, values)
    assert (error <= allowed).all()


def test_float16_is_what_numpy_rounds_to():
    values = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    values[0] = 2.0**14.9  # the largest, so that nothing is scaled
    values[1:1025] = np.arange(1024, 2048) + 0.5  # as near to one as to the other
    decoded = get("cast:float16").decode(get("cast:float16").encode(values))
    np.testing.assert_array_equal(decoded, values.astype(np.float16).astype(np.float32))


def test_bfloat16_is_what_torch_rounds_to():
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    values[:128] = np.arange(128, 256) + 0.5  # as near to one as to the other
    decoded = get("cast:bfloat16").decode(get("cast:bfloat16").encode(values))
    np.testing.assert_array_equal(decoded, torch.from_numpy(values).to(torch.bfloat16).to(torch.float32).numpy())


def test_a_cut_encoding_is_refused():
    codec = get("cast:float16")
    encoded = codec.encode(np.ones(10, np.float32))
    with pytest.raises(EncodingError):
        codec.decode_host(encoded.payload[:-1], np.empty(10, np.float32))


def test_an_unknown_type_is_refused():
    with pytest.raises(CodecError, match="float16, bfloat16"):
        get("cast:int8")
    with pytest.raises(CodecError, match="does not encode arrays of int64"):
        get("cast:float16").encode(np.arange(3))


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() == 0, reason="no GPU")
@pytest.mark.parametrize("name", sorted(UNIT))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.0, 1e-310, 1e-42, 1e-3, 1.0, 1e30, 3e38, 1e300])
def test_the_gpu_makes_the_same_encoding_and_reads_it(name, dtype, scale):
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(1)
    with np.errstate(over="ignore"):
        values = (scale * rng.uniform(-1, 1, 100_003) * 10.0 ** rng.uniform(-12, 0, 100_003)).astype(dtype)
    values[[5, 77, 1234]] = np.nan, np.inf, -np.inf
    codec = get(name)
    on_host, on_device = codec.encode(values), codec.encode(cupy.asarray(values))
    assert on_device.to_bytes() == on_host.to_bytes()
    np.testing.assert_array_equal(codec.decode(on_device).get(), codec.decode(on_host))
