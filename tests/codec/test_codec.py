"""The protocol that every codec keeps: names, room, and encodings that can be read later."""

import subprocess
import sys
from contextlib import contextmanager
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from forebay import codec as codecs
from forebay.codec import Encoded, get, names, register
from forebay.codec.raw import Raw
from forebay.errors import CodecError, EncodingError

FIELD = np.linspace(-1, 1, 60, dtype=np.float32).reshape(3, 4, 5)


@pytest.mark.parametrize("name", ["raw", "cast:float16", "cast:bfloat16"])
def test_an_encoding_written_down_is_read_again(name):
    codec = get(name)
    assert get(codec.name).name == codec.name
    encoded = codec.encode(FIELD)
    again = Encoded.from_bytes(encoded.to_bytes())
    assert (again.shape, again.dtype, again.codec.name) == (FIELD.shape, FIELD.dtype, name)
    np.testing.assert_array_equal(again.codec.decode(again), codec.decode(encoded))


def test_a_damaged_encoding_is_refused_wherever_it_is_damaged():
    data = get("cast:float16").encode(FIELD).to_bytes()
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        with pytest.raises(EncodingError):
            Encoded.from_bytes(bytes(damaged))


def test_a_cut_encoding_is_refused():
    data = get("raw").encode(FIELD).to_bytes()
    for length in (0, 3, 12, 40, len(data) - 1):
        with pytest.raises(EncodingError):
            Encoded.from_bytes(data[:length])


def test_an_encoding_of_a_newer_version_is_refused():
    class Newer(Raw):
        version = 2

    data = Newer().encode(FIELD).to_bytes()
    with pytest.raises(EncodingError, match="newer Forebay"):
        Encoded.from_bytes(data)


def test_an_encoding_of_another_format_is_told_from_a_damaged_one():
    data = get("raw").encode(FIELD).to_bytes()
    for version in (1, 3):
        with pytest.raises(EncodingError, match=f"format {version}, written by another version of Forebay"):
            Encoded.from_bytes(data[:4] + bytes([version]) + data[5:])


def test_room_that_is_too_small_is_refused_before_any_work():
    codec = get("raw")
    with pytest.raises(CodecError, match="240"):
        codec.encode(FIELD, out=np.empty(239, np.uint8))


WITHOUT_NUMBA = """
import sys
import numpy as np
from forebay.codec import get, quality
from forebay.errors import CodecError
sys.modules["numba"] = None
names = ["bounded:1e-3", "cast:float16", "bitcomp:rel=1e-3", "lossless"]
assert all(get(name).max_bytes((30, 40), np.dtype("float32")) for name in names)
for needing in (get("bounded:1e-3").encode, get("cast:float16").encode, lambda field: quality.psnr(field, field)):
    try:
        needing(np.ones((30, 40), np.float32))
    except CodecError as error:
        print(error)
"""


def test_codecs_are_found_and_planned_with_before_numba_is_needed():
    done = subprocess.run([sys.executable, "-c", WITHOUT_NUMBA], check=True, capture_output=True, text=True)
    assert (
        done.stdout.splitlines() == ["what computes on the CPU needs Numba: install Forebay with its extra codecs"] * 3
    )


def test_decoding_into_an_array_of_another_shape_is_refused():
    codec = get("raw")
    with pytest.raises(CodecError, match=r"float32\[3, 4, 5\]"):
        codec.decode(codec.encode(FIELD), out=np.empty((3, 4, 4), np.float32))


def test_anybody_can_register_a_codec():
    class Negated(Raw):
        name = "negated"

    register("negated", Negated)
    try:
        assert "negated" in names()
        assert isinstance(get("negated"), Negated)
    finally:
        del codecs.registry._registered["negated"]


def test_packages_are_looked_through_once_for_codecs_that_they_bring(monkeypatch):
    asked, point = [], EntryPoint("plain", "forebay.codec.raw:Raw", codecs.registry.GROUP)
    monkeypatch.setattr(codecs.registry, "entry_points", lambda **which: asked.append(which) or [point])
    codecs.registry._brought.cache_clear()
    try:
        assert all(isinstance(get("plain"), Raw) for _ in range(2)) and "plain" in names()
        for _ in range(2):
            with pytest.raises(CodecError, match=r"no codec is called 'zip'.* plain,"):
                get("zip")
        assert asked == [{"group": "forebay.codecs"}]
    finally:
        codecs.registry._brought.cache_clear()


@pytest.mark.parametrize("name", ["nothing", "raw:5", "cast", "cast:float16,scale=2", ""])
def test_a_codec_that_cannot_be_made_says_so(name):
    with pytest.raises(CodecError):
        get(name)


def test_an_encoding_is_decoded_by_its_own_codec_alone():
    encoded = get("cast:float16").encode(FIELD)
    with pytest.raises(CodecError, match="cast:float16, not of cast:bfloat16"):
        get("cast:bfloat16").decode(encoded)


@pytest.mark.parametrize("name", ["raw", "cast:float16", "bounded:1e-3"])
def test_nothing_is_written_into_a_read_only_array(name):
    codec = get(name)
    out = np.zeros_like(FIELD)
    out.flags.writeable = False
    with pytest.raises(CodecError, match="writable"):
        codec.decode(codec.encode(FIELD), out=out)
    assert not out.any()


def test_structured_arrays_come_back_with_their_fields():
    points = np.array([(1, 2.5), (3, 4.5)], dtype=[("number", "i4"), ("value", "f8")])
    again = Encoded.from_bytes(get("raw").encode(points).to_bytes())
    np.testing.assert_array_equal(again.codec.decode(again), points)


def test_gpu_arrays_are_encoded_and_decoded_on_the_gpu_that_they_are_on(monkeypatch):
    device = pytest.importorskip("forebay.codec.device")
    from forebay.cuda.arrays import View

    current, calls = [0], []

    @contextmanager
    def on_device(index):
        current.append(index)
        yield
        current.pop()

    class Recorded(Raw):
        def encode_device(self, array, out, stream):
            calls.append(("encode", current[-1], stream))

        def decode_device(self, payload, out, stream):
            calls.append(("decode", current[-1], stream))

    monkeypatch.setattr(device, "on_device", on_device)
    monkeypatch.setattr(device, "device_at", lambda pointer: pointer // 4096)
    monkeypatch.setattr(device, "callers_stream", lambda: f"stream of {current[-1]}")
    array, room = View.at(3 * 4096, (4,), "float32"), View.at(3 * 4096 + 256, (16,), np.uint8)
    codec = Recorded()
    codec.decode(codec.encode(array, room), array)
    assert calls == [("encode", 3, "stream of 3"), ("decode", 3, "stream of 3")] and current == [0]
