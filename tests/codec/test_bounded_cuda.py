"""`bounded` on the GPU: the same sizes, values and canonical bytes as on the CPU, and no harm from damaged bytes."""

from pathlib import Path

import numpy as np
import pytest

from penstock.codec import Encoded, get
from penstock.codec.bounded import SOURCE, defines
from penstock.cuda.available import gpu_count, why_not
from penstock.errors import CodecError, DeviceError, EncodingError

FIXTURES = Path(__file__).parent / "fixtures"
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
    (2, 3, 19, 17, 33),
]


@pytest.fixture
def cupy():
    if gpu_count() == 0:
        pytest.skip(why_not())
    return pytest.importorskip("cupy")


@pytest.fixture
def stream(cupy):
    from penstock.cuda.stream import create_streams

    return create_streams().compute


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_all_kernels_compile_without_a_gpu(dtype, rank, arch):
    pytest.importorskip("cuda.core")
    from penstock.cuda.kernels import compile_only

    try:
        binary = compile_only(SOURCE, arch, fmad=False, defines=defines(np.dtype(dtype), rank))
    except DeviceError as error:
        pytest.skip(str(error))
    assert binary.startswith(b"\x7fELF")


def test_encodings_that_a_gpu_made_decode_on_the_cpu():
    files = sorted(FIXTURES.glob("bounded_*.npz"))
    assert files
    for file in files:
        with np.load(file) as kept:
            codec, original, payload = get(str(kept["codec"])), kept["original"], kept["payload"]
            encoded = Encoded(codec, original.shape, original.dtype, payload, lambda payload=payload: payload.nbytes)
            assert_alike(codec.decode(encoded), kept["decoded"])
            assert encoded.to_bytes() == codec.encode(original).to_bytes()


def values(kind, shape, dtype):
    rng = np.random.default_rng(11)
    axes = np.indices(shape, dtype=np.float64)
    waves = sum(np.sin((0.1 + 0.03 * k) * axis) for k, axis in enumerate(axes))
    array = np.full(shape, 3 + waves, dtype)
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


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["wave", "special", "noise", "sparse"])
def test_cpu_and_gpu_agree(cupy, stream, shape, dtype, kind):
    array = values(kind, shape, dtype)
    on_device = cupy.asarray(array)
    cupy.cuda.get_current_stream().synchronize()
    for name in NAMES:
        codec = get(name)
        here, there = codec.encode(array), codec.encode(on_device, stream=stream)
        assert there.nbytes == here.nbytes
        assert there.to_bytes() == here.to_bytes()
        out = cupy.full(shape, 7, dtype)
        cupy.cuda.get_current_stream().synchronize()
        codec.decode(there, out, stream=stream)
        stream.sync()
        assert_alike(out.get(), codec.decode(here))


@pytest.mark.gpu
def test_the_gpu_decodes_what_the_cpu_encoded(cupy, stream):
    from penstock.cuda.arrays import View

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
    from penstock.cuda.arrays import View, view

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
    from penstock.codec.device import check_damage
    from penstock.cuda.arrays import View

    array = values("special", shape, "float32")
    codec = get("bounded:1e-4")
    whole = codec.encode(array)
    rng = np.random.default_rng(5)
    noticed = 0
    guarded = cupy.full(array.size + 128, 5, "float32")
    for _ in range(60):
        payload = whole.payload[: whole.nbytes].copy()
        at = rng.integers(0, payload.size, rng.integers(1, 40))
        payload[at] = rng.integers(0, 256, at.size)
        if rng.random() < 0.3:
            payload = payload[: rng.integers(8, payload.size)]
        on_device = cupy.asarray(payload)
        cupy.cuda.get_current_stream().synchronize()
        room = View.at(on_device.data.ptr, (payload.nbytes,), np.uint8)
        codec.decode_device(room, View.at(guarded.data.ptr + 256, shape, "float32"), stream)
        try:
            check_damage(stream)
        except EncodingError:
            noticed += 1
    assert noticed > 20
    assert (guarded[:64] == 5).all() and (guarded[64 + array.size :] == 5).all()
    check_damage(stream)  # reported once


@pytest.mark.gpu
def test_a_damaged_tile_is_left_zero(cupy, stream):
    from penstock.codec.device import check_damage
    from penstock.cuda.arrays import View

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
def test_a_room_that_is_not_aligned_is_refused(cupy, stream):
    room = cupy.empty(100_000, "uint8")[1:]
    with pytest.raises(CodecError, match="multiple of 8"):
        get("bounded:1e-3").encode(cupy.ones((10, 10, 40), "float32"), room, stream)
