"""Encodings damaged by somebody who repaired the checksum: refused in our words, and never given much memory."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.codec import Encoded, container, get
from forebay.errors import EncodingError, ForebayError

NAMES = ["raw", "cast:float16", "bounded:1e-3", "zfp:8", "zfp:tol=1e-3", "lossless"]
FIELD = np.linspace(-1, 1, 120, dtype=np.float32).reshape(4, 5, 6)
HOSTILE = [
    {"shape": [10**11]},
    {"shape": [2**40, 2**40]},
    {"shape": [-1, 120]},
    {"shape": [1.5]},
    {"shape": [True]},
    {"shape": "4"},
    {"shape": None},
    {"shape": [1] * 100},
    {"shape": [2**70]},
    {"shape": [12, 2**61, 0]},
    {"dtype": "O"},
    {"dtype": "<f99"},
    {"dtype": "S999999999"},
    {"dtype": "f4,(99999,99999)f4"},
    {"dtype": [["a", "<f4"], ["a", "<f4"]]},
    {"dtype": [1, 2]},
    {"dtype": 7},
    {"dtype": None},
    {"codec": None},
    {"codec": "nothing"},
    {"codec": "zfp:x"},
    {"codec": "zfp:tol=x"},
    {"codec": "bounded:x"},
    {"codec": "bounded:nan"},
    {"codec": "cast:float16,x=1"},
    {"codec": ["raw"]},
    {"version": "1"},
    {"version": None},
    {"version": 99},
]


def read(data):
    """Read and decode, letting only our own errors pass."""
    try:
        encoded = Encoded.from_bytes(data)
        return encoded.codec.decode(encoded)
    except ForebayError:
        return None


def parts(name):
    about, payload = container.unpack(get(name).encode(FIELD).to_bytes())
    return about, bytes(payload)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("changes", HOSTILE, ids=str)
def test_what_makes_no_sense_is_refused_before_memory_is_taken(name, changes):
    about, payload = parts(name)
    tracemalloc.start()
    try:
        assert read(container.pack(about | changes, payload)) is None
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", '{"codec": "raw"}', "[" * 60_000, "\xff", "null"])
def test_a_text_that_is_no_description_is_refused(text):
    body = text.encode("latin-1")
    header = container.HEADER.pack(container.MAGIC, container.VERSION, len(body), 0, container.xxh3_128_digest(body))
    with pytest.raises(EncodingError, match="damaged"):
        Encoded.from_bytes(header + body)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_read_as_something_or_refused(name, data):
    about, payload = parts(name)
    text = bytearray(json.dumps(about).encode())
    body = bytearray(payload)
    for _ in range(data.draw(st.integers(0, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))] if data.draw(st.booleans()) else body
    whole = bytes(text) + bytes(body)
    header = container.HEADER.pack(
        container.MAGIC, container.VERSION, len(text), len(body), container.xxh3_128_digest(whole)
    )
    read(header + whole)
