"""`lossless` gives every bit back, whatever the type, and reads what either side has written."""

import threading
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from forebay.codec import Encoded, get, lossless
from forebay.codec.lossless import PIECE, _layout
from forebay.codec.nvcomp import library as nvcomp
from forebay.codec.nvcomp import sealed
from forebay.codec.nvcomp.seal import HEADER, Format, Seal, seal
from forebay.cuda.available import gpu_count
from forebay.errors import CodecError, EncodingError

needs_blosc2 = pytest.mark.skipif(find_spec("blosc2") is None, reason="blosc2 is not installed")
needs_nvcomp = pytest.mark.skipif(not nvcomp.available(), reason="nvCOMP is not installed")
needs_gpu = pytest.mark.skipif(gpu_count() == 0 or not nvcomp.available(), reason="no GPU, or no nvCOMP")

TYPES = ["float32", "float64", "float16", "int8", "uint16", "int64", "complex64", "complex128", "bool", "S5", "M8[s]"]
FIELD = np.sin(np.linspace(0, 40, 24 * 25 * 26, dtype=np.float32)).reshape(24, 25, 26)


def same_bits(one, two):
    return (one.shape, one.dtype, one.tobytes()) == (two.shape, two.dtype, two.tobytes())


def of_gpu(codec, array):
    """Encode as a GPU does, by nvCOMP, but on the host."""
    out = np.empty(codec.max_bytes(array.shape, array.dtype), np.uint8)
    nbytes = sealed.encode_host(_layout(array.dtype, array.nbytes), array, out)
    return Encoded(codec, array.shape, array.dtype, out, lambda: nbytes)


@pytest.mark.slow
@needs_blosc2
@given(st.data(), st.sampled_from(TYPES))
@settings(max_examples=150)
def test_every_bit_comes_back(data, dtype):
    array = data.draw(arrays(dtype, array_shapes(min_dims=0, min_side=0, max_side=9)))
    codec = get("lossless")
    encoded = codec.encode(array)
    assert encoded.nbytes <= codec.max_bytes(array.shape, array.dtype)
    assert same_bits(codec.decode(encoded), array)
    again = Encoded.from_bytes(encoded.to_bytes())
    assert same_bits(again.codec.decode(again), array)


@needs_blosc2
def test_records_come_back():
    array = np.zeros(1000, [("x", "f4"), ("y", "i8", 3)])
    array["x"] = np.arange(1000)
    assert same_bits(get("lossless").decode(get("lossless").encode(array)), array)


def test_arrays_of_objects_are_refused():
    with pytest.raises(CodecError, match="object"):
        get("lossless").encode(np.array([None]))


@needs_blosc2
def test_arrays_of_several_pieces_come_back():
    array = np.arange(PIECE // 2 + 12345, dtype=np.uint32)
    array[: PIECE // 8] = np.random.default_rng(0).integers(0, 2**32, PIECE // 8, dtype=np.uint32)
    encoded = get("lossless").encode(array)
    assert encoded.ratio > 1.2
    assert same_bits(get("lossless").decode(encoded), array)


@needs_blosc2
@pytest.mark.parametrize("less", [-1, 1])
def test_a_piece_of_another_size_is_damage(less):
    import blosc2

    kept, piece = np.frombuffer(blosc2.compress2(bytes(1000)), np.uint8), np.empty(1000 - less, np.uint8)
    with pytest.raises(EncodingError, match="a piece has another size"):
        lossless._decompress(blosc2, kept, piece, 1)


@needs_blosc2
def test_order_shrinks_and_noise_grows_by_next_to_nothing():
    codec = get("lossless")
    assert codec.encode(np.zeros(10**6, np.float32)).ratio > 100
    assert codec.encode(FIELD).ratio > 1.1
    noise = np.random.default_rng(0).integers(0, 256, 10**6, dtype=np.uint8)
    assert codec.encode(noise).nbytes < 1.001 * noise.nbytes
    assert codec.max_bytes((10**8,), np.dtype(np.float32)) < 1.002 * 4e8


@needs_blosc2
def test_encodings_do_not_depend_on_the_threads():
    payloads = [get(f"lossless:threads={threads}").encode(FIELD) for threads in (1, 2, 3)]
    assert len({bytes(encoded.payload[: encoded.nbytes]) for encoded in payloads}) == 1


@needs_blosc2
def test_codecs_are_used_from_several_threads():
    wrong = []

    def work(seed):
        array = np.cumsum(np.random.default_rng(seed).integers(0, 9, 50_000))
        for _ in range(10):
            if not same_bits(get("lossless").decode(get("lossless").encode(array)), array):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_blosc2
@given(place=st.integers(0, 10**6), value=st.integers(1, 255))
def test_damage_is_refused(place, value):
    codec = get("lossless")
    encoded = codec.encode(FIELD)
    payload = encoded.payload[: encoded.nbytes].copy()
    payload[place % payload.nbytes] ^= value
    with pytest.raises(EncodingError):
        codec.decode_host(payload, np.empty_like(FIELD))


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data):
    with pytest.raises(EncodingError):
        get("lossless").decode_host(np.frombuffer(data, np.uint8), np.empty(20, np.float32))


@pytest.mark.parametrize("threads", ["0", "two"])
def test_nonsense_is_refused(threads):
    with pytest.raises(CodecError, match=f"threads={threads}"):
        get(f"lossless:threads={threads}")


@needs_nvcomp
@given(st.data(), st.sampled_from(TYPES))
@settings(max_examples=60)
def test_the_cpu_reads_what_a_gpu_writes(data, dtype):
    array = data.draw(arrays(dtype, array_shapes(max_side=9)))
    codec = get("lossless")
    encoded = of_gpu(codec, array)
    assert encoded.nbytes <= codec.max_bytes(array.shape, array.dtype)
    assert same_bits(codec.decode(encoded), array)
    payload = encoded.payload[: encoded.nbytes].copy()
    payload[data.draw(st.integers(0, payload.nbytes - 1))] ^= 1
    with pytest.raises(EncodingError):
        codec.decode_host(payload, np.empty_like(array))


@needs_nvcomp
def test_an_encoding_of_a_gpu_says_what_to_install(monkeypatch):
    encoded = of_gpu(get("lossless"), FIELD)
    monkeypatch.setattr(nvcomp, "available", lambda: False)
    with pytest.raises(CodecError, match=r"nvCOMP .*extra cuda12 or cuda13"):
        get("lossless").decode(encoded)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", TYPES[:9])
def test_every_bit_comes_back_from_a_gpu(dtype):
    cupy = pytest.importorskip("cupy")
    codec = get("lossless")
    for array in (FIELD.astype(dtype), np.zeros((3, 70, 90), dtype), np.ones(1, dtype), np.zeros(0, dtype)):
        encoded = codec.encode(cupy.asarray(array))
        assert encoded.nbytes <= codec.max_bytes(array.shape, array.dtype)
        out = cupy.ones(array.shape, array.dtype)
        assert same_bits(codec.decode(encoded, out=out).get(), array)
        on_host = Encoded.from_bytes(encoded.to_bytes())
        assert same_bits(codec.decode(on_host), array)


@pytest.mark.gpu
@needs_gpu
def test_an_encoding_of_the_cpu_raises_the_flag_on_a_gpu():
    cupy = pytest.importorskip("cupy")
    from forebay.codec import device
    from forebay.cuda.arrays import view

    codec = get("lossless")
    noise = np.random.default_rng(0).integers(0, 2**32, 50_000, dtype=np.uint32)
    on_host = np.zeros(HEADER + noise.nbytes, np.uint8)
    seal(on_host, noise.nbytes, Seal(Format.BLOSC2, noise.nbytes))
    payload = cupy.asarray(on_host)
    stream = device.callers_stream()
    out = cupy.empty_like(cupy.asarray(noise))
    codec.decode_device(view(payload), view(out), stream)
    with pytest.raises((EncodingError, CodecError)):
        device.check_damage(stream)
    device.check_damage(stream)
    codec.decode(codec.encode(cupy.asarray(noise)), out=out)
    device.check_damage(stream)
    assert same_bits(out.get(), noise)


@needs_nvcomp
@pytest.mark.parametrize("nbytes", [8, 8192, 8200, 2**20, 3 * 2**20 + 24])
@pytest.mark.parametrize("kind", list(nvcomp.Kind))
@pytest.mark.parametrize("algorithm", nvcomp.ALGORITHMS.values())
def test_zeros_take_as_many_bytes_as_is_said(nbytes, kind, algorithm):
    assert sealed._zeros_on_host(nvcomp.StreamLayout(nbytes, kind, algorithm)).nbytes == nvcomp.zeros_bytes(nbytes)


def test_what_decoding_takes_of_the_device_is_known_before():
    shape, dtype = (100, 1000), np.dtype("float32")
    room, zeros = nvcomp.most_bytes(400_000), nvcomp.zeros_bytes(400_000)
    assert get("lossless").scratch_bytes(shape, dtype) == room + zeros + 16
    assert get("bitcomp:abs=1").scratch_bytes(shape, dtype) == room + zeros + 16
    assert get("bitcomp:rel=1e-3").scratch_bytes(shape, dtype) > room + zeros + 16
    assert get("lossless").scratch_bytes((0,), dtype) == 8


@pytest.mark.parametrize(("dtype", "typesize"), [("f4", 4), ("V255", 255), ("V256", 1)])
def test_bytes_are_shuffled_by_the_size_of_a_value_as_far_as_blosc_can(dtype, typesize, monkeypatch):
    blosc2, asked = pytest.importorskip("blosc2"), []
    compress = blosc2.compress2
    monkeypatch.setattr(blosc2, "compress2", lambda piece, **how: asked.append(how) or compress(piece, **how))
    array = np.zeros(50, dtype)
    codec = get("lossless")
    assert codec.decode(codec.encode(array)).tobytes() == array.tobytes()
    assert [(how["typesize"], how["clevel"], how["filters"], how["filters_meta"]) for how in asked] == [
        (typesize, 1, [blosc2.Filter.SHUFFLE], [0])
    ]
