"""The header before foreign streams: nothing damaged passes it, and its kernels compile."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.codec import quality
from forebay.codec.nvcomp import bitcomp
from forebay.codec.nvcomp.seal import (
    CHECKSUM,
    HEADER,
    SOURCE,
    STREAM_BYTES,
    WORDS,
    Format,
    Seal,
    _checksum,
    seal,
    unseal,
)
from forebay.errors import DeviceError, EncodingError

QUALITY = Path(quality.__file__).with_name("quality.cu")
ABOUT = Seal(Format.NVCOMP, nbytes=4000, number=0.125, code=9)


def sealed(length):
    payload = np.zeros(HEADER + length, np.uint8)
    payload[HEADER:] = np.random.default_rng(length).integers(0, 256, length)
    assert seal(payload, length, ABOUT) == payload.nbytes
    return payload


@given(st.integers(0, 100))
def test_what_was_sealed_is_read_again(length):
    payload = sealed(length)
    about, stream = unseal(payload, 4000)
    assert about == ABOUT
    np.testing.assert_array_equal(stream, payload[HEADER:])


def test_the_stream_of_a_misaligned_payload_comes_aligned():
    payload = sealed(50)
    room = np.empty(payload.nbytes + 8, np.uint8)
    for shift in range(8):
        room[shift : shift + payload.nbytes] = payload
        _, stream = unseal(room[shift : shift + payload.nbytes], 4000)
        assert stream.ctypes.data % 8 == 0
        np.testing.assert_array_equal(stream, payload[HEADER:])


@pytest.mark.parametrize("length", [0, 1, 8, 29])
def test_any_flipped_bit_is_noticed(length):
    payload = sealed(length)
    for bit in range(8 * payload.nbytes):
        payload[bit // 8] ^= 1 << bit % 8
        with pytest.raises(EncodingError):
            unseal(payload, 4000)
        payload[bit // 8] ^= 1 << bit % 8
    unseal(payload, 4000)


def test_exchanged_words_and_a_cut_are_noticed():
    payload = sealed(64)
    words = payload.copy().view(np.uint64)
    words[[9, 12]] = words[[12, 9]]
    with pytest.raises(EncodingError, match="checksum"):
        unseal(words.view(np.uint8), 4000)
    for length in range(payload.nbytes):
        with pytest.raises(EncodingError):
            unseal(payload[:length], 4000)


def test_an_encoding_of_another_array_is_refused():
    with pytest.raises(EncodingError, match="4000 bytes, not of 4004"):
        unseal(sealed(10), 4004)


@pytest.mark.slow
@pytest.mark.parametrize("source", [SOURCE, bitcomp.SOURCE, QUALITY], ids=lambda path: path.name)
@pytest.mark.parametrize("real", ["float", "double"])
def test_the_kernels_compile_without_a_gpu(source, real):
    pytest.importorskip("cuda.core")
    from forebay.cuda.kernels import compile_only

    defines = {"REAL": real, "WZ": 7, "WY": 7, "WX": 7}
    try:
        assert compile_only(source, fmad=False, defines=defines).startswith(b"\x7fELF")
    except DeviceError as error:
        pytest.skip(str(error))


def test_a_stream_of_another_length_than_the_header_says_is_refused_though_its_checksum_is_right():
    words = sealed(64).view(np.uint64)
    words[STREAM_BYTES] -= 8
    words[CHECKSUM] = 0
    words[CHECKSUM] = _checksum(words[:WORDS], words[WORDS:].view(np.uint8))
    with pytest.raises(EncodingError, match="cut short"):
        unseal(words.view(np.uint8), 4000)
