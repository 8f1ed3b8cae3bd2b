import gc
from types import SimpleNamespace

import numpy as np
import pytest

from forebay.cuda.available import KEPT_FROM, KEPT_PIECE, gpu_count
from forebay.errors import DeviceError

pytest.importorskip("cuda.core")

from cuda.bindings import driver

from forebay.cuda import slab
from forebay.cuda.copy import copy_async
from forebay.cuda.driver import current_device, device_memory
from forebay.cuda.slab import DeviceSlab, PinnedSlab, kept_device, kept_device_bytes, kept_pinned

SIZES = (1, 4095, 4096, 2**21 + 17, 50_000_001)


@pytest.fixture
def registered(monkeypatch):
    """A driver that only remembers what is pinned."""
    pinned = {}

    def register(pointer, nbytes, _flags):
        pinned[pointer] = nbytes
        return (driver.CUresult.CUDA_SUCCESS,)

    fake = SimpleNamespace(
        cuMemHostRegister=register, cuMemHostUnregister=pinned.pop, CU_MEMHOSTREGISTER_PORTABLE=1, CUresult=None
    )
    monkeypatch.setattr(slab, "driver", fake)
    monkeypatch.setattr(slab, "current_device", lambda: None)
    monkeypatch.setattr(slab, "current_context", lambda: None)
    monkeypatch.setattr(slab, "release", lambda _context, call, pointer, *_keep: call(pointer))
    monkeypatch.setattr(slab, "_kept", [])
    return pinned


@pytest.mark.parametrize("kind", [DeviceSlab, PinnedSlab])
@pytest.mark.parametrize("nbytes", [0, -1])
def test_a_slab_of_nothing_is_refused(kind, nbytes):
    with pytest.raises(ValueError, match="at least one"):
        kind(nbytes)


@pytest.mark.skipif(gpu_count() > 0, reason="there is a GPU")
def test_without_a_gpu_the_error_says_what_to_do():
    with pytest.raises(DeviceError, match=r"driver|nvidia-smi"):
        PinnedSlab(4096)


@pytest.mark.parametrize("nbytes", SIZES)
def test_a_pinned_slab_is_exact_zeroed_and_registered_once(registered, nbytes):
    with PinnedSlab(nbytes) as made:
        assert made.array.nbytes == made.nbytes == nbytes
        assert made.array.ctypes.data == made.pointer
        assert not made.array.any()
        assert registered == {made.pointer: nbytes}
        made.array[-1] = 5
    assert registered == {}


def test_a_slab_of_one_page_starts_no_threads(registered, monkeypatch):
    def refuse(*_given, **_named):
        raise AssertionError("threads take longer to start than a page to touch")

    monkeypatch.setattr(slab, "Workers", refuse)
    PinnedSlab(4096).close()


def test_close_again_is_no_error_and_views_outlive_it_but_not_their_values(registered):
    made = PinnedSlab(10_000)
    made.array[:] = 3
    view = made.array[5000:]
    made.close()
    made.close()
    assert made.pointer == 0 and made.array.nbytes == 0
    assert np.all(view == 0)  # its pages have been given back


def test_a_forgotten_slab_is_unpinned(registered):
    made = PinnedSlab(10_000)
    assert registered
    del made
    gc.collect()
    assert registered == {}


def test_the_kept_slab_is_pinned_once_and_replaced_when_too_small(registered):
    with kept_pinned(10_000) as first:
        pass
    with kept_pinned(5_000) as second:
        assert second is first
    with kept_pinned(20_000) as third:
        assert first.pointer == 0
        assert registered == {third.pointer: 20_000}
    assert registered == {third.pointer: 20_000}


def test_the_kept_slab_has_one_borrower_at_a_time(registered):
    with kept_pinned(10_000) as first, kept_pinned(20_000) as second, kept_pinned(5_000) as third:
        assert len({first.pointer, second.pointer, third.pointer}) == 3
    assert registered == {second.pointer: 20_000}


def test_the_kept_slab_survives_an_error_of_its_borrower(registered):
    with pytest.raises(KeyError), kept_pinned(10_000) as first:
        raise KeyError
    with kept_pinned(10_000) as second:
        assert second is first


@pytest.mark.gpu
@pytest.mark.parametrize("nbytes", SIZES)
def test_random_bytes_come_back(streams, nbytes):
    sent = np.frombuffer(np.random.default_rng(nbytes).bytes(nbytes), dtype=np.uint8)
    with PinnedSlab(nbytes) as source, PinnedSlab(nbytes) as target, DeviceSlab(2 * nbytes) as device:
        source.array[:] = sent
        copy_async(device.pointer, source.pointer, nbytes, streams.up)
        streams.compute.wait(streams.up.record())
        copy_async(device.pointer + nbytes, device.pointer, nbytes, streams.compute)
        streams.down.wait(streams.compute.record())
        copy_async(target.pointer, device.pointer + nbytes, nbytes, streams.down)
        streams.down.sync()
        assert np.array_equal(target.array, sent)


@pytest.mark.gpu
def test_a_copy_with_a_pinned_slab_does_not_hold_the_caller_up(streams, probe):
    nbytes = 1 << 26
    with PinnedSlab(nbytes) as host, DeviceSlab(nbytes) as device:
        probe.launch("spin", 1, 1, (300_000_000,), streams.down)
        held = streams.down.record()
        copy_async(host.pointer, device.pointer, nbytes, streams.down)
        assert not held.is_done
        streams.down.sync()


@pytest.mark.gpu
def test_the_driver_knows_a_pinned_slab_until_it_is_closed():
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    with PinnedSlab(10_000_000) as made:
        pointer = made.pointer
        status, kind = driver.cuPointerGetAttribute(attribute, pointer + 9_999_999)
        assert status == driver.CUresult.CUDA_SUCCESS
        assert int(kind) == int(driver.CUmemorytype.CU_MEMORYTYPE_HOST)
    status, _ = driver.cuPointerGetAttribute(attribute, pointer)
    assert status != driver.CUresult.CUDA_SUCCESS


@pytest.mark.gpu
def test_too_much_device_memory_names_the_budget():
    with pytest.raises(DeviceError, match="smaller device budget"):
        DeviceSlab(1 << 50)


@pytest.mark.gpu
def test_the_driver_knows_a_device_slab_until_it_is_closed():
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    made = DeviceSlab(1 << 30)
    pointer = made.pointer
    status, kind = driver.cuPointerGetAttribute(attribute, pointer + (1 << 30) - 1)
    assert status == driver.CUresult.CUDA_SUCCESS
    assert int(kind) == int(driver.CUmemorytype.CU_MEMORYTYPE_DEVICE)
    made.close()
    made.close()
    status, _ = driver.cuPointerGetAttribute(attribute, pointer)
    assert status != driver.CUresult.CUDA_SUCCESS


@pytest.mark.gpu
def test_large_device_memory_is_kept_and_given_up_when_others_ask():
    stream, nbytes, places = current_device().create_stream(), 5_000_000_001, []
    for _ in range(2):
        with kept_device(nbytes, stream) as pointer:
            places.append(pointer)
        stream.sync()
    assert places[0] == places[1] and nbytes <= kept_device_bytes() < nbytes + KEPT_PIECE
    free = device_memory()[0]
    with DeviceSlab(free + nbytes // 2):
        assert kept_device_bytes() < nbytes
    with kept_device(nbytes, stream), kept_device(KEPT_FROM - 1, stream):
        assert kept_device_bytes() < KEPT_PIECE


@pytest.mark.gpu
def test_too_much_kept_device_memory_names_the_budget():
    with (
        pytest.raises(DeviceError, match="smaller device budget"),
        kept_device(1 << 50, current_device().create_stream()),
    ):
        pass
