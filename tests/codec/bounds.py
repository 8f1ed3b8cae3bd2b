"""What `bounded` and `dense` promise alike: the arrays they are tried on, and the checks that hold for both."""

import struct
from pathlib import Path

import numpy as np
import pytest

from forebay.codec import Encoded, get
from forebay.errors import DeviceError, EncodingError


def wave(shape, dtype="float32"):
    axes = np.indices(shape, dtype=np.float64)
    return np.asarray(3 + sum(np.sin((0.1 + 0.03 * k) * axis) for k, axis in enumerate(axes))).astype(dtype)


def values(kind, shape, dtype):
    """Return a wave, one with special values among it, one with many zeros, or any bits."""
    rng = np.random.default_rng(11)
    array = wave(shape, dtype)
    flat = array.reshape(-1)
    if kind == "special" and flat.size:
        for value in (np.nan, np.inf, -np.inf, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal, -0.0):
            flat[rng.integers(0, flat.size, 1 + flat.size // 700)] = value
    elif kind == "noise":
        flat.view(f"u{flat.itemsize}")[:] = rng.integers(0, 2**63, flat.size, dtype=np.uint64)
    elif kind == "sparse":
        flat[flat < 4] = 0
    return array


def assert_alike(one, other):
    """Compare bits: NaN with their payloads, zeros with their signs."""
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    assert one.tobytes() == other.tobytes()


def roundtrip(array, codec):
    """Encode and decode, check all that is promised of any input, and return both."""
    encoded = codec.encode(array)
    decoded = codec.decode(encoded)
    assert (decoded.shape, decoded.dtype) == (array.shape, array.dtype)
    assert 0 < encoded.nbytes <= codec.max_bytes(array.shape, array.dtype)
    assert struct.unpack_from("<Q", encoded.payload.tobytes())[0] == encoded.nbytes
    finite = np.isfinite(array)
    assert_alike(decoded[~finite], array[~finite])
    exact, near = array[finite].astype(np.longdouble), decoded[finite].astype(np.longdouble)
    if exact.size:
        allowed = np.longdouble(codec.bound) * (np.ptp(exact) if codec.relative else 1)
        assert np.abs(exact - near).max() <= allowed
    return encoded, decoded


def damaged(encoded, rng, most, shortest):
    """Return a payload with a few of its bytes others, at times cut off."""
    payload = encoded.payload[: encoded.nbytes].copy()
    at = rng.integers(0, payload.size, rng.integers(1, most))
    payload[at] = rng.integers(0, 256, at.size)
    if rng.random() < 0.3:
        payload = payload[: rng.integers(shortest, payload.size)]
    return payload


def check_damage_on_cpu(codec, shape):
    """Decode damaged bytes: most are refused, and the others decode to something without harm."""
    array = wave(shape)
    array.reshape(-1)[::97] = np.nan
    whole = codec.encode(array)
    rng = np.random.default_rng(3)
    refused = 0
    for _ in range(300):
        payload = damaged(whole, rng, 9, 0)
        try:
            codec.decode(Encoded(codec, array.shape, array.dtype, payload, lambda payload=payload: payload.nbytes))
        except EncodingError:
            refused += 1
    assert refused > 50


def check_damage_on_gpu(codec, shape, cupy, stream):
    """Decode damaged bytes: the flag tells of most, once, and nothing beside the array is written."""
    from forebay.codec.device import check_damage
    from forebay.cuda.arrays import View

    whole = codec.encode(values("special", shape, "float32"))
    rng = np.random.default_rng(5)
    guarded = cupy.full(int(np.prod(shape)) + 128, 5, "float32")
    noticed = 0
    for _ in range(60):
        on_device = cupy.asarray(damaged(whole, rng, 40, 8))
        cupy.cuda.get_current_stream().synchronize()
        room = View.at(on_device.data.ptr, (on_device.nbytes,), np.uint8)
        codec.decode_device(room, View.at(guarded.data.ptr + 256, shape, "float32"), stream)
        try:
            check_damage(stream)
        except EncodingError:
            noticed += 1
    assert noticed > 20
    assert (guarded[:64] == 5).all() and (guarded[-64:] == 5).all()
    check_damage(stream)


def check_gpu_agrees(codecs, array, cupy, stream):
    """Encode and decode on the GPU: sizes, bytes and values are those of the CPU."""
    on_device = cupy.empty(array.shape, array.dtype)
    on_device.set(array)  # asarray() fills arrays of one value, and forgets the sign of zero
    cupy.cuda.get_current_stream().synchronize()
    assert_alike(on_device.get(), array)
    for codec in codecs:
        here, there = codec.encode(array), codec.encode(on_device, stream=stream)
        assert there.nbytes == here.nbytes
        assert there.to_bytes() == here.to_bytes()
        out = cupy.full(array.shape, 7, array.dtype)
        cupy.cuda.get_current_stream().synchronize()
        codec.decode(there, out, stream=stream)
        stream.sync()
        assert_alike(out.get(), codec.decode(here))


def check_fixtures(name):
    """Decode the small encodings that were made on a GPU and kept."""
    files = sorted((Path(__file__).parent / "fixtures").glob(f"{name}.npz"))
    assert files
    for file in files:
        with np.load(file) as kept:
            codec, original, payload = get(str(kept["codec"])), kept["original"], kept["payload"]
            encoded = Encoded(codec, original.shape, original.dtype, payload, lambda payload=payload: payload.nbytes)
            assert_alike(codec.decode(encoded), kept["decoded"])
            assert encoded.to_bytes() == codec.encode(original).to_bytes()


def check_compiles(source, arch, defines):
    """Compile a source of kernels for a GPU, without one; skip where the compiler is not installed."""
    pytest.importorskip("cuda.core")
    from forebay.cuda.kernels import compile_only

    try:
        binary = compile_only(source, arch, fmad=False, defines=defines)
    except DeviceError as error:
        pytest.skip(str(error))
    assert binary.startswith(b"\x7fELF")
