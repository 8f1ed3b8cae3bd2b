"""`zfp` is zfp: its streams are zfpy's, on the CPU and on a GPU, and what cannot be encoded is refused."""

import math

import numpy as np
import pytest

import forebay.codec as codec
from forebay.codec import Encoded
from forebay.cuda.arrays import View
from forebay.cuda.available import gpu_count, why_not
from forebay.errors import CodecError, EncodingError

zfpy = pytest.importorskip("zfpy")

SHAPES = [(1,), (50,), (9, 30), (4, 4, 4), (17, 22, 35), (2, 3, 5, 7), (2, 1, 2, 9, 4)]
on_gpu = pytest.mark.skipif(gpu_count() == 0, reason=why_not())


def field(shape, dtype="float32", seed=0):
    smooth = sum(np.sin(0.3 * index) for index in np.indices(shape))
    return (smooth + 1e-3 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def folded(shape):
    return (-1, *shape[-2:]) if len(shape) > 3 else shape


def by_zfpy(array, **mode):
    return zfpy.compress_numpy(array.reshape(folded(array.shape)), **mode, write_header=False)


@pytest.mark.parametrize("name", ["zfp:8", "zfp:7.5", "zfp:0.25", "zfp:tol=0.001", "zfp:tol=1e-12"])
def test_a_name_finds_the_same_codec_again(name):
    assert codec.get(name).name == codec.get(codec.get(name).name).name == name


def test_spellings_of_a_number_are_one_name():
    assert codec.get("zfp:8.0").name == "zfp:8"
    assert codec.get("zfp: tol=1e-3").name == "zfp:tol=0.001"


@pytest.mark.parametrize("name", ["zfp", "zfp:8,tol=1", "zfp:0", "zfp:-1", "zfp:65", "zfp:x", "zfp:nan", "zfp:tol=inf"])
def test_parameters_that_mean_nothing_are_refused(name):
    with pytest.raises(CodecError, match="zfp"):
        codec.get(name)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rate", [3, 8, 10.3, 32])
def test_a_fixed_rate_has_the_size_that_was_said_and_the_stream_of_zfpy(shape, dtype, rate):
    array = field(shape, dtype)
    zfp = codec.get(f"zfp:{rate}")
    encoded = zfp.encode(array)
    assert zfp.fixed and zfp.lossy
    assert encoded.nbytes == encoded.payload.nbytes == zfp.max_bytes(shape, array.dtype)
    assert encoded.payload.tobytes() == by_zfpy(array, rate=rate)
    kind = zfpy.dtype_to_ztype(array.dtype)
    theirs = zfpy._decompress(encoded.payload, kind, array.reshape(folded(shape)).shape, rate=rate)
    assert np.array_equal(zfp.decode(encoded), theirs.reshape(shape))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tol", [1e-1, 1e-3])
def test_a_fixed_accuracy_keeps_every_value_within_it(shape, dtype, tol):
    array = field(shape, dtype)
    zfp = codec.get(f"zfp:tol={tol}")
    encoded = zfp.encode(array)
    assert not zfp.fixed
    assert encoded.nbytes == int(encoded.payload[:8].view(np.uint64)[0]) <= zfp.max_bytes(shape, array.dtype)
    assert encoded.payload[8 : encoded.nbytes].tobytes() == by_zfpy(array, tolerance=tol)
    assert np.abs(zfp.decode(encoded) - array).max() <= tol


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_noise_to_full_accuracy_fits_into_the_most_that_was_said(dtype):
    random = np.random.default_rng(2)
    for shape in [(64,), (16, 16), (8, 8, 8)]:
        array = (random.standard_normal(shape) * 2.0 ** random.integers(-8, 9, shape)).astype(dtype)
        zfp = codec.get("zfp:tol=1e-300")
        encoded = zfp.encode(array)
        assert 0.8 * array.nbytes < encoded.nbytes <= zfp.max_bytes(shape, array.dtype)


@pytest.mark.parametrize("name", ["zfp:8", "zfp:tol=1e-3"])
def test_what_was_written_down_is_read_again(name):
    array = field((6, 7, 9))
    encoded = codec.get(name).encode(array)
    again = Encoded.from_bytes(encoded.to_bytes())
    assert np.array_equal(again.codec.decode(again), encoded.codec.decode(encoded))


@pytest.mark.parametrize("name", ["zfp:8", "zfp:tol=1e-3"])
def test_an_empty_array_and_a_single_value_are_arrays_too(name):
    zfp = codec.get(name)
    assert zfp.decode(zfp.encode(np.empty((3, 0, 4), np.float32))).shape == (3, 0, 4)
    assert abs(float(zfp.decode(zfp.encode(np.array(0.5, np.float32)))) - 0.5) < 0.1


@pytest.mark.parametrize("name", ["zfp:8", "zfp:tol=1e-3"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(name, bad):
    array = field((8, 8, 8))
    array[3, 4, 5] = bad
    with pytest.raises(CodecError, match="NaN and infinities"):
        codec.get(name).encode(array)


@pytest.mark.parametrize(("dtype", "shape", "least"), [("float32", (50,), "2.25"), ("float64", (9, 30), "0.75")])
def test_a_rate_that_has_no_room_for_the_exponent_is_refused(dtype, shape, least):
    assert codec.get(f"zfp:{least}").encode(field(shape, dtype)).nbytes
    with pytest.raises(CodecError, match=f"at least {least}"):
        codec.get(f"zfp:{float(least) - 0.25}").max_bytes(shape, np.dtype(dtype))


def test_integers_are_refused():
    with pytest.raises(CodecError, match="int32"):
        codec.get("zfp:8").encode(np.zeros((4, 4, 4), np.int32))


@pytest.mark.parametrize("name", ["zfp:8", "zfp:tol=1e-3"])
@pytest.mark.parametrize("cut", [-8, -1, 1, 8])
def test_encodings_of_another_length_are_refused(name, cut):
    zfp = codec.get(name)
    encoded = zfp.encode(field((8, 8, 8)))
    payload = encoded.payload[: encoded.nbytes]
    payload = payload[:cut] if cut < 0 else np.append(payload, np.zeros(cut, np.uint8))
    with pytest.raises(EncodingError):
        zfp.decode_host(payload, np.empty((8, 8, 8), np.float32))


@pytest.mark.parametrize("name", ["zfp:8", "zfp:tol=1e-3"])
@pytest.mark.parametrize("seed", range(20))
def test_damaged_bytes_give_some_array(name, seed):
    zfp = codec.get(name)
    encoded = zfp.encode(field((9, 10, 11)))
    payload = encoded.payload[: encoded.nbytes].copy()
    payload[8:] = np.random.default_rng(seed).integers(0, 256, payload.size - 8)
    zfp.decode_host(payload, np.empty((9, 10, 11), np.float32))


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "say"),
    [
        ("zfp:tol=1e-3", (8, 8, 8), "float32", "give zfp a rate"),
        ("zfp:7.3", (8, 8, 8), "float32", "a multiple of 1/2"),
        ("zfp:40", (8, 8, 8), "float32", "up to 32"),
        ("zfp:8", (8, 8, 8), "float64", r"not float64\[8, 8, 8\]"),
        ("zfp:8", (64, 8), "float32", "three axes or more"),
    ],
)
def test_what_the_kernels_do_not_do_is_refused_before_any_work(name, shape, dtype, say):
    zfp = codec.get(name)
    array, room = View.at(4096, shape, dtype), View.at(8192, (1 << 20,), "uint8")
    with pytest.raises(CodecError, match=say):
        zfp.encode_device(array, room, None)
    with pytest.raises(CodecError, match=say):
        zfp.decode_device(room, array, None)


def test_a_payload_of_another_length_or_alignment_is_refused_on_a_gpu():
    array = View.at(4096, (8, 8, 8), "float32")
    with pytest.raises(EncodingError, match="508 bytes"):
        codec.get("zfp:8").decode_device(View.at(8192, (508,), "uint8"), array, None)
    with pytest.raises(CodecError, match="multiple"):
        codec.get("zfp:8").encode_device(array, View.at(8196, (512,), "uint8"), None)


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("shape", [(4, 4, 4), (17, 22, 35), (33, 9, 260), (1, 1, 1), (2, 3, 5, 7), (64, 64, 64)])
@pytest.mark.parametrize("rate", [0.5, 1, 3.5, 8, 16, 32])
def test_a_gpu_writes_what_zfpy_writes_and_reads_what_it_reads(shape, rate):
    cupy = pytest.importorskip("cupy")
    array = field(shape)
    zfp = codec.get(f"zfp:{rate}")
    on_cpu = zfp.encode(array)
    room = cupy.full(zfp.max_bytes(shape, array.dtype), 255, cupy.uint8)
    on_device = zfp.encode(cupy.asarray(array), room)
    assert on_device.to_bytes() == on_cpu.to_bytes()
    room[:] = cupy.asarray(on_cpu.payload)
    back = zfp.decode(on_device, cupy.full(shape, cupy.nan, cupy.float32))
    assert np.array_equal(cupy.asnumpy(back).view(np.uint32), zfp.decode(on_cpu).view(np.uint32))


@pytest.mark.gpu
@on_gpu
def test_a_gpu_array_need_not_be_aligned():
    cupy = pytest.importorskip("cupy")
    shape = (9, 10, 12)
    array = field(shape)
    flat = cupy.zeros(array.size + 1, cupy.float32)
    flat[1:] = cupy.asarray(array).ravel()
    odd = flat[1:].reshape(shape)
    zfp = codec.get("zfp:8")
    encoded = zfp.encode(odd)
    assert encoded.to_bytes() == zfp.encode(array).to_bytes()
    odd[:] = cupy.nan
    zfp.decode(encoded, odd)
    assert np.array_equal(cupy.asnumpy(odd), zfp.decode(zfp.encode(array)))


@pytest.mark.gpu
@on_gpu
def test_a_gpu_decodes_any_bytes_as_zfpy_does():
    cupy = pytest.importorskip("cupy")
    shape = (13, 20, 131)
    zfp = codec.get("zfp:8")
    nbytes = zfp.max_bytes(shape, np.dtype(np.float32))
    payload = np.random.default_rng(3).integers(0, 256, nbytes, np.uint8)
    expected = np.empty(shape, np.float32)
    zfp.decode_host(payload, expected)
    on_device = cupy.asarray(payload)
    room = View.at(int(on_device.data.ptr), (nbytes,), "uint8")
    back = zfp.decode(Encoded(zfp, shape, np.dtype(np.float32), room, lambda: nbytes, on_device))
    assert np.array_equal(cupy.asnumpy(back).view(np.uint32), expected.view(np.uint32))


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_raise_the_flag_on_a_gpu(bad):
    cupy = pytest.importorskip("cupy")
    from cuda.core import LEGACY_DEFAULT_STREAM

    from forebay.codec.device import check_damage, clear_damage

    clear_damage(LEGACY_DEFAULT_STREAM)  # which runs that ended otherwise leave
    array = field((8, 8, 8))
    array[5, 2, 1] = bad
    zfp = codec.get("zfp:8")
    encoded = zfp.encode(cupy.asarray(array), stream=LEGACY_DEFAULT_STREAM)
    with pytest.raises(CodecError, match="NaN or infinities"):
        check_damage(LEGACY_DEFAULT_STREAM)
    check_damage(LEGACY_DEFAULT_STREAM)
    array[4:, :4, :4] = 0
    assert encoded.to_bytes() == zfp.encode(array).to_bytes()
